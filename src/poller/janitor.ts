import type { Clock, Timer } from '../core/clock.js'
import { differingTypes } from '../core/differences.js'
import type { Routes } from '../dispatcher/routing.js'
import { errorFields, type Logger } from '../observe/logger.js'
import { type MetricsExporter, typeLabels } from '../observe/metrics.js'
import { REGISTERED_MS, union } from '../registry.js'
import type { EventStore, SeenInstance } from '../store.js'
import { UnhandledTypes } from '../unhandled.js'
import type { Poller } from './poller.js'

const PRUNE_BATCH = 1_000
/** A log line names no more types than this. */
const MOST_LOGGED = 20
/** What is to go is looked for this often in the time it is kept, and at least this often. */
const PRUNES = { perRetention: 10, everyMs: 3_600_000 }

export interface JanitorOptions {
  readonly store: Pick<
    EventStore,
    'instances' | 'unhandled' | 'pruneDone' | 'pruneInstances' | 'pruneProcessed'
  >
  readonly clock: Clock
  readonly poller: Poller
  readonly routes: Routes
  readonly pollIntervalMs: number
  readonly doneMs: number
  readonly processedMs: number
  readonly unroutableGraceMs: number
  readonly logger: Logger
  readonly metrics?: MetricsExporter | undefined
  readonly instance: string
  /** Registers this instance or renews its row. */
  heartbeat(): Promise<void>
  /** Registers this instance as stopped. */
  goodbye(): Promise<void>
}

/**
 * The slow background work: a heartbeat every second poll interval, and now and then, on one instance at a time,
 * pruning and the search for events that nobody handles. A failure is logged and tried again next time.
 */
export class Janitor {
  readonly #options: JanitorOptions
  #timer: Timer | null = null
  #running = false
  #registered = false
  #busy: Promise<void> | null = null
  #cleaning: Promise<unknown> | null = null
  #looking: Promise<unknown> | null = null
  /** Types that were reported as unhandled and still are. */
  #reported: readonly string[] = []
  #cleanedAt = Number.NEGATIVE_INFINITY
  #prunedAt = { done: Number.NEGATIVE_INFINITY, marks: Number.NEGATIVE_INFINITY }
  #halting = new AbortController()
  #endRest: (() => void) | null = null
  /** Event types for which live instances have different handlers. */
  differences: readonly string[] = []
  readonly unhandled: UnhandledTypes

  constructor(options: JanitorOptions) {
    this.#options = options
    this.unhandled = new UnhandledTypes(options.store, options.clock)
  }

  get heartbeatMs(): number {
    return this.#options.pollIntervalMs * 2
  }

  /** Rejects when the instance cannot be registered. */
  async start(): Promise<void> {
    await this.#options.heartbeat()
    this.#registered = true
    this.#running = true
    this.#halting = new AbortController()
    this.#cleanedAt = this.#options.clock.monotonic()
    this.#next()
  }

  /** Begins nothing new. Resolves when nothing is under way. */
  async halt(): Promise<void> {
    this.#running = false
    this.#halting.abort()
    this.#endRest?.()
    this.#timer?.cancel()
    this.#timer = null
    await this.#busy
    await this.#cleaning
    await this.#looking
  }

  async stop(): Promise<void> {
    if (!this.#registered) return
    this.#registered = false
    await this.halt()
    await this.#attempt('heartbeat', () => this.#options.goodbye())
  }

  /** Handlers were added to a started outbox: the other instances should know at once. */
  registerAgain(): void {
    if (this.#running) void this.#attempt('heartbeat', () => this.#options.heartbeat())
  }

  /** Takes what no instance can handle, so that it ends in plain sight. Returns how many. */
  async claimUnroutable(): Promise<number> {
    const { store, poller, routes, unroutableGraceMs } = this.#options
    const own = routes.filter()
    // What is paused waits, whoever could handle it.
    const paused = own.except ?? []
    if (paused.includes('*')) return 0
    const waiting = { names: paused, versions: [], prefixes: [] }
    const known = union([own, waiting, ...(await store.instances(REGISTERED_MS)).map((one) => one.accept)])
    return poller.claimUnroutable(known, unroutableGraceMs)
  }

  #next(): void {
    if (!this.#running) return
    const { clock, unroutableGraceMs, pollIntervalMs } = this.#options
    const every =
      unroutableGraceMs < this.heartbeatMs ? Math.max(unroutableGraceMs, pollIntervalMs) : this.heartbeatMs
    this.#timer = clock.setTimer(() => {
      this.#busy = this.#tick().finally(() => {
        this.#busy = null
        this.#next()
      })
    }, every)
    this.#timer.unref?.()
  }

  async #tick(): Promise<void> {
    const { clock, pollIntervalMs, unroutableGraceMs } = this.#options
    const isReachable = await this.#attempt('heartbeat', () => this.#options.heartbeat())
    // Not awaited: a slow database must not hold up the heartbeat.
    if (isReachable) {
      this.#looking ??= this.#attempt('look for missing handlers', () => this.#reportUnhandled()).finally(
        () => {
          this.#looking = null
        },
      )
    }
    const cleanEvery = Math.max(pollIntervalMs, Math.min(unroutableGraceMs, pollIntervalMs * 12))
    if (clock.monotonic() - this.#cleanedAt < cleanEvery) return
    this.#cleanedAt = clock.monotonic()
    // Not awaited: pruning a large table must not hold up the heartbeat.
    this.#cleaning ??= this.#attempt('housekeeping', () => this.#clean()).finally(() => {
      this.#cleaning = null
    })
  }

  async #clean(): Promise<void> {
    const { store, doneMs, processedMs } = this.#options
    const alive = this.#alive(await store.instances(REGISTERED_MS))
    this.#compare(alive)
    if (alive.some((one) => one.id < this.#options.instance)) return
    await this.claimUnroutable()
    await store.pruneInstances(REGISTERED_MS)
    const { signal } = this.#halting
    if (doneMs > 0) await this.#prune('done', doneMs, () => store.pruneDone(doneMs, PRUNE_BATCH, signal))
    await this.#prune('marks', processedMs, () => store.pruneProcessed(processedMs, PRUNE_BATCH, signal))
  }

  /** Rests as long as it works: what it deletes is no hurry, and the database has others to serve. */
  async #prune(what: 'done' | 'marks', keptMs: number, batch: () => Promise<number>): Promise<void> {
    const { clock } = this.#options
    let began = clock.monotonic()
    if (began - this.#prunedAt[what] < Math.min(keptMs / PRUNES.perRetention, PRUNES.everyMs)) return
    this.#prunedAt[what] = began
    while (this.#running && (await batch()) >= PRUNE_BATCH) {
      await this.#rest(clock.monotonic() - began)
      began = clock.monotonic()
    }
  }

  async #rest(ms: number): Promise<void> {
    if (ms <= 0 || !this.#running) return
    await new Promise<void>((resolve) => {
      const timer = this.#options.clock.setTimer(resolve, ms)
      this.#endRest = () => {
        timer.cancel()
        resolve()
      }
    })
    this.#endRest = null
  }

  /**
   * Running instances, of which the one with the lowest id cleans up. The last heartbeat of this instance tells the
   * database's time, so that a foreign row with a time in the future is not taken for a running instance.
   */
  #alive(seen: readonly SeenInstance[]): SeenInstance[] {
    const own = seen.find((one) => one.id === this.#options.instance)
    const now = own ? own.lastSeenAt.getTime() : Math.max(...seen.map((one) => one.lastSeenAt.getTime()))
    return seen.filter(
      (one) => one.stoppedAt === null && Math.abs(now - one.lastSeenAt.getTime()) < this.heartbeatMs * 3,
    )
  }

  #compare(alive: readonly SeenInstance[]): void {
    const before = this.differences
    this.differences = differingTypes(alive)
    const found = this.differences.filter((type) => !before.includes(type))
    if (found.length > 0) {
      this.#options.logger.warn(
        { event_types: found },
        'live instances have different handlers for the same event: which of them run is up to chance',
      )
    }
  }

  /** Logs each type once, until it disappears. */
  async #reportUnhandled(): Promise<void> {
    const { logger, metrics } = this.#options
    const types = await this.unhandled.look()
    const gone = this.#reported.filter((type) => !types.includes(type))
    const found = types.filter((type) => !this.#reported.includes(type))
    this.#reported = types
    for (const type of types) metrics?.gauge('unhandled', 1, typeLabels(type))
    for (const type of gone) metrics?.gauge('unhandled', 0, typeLabels(type))
    if (found.length === 0) return
    logger.warn(
      { event_types: found.slice(0, MOST_LOGGED), count: found.length },
      'events wait, and no consumer has registered a handler for their types',
    )
  }

  /** Resolves with false after a failure. */
  async #attempt(what: string, work: () => Promise<unknown>): Promise<boolean> {
    try {
      await work()
      return true
    } catch (error) {
      this.#options.logger.warn(
        { task: what, ...errorFields(error) },
        'background work failed; trying again later',
      )
      return false
    }
  }
}
