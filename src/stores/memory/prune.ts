import type { MemoryDatabase } from './database.js'

/** Deletes those that were done first, at most `limit`. */
export function pruneDone(database: MemoryDatabase, now: number, olderThanMs: number, limit: number): number {
  let pruned = 0
  for (; pruned < limit; pruned++) {
    const row = database.done.first()
    if (!row || (row.doneAt ?? now) > now - olderThanMs) break
    database.delete(row)
  }
  return pruned
}
