import type { UnhandledPage, UnhandledRequest } from '../../store.js'
import { compileFilter } from './accepts.js'
import type { MemoryDatabase } from './database.js'
import { isPending } from './row.js'

export function unhandled(database: MemoryDatabase, now: number, request: UnhandledRequest): UnhandledPage {
  const { known, olderThanMs, limit, after } = request
  const isKnown = compileFilter({ ...known, excludedTypes: [] })
  const eventTypes = new Set<string>()
  let read = 0
  for (const row of database.all.from(({ seq }) => seq > Number(after ?? 0))) {
    if (!isPending(row)) continue
    if (row.createdAt <= now - olderThanMs && !isKnown(row.event)) eventTypes.add(row.event.eventType)
    if (++read === limit) return { eventTypes: [...eventTypes], after: String(row.seq) }
  }
  return { eventTypes: [...eventTypes], after: null }
}
