import type { Clock } from '../core/clock.js'
import { differingTypes } from '../core/differences.js'
import type { Logger } from '../observe/logger.js'
import { REGISTERED_MS } from '../registry.js'
import type { Service } from '../service.js'
import type { SeenInstance, StoreRegistry } from '../store.js'
import { attempt } from './attempt.js'
import type { Pruner } from './pruner.js'
import type { UnroutableSweeper } from './unroutable-sweeper.js'

/** An instance counts as gone after this number of missed heartbeats. */
const MISSED_HEARTBEATS = 3
/** Longest time between two runs, in poll intervals. */
const MOST_INTERVALS = 12

export interface HousekeepingOptions {
  readonly store: Pick<StoreRegistry, 'instances'>
  readonly clock: Clock
  readonly logger: Logger
  readonly instance: string
  readonly pollIntervalMs: number
  readonly unroutableGraceMs: number
  readonly sweeper: UnroutableSweeper
  readonly pruner: Pruner
}

/** Time between two heartbeats. An instance that misses three of them counts as gone. */
export function heartbeatInterval(pollIntervalMs: number): number {
  return pollIntervalMs * 2
}

/**
 * Compares the handlers of the running instances. The instance with the lowest id also settles unroutable events and prunes.
 */
export class Housekeeping implements Service {
  readonly #options: HousekeepingOptions
  #running: Promise<unknown> | null = null
  #ranAt = 0
  #stopping = new AbortController()
  /** Event types for which running instances have different handlers. */
  differences: readonly string[] = []

  constructor(options: HousekeepingOptions) {
    this.#options = options
  }

  start(): void {
    this.#stopping = new AbortController()
    this.#ranAt = this.#options.clock.monotonic()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#running
  }

  /** Starts a run every 1 to 12 poll intervals, depending on `unroutableGraceMs`, unless a run is still under way. */
  runIfDue(): void {
    const { clock, logger, pollIntervalMs, unroutableGraceMs } = this.#options
    const everyMs = Math.max(pollIntervalMs, Math.min(unroutableGraceMs, pollIntervalMs * MOST_INTERVALS))
    if (clock.monotonic() - this.#ranAt < everyMs || this.#stopping.signal.aborted) return
    this.#ranAt = clock.monotonic()
    this.#running ??= attempt('housekeeping', logger, () => this.#run()).finally(() => {
      this.#running = null
    })
  }

  async #run(): Promise<void> {
    const { store, instance, sweeper, pruner } = this.#options
    const alive = this.#alive(await store.instances(REGISTERED_MS))
    this.#compare(alive)
    // The instance with the lowest id does the work for all.
    if (alive.some(({ id }) => id < instance)) return
    await sweeper.sweep()
    await pruner.prune(this.#stopping.signal)
  }

  /**
   * Returns the running instances. Uses the last heartbeat of this instance as the time of the database, so that a row of
   * another program with a time in the future does not count as running.
   */
  #alive(seen: readonly SeenInstance[]): SeenInstance[] {
    const own = seen.find(({ id }) => id === this.#options.instance)
    const now = own
      ? own.lastSeenAt.getTime()
      : Math.max(...seen.map(({ lastSeenAt }) => lastSeenAt.getTime()))
    const goneAfterMs = heartbeatInterval(this.#options.pollIntervalMs) * MISSED_HEARTBEATS
    return seen.filter(
      ({ stoppedAt, lastSeenAt }) => stoppedAt === null && Math.abs(now - lastSeenAt.getTime()) < goneAfterMs,
    )
  }

  /** Logs each type once, and again only after the handlers were equal in between. */
  #compare(alive: readonly SeenInstance[]): void {
    const before = this.differences
    this.differences = differingTypes(alive)
    const found = this.differences.filter((type) => !before.includes(type))
    if (found.length === 0) return
    this.#options.logger.warn(
      { event_types: found },
      'live instances have different handlers for the same event: which of them run is up to chance',
    )
  }
}
