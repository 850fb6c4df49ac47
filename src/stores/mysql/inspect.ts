import { eventRecord } from '../../event-record.js'
import { type EventFilter, type EventRecord, EventStatus, type StoreStats } from '../../store.js'
import { IDS } from './append.js'
import { eventColumns, uncheckedRow } from './claim.js'
import type { Param, Query } from './driver.js'
import { FOR_UPDATE } from './locks.js'
import type { Names } from './names.js'
import { NEVER } from './schema.js'

const NOW = 'utc_timestamp(6)'
const EVERYTHING = 2_147_483_647
/** Begins the id of a row that is about to go: no event's own id holds a control character. */
const LEAVING = '\x01'

const epochMs = (column: string) => `timestampdiff(microsecond, '1970-01-01', ${column}) / 1000`

export function inspectStatements({ events, instances, index }: Names) {
  const byId = `${IDS} straight_join ${events} e force index (${index}_id) on e.event_id = s.id`
  const leaving = `${IDS} straight_join ${events} e force index (${index}_id) on e.event_id = concat(?, s.id)`
  const copied = `event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload_size, created_at,
  occurred_at, payload, payload_bytes, headers, metadata, handled_by, failures, last_error`
  const pendingKey = `${events} force index (${index}_ordered) where pending_key > '' and status in (0, 2)`
  return {
    stats: `
select (select count(*) from ${events} force index (${index}_fresh) where fresh = 1)
    + (select count(*) from ${events} force index (${index}_timed) where timed_at < ${NEVER})
    + (select count(*) from ${pendingKey}),
  (select count(*) from ${events} force index (${index}_timed) where timed_at = ${NEVER}),
  coalesce(sum(done), 0), coalesce(sum(failed), 0), coalesce(sum(dead), 0),
  ${epochMs(NOW)} - ${epochMs(`least(${NOW},
    coalesce((select min(available_at) from ${pendingKey}), ${NOW}),
    coalesce((select created_at from ${events} force index (${index}_fresh) where fresh = 1 order by seq limit 1), ${NOW}),
    coalesce((select min(timed_at) from ${events} force index (${index}_timed)), ${NOW}))`)}
  from ${instances}`,
    // Which of them, the rest of the conditions, and how many.
    list: (where: string, given: boolean) => `
select ${eventColumns()}, e.status, e.failures, e.last_error, ${epochMs('e.locked_until')},
  ${epochMs(`if(e.available_at < ${NEVER}, e.available_at, e.created_at)`)}, ${epochMs('e.created_at')},
  ${epochMs('e.done_at')}
  from ${given ? byId : `${events} e`} where ${where} order by e.seq limit ?`,
    // Waits for locked rows: a skipped row would stay dead although the caller chose it.
    dead: (where: string, given: boolean) => `
select e.event_id, if(e.halts, null, e.ordering_key) from ${given ? byId : `${events} e force index (${index}_timed)`}
 where e.timed_at = ${NEVER} and e.status = 3 and ${where} order by e.seq limit ? ${FOR_UPDATE}`,
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

/** The statement's parameters come in this order: the ids, the other conditions, the limit. */
function filtered(
  statement: (where: string, given: boolean) => string,
  { status, eventIds, eventType, afterSeq, limit }: EventFilter,
  defaultLimit: number,
): [sql: string, params: Param[]] {
  const conditions = ['true']
  const params: Param[] = []
  if (eventIds !== undefined) params.push(JSON.stringify([...new Set(eventIds)]))
  const condition = (sql: string, param: Param) => {
    conditions.push(sql)
    params.push(param)
  }
  if (status !== undefined) condition('e.status = ?', EventStatus[status])
  if (eventType !== undefined) condition('e.event_type = ?', eventType)
  if (afterSeq !== undefined) condition('e.seq > ?', afterSeq)
  params.push(String(limit ?? defaultLimit))
  return [statement(conditions.join(' and '), eventIds !== undefined), params]
}

export async function list(
  sql: Statements,
  query: Query,
  filter: EventFilter,
): Promise<readonly EventRecord[]> {
  const { rows } = await query(...filtered(sql.list, filter, 100))
  return rows.map((row) =>
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
}

/** Inside a transaction. */
export async function retryDead(
  sql: Statements,
  query: Query,
  filter: EventFilter,
): Promise<readonly string[]> {
  const { rows } = await query(...filtered(sql.dead, filter, EVERYTHING))
  const free = rows.filter((row) => row[1] === null).map((row) => row[0] as string)
  const ordered = rows.filter((row) => row[1] !== null).map((row) => row[0] as string)
  if (free.length > 0) await query(sql.retry, [JSON.stringify(free)])
  if (ordered.length > 0) {
    const ids = JSON.stringify(ordered)
    await query(sql.leave, [ids, LEAVING])
    await query(sql.tail, [ids, LEAVING])
    await query(sql.gone, [ids, LEAVING])
  }
  return rows.map((row) => row[0] as string)
}

/** Inside a transaction. */
export async function discardDead(
  sql: Statements,
  query: Query,
  filter: EventFilter,
): Promise<readonly string[]> {
  const { rows } = await query(...filtered(sql.dead, filter, EVERYTHING))
  const ids = rows.map((row) => row[0] as string)
  if (ids.length > 0) await query(sql.discard, [JSON.stringify(ids)])
  return ids
}
