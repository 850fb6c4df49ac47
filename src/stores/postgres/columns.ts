import { GLOBAL_AGGREGATE } from '../../core/envelope.js'
import { CUT_NAME_LENGTH, MAX_COLUMN_BYTES, MAX_NAME_BYTES } from '../../core/row-limits.js'
import { milliseconds } from './driver.js'

/** Stands for JSON that is too large to be loaded. No JSON text is empty. */
export const LEFT_OUT = ''
/** Stands for bytes that are too large to be loaded. Base64 has no such character. */
export const LEFT_OUT_BYTES = '!'

/** Largest factor by which a value can grow when it is decompressed, by the compression methods of PostgreSQL. */
const GROWTH = { pglz: 88, lz4: 255 }

/**
 * Upper bound of the bytes of a JSON column, without decompressing or even reading it: its exact size unless it is
 * compressed. Nobody decompresses a value whose compressed form is above the limit, so its factor does not matter.
 */
const bound = (column: string) => `case
    when pg_column_compression(${column}) is null or pg_column_size(${column}) > ${MAX_COLUMN_BYTES}
      then pg_column_size(${column})::bigint
    when pg_column_compression(${column}) = 'pglz' then pg_column_size(${column})::bigint * ${GROWTH.pglz}
    when pg_column_compression(${column}) = 'lz4' then pg_column_size(${column})::bigint * ${GROWTH.lz4}
    else octet_length(${column}::text) end`

/** Of text and bytes, `octet_length` reads the size only and not the value. */
const plain = (column: string) => `octet_length(${column})::bigint`

const JSON_BESIDES = ['headers', 'metadata', 'handled_by']
const NAMES = ['event_id', 'event_type', 'aggregate_type', 'aggregate_id', 'tenant_id', 'ordering_key']

/** What `sizeOf` reads. */
export const SIZED_COLUMNS = ['payload', 'payload_bytes', ...JSON_BESIDES, ...NAMES].join(', ')

const sumOf = (parts: readonly string[]) => parts.map((part) => `coalesce(${part}, 0)`).join(' + ')

/** Upper bound of the bytes of a row besides its payload. `row` is empty or ends with a dot. */
export const sizeBesidesPayload = (row = '') =>
  `(${sumOf([
    ...JSON_BESIDES.map((column) => bound(row + column)),
    ...NAMES.map((column) => plain(row + column)),
  ])})`

/** Upper bound of the bytes of a row, as the database holds them. `payload_size` is not trusted. */
export const sizeOf = (row = '') =>
  `(${sumOf([bound(`${row}payload`), plain(`${row}payload_bytes`)])} + ${sizeBesidesPayload(row)})`

/** The most that a row of ordinary writers counts against the bytes of a claim. */
export const HEAVIEST = 5 * MAX_COLUMN_BYTES
/** Bytes that a statement may decompress to measure its rows, per byte that it may claim. */
const MEASURED = 16

/**
 * What a row counts against the bytes of a claim, from its `sizeOf`. No column above the limit is sent, so no row takes
 * more than its columns may. The second term limits the work of a statement that meets strongly compressed rows.
 */
export const weightOf = (size: string) => `greatest(least(${size}, ${HEAVIEST}), ${size} / ${MEASURED})`

/** The same in JavaScript. */
export function weigh(size: number): number {
  return Math.max(Math.min(size, HEAVIEST), size / MEASURED)
}

/** The text of a JSON column. It is decompressed once more only if it may be too large, and not if it is for certain. */
const bounded = (column: string) => `case when ${column} is null then null
    when ${bound(column)} <= ${MAX_COLUMN_BYTES} then ${column}::text
    when pg_column_size(${column}) <= ${MAX_COLUMN_BYTES} and octet_length(${column}::text) <= ${MAX_COLUMN_BYTES}
      then ${column}::text
    else '${LEFT_OUT}' end`

const boundedBytes = (
  column: string,
) => `case when octet_length(${column}) > ${MAX_COLUMN_BYTES} then '${LEFT_OUT_BYTES}'
    else encode(${column}, 'base64') end`

const name = (column: string) =>
  `case when octet_length(${column}) > ${MAX_NAME_BYTES} then left(${column}, ${CUT_NAME_LENGTH}) else ${column} end`

/** JSON that somebody else than a handler reads, so that it is null when it is too large. */
export const jsonOrNull = (column: string) => `nullif(${bounded(column)}, '${LEFT_OUT}')`

interface Columns {
  /** Without the payload, for rows whose payload nobody is going to read. Default true. */
  readonly payload?: boolean
  readonly json?: (column: string) => string
  readonly bytes?: (column: string) => string
  readonly size?: string
}

/**
 * The columns of `e` that claimedRow() reads, in its order. Values that most rows have in common are left out, because
 * each value costs time on both sides.
 */
export function eventColumns(columns: Columns = {}): string {
  const { payload = true, json = bounded, bytes = boundedBytes, size = 'null::bigint' } = columns
  return `e.event_id, e.seq, ${name('e.event_type')} as event_type,
  nullif(${name('e.aggregate_type')}, '${GLOBAL_AGGREGATE}') as aggregate_type,
  ${name('e.aggregate_id')} as aggregate_id, ${name('e.tenant_id')} as tenant_id, ${name('e.ordering_key')} as ordering_key,
  nullif(e.version, 1) as version, ${payload ? json('e.payload') : 'null::text'} as payload,
  ${payload ? bytes('e.payload_bytes') : 'null::text'} as payload_bytes,
  ${json('e.headers')} as headers, ${json('e.metadata')} as metadata, ${milliseconds('e.occurred_at')} as occurred_at,
  ${size} as size, nullif(e.attempts, 0) as attempts, ${json('e.handled_by')} as handled_by`
}

/** Their names behind a RETURNING, and the token. */
export const OUT = `event_id, seq, event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload,
  payload_bytes, headers, metadata, occurred_at, size, attempts, handled_by, locked_by`
