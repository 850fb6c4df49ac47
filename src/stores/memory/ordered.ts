import type { OrderedClaimRequest, OrderedClaimResult } from '../../store.js'
import { compileFilter } from './accepts.js'
import { lease, SOLO } from './claim.js'
import type { KeyQueue, MemoryDatabase } from './database.js'
import { isLeased, isPending, type Row, sizeOf } from './row.js'

/** Keys that one claim looks at; when there are more, the next one goes on behind them. */
const KEYS_LOOKED_AT = 1_000
/** So many rows of a key are looked through for a lease: a transaction may commit that many late, in front of it. */
const LOOK_AHEAD = 64
/** Begins the token of a row whose key was taken over: its former owner cannot settle it any more. */
const LOST = '~'

/** What a claim takes of one key, and the rows behind that which lost their lease. */
interface Taking {
  readonly run: readonly Row[]
  readonly lost: readonly Row[]
  readonly suspect: boolean
}

/** Key by key, each through its first row only: the run from there on, whole or not at all. */
export function claimOrdered(
  database: MemoryDatabase,
  now: number,
  request: OrderedClaimRequest,
): OrderedClaimResult {
  const accepts = compileFilter(request.accept)
  const canRun = (row: Row) =>
    isPending(row) &&
    row.availableAt <= now &&
    row.createdAt <= now - request.skipRecentMs &&
    accepts(row.event)
  const takings: Taking[] = []
  let { afterKey, suspects } = request
  let rows = 0
  let bytes = 0
  let looked = 0
  let nextDueMs = Number.POSITIVE_INFINITY
  let reachedEnd = true

  for (const queue of database.keysBehind(request.afterKey)) {
    reachedEnd = false
    if (looked >= KEYS_LOOKED_AT || takings.length >= request.keys) break
    const taking = take(queue, now, request.runLength, canRun)
    if (taking && (!taking.suspect || suspects > 0)) {
      const size = taking.run.reduce((sum, row) => sum + sizeOf(row), 0)
      // What does not fit comes first next time; a cursor that went past it could keep it waiting for ever.
      const isOver = rows + taking.run.length > request.limit || bytes + size > request.maxBytes
      if (takings.length > 0 && isOver) break
      rows += taking.run.length
      bytes += size
      if (taking.suspect) suspects--
      takings.push(taking)
    }
    nextDueMs = Math.min(nextDueMs, waitOf(queue, now))
    looked++
    afterKey = queue.key
    reachedEnd = true
  }

  for (const row of takings.flatMap((taking) => taking.lost)) {
    if (!row.lockedBy?.startsWith(LOST)) database.change(row, { lockedBy: LOST + row.lockedBy })
  }
  return {
    rows: takings.flatMap(({ run, suspect }) =>
      run.map((row) => lease(database, row, now + request.leaseMs, request.token, suspect ? SOLO : '')),
    ),
    afterKey: reachedEnd ? null : afterKey,
    nextDueMs: Number.isFinite(nextDueMs) ? nextDueMs : null,
  }
}

/** The first rows of a key as far as each may run, or its first row alone when that one lost its lease. */
function take(
  queue: KeyQueue,
  now: number,
  runLength: number,
  canRun: (row: Row) => boolean,
): Taking | undefined {
  const rows = firstRows(queue, Math.max(runLength, LOOK_AHEAD))
  const [head] = rows
  if (!head || !canRun(head)) return undefined
  // One that committed late, in front of a run that is being worked on, waits for it.
  if (rows.some((row) => isLeased(row) && row.lockedUntil >= now)) return undefined
  const suspect = isLeased(head)
  const end = rows.findIndex((row, index) => index > 0 && (suspect || isLeased(row) || !canRun(row)))
  const run = rows.slice(0, Math.min(runLength, end < 0 ? rows.length : end))
  return { run, lost: rows.slice(run.length).filter(isLeased), suspect }
}

function firstRows(queue: KeyQueue, count: number): Row[] {
  const rows: Row[] = []
  for (const row of queue.rows) {
    if (rows.length >= count) break
    rows.push(row)
  }
  return rows
}

function waitOf(queue: KeyQueue, now: number): number {
  const head = queue.rows.first()
  return head && isPending(head) && head.availableAt > now ? head.availableAt - now : Number.POSITIVE_INFINITY
}
