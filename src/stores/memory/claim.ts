import type { ClaimedRow, ClaimRequest, ClaimResult, UnroutableRequest } from '../../store.js'
import { compileFilter } from './accepts.js'
import type { MemoryDatabase } from './database.js'
import { isLeased, type Row, toClaimed } from './row.js'

/** Ends the token of a row that is tried alone: when that lease runs out too, the row itself is to blame. */
const SOLO = ':solo'

/** Rows whose lease ran out first, then those whose time has come (at most half, unless there is room), then new ones. */
export function claim(database: MemoryDatabase, now: number, request: ClaimRequest): ClaimResult {
  const accepts = compileFilter(request.accept)
  const canTake = (row: Row) => accepts(row.event) && row.createdAt <= now - request.skipRecentMs

  const suspects = pick(
    database.leased,
    (row) => row.lockedUntil < now,
    canTake,
    Math.min(request.suspects, request.limit),
  )
  const room = request.limit - suspects.length
  const since = now - (request.dueWithinMs ?? Number.POSITIVE_INFINITY)
  const isNew = (row: Row) => row.availableAt > since && canTake(row)
  const timed = pick(database.timed, (row) => row.availableAt <= now, isNew, room)
  const fresh = pick(
    database.fresh.from((row) => row.seq >= request.fromSeq),
    () => true,
    canTake,
    room,
  )
  const timedCount = Math.max(Math.ceil(room / 2), room - fresh.length)
  const wanted = [...suspects, ...timed.slice(0, timedCount), ...fresh]

  const chosen = cut(wanted, request.limit, request.maxBytes)
  const isSuspect = new Set(suspects)
  const lastFresh = chosen.findLast((row) => fresh.includes(row))
  return {
    rows: chosen.map((row) => lease(database, row, now + request.leaseMs, request.token, isSuspect.has(row))),
    highSeq: database.highSeq,
    complete: timed.length < room && fresh.length < room && chosen.length === wanted.length,
    nextSeq: lastFresh ? lastFresh.seq + 1 : request.fromSeq,
    nextDueMs: nextDueMs(database, now),
    hasOrdered: database.ordered.size > 0,
  }
}

function nextDueMs(database: MemoryDatabase, now: number): number | null {
  for (const row of database.timed) if (row.availableAt > now) return row.availableAt - now
  return null
}

/**
 * Takes a lease on due rows that nobody is known to handle; of an ordering key on the first one only. They are not
 * tried, so none is charged. A paused type is known all the same.
 */
export function claimUnroutable(
  database: MemoryDatabase,
  now: number,
  request: UnroutableRequest,
): readonly ClaimedRow[] {
  const isKnown = compileFilter({ ...request.known, except: [] })
  const canTake = (row: Row) =>
    !isKnown(row.event) &&
    row.createdAt <= now - request.olderThanMs &&
    (!isLeased(row) || row.lockedUntil < now)
  const rows = [
    ...pick(database.fresh, () => true, canTake, request.limit),
    ...pick(database.timed, (row) => row.availableAt <= now, canTake, request.limit),
    ...pick(
      database.ordered,
      (row) => row.availableAt <= now,
      (row) => database.isHead(row) && canTake(row),
      request.limit,
    ),
    ...pick(database.leased, (row) => row.lockedUntil < now, canTake, request.limit),
  ]
  return rows.slice(0, request.limit).map((row) => {
    database.change(row, { lockedBy: request.token, lockedUntil: now + request.leaseMs })
    return toClaimed(row, request.token, false)
  })
}

/** The first `limit` rows that can be taken, as long as `isDue` holds. */
function pick(
  rows: Iterable<Row>,
  isDue: (row: Row) => boolean,
  canTake: (row: Row) => boolean,
  limit: number,
): Row[] {
  const picked: Row[] = []
  if (limit <= 0) return picked
  for (const row of rows) {
    if (!isDue(row)) break
    if (canTake(row)) picked.push(row)
    if (picked.length >= limit) break
  }
  return picked
}

/** As many as both bounds allow; the first one whatever its size. */
function cut(rows: readonly Row[], limit: number, maxBytes: number): Row[] {
  const chosen: Row[] = []
  let bytes = 0
  for (const row of rows) {
    bytes += row.event.payloadSize
    if (chosen.length >= limit || (chosen.length > 0 && bytes > maxBytes)) break
    chosen.push(row)
  }
  return chosen
}

export function lease(
  database: MemoryDatabase,
  row: Row,
  until: number,
  token: string,
  suspect: boolean,
): ClaimedRow {
  const lockedBy = suspect ? token + SOLO : token
  const charged = suspect && row.lockedBy?.endsWith(SOLO) ? 1 : 0
  database.change(row, { lockedBy, lockedUntil: until, attempts: row.attempts + charged })
  return toClaimed(row, lockedBy, suspect)
}
