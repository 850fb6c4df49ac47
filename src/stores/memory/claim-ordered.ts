import type { OrderedClaimRequest, OrderedClaimResult } from '../../store.js'
import { compileFilter } from './accepts.js'
import { lease } from './claim.js'
import type { KeyQueue, MemoryDatabase } from './database.js'
import { isLeased, isPending, type Row } from './row.js'

/** Keys that one claim looks at; when there are more, the next one goes on behind them. */
const KEYS_LOOKED_AT = 1_000

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
  const runs: Row[][] = []
  let { afterKey, suspects } = request
  let bytes = 0
  let looked = 0
  let nextDueMs = Number.POSITIVE_INFINITY
  let reachedEnd = true

  for (const queue of database.keysBehind(request.afterKey)) {
    reachedEnd = false
    if (looked >= KEYS_LOOKED_AT || runs.length >= request.keys) break
    const run = runOf(firstRows(queue, request.runLength), now, canRun)
    const suspect = isSuspect(run) ? 1 : 0
    if (run.length > 0 && suspect <= suspects) {
      const size = run.reduce((sum, row) => sum + row.event.payloadSize, 0)
      // What does not fit comes first next time; a cursor that went past it could keep it waiting for ever.
      if (runs.length > 0 && bytes + size > request.maxBytes) break
      bytes += size
      suspects -= suspect
      runs.push(run)
    }
    nextDueMs = Math.min(nextDueMs, waitOf(queue, now))
    looked++
    afterKey = queue.key
    reachedEnd = true
  }

  const until = now + request.leaseMs
  return {
    rows: runs.flatMap((run) => {
      const suspect = isSuspect(run)
      return run.map((row) => lease(database, row, until, request.token, suspect))
    }),
    afterKey: reachedEnd ? null : afterKey,
    nextDueMs: Number.isFinite(nextDueMs) ? nextDueMs : null,
  }
}

/** What can be taken of a key now: its first rows as far as each may run, or its first row alone after a lost lease. */
function runOf(rows: Row[], now: number, canRun: (row: Row) => boolean): Row[] {
  // One that committed late, in front of a run that is being worked on, waits for it.
  if (rows.some((row) => isLeased(row) && row.lockedUntil >= now)) return []
  const end = rows.findIndex((row, index) => !canRun(row) || (index > 0 && isLeased(row)))
  const run = end < 0 ? rows : rows.slice(0, end)
  return isSuspect(run) ? run.slice(0, 1) : run
}

/** Up to so many pending rows, and the dead ones between them. */
function firstRows(queue: KeyQueue, runLength: number): Row[] {
  const rows: Row[] = []
  let pending = 0
  for (const row of queue.rows) {
    if (pending >= runLength) break
    if (isPending(row)) pending++
    rows.push(row)
  }
  return rows
}

/** A run whose first row was leased before: that lease has run out. */
function isSuspect(run: readonly Row[]): boolean {
  return run[0] !== undefined && isLeased(run[0])
}

function waitOf(queue: KeyQueue, now: number): number {
  const head = queue.rows.first()
  return head && isPending(head) && head.availableAt > now ? head.availableAt - now : Number.POSITIVE_INFINITY
}
