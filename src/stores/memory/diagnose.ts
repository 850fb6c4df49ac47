import { backlogChecks, type Check, type LeaseTimes, LIMITS, runChecks, warning } from '../../diagnosis.js'
import type { Finding, OutboxStore } from '../../store.js'
import type { MemoryDatabase } from './database.js'
import { isLeased, type Row } from './row.js'

export function diagnose(
  store: Pick<OutboxStore, 'overview' | 'instances' | 'paused' | 'unhandled'>,
  database: MemoryDatabase,
  now: () => number,
): Promise<readonly Finding[]> {
  const durability: Check = {
    check: 'durability',
    look: () =>
      warning(
        'This is the memory store: nothing outlives the process, and only this process sees it.',
        'Outside of tests use postgresStore(), mysqlStore() or sqliteStore().',
      ),
  }
  const leases = async () => leaseTimes(database, await store.paused(), now(), LIMITS.lostMs)
  return runChecks([durability, ...backlogChecks(store, leases, LIMITS)], async () => {})
}

/** Of an ordering key only the first row counts: the others wait for it. */
function leaseTimes(
  database: MemoryDatabase,
  paused: readonly string[],
  now: number,
  lostMs: number,
): LeaseTimes {
  const isPaused = ({ event }: Row) => paused.includes('*') || paused.includes(event.eventType)
  const leased = [...database.leased, ...database.ordered].filter(isLeased)
  const lost = leased.filter(
    (row) =>
      row.lockedUntil < now - lostMs &&
      row.availableAt <= now &&
      !isPaused(row) &&
      (row.event.orderingKey === null || database.isHead(row)),
  )
  return {
    lost: lost.length,
    lostForMs: lost.reduce((most, row) => Math.max(most, now - row.lockedUntil), 0),
    longestMs: leased.reduce((most, row) => Math.max(most, row.lockedUntil - now), 0),
  }
}
