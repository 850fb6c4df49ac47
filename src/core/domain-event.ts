import type { Headers } from './checks.js'
import { type EventDefinition, takeNewId } from './defined-event.js'
import { EventEnvelope } from './envelope.js'
import { InvalidEventError } from './errors.js'
import type { EventMetadata, MetadataInput } from './metadata.js'
import { encodePayload, type PayloadContent } from './payload.js'

/** What every event has; a class of your own can implement it, and may decide how it travels in toEnvelope(). */
export interface DomainEvent<T = unknown> {
  readonly eventId: string
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId?: string | undefined
  readonly occurredAt: Date
  toEnvelope?(): EventEnvelope<T>
}

/** An event by name, without a definition. The payload is a value, or JSON text that is serialised already. */
export interface NamedEvent {
  readonly type: string
  readonly payload?: unknown
  readonly payloadJson?: string | undefined
  readonly eventId?: string | undefined
  readonly aggregateType?: string | undefined
  readonly aggregateId?: string | undefined
  readonly tenantId?: string | undefined
  readonly occurredAt?: Date | undefined
  readonly version?: number | undefined
  readonly headers?: Headers | undefined
  readonly metadata?: EventMetadata | MetadataInput | undefined
  readonly orderingKey?: string | undefined
}

export type PublishableEvent = DomainEvent | NamedEvent

/** Where toEnvelope() looks for definitions; an EventCatalog is one. */
export interface DefinitionLookup {
  get(eventType: string): EventDefinition | undefined
}

/** The fields that an own event class shares with the envelope; the others are its payload. */
type ClassEvent = DomainEvent & Partial<Omit<NamedEvent, 'type' | keyof DomainEvent>>

const ENVELOPE_FIELDS = new Set(
  (
    'eventId eventType aggregateType aggregateId occurredAt toEnvelope ' +
    'tenantId version headers metadata orderingKey'
  ).split(' '),
)

/**
 * The envelope of anything that can be published. When the catalog knows the type, its definition validates and
 * encodes the payload, so that handlers get the same value hot and cold. Throws when the event is not acceptable.
 */
export function toEnvelope(event: PublishableEvent, catalog?: DefinitionLookup): EventEnvelope {
  if (typeof event === 'function')
    throw new InvalidEventError('event', 'it is a definition: call it with a payload')
  if (typeof event !== 'object' || event === null)
    throw new InvalidEventError('event', 'it must be an object')
  if ('toEnvelope' in event && typeof event.toEnvelope === 'function')
    return checked(event.toEnvelope(), catalog)
  if ('eventType' in event) return fromClass(event, catalog)
  if ('type' in event) return fromName(event, catalog)
  throw new InvalidEventError('event', 'it has neither an eventType nor a type')
}

/** Its id is drawn here, now or when it was made, and this is the first time that it is published. */
export function hasNewId(event: PublishableEvent): boolean {
  if (takeNewId(event)) return true
  return 'type' in event && event.eventId === undefined && !('eventType' in event) && !('toEnvelope' in event)
}

/** An envelope made elsewhere must decode by the catalog's definition, since that is what handlers are typed by. */
function checked(envelope: EventEnvelope, catalog: DefinitionLookup | undefined): EventEnvelope {
  if (!(envelope instanceof EventEnvelope)) {
    throw new InvalidEventError(
      'event',
      'its toEnvelope() must return an EventEnvelope (see EventEnvelope.create)',
    )
  }
  const definition = catalog?.get(envelope.eventType)
  if (definition === undefined) return envelope
  const bound = envelope.withDecoder(definition.decode)
  if (bound !== envelope) bound.decodePayload()
  return bound
}

function fromClass(event: ClassEvent, catalog: DefinitionLookup | undefined): EventEnvelope {
  if (typeof event.eventId !== 'string')
    throw new InvalidEventError('eventId', 'an event class must have one')
  const value = 'payload' in event ? event.payload : ownFields(event)
  return build(event.eventType, event, { value }, catalog)
}

function fromName(event: NamedEvent, catalog: DefinitionLookup | undefined): EventEnvelope {
  return build(event.type, event, contentOf(event), catalog)
}

function contentOf(event: NamedEvent): PayloadContent {
  if (event.payloadJson === undefined) return { value: 'payload' in event ? event.payload : null }
  if (event.payload === undefined) return { json: event.payloadJson }
  throw new InvalidEventError('payload', 'give either payload or payloadJson, not both', {
    eventType: event.type,
  })
}

function build(
  eventType: string,
  event: NamedEvent | ClassEvent,
  content: PayloadContent,
  catalog: DefinitionLookup | undefined,
): EventEnvelope {
  const fields = {
    eventType,
    eventId: event.eventId,
    aggregateType: event.aggregateType,
    aggregateId: event.aggregateId,
    tenantId: event.tenantId,
    occurredAt: event.occurredAt,
    version: event.version,
    headers: event.headers,
    metadata: event.metadata,
    orderingKey: event.orderingKey,
  }
  const definition = catalog?.get(eventType)
  if (definition !== undefined) return definition.toEnvelope(content, fields)
  return EventEnvelope.fromEncoded(fields, encodePayload(content, 'json'))
}

function ownFields(event: object): Record<string, unknown> {
  const fields = Object.create(null) as Record<string, unknown>
  for (const [key, value] of Object.entries(event)) {
    if (!ENVELOPE_FIELDS.has(key)) fields[key] = value
  }
  return fields
}
