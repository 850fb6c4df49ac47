import { checkTime, type Headers } from './checks.js'
import type { EnvelopeInit, EventEnvelope } from './envelope.js'
import { unreadableEvent } from './errors/event.js'
import { InvalidEventError } from './errors.js'
import { EventId } from './event-id.js'
import { type EventMetadata, type MetadataInput, mergeMetadata } from './metadata.js'
import type { PayloadContent } from './payload.js'
import { refusedOptions } from './plain.js'
import { INSPECT, inspectedAs } from './redact.js'
import { type KnownKeys, rejectUnknownKeys } from './reject-unknown-keys.js'
import type { StandardSchemaV1 } from './standard-schema.js'
import type { PayloadDecoder } from './stored-event.js'

/** What one event may set beside its payload; it goes before what the definition would derive. */
export interface EventOptions {
  readonly eventId?: string | undefined
  readonly occurredAt?: Date | undefined
  readonly aggregateId?: string | undefined
  readonly tenantId?: string | undefined
  readonly headers?: Headers | undefined
  readonly metadata?: EventMetadata | MetadataInput | undefined
  readonly correlationId?: string | undefined
  readonly causationId?: string | undefined
  readonly userId?: string | undefined
  readonly traceId?: string | undefined
  readonly orderingKey?: string | undefined
}

/** Options as they were when the event was made. */
type ReadOptions = Omit<EventOptions, 'occurredAt'> & { readonly occurredAtMs: number | undefined }

const OPTIONS: KnownKeys = {
  of: 'the second argument of a definition',
  kind: 'field',
  names: new Set([
    ...['eventId', 'occurredAt', 'aggregateId', 'tenantId', 'headers', 'metadata', 'correlationId'],
    ...['causationId', 'userId', 'traceId', 'orderingKey'],
  ]),
  places: new Map([
    ['id', 'eventId'],
    ['payloadJson', 'publish({ type, payloadJson })'],
    ['traceparent', 'metadata: { traceparent }'],
    ['tracestate', 'metadata: { tracestate }'],
    ...['aggregateType', 'version', 'schema', 'ordered'].map(
      (name) => [name, `defineEvent(type, { ${name} })`] as const,
    ),
    ...['delayMs', 'deliverAt', 'onDuplicate', 'tx'].map(
      (name) => [name, `publish(event, { ${name} })`] as const,
    ),
  ]),
}

/** Copies the options, each of which is read only once. */
function readOptions(options: EventOptions, eventType: string): ReadOptions {
  try {
    const refused = refusedOptions(options, OPTIONS.names)
    if (refused !== undefined) {
      throw new InvalidEventError(
        'options',
        `the second argument of a definition must be an object with options, not ${refused}. With an array of payloads, call the definition for each: payloads.map((payload) => OrderPlaced(payload))`,
        { eventType },
      )
    }
    rejectUnknownKeys(options, OPTIONS, (name, reason) => new InvalidEventError(name, reason, { eventType }))
    const { occurredAt } = options
    return {
      eventId: options.eventId,
      occurredAtMs: occurredAt === undefined ? undefined : checkTime(occurredAt, eventType),
      aggregateId: options.aggregateId,
      tenantId: options.tenantId,
      headers: options.headers,
      metadata: options.metadata,
      correlationId: options.correlationId,
      causationId: options.causationId,
      userId: options.userId,
      traceId: options.traceId,
      orderingKey: options.orderingKey,
    }
  } catch (error) {
    throw unreadableEvent(error, eventType)
  }
}

/** Fields of the envelope that the caller sets; the definition fills in the rest. */
export type DefinitionFields = Omit<EnvelopeInit, 'eventType' | 'payload'>

/** Written as a method so that an `EventDefinition<Order>` is an `EventDefinition` (of unknown) too. */
type Factory<T, Type extends string> = {
  make(payload: T, options?: EventOptions): DefinedEvent<T, Type>
}['make']

/** One event type: call it to make an event. Made by defineEvent(). */
export interface EventDefinition<T = unknown, Type extends string = string> extends Factory<T, Type> {
  readonly eventType: Type
  readonly aggregateType: string
  readonly version: number
  readonly schema: StandardSchemaV1 | undefined
  /** Parses, upcasts an older version, applies the schema. Throws UndecodablePayloadError or EventValidationError. */
  readonly decode: PayloadDecoder<T>
  /** The JSON text of the payload, after making sure that it decodes again. */
  encode(payload: T): string
  /** Validates, serialises and completes an event of this type; what DefinedEvent.toEnvelope() calls. */
  toEnvelope(content: PayloadContent, fields: DefinitionFields): EventEnvelope<T>
}

/** True once for each event whose id was drawn here and not given: nobody can have stored that id before. */
export let takeNewId: (event: object) => boolean

/** An event that is ready to be published. Its id and time are fixed here; the payload is checked in toEnvelope(). */
export class DefinedEvent<T = unknown, Type extends string = string> {
  readonly eventId: EventId
  readonly definition: EventDefinition<T, Type>
  readonly payload: T
  readonly #options: ReadOptions | undefined
  readonly #occurredAtMs: number
  #envelope: EventEnvelope<T> | undefined
  #newId: boolean

  static {
    takeNewId = (event) => {
      if (!(#newId in event) || !event.#newId) return false
      event.#newId = false
      return true
    }
  }

  constructor(definition: EventDefinition<T, Type>, payload: T, options?: EventOptions) {
    const read = options === undefined ? undefined : readOptions(options, definition.eventType)
    this.eventId = read?.eventId === undefined ? EventId.new() : EventId.from(read.eventId)
    this.#newId = read?.eventId === undefined
    this.definition = definition
    this.payload = payload
    this.#options = read
    this.#occurredAtMs = read?.occurredAtMs ?? Date.now()
  }

  get eventType(): Type {
    return this.definition.eventType
  }

  get aggregateType(): string {
    return this.definition.aggregateType
  }

  /** As the envelope has it; reading it validates the payload when the definition derives it. */
  get aggregateId(): string | undefined {
    return this.#options?.aggregateId ?? this.toEnvelope().aggregateId
  }

  get occurredAt(): Date {
    return new Date(this.#occurredAtMs)
  }

  /** Serialises on the first call; later calls give the same envelope. Throws when the payload is not acceptable. */
  toEnvelope(): EventEnvelope<T> {
    try {
      this.#envelope ??= this.definition.toEnvelope({ value: this.payload }, this.#fields())
      return this.#envelope
    } catch (error) {
      throw unreadableEvent(error, this.eventType)
    }
  }

  /** Lets `console.log` print the event without payload and options. */
  [INSPECT](
    _depth: number,
    options: unknown,
    inspect?: (value: unknown, options: unknown) => string,
  ): unknown {
    const fieldsOf = () => {
      const { eventId, eventType, aggregateType } = this
      // A proxy, and an object that inherits from the event, have no private members.
      const time = #occurredAtMs in this ? { occurredAt: this.occurredAt } : {}
      return { eventId, eventType, aggregateType, ...time, payload: '[hidden]' }
    }
    return inspectedAs('DefinedEvent', fieldsOf, options, inspect)
  }

  #fields(): DefinitionFields {
    const options = this.#options
    return {
      eventId: this.eventId,
      occurredAt: this.occurredAt,
      aggregateId: options?.aggregateId,
      tenantId: options?.tenantId,
      orderingKey: options?.orderingKey,
      headers: options?.headers,
      metadata: options === undefined ? undefined : mergeMetadata(options.metadata, options),
    }
  }
}
