import { fromBase64, toBase64 } from './base64.js'
import {
  checkHeaders,
  checkName,
  checkOptionalName,
  checkTime,
  checkVersion,
  type Headers,
} from './checks.js'
import { InvalidEventError } from './errors.js'
import { EventId } from './event-id.js'
import { parseJsonText } from './json-text.js'
import { createMetadata, type EventMetadata, type MetadataInput, readMetadata } from './metadata.js'
import type { EncodedPayload, PayloadContent } from './payload.js'
import { refusedOptions } from './plain.js'
import { rejectUnknownKeys } from './reject-unknown-keys.js'
import type { StoredEvent } from './stored-event.js'

/** The aggregate type of events that belong to no aggregate. */
export const GLOBAL_AGGREGATE = '__GLOBAL__'

/** What an envelope is made of. Absent fields get their defaults; an absent payload is null. */
export interface EnvelopeInit<T = unknown> {
  readonly eventId?: string | undefined
  readonly eventType: string
  readonly aggregateType?: string | undefined
  readonly aggregateId?: string | undefined
  readonly tenantId?: string | undefined
  readonly occurredAt?: Date | undefined
  readonly version?: number | undefined
  readonly headers?: Headers | undefined
  readonly metadata?: EventMetadata | MetadataInput | undefined
  readonly orderingKey?: string | undefined
  readonly payload?: T | undefined
}

/** An envelope in JSON: dates as ISO-8601, bytes as base64, absent fields left out. */
export interface EnvelopeJson {
  readonly eventId: string
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId?: string
  readonly tenantId?: string
  readonly occurredAt: string
  readonly version: number
  readonly headers: Headers
  readonly metadata: EventMetadata
  readonly orderingKey?: string
  readonly payload?: unknown
  readonly payloadBase64?: string
}

/** The fields of an envelope that both directions of JSON need. */
interface EnvelopeFields {
  readonly eventId: string
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId: string | undefined
  readonly tenantId: string | undefined
  readonly occurredAtMs: number
  readonly version: number
  readonly headers: Headers
  readonly metadata: EventMetadata
  readonly orderingKey: string | undefined
}

const INIT = {
  of: 'an envelope',
  kind: 'field',
  names: new Set([
    ...['eventId', 'eventType', 'aggregateType', 'aggregateId', 'tenantId', 'occurredAt', 'version'],
    ...['headers', 'metadata', 'orderingKey', 'payload'],
  ]),
} as const

/** Refuses fields that do not exist. A payload that is absent is null. */
export function readInit(init: EnvelopeInit): { fields: EnvelopeInit; value: unknown } {
  const refused = refusedOptions(init, INIT.names)
  if (refused !== undefined) {
    throw new InvalidEventError(
      'envelope',
      `it is made of an object, not ${refused}: EventEnvelope.create({ eventType, payload })`,
    )
  }
  rejectUnknownKeys(init, INIT, (name, reason) => new InvalidEventError(name, reason))
  return { fields: init, value: 'payload' in init ? init.payload : null }
}

/** Checks every field and fills in the defaults; InvalidEventError or InvalidEventIdError names the first bad one. */
export function toStored(init: EnvelopeInit, encoded: EncodedPayload): StoredEvent {
  const eventType = checkName('eventType', init.eventType)
  const { eventId, version, occurredAt } = init
  return {
    eventId: eventId === undefined ? EventId.new() : EventId.from(eventId),
    eventType,
    aggregateType: checkOptionalName('aggregateType', init.aggregateType, eventType) ?? GLOBAL_AGGREGATE,
    aggregateId: checkOptionalName('aggregateId', init.aggregateId, eventType),
    tenantId: checkOptionalName('tenantId', init.tenantId, eventType),
    orderingKey: checkOptionalName('orderingKey', init.orderingKey, eventType),
    version: version === undefined ? 1 : checkVersion(version, eventType),
    payloadText: encoded.text,
    payloadBytes: encoded.bytes,
    headers: checkHeaders(init.headers, eventType),
    metadata: createMetadata(init.metadata),
    occurredAtMs: occurredAt === undefined ? Date.now() : checkTime(occurredAt, eventType),
    payloadSize: encoded.size,
  }
}

/** The envelope's fields as JSON, without the payload. */
export function toHeadJson(envelope: EnvelopeFields): EnvelopeJson {
  const json: { -readonly [Key in keyof EnvelopeJson]: EnvelopeJson[Key] } = {
    eventId: envelope.eventId,
    eventType: envelope.eventType,
    aggregateType: envelope.aggregateType,
    occurredAt: new Date(envelope.occurredAtMs).toISOString(),
    version: envelope.version,
    headers: envelope.headers,
    metadata: envelope.metadata,
  }
  if (envelope.aggregateId !== undefined) json.aggregateId = envelope.aggregateId
  if (envelope.tenantId !== undefined) json.tenantId = envelope.tenantId
  if (envelope.orderingKey !== undefined) json.orderingKey = envelope.orderingKey
  return json
}

export function toEnvelopeJson(
  envelope: EnvelopeFields,
  payload: Uint8Array | { readonly value: unknown },
): EnvelopeJson {
  const head = toHeadJson(envelope)
  return payload instanceof Uint8Array
    ? { ...head, payloadBase64: toBase64(payload) }
    : { ...head, payload: payload.value }
}

/** Reads what toJSON() wrote. Id, time and payload must be there: inventing them would make another event of it. */
export function fromEnvelopeJson(json: string | object): { init: EnvelopeInit; content: PayloadContent } {
  const fields = parseObject(json)
  if (fields.eventId === undefined) throw new InvalidEventError('eventId', 'the envelope JSON has none')
  const occurredAt = new Date(typeof fields.occurredAt === 'string' ? fields.occurredAt : Number.NaN)
  // toStored() checks every field at run time.
  const init = { ...fields, occurredAt, metadata: readMetadata(fields.metadata) } as unknown as EnvelopeInit
  return { init, content: { value: payloadOf(fields) } }
}

function parseObject(json: string | object): Record<string, unknown> {
  const refuse = (path: string, reason: string) => new InvalidEventError('envelope', `at ${path}: ${reason}`)
  const value: unknown = typeof json === 'string' ? parseJsonText(json, refuse) : json
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Record<string, unknown>
  throw new InvalidEventError('envelope', 'its JSON is not an object')
}

function payloadOf(fields: Record<string, unknown>): unknown {
  const { payload, payloadBase64 } = fields
  if ((payload === undefined) === (payloadBase64 === undefined)) {
    throw new InvalidEventError('payload', 'the envelope JSON must hold either payload or payloadBase64')
  }
  if (payloadBase64 === undefined) return payload
  const bytes = typeof payloadBase64 === 'string' ? fromBase64(payloadBase64) : undefined
  if (bytes === undefined) throw new InvalidEventError('payloadBase64', 'it is not base64 text')
  return bytes
}
