import { bufferOf } from '../../bus/message.js'
import type { DeadLetterReason, IncomingMessage, OutgoingMessage } from '../../bus.js'

const PREFIX = 'ce-'
const CONTENT_TYPE = 'content-type'
const BODY = 'data'
const DEAD = /^ce-dead(?:group|handlers|attempts|error)$/
/** Maximum number of fields that are copied to a dead letter. A Lua script cannot unpack many more values. */
const MAX_FIELDS = 2_000

/** Alternating names and values, as in commands and replies of Redis. */
export type Fields = readonly (string | Buffer)[]

/**
 * Converts a message to the fields of a stream entry. CloudEvents has no binding for Redis, so this uses the names of the
 * HTTP binding: attributes as `ce-` fields, `content-type`, and the payload in `data`. Values are not encoded, because
 * fields can hold any bytes.
 */
export function fieldsOf({ attributes, contentType, body }: OutgoingMessage): Fields {
  const fields: (string | Buffer)[] = []
  for (const name in attributes) fields.push(PREFIX + name, attributes[name] as string)
  fields.push(CONTENT_TYPE, contentType, BODY, bufferOf(body))
  return fields
}

const ARRAY_32 = 0xdd
const TEXT_32 = 0xdb
const HEAD_BYTES = 5

/** Number of bytes that one message adds to a packed command. */
export function packedBytes(fields: Fields): number {
  let bytes = HEAD_BYTES
  for (const field of fields) bytes += HEAD_BYTES + Buffer.byteLength(field)
  return bytes
}

/** Packs messages as MessagePack. One long argument costs the clients far less time than many short arguments. */
export function pack(messages: readonly Fields[], bytes: number): Buffer {
  const packed = Buffer.allocUnsafe(HEAD_BYTES + bytes)
  let at = 0
  const head = (kind: number, length: number) => {
    packed[at] = kind
    packed.writeUInt32BE(length, at + 1)
    at += HEAD_BYTES
  }
  head(ARRAY_32, messages.length)
  for (const fields of messages) {
    head(ARRAY_32, fields.length)
    for (const field of fields) {
      const start = at + HEAD_BYTES
      const length = typeof field === 'string' ? packed.write(field, start) : field.copy(packed, start)
      head(TEXT_32, length)
      at += length
    }
  }
  return packed
}

/** Returns the original fields of a message, followed by the fields that describe why it was dead-lettered. */
export function deadFieldsOf(
  { fields }: RedisMessage,
  { group, handlers, attempts, error }: DeadLetterReason,
): Fields {
  const original: (string | Buffer)[] = []
  for (let at = 0; at + 1 < fields.length && at < MAX_FIELDS; at += 2) {
    // A message that was dead-lettered before has these fields already.
    if (!DEAD.test(String(fields[at]))) original.push(fields[at] as Buffer, fields[at + 1] as Buffer)
  }
  const added = { group, handlers: handlers.join(','), attempts: String(attempts), error }
  return [...original, ...Object.entries(added).flatMap(([name, value]) => [`${PREFIX}dead${name}`, value])]
}

export class RedisMessage implements IncomingMessage {
  /** Id of the entry in the stream. */
  readonly entryId: string
  readonly fields: Fields
  readonly deliveryCount: number
  readonly attributes: Readonly<Record<string, string>>
  readonly contentType: string
  readonly body: Uint8Array
  /** Last time, by the clock of this process, at which this consumer certainly had the lease. */
  leasedAt: number

  constructor(entryId: string, fields: Fields, deliveryCount: number, leasedAt: number) {
    this.entryId = entryId
    this.fields = fields
    this.deliveryCount = deliveryCount
    this.leasedAt = leasedAt
    const attributes: Record<string, string> = Object.create(null)
    let contentType = 'application/json'
    let body: Uint8Array = new Uint8Array()
    for (let at = 0; at + 1 < fields.length; at += 2) {
      const name = String(fields[at])
      const value = fields[at + 1] as Buffer
      if (name.startsWith(PREFIX)) attributes[name.slice(PREFIX.length)] = String(value)
      else if (name === CONTENT_TYPE) contentType = String(value)
      else if (name === BODY) body = value
    }
    this.attributes = attributes
    this.contentType = contentType
    this.body = body
  }
}
