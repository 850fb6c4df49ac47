/** The largest payload, in bytes of UTF-8 once serialised. */
export const MAX_PAYLOAD_BYTES = 1_048_576

/**
 * The largest total of one publishAll() call, in bytes as batchBytes() counts them. A store may send all events of a call
 * in one statement, and neither a string of JavaScript nor a parameter of a database can be of any length.
 */
export const MAX_BATCH_BYTES = 67_108_864

/** The deepest nesting of arrays and objects. */
export const MAX_PAYLOAD_DEPTH = 100

const NON_ASCII = /[\u0080-\uffff]/

/** Bytes of the text in UTF-8, without encoding it. A lone surrogate counts as the three bytes of U+FFFD. */
export function utf8Length(text: string): number {
  const first = text.search(NON_ASCII)
  if (first === -1) return text.length
  let bytes = text.length
  for (let i = first; i < text.length; i++) {
    const unit = text.charCodeAt(i)
    if (unit < 0x80) continue
    if (unit < 0x800) bytes += 1
    else if (unit >= 0xd800 && unit <= 0xdbff && isLow(text.charCodeAt(i + 1))) {
      bytes += 2
      i++
    } else bytes += 2
  }
  return bytes
}

function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff
}

/** Names of columns, numbers and times of one row, in the text that a store sends. */
const ROW_BYTES = 256

interface Sized {
  readonly payloadSize: number
  readonly eventId: string
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId: string | undefined
  readonly tenantId: string | undefined
  readonly orderingKey: string | undefined
  readonly headers: object
  readonly metadata: object
}

/** Size of an event in a batch: bytes of its payload, characters of its other fields, and 256 for the row. */
export function batchBytes(event: Sized): number {
  const { eventId, eventType, aggregateType, aggregateId, tenantId, orderingKey } = event
  const names = eventId.length + eventType.length + aggregateType.length
  const optional = (aggregateId?.length ?? 0) + (tenantId?.length ?? 0) + (orderingKey?.length ?? 0)
  return ROW_BYTES + event.payloadSize + names + optional + sizeOf(event.headers) + sizeOf(event.metadata)
}

function sizeOf(texts: object): number {
  let size = 0
  for (const name in texts) size += name.length + ((texts as Record<string, string>)[name] as string).length
  return size
}
