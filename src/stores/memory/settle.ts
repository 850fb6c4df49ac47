import { sanitizeText } from '../../core/text.js'
import type { Claim, EventRecord, Failure, Settlement } from '../../store.js'
import type { MemoryDatabase } from './database.js'
import { isPending, type Row } from './row.js'

const ERROR_LENGTH = 4_000
const KEPT_FAILURES = 10

/** Records each outcome whose row is pending and still carries the token; the others change nothing. */
export function settleIfLeased(
  database: MemoryDatabase,
  now: number,
  settlements: readonly Settlement[],
  keepDone: boolean,
): ReadonlySet<string> {
  const settled = new Set<string>()
  for (const settlement of settlements) {
    const row = leasedRow(database, settlement)
    if (!row) continue
    settled.add(settlement.eventId)
    if (settlement.outcome === 'done' && !keepDone) database.delete(row)
    else database.change(row, { ...outcomeOf(row, settlement, now), lockedBy: null, lockedUntil: 0 })
  }
  return settled
}

/** Prolongs the leases that have not run out. */
export function renewIfLeased(
  database: MemoryDatabase,
  now: number,
  claims: readonly Claim[],
  leaseMs: number,
): ReadonlySet<string> {
  const renewed = new Set<string>()
  for (const claim of claims) {
    const row = leasedRow(database, claim)
    if (!row || row.lockedUntil <= now) continue
    database.change(row, { lockedUntil: now + leaseMs })
    renewed.add(claim.eventId)
  }
  return renewed
}

function leasedRow(database: MemoryDatabase, claim: Claim): Row | undefined {
  const row = database.rows.get(claim.eventId)
  return row && isPending(row) && row.lockedBy === claim.token ? row : undefined
}

function outcomeOf(row: Row, settlement: Settlement, now: number): Partial<Row> {
  if (settlement.outcome === 'done') return { status: 'DONE', doneAt: now }
  if (settlement.outcome === 'release') {
    return settlement.delayMs > 0 ? { isTimed: true, availableAt: now + settlement.delayMs } : {}
  }
  const failed = {
    attempts: row.attempts + settlement.attempts,
    handledBy: [...new Set([...row.handledBy, ...settlement.handledBy])],
    failures: lastFailures(row.failures, settlement.failures, now),
    lastError: sanitizeText(settlement.error, ERROR_LENGTH) || row.lastError,
  }
  if (settlement.outcome === 'dead') return { ...failed, status: 'DEAD', halts: settlement.halts ?? false }
  return { ...failed, status: 'RETRY', isTimed: true, availableAt: now + settlement.delayMs }
}

function lastFailures(
  before: EventRecord['failures'],
  added: readonly Failure[],
  now: number,
): EventRecord['failures'] {
  const dated = added.map((failure) => ({
    ...failure,
    message: sanitizeText(failure.message, ERROR_LENGTH),
    at: new Date(now),
  }))
  return [...before, ...dated].slice(-KEPT_FAILURES)
}
