import { bufferOf } from '../../bus/message.js'
import type { DeadLetterReason, IncomingMessage, OutgoingMessage } from '../../bus.js'
import type { FetchedRecord, KafkaRecord } from './client.js'

const HEADER_PREFIX = 'ce_'
const CONTENT_TYPE = 'content-type'

/** Upper bound for the size of a record without its key, value and headers. */
const RECORD_BYTES = 64
/** Upper bound for the size of a header without its name and value. */
const HEADER_BYTES = 4

/** Attributes with few different values. Their encoded values are cached. */
const REPEATED = new Set(['specversion', 'source', 'type', 'schemaversion', 'aggregatetype', 'tenantid'])
const MAX_CACHED = 1_000
const MAX_CACHED_LENGTH = 256

/** Cache of encoded texts. The clients of Kafka do not change the buffers. */
class TextCache {
  readonly #bytes = new Map<string, Buffer>()

  get(text: string): Buffer {
    let bytes = this.#bytes.get(text)
    if (bytes !== undefined) return bytes
    bytes = Buffer.from(text)
    if (this.#bytes.size >= MAX_CACHED) this.#bytes.clear()
    if (text.length <= MAX_CACHED_LENGTH) this.#bytes.set(text, bytes)
    return bytes
  }
}

const texts = new TextCache()
/** Encoded header names by the names of their attributes. */
const names = new Map<string, { readonly bytes: Buffer; readonly isRepeated: boolean }>()
const contentTypeName = Buffer.from(CONTENT_TYPE)

/** Encodes a message in the binary mode of the Kafka binding of CloudEvents. Events without an ordering key are spread over the partitions by id. */
export function recordOf({ id, key, body, contentType, attributes }: OutgoingMessage): KafkaRecord {
  return encode(Buffer.from(key ?? id), body, contentType, attributes)
}

function encode(
  key: Buffer,
  body: Uint8Array,
  contentType: string,
  attributes: Readonly<Record<string, string>>,
): KafkaRecord {
  const type = texts.get(contentType)
  const headers = new Map<Buffer, Buffer>([[contentTypeName, type]])
  let bytes = RECORD_BYTES + key.length + body.length + CONTENT_TYPE.length + type.length + HEADER_BYTES
  for (const name in attributes) {
    const header = headerOf(name)
    const text = attributes[name] as string
    const value = header.isRepeated ? texts.get(text) : Buffer.from(text)
    headers.set(header.bytes, value)
    bytes += header.bytes.length + value.length + HEADER_BYTES
  }
  return { key, value: bufferOf(body), headers, bytes }
}

function headerOf(attribute: string) {
  let header = names.get(attribute)
  if (header !== undefined) return header
  // Dead letters may have any number of attribute names of other producers.
  if (names.size >= MAX_CACHED) names.clear()
  header = { bytes: Buffer.from(HEADER_PREFIX + attribute), isRepeated: REPEATED.has(attribute) }
  names.set(attribute, header)
  return header
}

/** Decodes a message. If a header is repeated, its first value counts. */
export function messageOf(
  headers: Iterable<readonly [string, Uint8Array | string | undefined]>,
  value: Uint8Array | null | undefined,
): IncomingMessage {
  const attributes: Record<string, string> = Object.create(null)
  let contentType: string | undefined
  for (const [rawName, raw] of headers) {
    if (raw === undefined || raw === null) continue
    const name = rawName.toLowerCase()
    const bare = name.startsWith(HEADER_PREFIX) ? name.slice(HEADER_PREFIX.length) : undefined
    if (name === CONTENT_TYPE) contentType ??= textOf(raw)
    else if (bare !== undefined && !(bare in attributes)) attributes[bare] = textOf(raw)
  }
  return {
    contentType: contentType ?? 'application/json',
    attributes,
    body: value ?? new Uint8Array(),
    deliveryCount: 1,
  }
}

function textOf(raw: Uint8Array | string): string {
  return typeof raw === 'string' ? raw : bufferOf(raw).toString()
}

// ── dead letters ─────────────────────────────────────────────────────────────────────────────────────────────

const SHORT_ERROR = 200
const SHORT_ATTRIBUTE = 1_000
const MAX_ATTRIBUTES = 40

/**
 * Yields copies of a message for the dead-letter topic, from the largest to the smallest: with the reason, with a short error,
 * without the payload, and without long attributes. A copy without the payload names the position of the original.
 */
export function* deadLetters(
  topic: string,
  { partition, offset, message }: FetchedRecord,
  reason: DeadLetterReason,
): Generator<KafkaRecord> {
  const { attributes, contentType, body } = message
  const short = reason.error.slice(0, SHORT_ERROR)
  const place = `offset ${offset} of partition ${partition} of the topic ${topic}`
  const bodiless = `The payload of ${body.length} bytes is too large for the dead-letter topic. The original is at ${place}. ${short}`
  const letter = (kept: Readonly<Record<string, string>>, value: Uint8Array, error: string) => {
    const key = Buffer.from(kept.orderingkey ?? kept.id ?? '')
    return encode(key, value, contentType, { ...kept, ...reasonAttributes(reason, error) })
  }
  yield letter(attributes, body, reason.error)
  yield letter(attributes, body, short)
  // Without `specversion` the copy is not a valid CloudEvent, so no handler processes it as an event without a payload.
  const { specversion: _, ...others } = attributes
  yield letter(others, new Uint8Array(), bodiless)
  yield letter(shortened(others), new Uint8Array(), bodiless)
}

function reasonAttributes(reason: DeadLetterReason, deaderror: string) {
  return {
    deadgroup: reason.group,
    deadhandlers: reason.handlers.join(','),
    deadattempts: String(reason.attempts),
    deaderror,
  }
}

function shortened(attributes: Readonly<Record<string, string>>): Record<string, string> {
  // The identifying attributes come first, so that the limit does not remove them.
  const all = Object.entries({ id: '', type: '', source: '', ...attributes })
    .filter(([, text]) => text !== '')
    .map(([name, text]) => [name, text.slice(0, SHORT_ATTRIBUTE)])
  return Object.fromEntries(all.slice(0, MAX_ATTRIBUTES))
}
