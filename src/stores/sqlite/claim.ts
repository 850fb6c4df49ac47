import {
  acceptsNothing,
  type ClaimedRow,
  type ClaimRequest,
  type ClaimResult,
  UNROUTABLE_BYTES,
  type UnroutableRequest,
} from '../../store.js'
import { ACCEPTED, filterParams, JOIN_NAMES, knownParams, WITH_NAMES } from './accepts.js'
import { sizeBesidesPayload, sizeOf } from './columns.js'
import type { Connections } from './connections.js'
import type { Connection, Params, Row, SqliteDatabase } from './driver.js'
import { lease, leaseRange, leaseStatements, type Range, SOLO, SOME } from './lease.js'
import type { Names } from './names.js'
import { clock, FRESH, indexesOf, isNoTime, LEASED, NEVER, NOW, ORDERED, TIMED } from './schema.js'

/** A row from the future is old enough if nothing is left alone. A row without a valid time is always old enough. */
export const NOT_RECENT = `(:skipRecentMs = 0 or e.created_at <= :now - :skipRecentMs or ${isNoTime('e.created_at')})`

/** A row without a valid time is due, so that it becomes dead and does not wait without an end. */
export const DUE = `(e.available_at <= :now or ${isNoTime('e.available_at')})`

/** As a sum: with a parameter alone SQLite would prepare the statement anew for every call. */
const LIMIT = 'limit :limit + 0'

export function claimStatements(names: Names) {
  const index = indexesOf(names)
  const leases = leaseStatements(names)
  const pick = (from: string, where: string, order: string) => `
with ${WITH_NAMES}
select e.seq as seq, ${sizeOf('e.')} as size from ${names.events} e indexed by ${from} ${JOIN_NAMES}
 where ${where} and ${ACCEPTED}
 order by ${order} ${LIMIT}`
  const stale = `(e.locked_until is null or e.locked_until < :now)
    and (e.created_at <= :now - :olderThanMs or ${isNoTime('e.created_at')}) and not (${ACCEPTED})`
  // Two statements for one index, because SQLite cannot use the index for both conditions at once.
  const timed = `${TIMED} and e.available_at <= :now and e.status in (0, 2)`
  const misdated = `${TIMED} and ${isNoTime('e.available_at')} and e.status in (0, 2)`
  const unrouted = (from: string, where: string, order: string) => `
with ${WITH_NAMES}
select e.seq, ${sizeBesidesPayload('e.')} from ${names.events} e indexed by ${from} ${JOIN_NAMES}
 where ${where} and ${stale} order by ${order} ${LIMIT}`
  const firstOf = (condition: string) => `(select f.seq from ${names.events} f indexed by ${index.ordered}
      where ${ORDERED} and ${condition} order by f.ordering_key, f.seq limit 1)`
  const fresh = pick(
    index.fresh,
    `${FRESH} and e.seq >= :fromSeq and e.locked_until is null and ${NOT_RECENT}`,
    'e.seq',
  )
  return {
    fresh,
    // One row instead of many, where they turn out to be neighbours.
    freshRange: `select min(seq), max(seq), count(*), total(size) from (${fresh})`,
    timed: pick(
      index.timed,
      `${timed} and e.available_at > :since and e.locked_until is null`,
      'e.available_at',
    ),
    misdated: pick(index.timed, `${misdated} and e.locked_until is null`, 'e.available_at'),
    suspects: pick(
      index.leased,
      // One that is tried alone may have been a suspect before.
      `${LEASED} and e.status in (0, 2) and ${DUE} and e.locked_until < :now
        and (:most = 1 or substr(e.locked_by, -${SOLO.length}) not in ('${SOLO}', '${SOME}'))`,
      'e.locked_until',
    ),
    lease: leases.handled,
    outlook: `
select ${NOW} as now,
  coalesce((select seq from sqlite_sequence where name = '${names.table}'), 0) as high,
  (select available_at from ${names.events} indexed by ${index.timed}
    where ${TIMED} and available_at > ${NOW} and available_at < ${NEVER} and status in (0, 2) order by available_at limit 1) as due,
  (select 1 from ${names.events} indexed by ${index.ordered} where ${ORDERED} limit 1) as ordered`,
    unroutable: {
      fresh: unrouted(index.fresh, FRESH, 'e.seq'),
      timed: unrouted(index.timed, timed, 'e.available_at'),
      misdated: unrouted(index.timed, misdated, 'e.available_at'),
      // From the first row of one key to that of the next: what waits behind it costs nothing.
      ordered: `
with recursive ${WITH_NAMES}, head(ordering_key, seq) as (
  select ordering_key, seq from ${names.events} where seq = ${firstOf(`f.ordering_key > ''`)}
  union all
  select e.ordering_key, e.seq from head h join ${names.events} e on e.seq = ${firstOf('f.ordering_key > h.ordering_key')}
)
select e.seq, ${sizeBesidesPayload('e.')} from head h cross join ${names.events} e on e.seq = h.seq ${JOIN_NAMES}
 where e.status in (0, 2) and ${DUE} and ${stale} ${LIMIT}`,
      lease: leases.unroutable,
    },
  }
}

type Statements = ReturnType<typeof claimStatements>

interface Picked {
  readonly seq: number
  readonly size: number
}

/**
 * A look first, without any lock: when there is nothing to take, and mostly there is nothing, nobody is disturbed.
 * Then everything is decided again under the write lock, so that no two claims can have the same row.
 */
export async function claim(
  sql: Statements,
  connections: Connections<SqliteDatabase>,
  request: ClaimRequest,
): Promise<ClaimResult> {
  // While everything is paused nothing is looked at, however much waits.
  const idle = acceptsNothing(request.accept)
  const isFreshOnly = request.freshOnly === true && request.suspects === 0
  if (isFreshOnly && idle) {
    return { rows: [], highSeq: null, complete: true, nextSeq: request.fromSeq, nextDueMs: null }
  }
  const run = isFreshOnly ? claimFresh : claimEverything
  const filter = filterParams(request.accept)
  const limit = idle ? 0 : request.limit
  const look = await connections.read((db) =>
    run(sql, db, { ...request, limit: Math.min(limit, 1) }, filter, false),
  )
  if (look.found === 0) return { ...look.result, complete: idle || limit > 0, dueComplete: idle || limit > 0 }
  const { result } = await connections.write(
    (db) => run(sql, db, { ...request, limit }, filter, true),
    'fleeting',
  )
  return result
}

type Run = (
  sql: Statements,
  db: Connection,
  request: ClaimRequest,
  filter: Params,
  takes: boolean,
) => { readonly found: number; readonly result: ClaimResult }

/** Only rows never tried; nothing is summed up. */
const claimFresh: Run = (sql, db, request, filter, takes) => {
  const now = clock(db)
  const range = takes ? freshRange(sql, db, request, filter, now) : undefined
  const picked = range ? [] : pickFresh(sql, db, request, filter, now, request.limit)
  const chosen = within(picked, request.maxBytes)
  const rows = range
    ? leaseRange(sql.lease, db, request, now, range)
    : takes
      ? lease(sql.lease, db, request, now, chosen.map(seqOf))
      : []
  const result = {
    rows,
    highSeq: null,
    complete: rows.length < request.limit && chosen.length === picked.length,
    nextSeq: (rows.at(-1)?.seq ?? request.fromSeq - 1) + 1,
    nextDueMs: null,
  }
  return { found: picked.length, result }
}

/** Rows whose lease ran out first, then those whose time has come (at most half, unless there is room), then new ones. */
const claimEverything: Run = (sql, db, request, filter, takes) => {
  const { limit, suspects, dueWithinMs } = request
  // Before the scans: what is committed behind its back has a higher number than it tells.
  const outlook = db.all(sql.outlook)[0] as Row
  const now = Number(outlook.now)
  const since = dueWithinMs == null ? -NEVER : now - dueWithinMs
  const most = Math.min(suspects, limit)
  const lost = most > 0 ? picks(db.lists(sql.suspects, { ...filter, now, most: suspects, limit: most })) : []
  const room = limit - lost.length
  const timed = room > 0 ? picks(db.lists(sql.timed, { ...filter, now, since, limit: room })) : []
  // Rows without a valid time become due at no moment, so only a scan of all rows finds them.
  if (dueWithinMs == null && timed.length < room) {
    timed.push(...picks(db.lists(sql.misdated, { ...filter, limit: room - timed.length })))
  }
  const seen = {
    highSeq: Number(outlook.high),
    nextDueMs: outlook.due === null ? null : Number(outlook.due) - now,
    hasOrdered: outlook.ordered !== null,
  }
  const range =
    takes && lost.length + timed.length === 0 ? freshRange(sql, db, request, filter, now) : undefined
  if (range) {
    const rows = leaseRange(sql.lease, db, { ...request, suspects: 0 }, now, range)
    const result = {
      rows,
      ...seen,
      complete: rows.length < limit,
      dueComplete: true,
      nextSeq: range.last + 1,
    }
    return { found: rows.length, result }
  }
  const fresh = room > 0 ? pickFresh(sql, db, request, filter, now, room) : []
  const timedCount = Math.min(timed.length, Math.max(Math.ceil(room / 2), room - fresh.length))
  const wanted = [...lost, ...timed.slice(0, timedCount), ...fresh.slice(0, room - timedCount)]
  const chosen = within(wanted, request.maxBytes)
  const isFresh = new Set(fresh)
  const lastFresh = chosen.findLast((row) => isFresh.has(row))
  const result = {
    rows: takes ? lease(sql.lease, db, { ...request, isGroup: suspects > 1 }, now, chosen.map(seqOf)) : [],
    ...seen,
    complete: wanted.length < limit && wanted.length === chosen.length,
    dueComplete: timed.length < room && timedCount === timed.length && wanted.length === chosen.length,
    nextSeq: lastFresh && takes ? lastFresh.seq + 1 : request.fromSeq,
  }
  return { found: wanted.length, result }
}

/** All that a claim of new rows takes, when they are neighbours and small enough together; that is nearly always so. */
function freshRange(
  sql: Statements,
  db: Connection,
  { fromSeq, skipRecentMs, limit, maxBytes }: ClaimRequest,
  filter: Params,
  now: number,
): Range | undefined {
  const [found] = db.lists(sql.freshRange, { ...filter, fromSeq, skipRecentMs, now, limit })
  const [first = 0, last = 0, count = 0, bytes = 0] = (found ?? []).map(Number)
  return count > 0 && last - first + 1 === count && bytes <= maxBytes ? { first, last } : undefined
}

function pickFresh(
  sql: Statements,
  db: Connection,
  { fromSeq, skipRecentMs }: ClaimRequest,
  filter: Params,
  now: number,
  limit: number,
): Picked[] {
  return picks(db.lists(sql.fresh, { ...filter, fromSeq, skipRecentMs, now, limit }))
}

function picks(rows: readonly (readonly unknown[])[]): Picked[] {
  return rows.map(([seq, size]) => ({ seq: Number(seq), size: Number(size) }))
}

function seqOf({ seq }: Picked): number {
  return seq
}

/** As many as the bytes allow; the first one whatever its size. */
function within(rows: readonly Picked[], maxBytes: number): readonly Picked[] {
  let bytes = 0
  const end = rows.findIndex(({ size }, index) => {
    bytes += size
    return index > 0 && bytes > maxBytes
  })
  return end < 0 ? rows : rows.slice(0, end)
}

export async function claimUnroutable(
  sql: Statements['unroutable'],
  connections: Connections<SqliteDatabase>,
  request: UnroutableRequest,
): Promise<readonly ClaimedRow[]> {
  const { olderThanMs, maxBytes = UNROUTABLE_BYTES } = request
  const filter = knownParams(request.known)
  const find = (db: Connection, now: number, most: number) => {
    const found: Picked[] = []
    for (const statement of [sql.fresh, sql.timed, sql.misdated, sql.ordered]) {
      const limit = most - found.length
      if (limit <= 0) break
      found.push(...picks(db.lists(statement, { ...filter, olderThanMs, now, limit })))
    }
    return within(found, maxBytes).map(seqOf)
  }
  if ((await connections.read((db) => find(db, clock(db), Math.min(request.limit, 1)))).length === 0)
    return []
  return connections.write((db) => {
    const now = clock(db)
    return lease(sql.lease, db, request, now, find(db, now, request.limit))
  }, 'fleeting')
}
