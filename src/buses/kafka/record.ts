import { bufferOf } from '../../bus/message.js'
import type { IncomingMessage, OutgoingMessage } from '../../bus/transport.js'
import type { KafkaRecord } from './driver.js'

const HEADER_PREFIX = 'ce_'
const CONTENT_TYPE = 'content-type'

/** What a record takes beside its key, value and headers, generously. */
const RECORD_BYTES = 64
/** The same for a header. */
const HEADER_BYTES = 4

/** Attributes that most events have in common with many others. */
const REPEATED = new Set(['specversion', 'source', 'type', 'schemaversion', 'aggregatetype', 'tenantid'])
const MOST_KEPT = 1_000
const LONGEST_KEPT = 256

/** Texts as bytes, made once for those that come again and again. The clients only read them. */
class Kept {
  readonly #bytes = new Map<string, Buffer>()

  get(text: string): Buffer {
    let bytes = this.#bytes.get(text)
    if (bytes !== undefined) return bytes
    bytes = Buffer.from(text)
    if (this.#bytes.size >= MOST_KEPT) this.#bytes.clear()
    if (text.length <= LONGEST_KEPT) this.#bytes.set(text, bytes)
    return bytes
  }
}

const texts = new Kept()
/** By the attribute's name, which is the header's without its prefix. */
const names = new Map<string, { readonly bytes: Buffer; readonly isRepeated: boolean }>()
const contentTypeName = Buffer.from(CONTENT_TYPE)

/** The Kafka binding of CloudEvents in binary mode. Without an ordering key the events spread over the partitions. */
export function recordOf({ id, key, body, contentType, attributes }: OutgoingMessage): KafkaRecord {
  return record(Buffer.from(key ?? id), body, contentType, attributes)
}

export function record(
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
  // Of a dead letter the names are another producer's.
  if (names.size >= MOST_KEPT) names.clear()
  header = { bytes: Buffer.from(HEADER_PREFIX + attribute), isRepeated: REPEATED.has(attribute) }
  names.set(attribute, header)
  return header
}

/** A header that comes twice counts once, the first time. */
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
    deliveries: 1,
  }
}

function textOf(raw: Uint8Array | string): string {
  return typeof raw === 'string' ? raw : bufferOf(raw).toString()
}
