import { CUT_NAME_LENGTH, MAX_COLUMN_BYTES, MAX_NAME_BYTES, tooLarge } from '../../core/row-limits.js'
import { isNoTime, NEVER } from './schema.js'

const BESIDES_PAYLOAD = ['headers', 'metadata', 'handled_by']
const CONTENT = ['payload', 'payload_bytes', ...BESIDES_PAYLOAD]
const DUE_AT = 'available_at'
const NAMES = ['event_type', 'aggregate_type', 'aggregate_id', 'tenant_id', 'ordering_key']

/** SQLite knows the bytes of a column from the header of its row: it does not read the column. */
const bytes = (column: string) => `coalesce(octet_length(${column}), 0)`

/** Bytes of a row as stored. `payload_size` is not trusted, because other programs write it, or leave it at 0. */
export const sizeOf = (row: string) =>
  [sizeBesidesPayload(row), bytes(`${row}payload`), bytes(`${row}payload_bytes`)].join(' + ')

export const sizeBesidesPayload = (row: string) =>
  ['event_id', ...NAMES, ...BESIDES_PAYLOAD].map((column) => bytes(row + column)).join(' + ')

/** A number as JavaScript can hold it. `node:sqlite` of Node 24 throws for integers outside this range. */
export const safe = (column: string, name = column) =>
  `case when ${column} not between -${NEVER} and ${NEVER} and typeof(${column}) = 'integer' then ${column} + 0.0 else ${column} end as ${name}`

/** A column, or null when it is too large to be loaded. */
export const bounded = (column: string) =>
  `case when octet_length(${column}) <= ${MAX_COLUMN_BYTES} then ${column} end as ${column}`

const name = (column: string) =>
  `case when octet_length(${column}) > ${MAX_NAME_BYTES} then substr(${column}, 1, ${CUT_NAME_LENGTH}) else ${column} end as ${column}`

const above = (columns: readonly string[], limit: number) =>
  columns.map((column) => `case when octet_length(${column}) > ${limit} then '${column},' else '' end`)

/**
 * Names of the columns that are too large to be loaded, and of `available_at` if it holds no time, each with a comma behind it.
 * Null for nearly every row.
 */
const LEFT_OUT = `case when max(${CONTENT.map(bytes)}) > ${MAX_COLUMN_BYTES} or max(${NAMES.map(bytes)}) > ${MAX_NAME_BYTES} or ${isNoTime(DUE_AT)}
  then ${[...above(CONTENT, MAX_COLUMN_BYTES), ...above(NAMES, MAX_NAME_BYTES), `iif(${isNoTime(DUE_AT)}, '${DUE_AT},', '')`].join(' || ')} end as left_out`

/** Reason why a row cannot be handled, from what `left_out` holds. */
export function reasonOf(leftOut: string): string {
  const columns = leftOut.split(',').slice(0, -1)
  const large = columns.filter((column) => column !== DUE_AT)
  const parts = large.length > 0 ? [tooLarge(large)] : []
  if (large.length < columns.length) parts.push(`its ${DUE_AT} is not a time in milliseconds since 1970`)
  return parts.join(', ')
}

export const WITHOUT_PAYLOAD = `event_id, seq, ${NAMES.map(name).join(', ')}, ${safe('version')},
  ${bounded('headers')}, ${bounded('metadata')}, ${safe('occurred_at')}, ${LEFT_OUT}, ${safe('attempts')}, ${bounded('handled_by')}, locked_by`

/** The columns that claimedRow() reads, in its order. */
export const EVENT_COLUMNS = `${WITHOUT_PAYLOAD}, ${bounded('payload')}, ${bounded('payload_bytes')}`
