import type { DeadLetterReason, IncomingMessage, OutgoingMessage } from '../../bus.js'
import type { AmqpDelivery } from './client.js'

/** Prefixes that the AMQP binding of CloudEvents allows. The second prefix exists for JMS. */
const PREFIX = 'cloudEvents:'
const JMS_PREFIX = 'cloudEvents_'

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
    if (!name.startsWith(PREFIX) && !name.startsWith(JMS_PREFIX)) continue
    const text = textOf(headers[name])
    if (text !== undefined) attributes[name.slice(PREFIX.length)] = text
  }
  return {
    contentType: typeof contentType === 'string' ? contentType : 'application/json',
    attributes,
    body: content,
    deliveryCount: deliveryCountOf(headers, fields.redelivered),
  }
}

/** Properties for a copy of a message, without those that would make it expire or route it elsewhere. */
export function resentOf(delivery: AmqpDelivery): Record<string, unknown> & { readonly headers: Headers } {
  const { expiration: _, userId: __, ...properties } = delivery.properties as Record<string, unknown>
  const headers = { ...(properties.headers as Headers | undefined) }
  for (const name of ['x-delivery-count', 'CC', 'BCC']) delete headers[name]
  return { ...properties, persistent: true, mandatory: true, headers }
}

/** Properties for a copy of a message, with headers that describe why it was dead-lettered. */
export function deadLetterProperties(
  delivery: AmqpDelivery,
  reason: DeadLetterReason,
): Record<string, unknown> {
  const properties = resentOf(delivery)
  const added = headersOf({
    deadgroup: reason.group,
    deadhandlers: reason.handlers.join(','),
    deadattempts: String(reason.attempts),
    deaderror: reason.error,
  })
  return { ...properties, headers: { ...properties.headers, ...added } }
}

/** Shortens the headers of a dead letter that is too large for RabbitMQ. */
export function shortened(properties: Record<string, unknown>): Record<string, unknown> {
  const headers = Object.entries(properties.headers as Headers)
    .map(([name, value]) => [name, typeof value === 'string' ? value.slice(0, 1_000) : undefined] as const)
    .slice(-40)
  return { ...properties, headers: Object.fromEntries(headers) }
}

/** Returns the event type, cut to the maximum length of a routing key. */
export function routingKeyOf(type: string): string {
  // A UTF-16 code unit takes at most three bytes in UTF-8.
  return type.length * 3 <= MAX_KEY_BYTES ? type : cut(type)
}

/** Returns the binding key for a pattern. It may match more types than the pattern. The consumer skips these events. */
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
  // Moves the cut to the start of a character.
  while (((bytes[end] as number) & 0xc0) === 0x80) end--
  return bytes.toString('utf8', 0, end)
}

/** Quorum queues count redeliveries. Other queues only report whether a message was delivered before. */
function deliveryCountOf(headers: Headers, redelivered: boolean): number {
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
