import {
  checkHeaders,
  checkName,
  checkOptionalName,
  checkTime,
  checkVersion,
  MAX_TIME,
  MIN_TIME,
} from './checks.js'
import { isObject, namesIn, numberIn, optionalTextIn, parsed, textIn, timeIn } from './columns.js'
import { AftercommitError, InvalidEventError, PayloadTooLargeError } from './errors.js'
import { EventId } from './event-id.js'
import { checkStoredJson } from './json-text.js'
import { createMetadata, type EventMetadata, METADATA_FIELDS, readMetadata } from './metadata.js'
import { MAX_PAYLOAD_BYTES } from './payload-limits.js'

/** An event as a store hands it over: checked when it was read. */
export interface StoredEvent {
  readonly eventId: string
  readonly eventType: string
  readonly aggregateType: string
  readonly aggregateId: string | null
  readonly tenantId: string | null
  readonly orderingKey: string | null
  readonly version: number
  /** JSON text; null when the payload is bytes. */
  readonly payloadText: string | null
  readonly payloadBytes: Uint8Array | null
  readonly headers: Readonly<Record<string, string>> | null
  readonly metadata: EventMetadata | null
  readonly occurredAtMs: number
  readonly payloadSize: number
}

/** Turns stored JSON text of a given schema version into the payload that handlers see, or throws. */
export interface PayloadDecoder<T = unknown> {
  (text: string, version: number): T
  /** True when the payload must be JSON, so that bytes in its place are an error. */
  readonly textOnly?: boolean
}

/** Columns of a row that other writers may have filled with anything. */
interface RowFields extends StoredEvent {
  readonly seq: number
  readonly attempts: number
  readonly handledBy: readonly string[]
}

/**
 * A row as a store read it, before `checkedRow()`. Headers, metadata and handler names are the JSON text of the column, or
 * values that were parsed already. Times are milliseconds, or NaN if the database has no number for them.
 */
export type UncheckedRow = { -readonly [Key in Exclude<keyof RowFields, 'seq'>]: unknown } & {
  readonly seq: number
}

/** Stands for an event type or aggregate type that cannot be shown. */
const UNREADABLE = '(invalid)'
/** Most attempts of a row. A claim or an outcome can add one without an overflow of the column. */
export const MAX_ATTEMPTS = 2_147_483_646
const NOBODY: readonly string[] = []

/**
 * Checks a claimed row, because plain SQL can write anything into the table. A row that `publish()` would have refused gets
 * `invalid`, which is the message of `publish()`, and a harmless value in each field that a log, a handler or a broker could
 * see. Its `eventId` stays, because the outcome is written by it. Never throws, so that one bad row does not harm the other
 * rows of its claim. Changes the given object, because copying it would cost every event.
 *
 * `isJson`: the database guarantees that the payload is JSON.
 */
export function checkedRow<Row extends RowFields & { readonly invalid?: string | undefined }>(
  row: UncheckedRow & { invalid: string | undefined } & Omit<Row, keyof RowFields | 'invalid'>,
  isJson: boolean,
): Row {
  row.handledBy = row.handledBy === null ? NOBODY : namesIn(row.handledBy)
  row.invalid ??= problemOf(row, isJson)
  if (row.invalid !== undefined) disarm(row)
  return row as unknown as Row
}

function problemOf(row: UncheckedRow, isJson: boolean): string | undefined {
  try {
    checkRow(row, isJson)
    return undefined
  } catch (error) {
    return error instanceof AftercommitError ? error.message.replace(/\.$/, '') : 'it cannot be read'
  }
}

function checkRow(row: UncheckedRow, isJson: boolean): void {
  EventId.from(row.eventId as string)
  const eventType = checkName('eventType', row.eventType)
  checkName('aggregateType', row.aggregateType, eventType)
  checkOptionalName('aggregateId', row.aggregateId, eventType)
  checkOptionalName('tenantId', row.tenantId, eventType)
  checkOptionalName('orderingKey', row.orderingKey, eventType)
  checkVersion(row.version, eventType)
  if (!isTime(row.occurredAtMs)) checkTime(Number.NaN, eventType)
  if (!isCount(row.attempts, MAX_ATTEMPTS)) {
    throw new InvalidEventError('attempts', `they must be an integer from 0 to ${MAX_ATTEMPTS}`, {
      eventType,
    })
  }
  if (row.headers !== null) row.headers = headersIn(row.headers, eventType)
  if (row.metadata !== null) row.metadata = metadataIn(row.metadata)
  checkPayload(row, isJson, eventType)
}

function checkPayload(row: UncheckedRow, isJson: boolean, eventType: string): void {
  const { payloadText: text, payloadBytes: bytes } = row
  if (bytes !== null) {
    if (text !== null) throw new InvalidEventError('payload', 'it is both JSON and bytes', { eventType })
    if (!(bytes instanceof Uint8Array))
      throw new InvalidEventError('payload', 'it is not bytes', { eventType })
    if (bytes.byteLength > MAX_PAYLOAD_BYTES) throw new PayloadTooLargeError(MAX_PAYLOAD_BYTES)
  } else if (typeof text === 'string') checkStoredJson(text, isJson)
  else throw new InvalidEventError('payload', 'it is not text', { eventType })
}

/** Removes the invalid parts of a row. The outcome of the row is written, logged and counted with the rest. */
function disarm(row: UncheckedRow): void {
  const { eventId, orderingKey, attempts } = row
  if (typeof eventId !== 'string') row.eventId = `(invalid id of row ${row.seq})`
  row.eventType = isName(row.eventType) ? row.eventType : UNREADABLE
  row.aggregateType = isName(row.aggregateType) ? row.aggregateType : UNREADABLE
  // The key stays even if it is invalid, because rows with the same key may wait behind this row.
  row.orderingKey = typeof orderingKey === 'string' ? orderingKey : null
  row.aggregateId = null
  row.tenantId = null
  row.version = 1
  row.occurredAtMs = 0
  row.attempts = isCount(attempts, MAX_ATTEMPTS) ? attempts : 0
  row.headers = null
  row.metadata = harmlessMetadata(row.metadata)
  row.payloadText = 'null'
  row.payloadBytes = null
  row.payloadSize = 0
}

/** Reads the same row for people. Never throws: a value that cannot be shown is replaced or left out. */
export function readableRow(row: UncheckedRow): RowFields {
  const { payloadBytes: bytes, payloadText: text } = row
  const isBytes = bytes instanceof Uint8Array
  return {
    eventId: textIn(row.eventId),
    eventType: textIn(row.eventType),
    aggregateType: textIn(row.aggregateType),
    aggregateId: optionalTextIn(row.aggregateId),
    tenantId: optionalTextIn(row.tenantId),
    orderingKey: optionalTextIn(row.orderingKey),
    version: numberIn(row.version),
    payloadText: isBytes ? null : optionalTextIn(text),
    payloadBytes: isBytes ? bytes : null,
    headers: readableHeaders(row.headers),
    metadata: readableMetadata(row.metadata),
    occurredAtMs: timeIn(row.occurredAtMs),
    payloadSize: numberIn(row.payloadSize),
    seq: row.seq,
    attempts: numberIn(row.attempts),
    handledBy: namesIn(row.handledBy),
  }
}

/** Throws what `publish()` throws. JSON null counts as absent. */
function metadataIn(value: unknown): EventMetadata | null {
  const metadata = parsed(value)
  // Text that is not JSON is no object either.
  return metadata === null ? null : readMetadata(metadata ?? [])
}

function headersIn(value: unknown, eventType: string) {
  const headers = parsed(value)
  return headers === null ? null : checkHeaders(headers ?? [], eventType)
}

function harmlessMetadata(value: unknown): EventMetadata | null {
  try {
    return metadataIn(value)
  } catch {
    return null
  }
}

/** Returns the fields that are valid by themselves. */
function readableMetadata(value: unknown): EventMetadata | null {
  const metadata = parsed(value)
  if (!isObject(metadata)) return null
  const readable: Record<string, string> = {}
  for (const field of METADATA_FIELDS) {
    const text = harmlessMetadata({ [field]: metadata[field] })?.[field]
    if (text !== undefined) readable[field] = text
  }
  return createMetadata(readable)
}

/** A value that is not text is shown as JSON. */
function readableHeaders(value: unknown): StoredEvent['headers'] {
  const headers = parsed(value)
  if (!isObject(headers)) return null
  const readable = Object.create(null) as Record<string, string>
  for (const [name, header] of Object.entries(headers))
    readable[name] = typeof header === 'string' ? header : JSON.stringify(header)
  return readable
}

function isName(value: unknown): value is string {
  try {
    checkName('name', value)
    return true
  } catch {
    return false
  }
}

function isCount(value: unknown, max: number): boolean {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) <= max
}

function isTime(ms: unknown): boolean {
  return (ms as number) >= MIN_TIME && (ms as number) <= MAX_TIME
}
