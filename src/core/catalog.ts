import type { EventDefinition } from './defined-event.js'
import { type PublishableEvent, toEnvelope } from './domain-event.js'
import { EventEnvelope } from './envelope.js'
import { toHeadJson } from './envelope-parts.js'
import {
  AftercommitError,
  DuplicateDefinitionError,
  InvalidEventError,
  InvalidSettingError,
  UnknownEventTypeError,
} from './errors.js'
import { hasMethod } from './settings.js'
import type { PayloadDecoder } from './stored-event.js'
import { isA } from './unknown.js'

const NO_DEFINITIONS = 'must be event definitions; see defineEvent()'

/** Event definitions by type: one catalog per outbox. */
export class EventCatalog {
  readonly #definitions = new Map<string, EventDefinition>()

  constructor(definitions: Iterable<EventDefinition> = []) {
    try {
      for (const definition of definitions) this.add(definition)
    } catch (thrown) {
      if (isA(thrown, AftercommitError)) throw thrown
      throw new InvalidSettingError('events', NO_DEFINITIONS, { thrown })
    }
  }

  /** Adding the same definition again is fine; another one for a known type throws DuplicateDefinitionError. */
  add(definition: EventDefinition): this {
    return this.addAll([definition])
  }

  /** Adds all of the definitions. Adds none of them if it throws. */
  addAll(definitions: readonly EventDefinition[]): this {
    const added = new Map<string, EventDefinition>()
    for (const definition of definitions) {
      if (typeof definition !== 'function' || !hasMethod(definition, 'decode')) {
        throw new InvalidSettingError('events', NO_DEFINITIONS)
      }
      const { eventType } = definition
      const known = added.get(eventType) ?? this.#definitions.get(eventType)
      if (known !== undefined && known !== definition) throw new DuplicateDefinitionError(eventType)
      added.set(eventType, definition)
    }
    for (const [eventType, definition] of added) this.#definitions.set(eventType, definition)
    return this
  }

  has(eventType: string): boolean {
    return this.#definitions.has(eventType)
  }

  get(eventType: string): EventDefinition | undefined {
    return this.#definitions.get(eventType)
  }

  /** The definition, or UnknownEventTypeError. */
  require(eventType: string): EventDefinition {
    const definition = this.#definitions.get(eventType)
    if (definition === undefined) throw new UnknownEventTypeError(eventType)
    return definition
  }

  types(): string[] {
    return [...this.#definitions.keys()]
  }

  decoderFor(eventType: string): PayloadDecoder | undefined {
    return this.#definitions.get(eventType)?.decode
  }

  /** The whole event as JSON text: ids, time, metadata and the payload's text exactly as it would be stored. */
  serialize(event: PublishableEvent): string {
    const envelope = toEnvelope(event, this)
    this.require(envelope.eventType)
    if (envelope.payloadText === null) return JSON.stringify(envelope)
    return `${JSON.stringify(toHeadJson(envelope)).slice(0, -1)},"payload":${envelope.payloadText}}`
  }

  /** The reverse of serialize(), decoded by the type's definition. The text must hold an event of that type. */
  deserialize(eventType: string, text: string): EventEnvelope {
    const definition = this.require(eventType)
    const envelope = EventEnvelope.fromJSON(text)
    if (envelope.eventType !== eventType) {
      throw new InvalidEventError(
        'eventType',
        `the text holds an event of another type, not ${JSON.stringify(eventType)}`,
      )
    }
    const decoded = envelope.withDecoder(definition.decode)
    decoded.decodePayload()
    return decoded
  }
}
