import type { MemoryClient } from './client.js'

/** When which handler has processed which event, by `markKey`. */
export type Marks = Map<string, number>

/** Never an event id: those hold no control characters. */
function markKey(handler: string, eventId: string): string {
  return `\u0000${JSON.stringify([handler, eventId])}`
}

/** Part of the client's transaction. A mark that another open transaction has set is waited for. */
export async function markProcessed(
  marks: Marks,
  now: () => number,
  client: MemoryClient,
  handler: string,
  eventId: string,
): Promise<boolean> {
  const { transaction } = client
  const key = markKey(handler, eventId)
  for (let holder = transaction.otherHolder([key]); holder; holder = transaction.otherHolder([key])) {
    await transaction.waitFor(holder)
  }
  if (transaction.holds(key) || marks.has(key)) return false
  const at = now()
  transaction.write({ key, apply: () => marks.set(key, at) })
  return true
}

export function isProcessed(marks: Marks, handler: string, eventId: string): boolean {
  return marks.has(markKey(handler, eventId))
}

/** Deletes at most `limit`, as they come. */
export function pruneProcessed(marks: Marks, now: number, olderThanMs: number, limit: number): number {
  let pruned = 0
  for (const [key, at] of marks) {
    if (pruned >= limit) break
    if (at > now - olderThanMs) continue
    marks.delete(key)
    pruned++
  }
  return pruned
}
