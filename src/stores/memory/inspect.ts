import { hideFromInspection } from '../../core/redact.js'
import type { EventFilter, EventRecord, InstanceCounters, StoreStats } from '../../store.js'
import type { MemoryDatabase } from './database.js'
import { type Row, toRecord } from './row.js'

export function stats(database: MemoryDatabase, now: number, counters: InstanceCounters): StoreStats {
  return {
    pending: database.pendingCount,
    dead: database.dead.size,
    counters,
    oldestLagMs: Math.max(0, now - oldestDue(database, now)),
  }
}

/** In the order of `seq`, a hundred unless the filter says otherwise. */
export function list(database: MemoryDatabase, filter: EventFilter): readonly EventRecord[] {
  return matching(database.all, { ...filter, limit: filter.limit ?? 100 }).map((row) =>
    hideFromInspection(toRecord(row)),
  )
}

/** An ordered one goes to the tail of its key, behind those that went ahead meanwhile; none did if it halted the key. */
export function retryDead(database: MemoryDatabase, now: number, filter: EventFilter): readonly string[] {
  return matching(database.dead, filter).map((row) => {
    database.change(row, {
      status: 'RETRY',
      attempts: 0,
      availableAt: now,
      isTimed: true,
      halts: false,
      ...(row.event.orderingKey === null || row.halts ? {} : { seq: database.drawSeq() }),
    })
    return row.event.eventId
  })
}

export function discardDead(database: MemoryDatabase, filter: EventFilter): readonly string[] {
  return matching(database.dead, filter).map((row) => {
    database.delete(row)
    return row.event.eventId
  })
}

function matching(rows: { from(reached: (row: Row) => boolean): Iterable<Row> }, filter: EventFilter): Row[] {
  const { status, eventType, afterSeq = 0, limit = Number.POSITIVE_INFINITY } = filter
  const ids = filter.eventIds && new Set(filter.eventIds)
  const found: Row[] = []
  for (const row of rows.from((row) => row.seq > afterSeq)) {
    if (found.length >= limit) break
    if (status !== undefined && row.status !== status) continue
    if (eventType !== undefined && row.event.eventType !== eventType) continue
    if (ids && !ids.has(row.event.eventId)) continue
    found.push(row)
  }
  return found
}

/** When the longest waiting of the due rows became due, leased or not; `now` when there is none. */
function oldestDue(database: MemoryDatabase, now: number): number {
  let oldest = Math.min(
    now,
    database.fresh.first()?.availableAt ?? now,
    database.timed.first()?.availableAt ?? now,
    database.ordered.first()?.availableAt ?? now,
  )
  for (const row of database.leased) oldest = Math.min(oldest, row.availableAt)
  return oldest
}
