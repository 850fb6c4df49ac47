import type { IncomingMessage } from '../../bus/transport.js'
import type { NatsHeaders, NatsMessage } from './line.js'

const encoder = new TextEncoder()

/** A message of JetStream, and what is needed to answer it. */
export interface Delivered extends IncomingMessage {
  /** Where answers go. */
  readonly reply: string
  /** Its place in the stream, and when it came there: together they are the message. */
  readonly sequence: number
  readonly storedAt: string
  /** Until then nobody else gets it, by the clock of this process. */
  safeUntil: number
}

/** What the client needs of headers to send them; made here, since the library imports no package. */
export interface EncodedHeaders {
  encode(): Uint8Array
}

/** Streams and consumers of NATS cannot have dots in their names: they become tildes, which no other name has. */
export function natsName(name: string): string {
  return name.replaceAll('.', '~')
}

/**
 * The subject of an event: that of its stream, then its type. Percent-encoded is what a subject cannot hold: all but
 * printable ASCII, `*`, `>`, `%`, and dots that would leave a token empty.
 */
export function subjectOf(stream: string, type: string): string {
  const tokens = percentEncode(type, /[^!-~]+|[*>%]+/g).replace(/^\.|\.$|(?<=\.)\./g, '%2E')
  return `${stream}.${tokens}`
}

/** Binary mode as the NATS binding of CloudEvents has it: `ce-` and the name, values encoded as in HTTP. */
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

/** Undefined when the message is none of a consumer of JetStream. */
export function deliveredOf(message: NatsMessage, safeUntil: number): Delivered | undefined {
  const answer = message.reply === undefined ? undefined : readReply(message.reply)
  if (!answer) return undefined
  return { ...answer, ...readHeaders(message.headers), body: message.data, safeUntil }
}

/** `$JS.ACK.<stream>.<consumer>.<deliveries>.<sequence>.<…>.<time>.…`; newer servers put domain and account first. */
function readReply(reply: string) {
  const tokens = reply.split('.')
  if (tokens[0] !== '$JS' || tokens[1] !== 'ACK') return undefined
  const at = tokens.length === 9 ? 4 : 6
  return {
    reply,
    deliveries: Number(tokens[at]) || 1,
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

/** Space, quote, percent and everything outside printable ASCII. */
function attributeText(value: string): string {
  return percentEncode(value, /[^!#$&-~]+/g)
}

/** What was not encoded by the rules is taken as it is. */
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
