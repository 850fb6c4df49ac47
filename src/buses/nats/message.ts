import type { IncomingMessage } from '../../bus.js'
import type { NatsHeaders, NatsMessage } from './client.js'

const encoder = new TextEncoder()

/** A message of JetStream with the data for its acknowledgement. */
export interface NatsIncomingMessage extends IncomingMessage {
  /** Subject for acknowledgements. */
  readonly reply: string
  /** Position in the stream. Sequence and time together identify a message, even if the stream was created again. */
  readonly sequence: number
  readonly storedAt: string
  /** Time, by the clock of this process, until which no other consumer receives the message. */
  leasedUntil: number
}

/** Headers in the form that the client sends. They are encoded here, because the library imports no package. */
export interface EncodedHeaders {
  encode(): Uint8Array
}

/** Replaces dots by tildes, because names of streams and consumers cannot contain dots. Other names contain no tildes. */
export function natsName(name: string): string {
  return name.replaceAll('.', '~')
}

/**
 * Returns the subject of an event: the name of the stream, followed by the event type. Percent-encodes `*`, `>`, `%`, dots
 * that would create an empty token, and all characters outside printable ASCII.
 */
export function subjectOf(stream: string, type: string): string {
  const tokens = percentEncode(type, /[^!-~]+|[*>%]+/g).replace(/^\.|\.$|(?<=\.)\./g, '%2E')
  return `${stream}.${tokens}`
}

/** Encodes attributes as the NATS binding of CloudEvents defines it: `ce-` and the name, with values encoded as in HTTP. */
export function headersOf(
  messageId: string,
  contentType: string,
  attributes: Readonly<Record<string, string>>,
): EncodedHeaders & { readonly size: number } {
  let text = `NATS/1.0\r\nNats-Msg-Id: ${attributeText(messageId)}\r\nce-datacontenttype: ${attributeText(contentType)}\r\n`
  for (const [name, value] of Object.entries(attributes)) text += `ce-${name}: ${attributeText(value)}\r\n`
  const bytes = encoder.encode(`${text}\r\n`)
  return { encode: () => bytes, size: bytes.length }
}

/** Returns undefined if the message was not delivered by a consumer of JetStream. */
export function incomingOf(message: NatsMessage, leasedUntil: number): NatsIncomingMessage | undefined {
  const origin = message.reply === undefined ? undefined : readReply(message.reply)
  if (!origin) return undefined
  return { ...origin, ...readHeaders(message.headers), body: message.data, leasedUntil }
}

/** `$JS.ACK.<stream>.<consumer>.<deliveryCount>.<sequence>.<…>.<time>.…`; newer servers insert the domain and the account after `ACK`. */
function readReply(reply: string) {
  const tokens = reply.split('.')
  if (tokens[0] !== '$JS' || tokens[1] !== 'ACK') return undefined
  const at = tokens.length === 9 ? 4 : 6
  return {
    reply,
    deliveryCount: Number(tokens[at]) || 1,
    sequence: Number(tokens[at + 1]),
    storedAt: String(tokens[at + 3]),
  }
}

function readHeaders(headers: NatsHeaders | undefined) {
  const attributes: Record<string, string> = Object.create(null)
  let contentType: string | undefined
  for (const [name, [value]] of headers ?? []) {
    const lower = name.toLowerCase()
    if (value === undefined) continue
    if (lower === 'ce-datacontenttype') contentType = readAttribute(value)
    else if (lower.startsWith('ce-')) attributes[lower.slice(3)] = readAttribute(value)
    else if (lower === 'content-type') contentType ??= value
  }
  return { attributes, contentType: contentType ?? 'application/json' }
}

/** Percent-encodes spaces, quotes, percent signs and all characters outside printable ASCII. */
function attributeText(value: string): string {
  return percentEncode(value, /[^!#$&-~]+/g)
}

/** Decodes a value. Returns a value that is not encoded correctly as it is. */
function readAttribute(text: string): string {
  const trimmed = text.trim()
  const isQuoted = trimmed.length > 1 && trimmed.startsWith('"') && trimmed.endsWith('"')
  const plain = isQuoted ? trimmed.slice(1, -1).replace(/\\(.)/g, '$1') : trimmed
  if (!plain.includes('%')) return plain
  try {
    return decodeURIComponent(plain)
  } catch {
    return plain
  }
}

function percentEncode(text: string, what: RegExp): string {
  return text.replace(what, (run) => {
    let encoded = ''
    for (const byte of encoder.encode(run)) encoded += `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
    return encoded
  })
}
