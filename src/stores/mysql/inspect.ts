import { eventRecord } from '../../event-record.js'
import {
  type EventFilter,
  type EventRecord,
  EventStatus,
  type EventStatusName,
  type StoreStats,
} from '../../store.js'
import { IDS } from './append.js'
import { eventColumns, uncheckedRow } from './claim.js'
import { SQL_MODE } from './connections.js'
import { ignore, type Param, type Query, type Row } from './driver.js'
import { FOR_UPDATE } from './locks.js'
import type { Names } from './names.js'
import { NEVER } from './schema.js'

const NOW = 'utc_timestamp(6)'
const LISTED = 100
const EVERYTHING = 2_147_483_647
/** Begins the id of a row that is about to go: no event's own id holds a control character. */
const LEAVING = '\x01'

const epochMs = (column: string) => `timestampdiff(microsecond, '1970-01-01', ${column}) / 1000`

const recordColumns = `${eventColumns()}, e.status, e.failures, e.last_error, ${epochMs('e.locked_until')},
  ${epochMs(`if(e.available_at < ${NEVER}, e.available_at, e.created_at)`)}, ${epochMs('e.created_at')},
  ${epochMs('e.done_at')}`

export function inspectStatements({ events, instances, index }: Names) {
  const byId = `${IDS} straight_join ${events} e force index (${index}_id) on e.event_id = s.id`
  const leaving = `${IDS} straight_join ${events} e force index (${index}_id) on e.event_id = concat(?, s.id)`
  const copied = `event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload_size, created_at,
  occurred_at, payload, payload_bytes, headers, metadata, handled_by, failures, last_error`
  const pendingKey = `${events} force index (${index}_ordered) where pending_key > '' and status in (0, 2)`
  const never = `force index (${index}_timed) where timed_at = ${NEVER}`
  const timed = `force index (${index}_timed) where timed_at < ${NEVER}`
  const keyed = `force index (${index}_ordered) where pending_key > ''`
  /** Indexes that hold every row of a status. Rows that are done have no such index, and mostly come first. */
  const sources: Partial<Record<EventStatusName, readonly string[]>> = {
    NEW: [`force index (${index}_fresh) where fresh = 1`, timed, keyed],
    RETRY: [timed, keyed],
    DEAD: [never, timed],
  }
  const page = (where: string, from: readonly string[]) => `(
  select seq from (
${from.map((source) => `    (select e.seq from ${events} e ${source} and ${where} order by e.seq limit ?)`).join('\n    union all\n')}
  ) found order by seq limit ?
) s straight_join ${events} e force index (primary) on e.seq = s.seq`
  return {
    stats: `
select (select count(*) from ${events} force index (${index}_fresh) where fresh = 1)
    + (select count(*) from ${events} force index (${index}_timed) where timed_at < ${NEVER} and status <> 3)
    + (select count(*) from ${pendingKey}),
  (select count(*) from ${events} force index (${index}_timed) where timed_at = ${NEVER})
    + (select count(*) from ${events} force index (${index}_timed) where timed_at < ${NEVER} and status = 3),
  coalesce(sum(done), 0), coalesce(sum(failed), 0), coalesce(sum(dead), 0),
  ${epochMs(NOW)} - ${epochMs(`least(${NOW},
    coalesce((select min(available_at) from ${pendingKey}), ${NOW}),
    coalesce((select created_at from ${events} force index (${index}_fresh) where fresh = 1 order by seq limit 1), ${NOW}),
    coalesce((select timed_at from ${events} force index (${index}_timed)
      where timed_at < ${NEVER} and status <> 3 order by timed_at limit 1), ${NOW}))`)}
  from ${instances}`,
    /**
     * Parameters: those of the conditions and the limit, once per source, and the limit. The rows come in any order.
     *
     * A scan finds the numbers of the rows, and only these rows are loaded. A scan that names the payload reads the payload
     * of each row before its conditions are checked: with 50,000 rows of 10 kB, MySQL 9.7 took 4 s for a page of dead rows.
     */
    list: (where: string, from: readonly string[]) => `
select ${recordColumns} from ${page(where, from)}`,
    sourcesOf: (status: EventStatusName | undefined) =>
      (status && sources[status]) ?? ['force index (primary) where true'],
    named: (where: string) => `
select ${recordColumns} from (select e.seq from ${byId} where ${where} order by e.seq limit ?) s
  straight_join ${events} e force index (primary) on e.seq = s.seq`,
    // Waits for locked rows: a skipped row would stay dead although the caller chose it.
    dead: (where: string) => `
select e.event_id, if(e.halts, null, e.ordering_key) from ${events} e ${never} and ${where} order by e.seq limit ? ${FOR_UPDATE}`,
    // Dead rows of other programs. Without locks, because the index also has the delayed rows of open transactions here.
    foreignDead: (where: string) =>
      `select e.event_id from ${events} e ${timed} and ${where} order by e.seq limit ?`,
    namedDead: (where: string) => `
select e.event_id, if(e.halts, null, e.ordering_key) from ${byId}
 where ${where} order by e.seq limit ? ${FOR_UPDATE}`,
    retry: `update ${byId} set e.status = 2, e.attempts = 0, e.available_at = ${NOW}, e.halts = null`,
    // One with an ordering key goes to its tail: in its place it would be handled beside its successors. A new number
    // is drawn by an insert only, so the row is written anew.
    leave: `update ${byId} set e.event_id = concat(?, s.id)`,
    tail: `
insert into ${events} (event_id, status, available_at, ${copied})
select s.id, 2, ${NOW}, ${copied} from ${leaving} order by e.seq`,
    gone: `delete e from ${leaving}`,
    discard: `delete e from ${byId}`,
  }
}

type Statements = ReturnType<typeof inspectStatements>

export async function stats(sql: Statements, query: Query): Promise<StoreStats> {
  const [row = []] = (await query(sql.stats, [])).rows
  return {
    pending: Number(row[0]),
    dead: Number(row[1]),
    counters: { done: Number(row[2]), failed: Number(row[3]), dead: Number(row[4]) },
    oldestLagMs: Math.max(0, Number(row[5] ?? 0)),
  }
}

interface Conditions {
  readonly where: string
  readonly params: readonly Param[]
}

function conditionsOf({ status, eventType, afterSeq }: EventFilter): Conditions {
  const conditions = ['true']
  const params: Param[] = []
  const add = (sql: string, param: Param) => {
    conditions.push(sql)
    params.push(param)
  }
  if (status !== undefined) add('e.status = ?', EventStatus[status])
  if (eventType !== undefined) add('e.event_type = ?', eventType)
  if (afterSeq !== undefined) add('e.seq > ?', afterSeq)
  return { where: conditions.join(' and '), params }
}

function namesIn(eventIds: readonly string[]): Param {
  return JSON.stringify([...new Set(eventIds)])
}

export async function list(
  sql: Statements,
  query: Query,
  filter: EventFilter,
): Promise<readonly EventRecord[]> {
  const { rows } = await query(...listing(sql, filter))
  const records = rows.map((row) =>
    eventRecord(uncheckedRow(row, ''), {
      status: row[17],
      failures: row[18],
      lastError: row[19],
      lockedBy: row[16],
      lockedUntil: row[20],
      availableAt: row[21],
      createdAt: row[22],
      doneAt: row[23],
    }),
  )
  return records.sort((a, b) => a.seq - b.seq)
}

function listing(sql: Statements, filter: EventFilter): [sql: string, params: readonly Param[]] {
  const { where, params } = conditionsOf(filter)
  const limit = String(filter.limit ?? LISTED)
  if (filter.eventIds) return [sql.named(where), [namesIn(filter.eventIds), ...params, limit]]
  const sources = sql.sourcesOf(filter.status)
  return [sql.list(where, sources), pageParams(sources, params, limit)]
}

function pageParams(sources: readonly string[], params: readonly Param[], limit: string): readonly Param[] {
  return [...sources.flatMap(() => [...params, limit]), limit]
}

async function findDead(sql: Statements, query: Query, filter: EventFilter): Promise<readonly Row[]> {
  const { where, params } = conditionsOf({ ...filter, status: 'DEAD' })
  const limit = String(filter.limit ?? EVERYTHING)
  if (filter.eventIds) {
    return (await query(sql.namedDead(where), [namesIn(filter.eventIds), ...params, limit])).rows
  }
  const { rows } = await query(sql.dead(where), [...params, limit])
  const left = Number(limit) - rows.length
  if (left === 0) return rows
  const foreign = (await query(sql.foreignDead(where), [...params, String(left)])).rows.map((row) => row[0])
  if (foreign.length === 0) return rows
  const named = await query(sql.namedDead(where), [namesIn(foreign as string[]), ...params, String(left)])
  return [...rows, ...named.rows]
}

/**
 * Runs statements outside strict mode, because other programs may have written zero dates. In strict mode, MySQL 9.7 neither
 * deletes nor changes a row whose `available_at` is a zero date (ER_TRUNCATED_WRONG_VALUE for `timed_at`). The hint
 * SET_VAR(sql_mode) has no effect on that.
 */
async function withoutStrictMode(query: Query, work: () => Promise<void>): Promise<void> {
  await query(`set session sql_mode = ''`, [])
  try {
    await work()
  } finally {
    // A failure of this statement means that the connection is lost, with its mode.
    await query(`set session sql_mode = '${SQL_MODE}'`, []).catch(ignore)
  }
}

/** Inside a transaction. */
export async function retryDead(
  sql: Statements,
  query: Query,
  filter: EventFilter,
): Promise<readonly string[]> {
  const rows = await findDead(sql, query, filter)
  const free = rows.filter((row) => row[1] === null).map((row) => row[0] as string)
  const ordered = rows.filter((row) => row[1] !== null).map((row) => row[0] as string)
  await withoutStrictMode(query, async () => {
    if (free.length > 0) await query(sql.retry, [JSON.stringify(free)])
    if (ordered.length === 0) return
    const ids = JSON.stringify(ordered)
    await query(sql.leave, [ids, LEAVING])
    await query(sql.tail, [ids, LEAVING])
    await query(sql.gone, [ids, LEAVING])
  })
  return rows.map((row) => row[0] as string)
}

/** Inside a transaction. */
export async function discardDead(
  sql: Statements,
  query: Query,
  filter: EventFilter,
): Promise<readonly string[]> {
  const rows = await findDead(sql, query, filter)
  const ids = rows.map((row) => row[0] as string)
  await withoutStrictMode(query, async () => {
    if (ids.length > 0) await query(sql.discard, [JSON.stringify(ids)])
  })
  return ids
}
