import type { EventCatalog } from './core/catalog.js'
import { atMost, type Timer } from './core/clock.js'
import type { EventDefinition } from './core/define-event.js'
import { reportGauges } from './maintenance/gauges.js'
import { Heartbeat } from './maintenance/heartbeat.js'
import { Housekeeping } from './maintenance/housekeeping.js'
import { Pauses } from './maintenance/pauses.js'
import { Pruner } from './maintenance/pruner.js'
import { InstanceRegistration } from './maintenance/registration.js'
import { UnhandledReporter } from './maintenance/unhandled-reporter.js'
import { UnroutableSweeper } from './maintenance/unroutable-sweeper.js'
import { errorFields } from './observe/logger.js'
import { HealthMonitor, type OutboxStats } from './outbox/health.js'
import type { Settings } from './outbox/settings.js'
import { VERSION } from './outbox/version.js'
import { DebouncedDoorbell } from './publish/doorbell.js'
import { Publisher } from './publish/publisher.js'
import type { InstanceCounters, InstanceRecord, OutboxStore, Ring } from './store.js'
import { UnhandledTypes } from './unhandled.js'
import { abortRunning } from './work/abort-running.js'
import { BoundedQueue } from './work/bounded-queue.js'
import { Claimer } from './work/claimer.js'
import { CrashSuspects } from './work/crash-suspects.js'
import type { Delivery } from './work/delivery.js'
import { Dispatcher } from './work/dispatcher.js'
import { MemoryHotPath } from './work/hot-path.js'
import { InFlight } from './work/in-flight.js'
import { LeaseKeeper } from './work/lease-keeper.js'
import { type Handler, type Registration, Routes } from './work/routes.js'
import { SettlementEffects } from './work/settlement-effects.js'
import { Settler } from './work/settler.js'
import { ScanWakeups } from './work/wakeups.js'

interface Identity {
  readonly instanceId: string
  readonly host: string
  readonly catalog: EventCatalog
}

/** How long a stop waits for the database, which must not keep the process from ending. */
const FAREWELL_MS = 2_000
/** How long a stop waits until the last outcomes are written. */
const LAST_WRITE_MS = 15_000

/** Creates the parts of an outbox, connects them, and starts and stops them in the right order. */
export class Runtime<Client> {
  readonly #identity: Identity
  readonly #store: OutboxStore<Client>
  readonly #settings: Settings
  readonly #routes: Routes
  readonly #hot: BoundedQueue<Delivery>
  readonly #cold: BoundedQueue<Delivery>
  readonly #inFlight = new InFlight()
  readonly #wakeups: ScanWakeups
  readonly #effects: SettlementEffects
  readonly #settler: Settler
  readonly #dispatcher: Dispatcher
  readonly #hotPath: MemoryHotPath
  readonly #claimer: Claimer
  readonly #leaseKeeper: LeaseKeeper
  readonly #registration: InstanceRegistration
  readonly #sweeper: UnroutableSweeper
  readonly #heartbeat: Heartbeat
  readonly #doorbell: DebouncedDoorbell
  readonly publisher: Publisher<Client>
  readonly pauses: Pauses
  readonly health: HealthMonitor
  #claims = 0
  /** Calls of poll() and drain() on an outbox that is not started, until they have written their counters. */
  readonly #manualCalls = new Set<Promise<unknown>>()
  /** Manual calls that need handlers to run. */
  #manualWork = 0
  /** Number of stops so far. A manual call ends when it changes. */
  #stops = 0
  #state: 'stopped' | 'started' | 'stopping' = 'stopped'
  /** Last start or stop: they follow each other. */
  #changing: Promise<void> = Promise.resolve()

  constructor(identity: Identity, store: OutboxStore<Client>, settings: Settings) {
    this.#identity = identity
    this.#store = store
    this.#settings = settings
    const { clock, logger, metrics, redact, tracer, leaseMs, pollIntervalMs, unroutableGraceMs } = settings
    const { catalog, instanceId: instance } = identity
    const wakeups = new ScanWakeups(clock)
    const routes = new Routes(catalog)
    const inFlight = this.#inFlight
    const hot = new BoundedQueue<Delivery>(settings.hotQueueSize, settings.queueBytes)
    const cold = new BoundedQueue<Delivery>(settings.coldQueueSize, settings.queueBytes)
    const suspects = new CrashSuspects(leaseMs)
    const doorbell = new DebouncedDoorbell(store, clock, logger)
    this.#wakeups = wakeups
    this.#routes = routes
    this.#hot = hot
    this.#cold = cold
    this.#doorbell = doorbell

    // ── work ───────────────────────────────────────────────────────────────────────────────────────────────
    const effects = new SettlementEffects({
      ...{ inFlight, suspects, wakeups, doorbell, clock, logger, metrics },
      onDead: settings.onDead,
    })
    const settler = new Settler({
      ...{ store, clock, logger, metrics },
      keepDone: settings.doneMs > 0,
      inFlightCount: () => inFlight.size,
      onSettled: effects.apply,
    })
    const dispatcher = new Dispatcher({
      ...{ instance, hot, cold, inFlight, routes, settler, wakeups, clock, logger, metrics, redact, tracer },
      concurrency: settings.concurrency,
      retry: { maxAttempts: settings.maxAttempts, policy: settings.retryPolicy },
      haltsKeys: settings.onDeadKey === 'halt',
      onUnroutable: settings.onUnroutable,
      interceptors: settings.interceptors,
      createScope: settings.createScope,
      onDropped: (delivery) => effects.ended(delivery),
    })
    this.#effects = effects
    this.#settler = settler
    this.#dispatcher = dispatcher
    this.#hotPath = new MemoryHotPath({
      ...{ clock, leaseMs, hot, routes, dispatcher, settler, logger, metrics },
      // Each hot row is written once, and any later claim has another token.
      token: `${instance}:0`,
    })
    this.#claimer = new Claimer({
      ...{
        store,
        clock,
        catalog,
        routes,
        cold,
        dispatcher,
        wakeups,
        suspects,
        pollIntervalMs,
        leaseMs,
        logger,
      },
      batchSize: Math.min(settings.batchSize, settings.coldQueueSize),
      skipRecentMs: settings.skipRecentMs,
      newToken: () => `${instance}:${++this.#claims}`,
    })
    this.#leaseKeeper = new LeaseKeeper({
      ...{ store, clock, leaseMs, inFlight, logger },
      stuckAfterMs: settings.stuckAfterMs,
    })

    // ── publish ────────────────────────────────────────────────────────────────────────────────────────────
    this.publisher = new Publisher({
      ...{ store, clock, catalog, wakeups, doorbell, leaseMs, logger, redact, metrics, tracer },
      hotPath: this.#hotPath,
    })

    // ── maintenance ────────────────────────────────────────────────────────────────────────────────────────
    this.pauses = new Pauses({ store, doorbell, logger, apply: (types) => this.#applyPauses(types) })
    this.#registration = new InstanceRegistration({
      ...{ store, clock, logger, pauses: this.pauses },
      rowWith: (counters) => this.#registryRow(counters),
      counters: () => effects.counters,
    })
    const unhandled = new UnhandledTypes(store, clock)
    this.#sweeper = new UnroutableSweeper({
      ...{ store, unroutableGraceMs },
      ownFilter: () => routes.filter(),
      claimUnroutable: (known, olderThanMs) => this.#claimer.claimUnroutable(known, olderThanMs),
    })
    const housekeeping = new Housekeeping({
      ...{ store, clock, logger, instance, pollIntervalMs, unroutableGraceMs, sweeper: this.#sweeper },
      pruner: new Pruner({ store, clock, doneMs: settings.doneMs, processedMs: settings.processedMs }),
    })
    this.#heartbeat = new Heartbeat({
      ...{ clock, logger, pollIntervalMs, unroutableGraceMs, housekeeping },
      unhandledReporter: new UnhandledReporter({ unhandled, logger, metrics }),
      beat: () => this.#beat(),
    })
    this.health = new HealthMonitor({
      ...{ store, clock, pollIntervalMs, cold, dispatcher, unhandled, housekeeping },
      state: () => this.#state,
      claimer: this.#claimer,
      leaseKeeper: this.#leaseKeeper,
      concurrency: settings.concurrency,
    })
  }

  /** Whether `stop()` has to wait for work of this outbox. */
  get isWorking(): boolean {
    return this.#state !== 'stopped' || this.#manualCalls.size > 0
  }

  /** Rows that all scans have passed are due again. */
  lookAgain(): void {
    this.#effects.lookAgain()
  }

  /** Registers all of the handlers, or none of them if it throws. */
  register(
    registrations: readonly Registration[],
    definitions: readonly EventDefinition[],
  ): readonly Handler[] {
    const handlers = this.#dispatcher.register(registrations, definitions)
    this.#registration.handlersChanged()
    this.#heartbeat.beatNow()
    this.#wakeups.request({ reason: 'everything' })
    return handlers
  }

  // ── start and stop ───────────────────────────────────────────────────────────────────────────────────────

  start(): Promise<void> {
    return this.#afterChange(async () => {
      if (this.#state === 'stopped') await this.#start()
    })
  }

  stop(): Promise<void> {
    return this.#afterChange(() => this.#stop())
  }

  /** Starts and stops follow each other, so that the last call decides. */
  #afterChange(change: () => Promise<void>): Promise<void> {
    const changed = this.#changing.then(change)
    this.#changing = changed.catch(() => {})
    return changed
  }

  async #start(): Promise<void> {
    const { logger } = this.#settings
    await this.#store.open({
      onRing: (ring) => this.#onRing(ring),
      onWarning: (message, error) => logger.warn(error === undefined ? {} : errorFields(error), message),
    })
    try {
      await this.#heartbeat.start()
    } catch (error) {
      await this.#store.close()
      throw error
    }
    this.#startHandling()
    this.#state = 'started'
    this.#hotPath.open()
    this.#claimer.start()
  }

  #startHandling(): void {
    this.#settler.open()
    this.#dispatcher.resume()
    this.#leaseKeeper.start()
  }

  #onRing(ring: Ring): void {
    if (ring === null) {
      this.#wakeups.request({ reason: 'everything' })
      void this.pauses.refresh()
    } else if (ring === 'ordered') this.#wakeups.request({ reason: 'ordered' })
    else this.#wakeups.request({ reason: 'new', fromSeq: ring })
  }

  /** Also ends manual calls on an outbox that is not started. */
  async #stop(): Promise<void> {
    const { clock } = this.#settings
    const wasStarted = this.#state === 'started'
    this.#state = 'stopping'
    this.#stops++
    this.#hotPath.close()
    this.publisher.close()
    this.#dispatcher.suspend()
    await this.#finishWork()
    await atMost(
      clock,
      FAREWELL_MS,
      Promise.all([
        wasStarted ? this.#deregister() : undefined,
        this.#doorbell.close(),
        this.#leaseKeeper.stop(),
        Promise.allSettled(this.#manualCalls),
      ]),
    )
    if (wasStarted) await this.#store.close()
    this.#state = 'stopped'
  }

  /** Resolves when the running handlers have ended and all outcomes are written, or after the drain timeout. */
  async #finishWork(): Promise<void> {
    const { clock, logger, drainTimeoutMs } = this.#settings
    let deadline: Timer | undefined
    const isOver = new Promise<void>((resolve) => {
      deadline = clock.setTimer(() => {
        abortRunning({ clock, logger, inFlight: this.#inFlight, settler: this.#settler })
        this.#settler.close()
        resolve()
      }, drainTimeoutMs)
    })
    await this.#settler.eagerly(async () => {
      const isQuiet = Promise.all([this.#claimer.stop(), this.#heartbeat.stop()])
      await Promise.race([isQuiet.then(() => this.#inFlight.idle()), isOver])
      // A claim under way may still return rows, which have to be released.
      await atMost(clock, FAREWELL_MS, isQuiet)
      await atMost(clock, LAST_WRITE_MS, this.#settler.flush())
    })
    deadline?.cancel()
    // No statement is retried from now on, because the application is about to close its connections.
    this.#settler.close()
  }

  async #deregister(): Promise<void> {
    const { logger } = this.#settings
    try {
      await this.#registration.registerStopped('stopped')
      await this.#reportGauges()
    } catch (error) {
      logger.warn({ task: 'heartbeat', ...errorFields(error) }, 'background work failed; trying again later')
    }
  }

  // ── manual calls ─────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Claims one batch, handles it, and resolves when it is settled. Returns the number of claimed events or, if the outbox was
   * stopped meanwhile, of the handled ones.
   */
  async poll(limit?: number): Promise<number> {
    if (this.#state === 'stopping') return 0
    const isStopped = this.#watchStop()
    return this.#manually(async () => {
      if (isStopped()) return 0
      const before = this.#handled
      let claimed = await this.#claimer.claimOnce(limit)
      if (limit === undefined && this.#sweepsManually && !isStopped()) claimed += await this.#sweeper.sweep()
      await this.#untilSettled()
      return isStopped() ? Math.min(claimed, this.#handled - before) : claimed
    })
  }

  /** Resolves when no due event is left that this process can handle, or when the outbox is stopped. */
  async drain(): Promise<void> {
    const isStopped = this.#watchStop()
    await this.#manually(async () => {
      for (let settled = -1; !isStopped() && settled !== this.#effects.settled; ) {
        settled = this.#effects.settled
        await this.#untilSettled()
        while (!isStopped() && (await this.poll()) > 0);
        // A started outbox also claims by itself, and a settled event may have made others claimable.
        await this.#untilSettled()
      }
    })
  }

  /** Returns a function that tells whether the outbox was stopped since. */
  #watchStop(): () => boolean {
    const stops = this.#stops
    return () => stops !== this.#stops
  }

  get #handled(): number {
    const { done, failed } = this.#effects.counters
    return done + failed
  }

  /**
   * Whether manual calls also claim unroutable events. A manual consumer leaves events alone that it cannot handle, because
   * they may belong to another script. Tests on the memory store can still watch an event become unroutable, because no
   * other process can use that store.
   */
  get #sweepsManually(): boolean {
    const { unroutableGraceMs } = this.#settings
    return this.#state === 'started' || (unroutableGraceMs === 0 && !this.#store.capabilities.multiProcess)
  }

  /** An outbox that is not started handles events only during manual calls. */
  #manually<T>(work: () => Promise<T>): Promise<T> {
    return this.#state === 'stopped' ? this.#awaitedByStop(this.#handleDuring(work)) : work()
  }

  async #awaitedByStop<T>(call: Promise<T>): Promise<T> {
    this.#manualCalls.add(call)
    try {
      return await call
    } finally {
      this.#manualCalls.delete(call)
    }
  }

  async #handleDuring<T>(work: () => Promise<T>): Promise<T> {
    this.#manualWork++
    this.#startHandling()
    try {
      await this.#registration.registerManual(!this.#routes.isEmpty)
      return await work()
    } finally {
      this.#manualWork--
      await this.#endManualWork()
    }
  }

  /** Ends the handling of events after the last manual call. */
  async #endManualWork(): Promise<void> {
    if (this.#manualWork > 0 || this.#state === 'started') return
    this.#dispatcher.suspend()
    // After an error, handlers may still run. They keep their leases until they have ended.
    if (this.#inFlight.size === 0) await this.#restManual()
    else void this.#awaitedByStop(this.#inFlight.idle().then(() => this.#restManual()))
  }

  async #restManual(): Promise<void> {
    if (this.#manualWork > 0 || this.#state === 'started') return
    await this.#leaseKeeper.stop()
    await this.#registration.flushManual()
  }

  /** Resolves when all events in memory are handled and settled. */
  #untilSettled(): Promise<void> {
    return this.#settler.eagerly(() =>
      this.#dispatcher.eagerly(async () => {
        await this.#inFlight.idle()
        await this.#settler.flush()
      }),
    )
  }

  // ── what operators see ───────────────────────────────────────────────────────────────────────────────────

  async stats(): Promise<OutboxStats> {
    const { pending, dead, counters, oldestLagMs } = await this.#store.stats()
    const { done, failed } = this.#registration.unflushed
    return { pending, dead, done: counters.done + done, failed: counters.failed + failed, oldestLagMs }
  }

  #applyPauses(types: readonly string[]): void {
    if (!this.#routes.setPausedTypes(types)) return
    this.#dispatcher.releasePaused()
    this.#wakeups.request({ reason: 'everything' })
  }

  async #beat(): Promise<void> {
    await this.#registration.heartbeat()
    await this.#reportGauges()
  }

  #registryRow(counters: InstanceCounters): InstanceRecord {
    return {
      id: this.#identity.instanceId,
      host: this.#identity.host,
      pid: process.pid,
      version: VERSION,
      handlers: this.#routes.summary(),
      accept: this.#routes.registered(),
      counters,
    }
  }

  #reportGauges(): Promise<void> {
    const gauges = () => ({
      hotQueue: this.#hot.length,
      coldQueue: this.#cold.length,
      inFlight: this.#inFlight.size,
      paused: this.#routes.pauses,
    })
    return reportGauges(this.#settings.metrics, gauges, this.#store)
  }
}
