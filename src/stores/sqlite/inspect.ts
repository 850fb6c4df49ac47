import { textIn } from '../../core/columns.js'
import { eventRecord } from '../../event-record.js'
import { type EventFilter, type EventRecord, EventStatus, type StoreStats } from '../../store.js'
import { EVENT_COLUMNS, safe } from './columns.js'
import type { Connection, Params, Row } from './driver.js'
import { uncheckedRow } from './lease.js'
import type { Names } from './names.js'
import { clock, DEAD, FRESH, indexesOf, isNoTime, NEVER, NOW, ORDERED, TIMED } from './schema.js'

const LISTED = 100
const EVERYTHING = Number.MAX_SAFE_INTEGER

export function inspectStatements(names: Names) {
  const index = indexesOf(names)
  const waiting = `${TIMED} and available_at < ${NEVER} and status <> 3`
  const misdated = `${TIMED} and ${isNoTime('available_at')} and status in (0, 2)`
  // Rows without a valid time do not count.
  const time = (column: string) => `iif(${isNoTime(column)}, null, max(${column}, -${NEVER}))`
  const pendingOrdered = `${names.events} indexed by ${index.ordered} where ${ORDERED} and status in (0, 2)`
  // Finds the numbers first. Only the listed rows are loaded.
  const list = (page: string) => `
select ${EVENT_COLUMNS}, status, failures, last_error, ${safe('locked_until')},
  case when available_at < ${NEVER} then max(available_at, -${NEVER}) else max(min(created_at, ${NEVER}), -${NEVER}) end as available_at,
  ${safe('created_at')}, ${safe('done_at')}
  from ${names.events} where seq in (${page}) order by seq`
  return {
    stats: `
select ${NOW} as now,
  (select count(*) from ${names.events} indexed by ${index.fresh} where ${FRESH}) as fresh,
  (select count(*) from ${names.events} indexed by ${index.timed} where ${waiting}) +
    (select count(*) from ${names.events} indexed by ${index.timed} where ${misdated}) as timed,
  (select count(*) from ${pendingOrdered}) as ordered,
  (select count(*) from ${names.events} indexed by ${index.timed} where ${DEAD}) as dead,
  (select ${time('created_at')} from ${names.events} indexed by ${index.fresh} where ${FRESH} order by seq limit 1) as fresh_due,
  (select ${time('available_at')} from ${names.events} indexed by ${index.timed} where ${waiting}
    order by available_at limit 1) as timed_due,
  (select min(${time('available_at')}) from ${pendingOrdered}) as ordered_due`,
    counters: `
select coalesce(sum(done), 0) as done, coalesce(sum(failed), 0) as failed, coalesce(sum(dead), 0) as dead
  from ${names.instances}`,
    list: (where: string) => list(`select seq from ${names.events} where ${where} order by seq limit :limit`),
    /**
     * Dead rows of the store have the same `available_at`, and the index has rows with the same time in the order of `seq`.
     * Other times occur in rows of other programs only, which are sorted. After ANALYZE, SQLite 3.45 scans the index for a time
     * that most rows have, and then sorts all of them unless the order names the time.
     */
    listDead: (where: string) => {
      const page = (time: string, order: string) => `
  select * from (select seq from ${names.events} indexed by ${index.timed}
    where ${DEAD} and available_at ${time} ${NEVER} and ${where} order by ${order} limit :limit)`
      return list(`select seq from (${page('=', 'available_at, seq')} union all ${page('<', 'seq')}
    union all ${page('>', 'seq')}) order by seq limit :limit`)
    },
    dead: (where: string) => `
select seq, event_id, ordering_key is not null and halts is not 1 as goes_to_tail from ${names.events} where ${DEAD} and ${where} order by seq limit :limit`,
    highSeq: `select seq from sqlite_sequence where name = '${names.table}'`,
    // From a list of [seq, new seq].
    retry: `
update ${names.events} set status = 2, attempts = 0, available_at = :now, halts = null, seq = m.value ->> 1
  from json_each(:moves) m where seq = m.value ->> 0`,
    // An UPDATE draws no number by itself.
    draw: `update sqlite_sequence set seq = :seq where name = '${names.table}'`,
    discard: `delete from ${names.events} where seq in (select value from json_each(:seqs))`,
  }
}

type Statements = ReturnType<typeof inspectStatements>

export function stats(sql: Statements, db: Connection): StoreStats {
  const row = db.all(sql.stats)[0] as Row
  const counters = db.all(sql.counters)[0] as Row
  const now = Number(row.now)
  const due = [row.fresh_due, row.timed_due, row.ordered_due].map((at) => (at === null ? now : Number(at)))
  return {
    pending: Number(row.fresh) + Number(row.timed) + Number(row.ordered),
    dead: Number(row.dead),
    counters: { done: Number(counters.done), failed: Number(counters.failed), dead: Number(counters.dead) },
    oldestLagMs: Math.max(0, now - Math.min(...due)),
  }
}

/** Only the conditions that are asked for, so that each can use its index. */
function conditions(filter: EventFilter, defaultLimit: number): { where: string; params: Params } {
  const parts = ['true']
  const params: Record<string, string | number> = { limit: filter.limit ?? defaultLimit }
  const add = (condition: string, name: string, value: string | number) => {
    parts.push(condition)
    params[name] = value
  }
  if (filter.status !== undefined) add('status = :status', 'status', EventStatus[filter.status])
  if (filter.eventIds !== undefined) {
    add('event_id in (select value from json_each(:ids))', 'ids', JSON.stringify(filter.eventIds))
  }
  if (filter.eventType !== undefined) add('event_type = :type', 'type', filter.eventType)
  if (filter.afterSeq !== undefined) add('seq > :afterSeq', 'afterSeq', filter.afterSeq)
  return { where: parts.join(' and '), params }
}

export function list(sql: Statements, db: Connection, filter: EventFilter): readonly EventRecord[] {
  if (filter.status === 'DEAD' && filter.eventIds === undefined) {
    const { where, params } = conditions({ ...filter, status: undefined }, LISTED)
    return db.all(sql.listDead(where), params).map(recordOf)
  }
  const { where, params } = conditions(filter, LISTED)
  return db.all(sql.list(where), params).map(recordOf)
}

/** Inside a write transaction. One with an ordering key goes to its tail: in its place it would be handled beside its successors. */
export function retryDead(sql: Statements, db: Connection, filter: EventFilter): readonly string[] {
  const dead = findDead(sql, db, filter)
  if (dead.length === 0) return []
  const highSeq = Number(db.all(sql.highSeq)[0]?.seq ?? 0)
  let tail = highSeq
  const moves = dead.map((row) => [Number(row.seq), row.goes_to_tail ? ++tail : Number(row.seq)])
  db.run(sql.retry, { moves: JSON.stringify(moves), now: clock(db) })
  if (tail > highSeq) db.run(sql.draw, { seq: tail })
  return dead.map((row) => textIn(row.event_id))
}

/** Inside a write transaction. */
export function discardDead(sql: Statements, db: Connection, filter: EventFilter): readonly string[] {
  const dead = findDead(sql, db, filter)
  db.run(sql.discard, { seqs: JSON.stringify(dead.map((row) => Number(row.seq))) })
  return dead.map((row) => textIn(row.event_id))
}

function findDead(sql: Statements, db: Connection, filter: EventFilter): readonly Row[] {
  const { where, params } = conditions(filter, EVERYTHING)
  return db.all(sql.dead(where), params)
}

function recordOf(row: Row): EventRecord {
  return eventRecord(uncheckedRow(Object.values(row)), {
    status: row.status,
    failures: row.failures,
    lastError: row.last_error,
    lockedBy: row.locked_by,
    lockedUntil: row.locked_until,
    availableAt: row.available_at,
    createdAt: row.created_at,
    doneAt: row.done_at,
  })
}
