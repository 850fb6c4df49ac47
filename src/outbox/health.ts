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
