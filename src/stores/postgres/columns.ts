import { GLOBAL_AGGREGATE } from '../../core/envelope.js'
import { CUT_NAME_LENGTH, MAX_COLUMN_BYTES, MAX_NAME_BYTES } from '../../core/row-limits.js'
import { milliseconds } from './driver.js'

/** Stands for JSON that is too large to be loaded. No JSON text is empty. */
export const LEFT_OUT = ''
/** Stands for bytes that are too large to be loaded. Base64 has no such character. */
export const LEFT_OUT_BYTES = '!'

/** Largest factor by which decompression can enlarge a value, by compression method. */
const GROWTH = { pglz: 88, lz4: 255 }

/**
 * Upper bound of the bytes of a JSON column that the server finds without reading the value. The bound is exact unless
 * the value is compressed. A compressed value above the limit is never decompressed, so its growth does not count.
 */
const bound = (column: string) => `case
    when pg_column_compression(${column}) is null or pg_column_size(${column}) > ${MAX_COLUMN_BYTES}
      then pg_column_size(${column})
    when pg_column_compression(${column}) = 'pglz' then pg_column_size(${column}) * ${GROWTH.pglz}
    when pg_column_compression(${column}) = 'lz4' then pg_column_size(${column}) * ${GROWTH.lz4}
    else octet_length(${column}::text) end`

const JSON_BESIDES = ['headers', 'metadata', 'handled_by']

/** Upper bound of the bytes that a row sends besides its payload. `row` is empty or ends with a dot. */
export const sizeBesidesPayload = (row = '') =>
  [
    `octet_length(${row}event_id)::bigint`,
    ...JSON_BESIDES.map((one) => `coalesce(${bound(row + one)}, 0)`),
  ].join(' + ')

/**
 * Upper bound of the bytes that a row sends, as a number that is cheap to sum. `payload_size` is not trusted, because other programs write it, or leave it
 * at 0. Names do not count: they are cut.
 */
export const sizeOf = (row = '') =>
  `(${sizeBesidesPayload(row)} + coalesce(${bound(`${row}payload`)}, 0) + coalesce(octet_length(${row}payload_bytes), 0))::float8`

/** What `sizeOf` reads. */
export const SIZED_COLUMNS = ['payload', 'payload_bytes', ...JSON_BESIDES, 'event_id'].join(', ')

/** The most that a row of ordinary writers counts against the bytes of a claim: none of its columns is above the limit. */
export const HEAVIEST = 5 * MAX_COLUMN_BYTES
/** Bytes that a statement may decompress to measure its rows, per byte that it may claim. */
const MEASURED = 16

/**
 * SQL for the bytes that a row counts in a claim, from its `sizeOf`. No column above the limit is sent, so no row takes
 * more than its columns may. The second term limits the work of a statement that meets strongly compressed rows.
 */
export const weightOf = (size: string) =>
  `case when ${size} <= ${HEAVIEST} then ${size} else greatest(${HEAVIEST}, ${size} / ${MEASURED}) end`

/** PostgreSQL compresses values of rows above `TOAST_TUPLE_THRESHOLD`, about 2 kB. Names take a part of that. */
const NEVER_COMPRESSED = 1_000

/** Upper bound of what a claimed row has counted, for callers that know its bytes and not how it was stored. */
export function heaviestOf(bytes: number): number {
  return bytes < NEVER_COMPRESSED ? bytes : Math.min(bytes * GROWTH.lz4, HEAVIEST)
}

/**
 * The text of a JSON column. The first condition holds for small values, however they are stored, and costs one look at
 * the header of the value. A value is decompressed once more only if it may be too large.
 */
const bounded = (column: string) => `case
    when ${column} is null or pg_column_size(${column}) <= ${Math.floor(MAX_COLUMN_BYTES / GROWTH.lz4)} then ${column}::text
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

/** A JSON column, or null when it is too large to be loaded. */
export const jsonOrNull = (column: string) => `nullif(${bounded(column)}, '${LEFT_OUT}')`

interface Columns {
  /** Whether the payload is read. Unroutable rows need none. Default true. */
  readonly payload?: boolean
  readonly json?: (column: string) => string
  readonly bytes?: (column: string) => string
}

/**
 * The columns of `e` that claimedRow() reads, in its order. Values that most rows have in common are left out, because
 * each value costs time on both sides.
 */
export function eventColumns({ payload = true, json = bounded, bytes = boundedBytes }: Columns = {}): string {
  return `e.event_id, e.seq, ${name('e.event_type')} as event_type,
  nullif(${name('e.aggregate_type')}, '${GLOBAL_AGGREGATE}') as aggregate_type,
  ${name('e.aggregate_id')} as aggregate_id, ${name('e.tenant_id')} as tenant_id, ${name('e.ordering_key')} as ordering_key,
  nullif(e.version, 1) as version, ${payload ? json('e.payload') : 'null::text'} as payload,
  ${payload ? bytes('e.payload_bytes') : 'null::text'} as payload_bytes,
  ${json('e.headers')} as headers, ${json('e.metadata')} as metadata, ${milliseconds('e.occurred_at')} as occurred_at,
  nullif(e.attempts, 0) as attempts, ${json('e.handled_by')} as handled_by`
}

/** Names of these columns in the result of a RETURNING, and the token. */
export const OUT = `event_id, seq, event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload,
  payload_bytes, headers, metadata, occurred_at, attempts, handled_by, locked_by`
