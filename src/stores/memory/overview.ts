import { leasesByInstance, MOST_TYPES } from '../../diagnosis.js'
import type { StoreOverview, TypeBacklog } from '../../store.js'
import type { MemoryDatabase } from './database.js'
import type { Row } from './row.js'

export function overview(database: MemoryDatabase, now: number): StoreOverview {
  const types = new Map<string, { pending: number; dead: number; oldestLagMs: number }>()
  const leases = new Map<string, number>()
  const backlogOf = ({ event: { eventType } }: Row) => {
    const known = types.get(eventType) ?? { pending: 0, dead: 0, oldestLagMs: 0 }
    types.set(eventType, known)
    return known
  }
  for (const rows of [database.fresh, database.timed, database.leased, database.ordered]) {
    for (const row of rows) {
      const backlog = backlogOf(row)
      backlog.pending++
      backlog.oldestLagMs = Math.max(backlog.oldestLagMs, now - Math.max(row.availableAt, row.createdAt))
      if (row.lockedBy !== null && row.lockedUntil > now)
        leases.set(row.lockedBy, (leases.get(row.lockedBy) ?? 0) + 1)
    }
  }
  for (const row of database.dead) backlogOf(row).dead++
  return {
    types: [...types]
      .map(([eventType, backlog]): TypeBacklog => ({ eventType, ...backlog }))
      .sort((a, b) => b.pending - a.pending || byBytes(a.eventType, b.eventType))
      .slice(0, MOST_TYPES),
    leases: leasesByInstance(leases),
  }
}

/** As databases sort; JavaScript's own order differs beyond U+D7FF. */
function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}
