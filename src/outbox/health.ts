import { errorFields } from '../observe/logger.js'
import type { StoreStats } from '../store.js'

/** What a health check shows. `ok` is false when any problem is listed. */
export interface Health {
  readonly ok: boolean
  readonly started: boolean
  /** The store answered just now. */
  readonly storeReachable: boolean
  /** Milliseconds since the last claim that worked; null when not started. */
  readonly lastClaimAgoMs: number | null
  readonly oldestLagMs: number | null
  readonly dead: number | null
  /** Ids of events whose handlers have not returned for `stuckAfterMs`. */
  readonly stuck: readonly string[]
  readonly problems: readonly string[]
}

export interface OutboxStats {
  /** Not settled yet: new, being handled, or waiting for a retry. */
  readonly pending: number
  readonly dead: number
  /** Handled so far by all instances, from their counters: a crash may lose the last seconds of its own. */
  readonly done: number
  readonly failed: number
  /** Age of the oldest event that is due; 0 when there is none. */
  readonly oldestLagMs: number
}

interface Signs {
  readonly started: boolean
  stats(): Promise<StoreStats>
  readonly lastClaimAgoMs: number | null
  readonly claimIsLateAfterMs: number
  readonly stuck: readonly string[]
  /** Event types for which live instances have different handlers. */
  readonly differences: readonly string[]
}

export async function checkHealth(signs: Signs): Promise<Health> {
  const { started, lastClaimAgoMs, stuck, differences } = signs
  const problems: string[] = []
  const stats = await signs.stats().catch((error: unknown) => {
    problems.push(`the store does not answer: ${errorFields(error).error}`)
    return null
  })
  if (lastClaimAgoMs !== null && lastClaimAgoMs > signs.claimIsLateAfterMs) {
    problems.push(`the poller has not claimed for ${lastClaimAgoMs} ms`)
  }
  if (stuck.length > 0) problems.push(`${stuck.length} handlers have not returned for a long time`)
  for (const type of differences) problems.push(`live instances have different handlers for ${type}`)
  return {
    ok: problems.length === 0,
    started,
    storeReachable: stats !== null,
    lastClaimAgoMs,
    oldestLagMs: stats?.oldestLagMs ?? null,
    dead: stats?.dead ?? null,
    stuck,
    problems,
  }
}
