import {
  type ClaimedRow,
  type ClaimRequest,
  type ClaimResult,
  UNROUTABLE_BYTES,
  type UnroutableRequest,
} from '../../store.js'
import { compileFilter } from './accepts.js'
import type { MemoryDatabase } from './database.js'
import { isLeased, type Row, sizeBesidesPayload, sizeOf, toClaimed } from './row.js'

/** Ends the token of a row that is tried alone: when that lease runs out too, the row itself is to blame. */
export const SOLO = ':solo'
/** Ends the tokens of rows that are tried together: when those leases run out too, each is tried alone. */
const SOME = ':some'

/** Rows whose lease ran out first, then those whose time has come (at most half, unless there is room), then new ones. */
export function claim(database: MemoryDatabase, now: number, request: ClaimRequest): ClaimResult {
  const accepts = compileFilter(request.accept)
  const canTake = (row: Row) => accepts(row.event) && row.createdAt <= now - request.skipRecentMs

  const suspects = pick(
    database.leased,
    (row) => row.lockedUntil < now,
    (row) => canTake(row) && (request.suspects === 1 || !wasSuspect(row)),
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
  const mark = request.suspects === 1 ? SOLO : SOME
  const markOf = (row: Row) => (suspects.includes(row) ? mark : '')
  const lastFresh = chosen.findLast((row) => fresh.includes(row))
  return {
    rows: chosen
      .map((row) => lease(database, row, now + request.leaseMs, request.token, markOf(row)))
      .sort((a, b) => a.seq - b.seq),
    highSeq: database.highSeq,
    complete: timed.length < room && fresh.length < room && chosen.length === wanted.length,
    dueComplete:
      timed.length < room &&
      timed.length <= timedCount &&
      chosen.length >= Math.min(wanted.length, request.limit),
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
  const isKnown = compileFilter({ ...request.known, excludedTypes: [] })
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
  return cut(rows, request.limit, request.maxBytes ?? UNROUTABLE_BYTES, sizeBesidesPayload).map((row) => {
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
function cut(rows: readonly Row[], limit: number, maxBytes: number, size = sizeOf): Row[] {
  const chosen: Row[] = []
  let bytes = 0
  for (const row of rows) {
    bytes += size(row)
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
  mark: string,
): ClaimedRow {
  const lockedBy = token + mark
  const charged = mark === SOLO && row.lockedBy?.endsWith(SOLO) ? 1 : 0
  database.change(row, { lockedBy, lockedUntil: until, attempts: row.attempts + charged })
  return toClaimed(row, lockedBy, mark !== '')
}

function wasSuspect({ lockedBy }: Row): boolean {
  return lockedBy !== null && (lockedBy.endsWith(SOLO) || lockedBy.endsWith(SOME))
}
