import type { EventEnvelope } from '../../core/envelope.js'
import { TransactionEndedError } from '../../core/errors.js'
import { batchBytes } from '../../core/payload-limits.js'
import type { AppendOptions, AppendResult, AppendRow } from '../../store.js'
import {
  type Answer,
  isDuplicate,
  isNullIn,
  isServerError,
  type Param,
  type Query,
  survives,
} from './driver.js'
import { FOR_SHARE } from './locks.js'
import type { Names } from './names.js'
import { EXACT } from './schema.js'

/** So much goes into one statement, well below the smallest max_allowed_packet in use. */
const MOST_ROWS = 1_000
const MOST_BYTES = 1_048_576
/** A larger payload goes alone, and so as it is. */
const LARGE_BYTES = 131_072
/** Later than any year a datetime can hold would be an error. */
const LONGEST_DELAY_MS = 2e14

/** A list of event ids as one parameter. */
export const IDS = `json_table(?, '$[*]' columns (id varchar(255) ${EXACT} path '$')) s`

/** MariaDB can tell; without autocommit a transaction begins by itself. MySQL reads none of these comments. */
const INSIDE = '@@in_transaction = 1 or @@autocommit = 0'

/** Null outside of a transaction, for a column that takes none: so nothing is written there, not even for a moment. */
export function onlyInside(value: string): string {
  return `/*M!100203 if(${INSIDE}, */ ${value} /*M!100203 , null) */`
}

export function appendStatements(names: Names) {
  const insert = `insert into ${names.events} (event_id, event_type, aggregate_type, aggregate_id, tenant_id,
  ordering_key, version, payload, payload_bytes, headers, metadata, occurred_at, payload_size, locked_by, locked_until,
  available_at)`
  const now = 'utc_timestamp(6)'
  const mine = `from ${IDS} straight_join ${names.events} e force index (${names.index}_id) on e.event_id = s.id`
  const heldBy = `from json_table(?, '$[*]' columns (id varchar(255) ${EXACT} path '$[0]',
    token varchar(255) ${EXACT} path '$[1]')) s straight_join ${names.events} e force index (${names.index}_id)
  on e.event_id = s.id where e.locked_by = s.token`
  return {
    // Most events come one at a time. Lease and delay are in microseconds; a moment wins over a delay. Not by a SELECT
    // with a WHERE: that would lock the table's counter for as long as it waits for another event of the same id.
    one: `${insert}
values (?, ?, ?, ?, ?, ?, ${onlyInside('?')}, ?, ?, ?, ?, ?, ?, ?, ${now} + interval ? microsecond,
  coalesce(?, ${now} + interval ? microsecond))`,
    many: `${insert}
select s.id, s.type, s.aggregate_type, s.aggregate_id, s.tenant_id, s.ordering_key, s.version, s.payload,
  from_base64(s.bytes), s.headers, s.metadata, s.at, s.size, s.token, ${now} + interval s.lease microsecond,
  coalesce(s.due, ${now} + interval s.delay microsecond)
  from json_table(?, '$[*]' columns (
    id varchar(255) ${EXACT} path '$.id', type varchar(300) ${EXACT} path '$.type',
    aggregate_type varchar(300) ${EXACT} path '$.aggregate_type', aggregate_id varchar(300) ${EXACT} path '$.aggregate_id',
    tenant_id varchar(300) ${EXACT} path '$.tenant_id', ordering_key varchar(300) ${EXACT} path '$.ordering_key',
    version int path '$.version', at datetime(6) path '$.at', size int path '$.size', token varchar(255) ${EXACT} path '$.token',
    lease bigint path '$.lease', due datetime(6) path '$.due', delay bigint path '$.delay',
    headers longtext ${EXACT} path '$.headers', metadata longtext ${EXACT} path '$.metadata',
    bytes longtext ${EXACT} path '$.bytes', payload longtext ${EXACT} path '$.payload')) s
 /*M!100203 where ${INSIDE} */`,
    // Seen whatever the transaction's snapshot is.
    existing: `select e.event_id ${mine} ${FOR_SHARE}`,
    present: `select e.event_id, e.seq ${mine}`,
    remove: `delete e ${mine}`,
    // Without a lock, this sees committed rows only. Rows of an open transaction end with that transaction.
    held: `select e.event_id ${heldBy}`,
    removeHeld: `delete e ${heldBy}`,
    free: `update ${IDS} straight_join ${names.events} e force index (${names.index}_id) on e.event_id = s.id
   set e.locked_by = null, e.locked_until = null where e.locked_by = ?`,
  }
}

type Statements = ReturnType<typeof appendStatements>

/** A conflicting id is reported and leaves the transaction usable: only the statement was undone. */
export async function append(
  sql: Statements,
  query: Query,
  rows: readonly AppendRow[],
  options: AppendOptions,
): Promise<AppendResult> {
  const twice = idsGivenTwice(rows)
  if (rows.length === 0 || (twice.length > 0 && options.onDuplicate === 'error')) {
    return { seqs: new Map(), duplicates: twice }
  }
  const chunks = chunksOf(firstOfEach(rows))
  const seqs = new Map<string, number>()
  const duplicates = new Set(twice)
  const several = chunks.length > 1
  if (several) await query('SAVEPOINT aftercommit_append')
  try {
    for (const chunk of chunks) {
      for (const id of await insert(sql, query, chunk, options, seqs)) duplicates.add(id)
      if (duplicates.size > 0 && options.onDuplicate === 'error') break
    }
  } catch (error) {
    if (several && survives(error)) await backToSavepoint(query)
    throw error
  }
  if (duplicates.size > 0 && options.onDuplicate === 'error') {
    if (several) await backToSavepoint(query)
    const every = rows.map(idOf)
    return { seqs: new Map(), duplicates: several ? await existing(sql, query, every) : [...duplicates] }
  }
  if (several) await query('RELEASE SAVEPOINT aftercommit_append')
  return { seqs, duplicates: [...duplicates] }
}

/** When it is gone the whole transaction is, and the error that led here says more. */
async function backToSavepoint(query: Query): Promise<void> {
  await query('ROLLBACK TO SAVEPOINT aftercommit_append').catch((error) => {
    if (!isServerError(error)) throw error
  })
}

/** Writes what can be written of it; with `error` all or nothing. Returns the ids that exist already. */
async function insert(
  sql: Statements,
  query: Query,
  rows: readonly AppendRow[],
  options: AppendOptions,
  seqs: Map<string, number>,
): Promise<readonly string[]> {
  const duplicates: string[] = []
  let left = rows
  for (let attempt = 1; left.length > 0; attempt++) {
    try {
      await write(sql, query, left, options.leaseMs, seqs)
      return duplicates
    } catch (error) {
      // Whoever was in the way may be gone the next moment: then it is tried again.
      if (!isDuplicate(error) || attempt > 10) throw error
      const found = await existing(sql, query, left.map(idOf))
      duplicates.push(...found)
      if (found.length > 0 && options.onDuplicate === 'error') return duplicates
      left = left.filter((row) => !found.includes(idOf(row)))
    }
  }
  return duplicates
}

async function write(
  sql: Statements,
  query: Query,
  rows: readonly AppendRow[],
  leaseMs: number,
  seqs: Map<string, number>,
): Promise<void> {
  const [first] = rows
  if (first && rows.length === 1) {
    const answer = await query(sql.one, paramsOf(first, leaseMs)).catch((error) => {
      throw isNullIn('version', error) ? new TransactionEndedError() : error
    })
    await undoOutside(sql, query, rows, answer)
    if (answer.insertId !== null) {
      seqs.set(idOf(first), answer.insertId)
      return
    }
  } else {
    const answer = await query(sql.many, [`[${rows.map((row) => jsonOf(row, leaseMs)).join(',')}]`])
    if (answer.affected === 0) throw new TransactionEndedError()
    await undoOutside(sql, query, rows, answer)
  }
  const written = await findPresent(sql, query, rows.map(idOf)).catch(async (error) => {
    // All or nothing: nobody is going to hear of them.
    if (survives(error)) await query(sql.remove, [JSON.stringify(rows.map(idOf))])
    throw error
  })
  if (written.size === 0) throw new TransactionEndedError()
  for (const [id, seq] of written) seqs.set(id, seq)
}

/** MySQL only: the transaction ended between our question and the statement, which then committed by itself. */
async function undoOutside(
  sql: Statements,
  query: Query,
  rows: readonly AppendRow[],
  { inTransaction }: Answer,
): Promise<void> {
  if (inTransaction !== false) return
  await query(sql.remove, [JSON.stringify(rows.map(idOf))])
  throw new TransactionEndedError()
}

/**
 * Removes the committed rows that still have the lease they were written with. Waits while a claim locks such a row, but never
 * for a transaction that has written the rows and is still open.
 */
export async function removeHeld(sql: Statements, query: Query, rows: readonly AppendRow[]): Promise<void> {
  const tokens = new Map<unknown, string | null>(rows.map(({ event, token }) => [event.eventId, token]))
  const { rows: held } = await query(sql.held, [JSON.stringify([...tokens])])
  if (held.length === 0) return
  const committed = held.map(([id]) => [id, tokens.get(id) ?? null])
  await query(sql.removeHeld, [JSON.stringify(committed)])
}

async function existing(sql: Statements, query: Query, eventIds: readonly string[]): Promise<string[]> {
  const { rows } = await query(sql.existing, [JSON.stringify(eventIds)])
  return rows.map((row) => row[0] as string)
}

export async function findPresent(
  sql: Statements,
  query: Query,
  eventIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  if (eventIds.length === 0) return new Map()
  const { rows } = await query(sql.present, [JSON.stringify(eventIds)])
  return new Map(rows.map((row) => [row[0] as string, Number(row[1])]))
}

function chunksOf(rows: readonly AppendRow[]): AppendRow[][] {
  const chunks: AppendRow[][] = []
  let bytes = 0
  for (const row of rows) {
    const size = batchBytes(row.event)
    const last = chunks.at(-1)
    const fits = last && last.length < MOST_ROWS && bytes + size <= MOST_BYTES && size < LARGE_BYTES
    if (fits && (last[0]?.event.payloadSize ?? 0) < LARGE_BYTES) {
      last.push(row)
      bytes += size
    } else {
      chunks.push([row])
      bytes = size
    }
  }
  return chunks
}

function idOf({ event }: AppendRow): string {
  return event.eventId
}

function idsGivenTwice(rows: readonly AppendRow[]): string[] {
  const seen = new Set<string>()
  return rows.map(idOf).filter((id) => seen.size === seen.add(id).size)
}

function firstOfEach(rows: readonly AppendRow[]): AppendRow[] {
  const seen = new Set<string>()
  return rows.filter((row) => seen.size !== seen.add(idOf(row)).size)
}

/** In the order of the columns. */
function paramsOf({ event, token, delayMs, deliverAt }: AppendRow, leaseMs: number): Param[] {
  const bytes = event.payloadBytes
  return [
    event.eventId,
    event.eventType,
    event.aggregateType,
    event.aggregateId ?? null,
    event.tenantId ?? null,
    event.orderingKey ?? null,
    event.version,
    event.payloadText,
    bytes === null ? null : Buffer.from(bytes),
    textOf(event.headers),
    textOf(event.metadata),
    datetime(event.occurredAt),
    event.payloadSize,
    token,
    token === null ? null : microseconds(leaseMs),
    deliverAt ? datetime(deliverAt) : null,
    microseconds(delayMs ?? 0),
  ]
}

/** What may be long comes last: each column is looked for from the start. */
function jsonOf(row: AppendRow, leaseMs: number): string {
  const { event, token, delayMs, deliverAt } = row
  return jsonText({
    id: event.eventId,
    type: event.eventType,
    aggregate_type: event.aggregateType,
    aggregate_id: event.aggregateId,
    tenant_id: event.tenantId,
    ordering_key: event.orderingKey,
    version: event.version,
    at: datetime(event.occurredAt),
    size: event.payloadSize,
    token,
    lease: token === null ? null : microseconds(leaseMs),
    due: deliverAt ? datetime(deliverAt) : null,
    delay: microseconds(delayMs ?? 0),
    headers: textOf(event.headers),
    metadata: textOf(event.metadata),
    bytes: base64(event),
    payload: event.payloadText,
  })
}

/** A null is left out: a missing field is null to every server, a null of JSON perhaps not. */
export function jsonText(value: object): string {
  return JSON.stringify(value, (_key, field: unknown) => field ?? undefined)
}

function base64(event: EventEnvelope): string | null {
  const bytes = event.payloadBytes
  return bytes === null ? null : Buffer.from(bytes).toString('base64')
}

function textOf(map: object): string | null {
  for (const _ in map) return JSON.stringify(map)
  return null
}

/** As text in UTC, which no setting of a connection shifts. */
function datetime(date: Date): string {
  return date.toISOString().slice(0, -1).replace('T', ' ')
}

export function microseconds(ms: number): number {
  return Math.round(Math.min(ms, LONGEST_DELAY_MS) * 1_000)
}
