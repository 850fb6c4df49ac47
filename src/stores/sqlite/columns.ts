import { CUT_NAME_LENGTH, MAX_COLUMN_BYTES, MAX_NAME_BYTES } from '../../core/row-limits.js'

const BESIDES_PAYLOAD = ['headers', 'metadata', 'handled_by']
const CONTENT = ['payload', 'payload_bytes', ...BESIDES_PAYLOAD]
const NAMES = ['event_type', 'aggregate_type', 'aggregate_id', 'tenant_id', 'ordering_key']

/** SQLite knows the bytes of a column from the header of its row: it does not read the column. */
const bytes = (column: string) => `coalesce(octet_length(${column}), 0)`

/** Bytes of a row as stored. `payload_size` is not trusted, because other programs write it, or leave it at 0. */
export const sizeOf = (row: string) =>
  [sizeBesidesPayload(row), bytes(`${row}payload`), bytes(`${row}payload_bytes`)].join(' + ')

export const sizeBesidesPayload = (row: string) =>
  ['event_id', ...NAMES, ...BESIDES_PAYLOAD].map((column) => bytes(row + column)).join(' + ')

/** A column, or null when it is too large to be loaded. */
export const bounded = (column: string) =>
  `case when octet_length(${column}) <= ${MAX_COLUMN_BYTES} then ${column} end as ${column}`

const name = (column: string) =>
  `case when octet_length(${column}) > ${MAX_NAME_BYTES} then substr(${column}, 1, ${CUT_NAME_LENGTH}) else ${column} end as ${column}`

const above = (columns: readonly string[], limit: number) =>
  columns.map((column) => `case when octet_length(${column}) > ${limit} then '${column},' else '' end`)

/** Names of the columns that are too large to be loaded, each with a comma behind it; null for nearly every row. */
const LEFT_OUT = `case when max(${CONTENT.map(bytes)}) > ${MAX_COLUMN_BYTES} or max(${NAMES.map(bytes)}) > ${MAX_NAME_BYTES}
  then ${[...above(CONTENT, MAX_COLUMN_BYTES), ...above(NAMES, MAX_NAME_BYTES)].join(' || ')} end as left_out`

export const WITHOUT_PAYLOAD = `event_id, seq, ${NAMES.map(name).join(', ')}, version,
  ${bounded('headers')}, ${bounded('metadata')}, occurred_at, ${LEFT_OUT}, attempts, ${bounded('handled_by')}, locked_by`

/** The columns that claimedRow() reads, in its order. */
export const EVENT_COLUMNS = `${WITHOUT_PAYLOAD}, ${bounded('payload')}, ${bounded('payload_bytes')}`
