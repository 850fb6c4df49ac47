import { fromBase64, toBase64 } from './base64.js'
import { EMPTY_HEADERS } from './checks.js'
import { type EnvelopeInit, EventEnvelope } from './envelope.js'
import { unreadableEvent } from './errors/event.js'
import { InvalidEventError } from './errors.js'
import { parseJsonText } from './json-text.js'
import { EMPTY_METADATA } from './metadata.js'
import { encodePayload, type PayloadContent } from './payload.js'
import { readSettings } from './settings.js'
import { escapeUnprintable } from './text.js'

/** An event in the JSON format of CloudEvents 1.0. What the standard has no attribute for travels as extensions. */
export interface CloudEvent {
  readonly specversion: '1.0'
  readonly id: string
  readonly source: string
  readonly type: string
  readonly time: string
  readonly datacontenttype: string
  readonly subject?: string
  readonly data?: unknown
  readonly data_base64?: string
  readonly [extension: string]: unknown
}

export interface CloudEventOptions {
  /** Where the event comes from, a URI reference; 'aftercommit' when absent. It is not part of the envelope. */
  readonly source?: string | undefined
}

/** Context attributes: every attribute but the data, as strings and one number. */
export type CloudEventAttributes = Readonly<Record<string, unknown>>

const METADATA = [
  ['correlationid', 'correlationId'],
  ['causationid', 'causationId'],
  ['userid', 'userId'],
  ['traceid', 'traceId'],
  ['traceparent', 'traceparent'],
  ['tracestate', 'tracestate'],
] as const

/** Structured mode: one JSON object. fromCloudEvent() gives an equal envelope back. */
export function toCloudEvent(envelope: EventEnvelope, options: CloudEventOptions = {}): CloudEvent {
  const attributes = toAttributes(envelope, options) as unknown as CloudEvent
  const bytes = envelope.payloadBytes
  if (bytes !== null) return { ...attributes, data_base64: toBase64(bytes) }
  return { ...attributes, data: envelope.toJSON().payload }
}

/** Reads structured mode, also from other producers; extensions we don't know are dropped. Throws InvalidEventError. */
export function fromCloudEvent(event: string | object): EventEnvelope {
  try {
    // A copy: what is checked is what is used.
    const attributes = { ...parse(event) }
    return fromAttributes(attributes, structuredContent(attributes))
  } catch (error) {
    throw unreadableEvent(error)
  }
}

/** The context attributes of an envelope, by their CloudEvents names. */
export function toAttributes(
  envelope: EventEnvelope,
  options: CloudEventOptions,
): Record<string, string | number> {
  const { source } = readSettings('options of a CloudEvent', options, ['source'])
  return {
    ...toTextAttributes(envelope, source),
    datacontenttype: contentTypeOf(envelope),
    schemaversion: envelope.version,
  }
}

/** The same as texts alone, and without the content type: what brokers have as headers. */
export function toTextAttributes(
  envelope: EventEnvelope,
  source: string | undefined,
): Record<string, string> {
  const { aggregateId, tenantId, orderingKey, metadata, headers } = envelope
  const attributes: Record<string, string> = {
    specversion: '1.0',
    id: envelope.eventId,
    source: source ?? 'aftercommit',
    type: envelope.eventType,
    time: envelope.occurredAt.toISOString(),
    schemaversion: String(envelope.version),
    aggregatetype: envelope.aggregateType,
  }
  if (aggregateId !== undefined) {
    attributes.subject = aggregateId
    attributes.aggregateid = aggregateId
  }
  if (tenantId !== undefined) attributes.tenantid = tenantId
  if (orderingKey !== undefined) attributes.orderingkey = orderingKey
  if (metadata !== EMPTY_METADATA) {
    for (const [attribute, field] of METADATA) {
      const value = metadata[field]
      if (value !== undefined) attributes[attribute] = value
    }
  }
  if (headers !== EMPTY_HEADERS && Object.keys(headers).length > 0) {
    attributes.headers = escapeUnprintable(JSON.stringify(headers))
  }
  return attributes
}

export function contentTypeOf({ payloadText }: EventEnvelope): string {
  return payloadText === null ? 'application/octet-stream' : 'application/json'
}

/** The envelope of checked attributes; EventEnvelope checks the rest. */
export function fromAttributes(attributes: CloudEventAttributes, content: PayloadContent): EventEnvelope {
  const { specversion, id, type, source, time, schemaversion } = attributes
  if (specversion !== '1.0') throw new InvalidEventError('specversion', 'only CloudEvents 1.0 is supported')
  for (const [name, value] of Object.entries({ id, type, source })) {
    if (typeof value !== 'string' || value === '')
      throw new InvalidEventError(name, 'a CloudEvent must have it')
  }
  const metadata: Record<string, unknown> = {}
  for (const [attribute, field] of METADATA) metadata[field] = attributes[attribute]
  const init = {
    eventId: id,
    eventType: type,
    aggregateType: attributes.aggregatetype,
    aggregateId: attributes.aggregateid ?? attributes.subject,
    tenantId: attributes.tenantid,
    orderingKey: attributes.orderingkey,
    version: schemaversion === undefined ? undefined : Number(schemaversion),
    occurredAt: time === undefined ? undefined : new Date(typeof time === 'string' ? time : Number.NaN),
    headers: attributes.headers === undefined ? undefined : parseHeaders(attributes.headers),
    metadata,
  }
  // The checks of the envelope hold at run time, whatever the attributes are.
  return EventEnvelope.fromEncoded(init as unknown as EnvelopeInit, encodePayload(content, 'json'))
}

function structuredContent(attributes: CloudEventAttributes): PayloadContent {
  const { data, data_base64: base64 } = attributes
  if (base64 === undefined) return { value: data === undefined ? null : data }
  if (data !== undefined) throw new InvalidEventError('data', 'give either data or data_base64, not both')
  const bytes = typeof base64 === 'string' ? fromBase64(base64) : undefined
  if (bytes === undefined) throw new InvalidEventError('data_base64', 'it is not base64 text')
  return { value: bytes }
}

function parse(event: string | object): CloudEventAttributes {
  const value: unknown = typeof event === 'string' ? parseJson('CloudEvent', event) : event
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as CloudEventAttributes
  throw new InvalidEventError('CloudEvent', 'its JSON is not an object')
}

function parseHeaders(text: unknown): unknown {
  if (typeof text !== 'string')
    throw new InvalidEventError('headers', 'the extension attribute must be JSON text')
  return parseJson('headers', text)
}

function parseJson(field: string, text: string): unknown {
  return parseJsonText(text, (path, reason) => new InvalidEventError(field, `at ${path}: ${reason}`))
}
