import { bufferOf } from '../../bus/message.js'
import type { Burial, IncomingMessage, OutgoingMessage } from '../../bus/transport.js'

const PREFIX = 'ce-'
const CONTENT_TYPE = 'content-type'
const BODY = 'data'
const DEAD = /^ce-dead(?:group|handlers|attempts|error)$/
/** More arguments than this do not fit into one call of a script. */
const MOST_FIELDS = 2_000

/** Names and values by turns, as Redis wants and gives them. */
export type Fields = readonly (string | Buffer)[]

/**
 * CloudEvents has no binding for Redis. This is its binary mode in the spelling of the HTTP binding: attributes as `ce-`
 * fields, `content-type`, and the payload alone in `data`; values as they are, since fields hold any bytes.
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

/** What one message takes of all that are packed together. */
export function packedBytes(fields: Fields): number {
  let bytes = HEAD_BYTES
  for (const field of fields) bytes += HEAD_BYTES + Buffer.byteLength(field)
  return bytes
}

/** MessagePack in its simplest forms. One long argument costs the clients far less than many short ones. */
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

/** What it was, whoever made it, and why it is there. */
export function deadFieldsOf({ fields }: RedisMessage, { group, handlers, attempts, error }: Burial): Fields {
  const original: (string | Buffer)[] = []
  for (let at = 0; at + 1 < fields.length && at < MOST_FIELDS; at += 2) {
    // It may have been dead before.
    if (!DEAD.test(String(fields[at]))) original.push(fields[at] as Buffer, fields[at + 1] as Buffer)
  }
  const why = { group, handlers: handlers.join(','), attempts: String(attempts), error }
  return [...original, ...Object.entries(why).flatMap(([name, value]) => [`${PREFIX}dead${name}`, value])]
}

export class RedisMessage implements IncomingMessage {
  /** Of the entry in the stream. */
  readonly entryId: string
  readonly fields: Fields
  readonly deliveries: number
  readonly attributes: Readonly<Record<string, string>>
  readonly contentType: string
  readonly body: Uint8Array
  /** By the process's own clock: at this moment it was this consumer's for sure. */
  oursAt: number

  constructor(entryId: string, fields: Fields, deliveries: number, oursAt: number) {
    this.entryId = entryId
    this.fields = fields
    this.deliveries = deliveries
    this.oursAt = oursAt
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
