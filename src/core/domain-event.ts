import type { Headers } from './checks.js'
import { type EventDefinition, takeNewId } from './defined-event.js'
import { EventEnvelope } from './envelope.js'
import { unreadableEvent } from './errors/event.js'
import {
  AftercommitError,
  BatchTooLargeError,
  InvalidEventError,
  InvalidPayloadError,
  InvalidSettingError,
} from './errors.js'
import type { EventMetadata, MetadataInput } from './metadata.js'
import { formatPath } from './path.js'
import { encodePayload, type PayloadContent } from './payload.js'
import { batchBytes, MAX_BATCH_BYTES } from './payload-limits.js'
import { hiddenProperty, isPlainObject } from './plain.js'
import { type KnownKeys, rejectUnknownKeys } from './reject-unknown-keys.js'
import { isA } from './unknown.js'

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

/** A user's event class, or a class instance with a `type`. Fields of other names are its payload. */
type ClassEvent = DomainEvent & Partial<Omit<NamedEvent, 'type' | keyof DomainEvent>>

/** Events of one call, read once. */
export interface ReadEvents {
  readonly envelopes: EventEnvelope[]
  /** Whether no event has an id that could be in the outbox already, because all ids were drawn in this process. */
  readonly haveNewIds: boolean
}

interface ReadEvent {
  readonly envelope: EventEnvelope
  readonly hasNewId: boolean
}

const PLACES: ReadonlyMap<string, string> = new Map([
  ...['data', 'body', 'value'].map((name) => [name, 'payload'] as const),
  ...['correlationId', 'causationId', 'userId', 'traceId', 'traceparent', 'tracestate'].map(
    (name) => [name, `metadata: { ${name} }`] as const,
  ),
  ...['delayMs', 'deliverAt', 'onDuplicate', 'tx'].map(
    (name) => [name, `the second argument: publish(event, { ${name} })`] as const,
  ),
  ['id', 'eventId'],
  ['payloadJson', '{ type, payloadJson }, which is an event without a class'],
])

const FIELDS = [
  ...['eventId', 'aggregateType', 'aggregateId', 'tenantId', 'occurredAt', 'version', 'headers', 'metadata'],
  'orderingKey',
]
const NAMED: KnownKeys = {
  of: 'an event',
  kind: 'field',
  names: new Set(['type', 'payload', 'payloadJson', ...FIELDS]),
  places: PLACES,
}
/** With these names an own event class shares the fields of the envelope. */
const OF_CLASS: KnownKeys = {
  of: 'an event with a payload',
  kind: 'field',
  names: new Set(['eventType', 'payload', 'toJSON', ...FIELDS]),
  places: PLACES,
}
const ENVELOPE_NAMES: ReadonlySet<string> = new Set([...OF_CLASS.names, 'type'])

/**
 * The envelope of anything that can be published. When the catalog knows the type, its definition validates and
 * encodes the payload, so that handlers get the same value hot and cold. Throws when the event is not acceptable.
 */
export function toEnvelope(event: PublishableEvent, catalog?: DefinitionLookup): EventEnvelope {
  return readEvent(event, catalog).envelope
}

/**
 * Reads the events of one call. Each field of each event is read only once, so that the value that is checked is the value
 * that is written. Throws when the argument is not an array, when an event is not acceptable, and BatchTooLargeError.
 */
export function readEvents(events: readonly PublishableEvent[], catalog?: DefinitionLookup): ReadEvents {
  const envelopes: EventEnvelope[] = []
  let haveNewIds = true
  let bytes = 0
  const count = lengthOf(events)
  for (let at = 0; at < count; at++) {
    const { envelope, hasNewId } = readEvent(elementAt(events, at), catalog)
    envelopes.push(envelope)
    haveNewIds &&= hasNewId
    // A single event is bounded by the limits of its fields.
    if (count > 1) bytes += batchBytes(envelope)
    if (bytes > MAX_BATCH_BYTES) throw new BatchTooLargeError(MAX_BATCH_BYTES)
  }
  return { envelopes, haveNewIds }
}

function lengthOf(events: readonly unknown[]): number {
  try {
    if (Array.isArray(events)) return events.length
  } catch (thrown) {
    throw unreadableEvent(thrown)
  }
  throw new InvalidSettingError('publishAll', 'takes an array of events')
}

/** The array itself may be a Proxy whose traps throw. */
function elementAt(events: readonly unknown[], at: number): unknown {
  try {
    return events[at]
  } catch (thrown) {
    throw unreadableEvent(thrown)
  }
}

function readEvent(event: unknown, catalog: DefinitionLookup | undefined): ReadEvent {
  try {
    if (typeof event !== 'object' || event === null) throw notAnEvent(event)
    if (Array.isArray(event)) throw new InvalidEventError('event', 'it is an array: use publishAll()')
    return fromObject(event, catalog)
  } catch (error) {
    throw unreadableEvent(error)
  }
}

function notAnEvent(event: unknown): InvalidEventError {
  const isDefinition = typeof event === 'function'
  return new InvalidEventError(
    'event',
    isDefinition ? 'it is a definition: call it with a payload' : 'it must be an object',
  )
}

function fromObject(
  event: Partial<ClassEvent & NamedEvent>,
  catalog: DefinitionLookup | undefined,
): ReadEvent {
  const own = event.toEnvelope
  if (typeof own === 'function') {
    const envelope = checked(ownEnvelope(event, own), catalog)
    return { envelope, hasNewId: takeNewId(event) }
  }
  if ('eventType' in event) return { envelope: fromClass(event as ClassEvent, catalog), hasNewId: false }
  if ('type' in event) return fromName(event as NamedEvent, catalog)
  throw new InvalidEventError('event', 'it has neither an eventType nor a type')
}

function ownEnvelope(event: object, toEnvelope: () => EventEnvelope): EventEnvelope {
  try {
    return toEnvelope.call(event)
  } catch (thrown) {
    if (isA(thrown, AftercommitError)) throw thrown
    throw new InvalidEventError('event', 'its toEnvelope() threw an error', { thrown })
  }
}

/** An envelope made elsewhere must decode by the catalog's definition, since that is what handlers are typed by. */
function checked(envelope: EventEnvelope, catalog: DefinitionLookup | undefined): EventEnvelope {
  if (!EventEnvelope.isEnvelope(envelope)) {
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
  const { eventId, eventType, ...others } = fieldsOf(event, event.eventType)
  if (typeof eventId !== 'string') throw new InvalidEventError('eventId', 'an event class must have one')
  return build({ eventId, eventType, ...others }, { value: payloadOf(event, eventType) }, catalog)
}

/** The payload, or else what toJSON() returns, or else the fields that are not fields of the envelope. */
function payloadOf(event: ClassEvent, eventType: string): unknown {
  if ('payload' in event) {
    // Where a getter of the class makes the payload, the fields are what it makes the payload of.
    if (Object.hasOwn(event, 'payload')) rejectUnknownKeys(event, OF_CLASS, refusalFor(eventType))
    return event.payload
  }
  const { toJSON } = event as { readonly toJSON?: unknown }
  if (typeof toJSON === 'function') return callToJson(event, toJSON as (key: string) => unknown)
  const fields = Object.create(null) as Record<string, unknown>
  let isEmpty = true
  for (const key of Object.keys(event)) {
    if (OF_CLASS.names.has(key)) continue
    fields[key] = (event as unknown as Record<string, unknown>)[key]
    isEmpty = false
  }
  refuseHidden(event, isEmpty)
  return fields
}

function fromName(event: NamedEvent, catalog: DefinitionLookup | undefined): ReadEvent {
  const { type } = event
  rejectUnknownKeys(event, NAMED, refusalFor(type))
  const fields = fieldsOf(event, type)
  return { envelope: build(fields, contentOf(event, type), catalog), hasNewId: fields.eventId === undefined }
}

function contentOf(event: NamedEvent, eventType: string): PayloadContent {
  const { payloadJson } = event
  if (payloadJson === undefined) {
    if ('payload' in event) return { value: event.payload }
    const { toJSON } = event as { readonly toJSON?: unknown }
    if (typeof toJSON === 'function') return { value: callToJson(event, toJSON as (key: string) => unknown) }
    if (!isPlainObject(event)) refuseHidden(event, true)
    return { value: null }
  }
  if (event.payload === undefined) return { json: payloadJson }
  throw refusalFor(eventType)('payload', 'give either payload or payloadJson, not both')
}

function callToJson(event: object, toJson: (key: string) => unknown): unknown {
  try {
    return toJson.call(event, '')
  } catch (thrown) {
    throw new InvalidPayloadError('$', 'toJSON() of the event threw an error', { thrown })
  }
}

/** Private fields cannot be seen. A getter that reads them shows that the payload would lose data. */
function refuseHidden(event: object, isEmpty: boolean): void {
  const name = hiddenProperty(event, isEmpty, ENVELOPE_NAMES)
  if (name === undefined) return
  throw new InvalidPayloadError(
    formatPath([name]),
    'it would be lost, because only enumerable fields of an event class are its payload: give the class a payload, or a toJSON()',
  )
}

function refusalFor(eventType: unknown): (name: string, reason: string) => Error {
  return (name, reason) =>
    new InvalidEventError(name, reason, typeof eventType === 'string' ? { eventType } : {})
}

type Fields = Parameters<typeof EventEnvelope.fromEncoded>[0]

/** Reads each field once. */
function fieldsOf(event: ClassEvent | NamedEvent, eventType: string): Fields {
  return {
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
}

function build(
  fields: Fields,
  content: PayloadContent,
  catalog: DefinitionLookup | undefined,
): EventEnvelope {
  const definition = catalog?.get(fields.eventType)
  if (definition !== undefined) return definition.toEnvelope(content, fields)
  return EventEnvelope.fromEncoded(fields, encodePayload(content, 'json'))
}
