import { read } from './unknown.js'

/* Recognizes events among the values that an application logs. Used by redact.ts. */

const PAYLOAD_FIELDS = ['payload', 'payloadJson', 'payloadText', 'payloadBytes', 'payloadBase64'] as const

/**
 * Whether the value is an event of any kind: an envelope, a defined event, a record, a copy of one of them, an object that
 * can be published, or a CloudEvent in structured or binary mode.
 */
export function isEventLike(value: unknown): boolean {
  return isEvent(value) || attributesOf(value) !== undefined
}

function isEvent(value: unknown): boolean {
  const isOfType = ['eventType', 'aggregateType'].every((name) => typeof read(value, name) === 'string')
  const hasId = typeof read(value, 'eventId') === 'string'
  if (hasId && isOfType) return true
  const hasPayload = PAYLOAD_FIELDS.some((name) => has(value, name))
  return hasPayload && (hasId || typeof read(value, 'type') === 'string')
}

/** Attributes of a CloudEvent by their names without prefix. */
type Attributes = ReadonlyMap<string, unknown>

/** Names of attributes as headers of HTTP, NATS and Redis (`ce-id`), Kafka (`ce_id`) and AMQP (`cloudEvents:id`). */
const ATTRIBUTE_HEADER = /^(?:ce[-_]|cloudevents[:_])(\w+)$/i
const SHOWN_ATTRIBUTES = ['id', 'type', 'aggregatetype', 'aggregateid', 'subject', 'correlationid'] as const

/** Returns the attributes of a CloudEvent, of its message in binary mode, or of the headers of such a message. */
function attributesOf(value: unknown): Attributes | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined
  const isStructured = ['specversion', 'id', 'type'].every((name) => typeof read(value, name) === 'string')
  if (isStructured) return new Map(SHOWN_ATTRIBUTES.map((name) => [name, read(value, name)]))
  return attributesIn(value) ?? attributesIn(read(value, 'headers'))
}

function attributesIn(headers: unknown): Attributes | undefined {
  if (typeof headers !== 'object' || headers === null) return undefined
  const found = new Map<string, unknown>()
  for (const name of keysOf(headers)) {
    const attribute = ATTRIBUTE_HEADER.exec(name)?.[1]?.toLowerCase()
    if (attribute !== undefined) found.set(attribute, read(headers, name))
  }
  return ['id', 'type', 'specversion'].some((name) => found.has(name)) ? found : undefined
}

function keysOf(value: object): readonly string[] {
  try {
    return Object.keys(value)
  } catch {
    return []
  }
}

/**
 * Returns the ids of an event, which any log line may show. Only own properties are read: the getters of an event that is not
 * serialized yet would serialize it.
 */
export function idsOf(event: object): Record<string, unknown> {
  // An event may have headers with the names of attributes. Their values are confidential.
  const attributes = isEvent(event) ? undefined : attributesOf(event)
  if (attributes !== undefined) return idsOfAttributes(attributes)
  const ids: Record<string, unknown> = {}
  for (const name of ['eventId', 'eventType', 'type', 'aggregateType', 'aggregateId']) {
    const id = has(event, name) || name === 'eventType' ? read(event, name) : undefined
    if (typeof id === 'string') ids[name] = id
  }
  const correlationId = read(read(event, 'metadata'), 'correlationId')
  if (typeof correlationId === 'string') ids.correlationId = correlationId
  return ids
}

function idsOfAttributes(attributes: Attributes): Record<string, unknown> {
  const ids = {
    eventId: attributes.get('id'),
    eventType: attributes.get('type'),
    aggregateType: attributes.get('aggregatetype'),
    aggregateId: attributes.get('aggregateid') ?? attributes.get('subject'),
    correlationId: attributes.get('correlationid'),
  }
  return Object.fromEntries(Object.entries(ids).filter(([, id]) => typeof id === 'string'))
}

function has(value: unknown, name: string): boolean {
  try {
    return Object.hasOwn(value as object, name)
  } catch {
    return false
  }
}
