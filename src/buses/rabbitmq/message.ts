import type { Burial, IncomingMessage, OutgoingMessage } from '../../bus/transport.js'
import type { AmqpDelivery } from './link.js'

/** The binding of CloudEvents to AMQP: both are right, the second for the sake of JMS. */
const PREFIX = 'cloudEvents:'
const PREFIX_TOO = 'cloudEvents_'

const MAX_KEY_BYTES = 255

export type Headers = Record<string, unknown>

export function headersOf(attributes: Readonly<Record<string, string>>): Headers {
  const headers: Headers = {}
  for (const name in attributes) headers[PREFIX + name] = attributes[name]
  return headers
}

export function propertiesOf(message: OutgoingMessage, mandatory: boolean): Record<string, unknown> {
  return {
    persistent: true,
    mandatory,
    contentType: message.contentType,
    messageId: message.id,
    headers: headersOf(message.attributes),
  }
}

export function incomingOf({ content, fields, properties }: AmqpDelivery): IncomingMessage {
  const { headers = {}, contentType } = properties as { headers?: Headers; contentType?: unknown }
  const attributes: Record<string, string> = Object.create(null)
  for (const name in headers) {
    if (!name.startsWith(PREFIX) && !name.startsWith(PREFIX_TOO)) continue
    const text = textOf(headers[name])
    if (text !== undefined) attributes[name.slice(PREFIX.length)] = text
  }
  return {
    contentType: typeof contentType === 'string' ? contentType : 'application/json',
    attributes,
    body: content,
    deliveries: deliveriesOf(headers, fields.redelivered),
  }
}

/** The message as it came. What would let it expire, or go elsewhere, stays behind. */
export function resentOf(delivery: AmqpDelivery): Record<string, unknown> & { readonly headers: Headers } {
  const { expiration: _, userId: __, ...properties } = delivery.properties as Record<string, unknown>
  const headers = { ...(properties.headers as Headers | undefined) }
  for (const name of ['x-delivery-count', 'CC', 'BCC']) delete headers[name]
  return { ...properties, persistent: true, mandatory: true, headers }
}

/** The same with the story of its end. */
export function burialOf(delivery: AmqpDelivery, burial: Burial): Record<string, unknown> {
  const properties = resentOf(delivery)
  const story = headersOf({
    deadgroup: burial.group,
    deadhandlers: burial.handlers.join(','),
    deadattempts: String(burial.attempts),
    deaderror: burial.error,
  })
  return { ...properties, headers: { ...properties.headers, ...story } }
}

/** The same without headers that are too long, for a message that would not fit with its story. */
export function shortened(properties: Record<string, unknown>): Record<string, unknown> {
  const headers = Object.entries(properties.headers as Headers)
    .map(([name, value]) => [name, typeof value === 'string' ? value.slice(0, 1_000) : undefined] as const)
    .slice(-40)
  return { ...properties, headers: Object.fromEntries(headers) }
}

/** The event type, or as much of it as fits. */
export function routingKeyOf(type: string): string {
  // A character of UTF-16 has three bytes at most.
  return type.length * 3 <= MAX_KEY_BYTES ? type : cut(type)
}

/** What a queue is bound by: at least what the pattern covers. What comes beyond that is left out later. */
export function bindingOf(route: string): string {
  if (route === '*') return '#'
  if (!route.endsWith('.*')) return routingKeyOf(route)
  let words = route.slice(0, -2)
  while (Buffer.byteLength(words) > MAX_KEY_BYTES - 2)
    words = words.slice(0, Math.max(0, words.lastIndexOf('.')))
  return words === '' ? '#' : `${words}.#`
}

function cut(type: string): string {
  const bytes = Buffer.from(type)
  if (bytes.length <= MAX_KEY_BYTES) return type
  let end = MAX_KEY_BYTES
  // Not in the middle of a character.
  while (((bytes[end] as number) & 0xc0) === 0x80) end--
  return bytes.toString('utf8', 0, end)
}

/** Quorum queues count, from the second time on; others know only that it was not the first time. */
function deliveriesOf(headers: Headers, redelivered: boolean): number {
  const count = headers['x-delivery-count']
  if (typeof count === 'number' && count >= 0) return count + 1
  return redelivered ? 2 : 1
}

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  const { '!': type, value: seconds } = (value ?? {}) as { '!'?: unknown; value?: unknown }
  if (type !== 'timestamp') return undefined
  const time = new Date(Number(seconds) * 1_000)
  return Number.isNaN(time.getTime()) ? undefined : time.toISOString()
}
