import type { EventCatalog } from '../core/catalog.js'
import { atMost, type Timer } from '../core/clock.js'
import { AftercommitError } from '../core/errors.js'
import { BoundedQueue } from '../dispatcher/bounded-queue.js'
import type { Delivery } from '../dispatcher/delivery.js'
import { Dispatcher } from '../dispatcher/dispatcher.js'
import { InFlight } from '../dispatcher/in-flight.js'
import { abandonedOf } from '../dispatcher/outcome.js'
import { type Registration, Routes } from '../dispatcher/routing.js'
import { Settler } from '../dispatcher/settler.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields } from '../observe/logger.js'
import { typeLabels } from '../observe/metrics.js'
import { DebouncedDoorbell } from '../poller/doorbell.js'
import { Janitor } from '../poller/janitor.js'
import { LeaseKeeper, leaseLost } from '../poller/lease-keeper.js'
import { Poller } from '../poller/poller.js'
import { sharedId } from '../registry.js'
import type { EventStore, InstanceCounters, InstanceRecord, Ring, Settlement } from '../store.js'
import { announceDead } from './announce-dead.js'
import { gauge } from './gauges.js'
import { HealthMonitor, type OutboxStats } from './health.js'
import { Pauses } from './pauses.js'
import { Publisher } from './publisher.js'
import type { Settings } from './settings.js'
import { VERSION } from './version.js'
import { warnAbandoned } from './warn-abandoned.js'

interface Identity {
  readonly instanceId: string
  readonly host: string
  readonly catalog: EventCatalog
}

/** A database that does not answer must not keep the process from ending. */
const FAREWELL_MS = 2_000
/** So long the last outcomes may take. */
const LAST_WRITE_MS = 15_000
/** Interval at which a manual consumer renews its registration, which lasts for days. */
const MANUAL_RENEWAL_MS = 3_600_000

/** Builds the parts of an outbox, connects them, and starts and stops them in the right order. */
export class Machinery<Client> {
  readonly #identity: Identity
  readonly #store: EventStore<Client>
  readonly #settings: Settings
  readonly #routes: Routes
  readonly #hot: BoundedQueue<Delivery>
  readonly #cold: BoundedQueue<Delivery>
  readonly #inFlight = new InFlight()
  readonly #settler: Settler
  readonly #dispatcher: Dispatcher
  readonly #keeper: LeaseKeeper
  readonly #janitor: Janitor
  readonly #doorbell: DebouncedDoorbell
  readonly poller: Poller
  readonly publisher: Publisher<Client>
  readonly pauses: Pauses
  readonly health: HealthMonitor
  readonly #counters = { done: 0, failed: 0, dead: 0 }
  /** What the registry knows of them. */
  #flushed: InstanceCounters = { done: 0, failed: 0, dead: 0 }
  /** The part of `#flushed` that is in rows shared with other consumers. The rest is in the row of this instance. */
  #shared: InstanceCounters = { done: 0, failed: 0, dead: 0 }
  /** Monotonic time at which the next call by hand registers again. */
  #registerAt = Number.NEGATIVE_INFINITY
  #claims = 0
  /** Outcomes that were written. */
  #settled = 0
  #helpers = 0
  #stops = 0
  #started = false
  #stopping = false
  #changing: Promise<void> = Promise.resolve()

  constructor(identity: Identity, store: EventStore<Client>, settings: Settings) {
    this.#identity = identity
    this.#store = store
    this.#settings = settings
    const { clock, logger, metrics, tracer, redact, leaseMs, pollIntervalMs } = settings
    const catalog = identity.catalog
    this.#routes = new Routes(catalog)
    this.#hot = new BoundedQueue(settings.hotQueueSize, settings.queueBytes)
    this.#cold = new BoundedQueue(settings.coldQueueSize, settings.queueBytes)
    const observing = { logger, metrics, tracer, redact }
    const common = { store, clock, catalog, ...observing, leaseMs, pollIntervalMs, routes: this.#routes }
    this.#settler = new Settler({
      ...common,
      keepDone: settings.doneMs > 0,
      held: () => this.#inFlight.size,
      onSettled: (delivery, settlement, settled) => this.#onSettled(delivery, settlement, settled),
    })
    this.#dispatcher = new Dispatcher({
      ...common,
      instance: identity.instanceId,
      concurrency: settings.concurrency,
      hot: this.#hot,
      cold: this.#cold,
      inFlight: this.#inFlight,
      settler: this.#settler,
      retry: { maxAttempts: settings.maxAttempts, policy: settings.retryPolicy },
      haltsKeys: settings.onDeadKey === 'halt',
      onUnroutable: settings.onUnroutable,
      interceptors: settings.interceptors,
      createScope: settings.createScope,
      onDropped: (delivery) => this.#forget(delivery),
      onRoom: () => this.poller.hasRoom(),
      onLaneRoom: () => this.poller.takesMore(),
    })
    this.poller = new Poller({
      ...common,
      cold: this.#cold,
      dispatcher: this.#dispatcher,
      batchSize: Math.min(settings.batchSize, settings.coldQueueSize),
      skipRecentMs: settings.skipRecentMs,
      newToken: () => `${identity.instanceId}:${++this.#claims}`,
    })
    this.#doorbell = new DebouncedDoorbell(store, clock, logger)
    this.#keeper = new LeaseKeeper({
      ...common,
      stuckAfterMs: settings.stuckAfterMs,
      inFlight: this.#inFlight,
    })
    this.#janitor = new Janitor({
      ...common,
      poller: this.poller,
      doneMs: settings.doneMs,
      processedMs: settings.processedMs,
      unroutableGraceMs: settings.unroutableGraceMs,
      instance: identity.instanceId,
      heartbeat: () => this.#heartbeat(),
      goodbye: () => this.#goodbye(),
    })
    this.publisher = new Publisher({
      ...common,
      hot: this.#hot,
      dispatcher: this.#dispatcher,
      settler: this.#settler,
      poller: this.poller,
      doorbell: this.#doorbell,
      hotToken: `${identity.instanceId}:0`,
      lookAgain: () => this.lookAgain(),
    })
    this.pauses = new Pauses({
      ...common,
      dispatcher: this.#dispatcher,
      poller: this.poller,
      doorbell: this.#doorbell,
    })
    this.health = new HealthMonitor({
      ...common,
      state: () => (this.#stopping ? 'stopping' : this.#started ? 'started' : 'stopped'),
      poller: this.poller,
      cold: this.#cold,
      keeper: this.#keeper,
      janitor: this.#janitor,
      concurrency: settings.concurrency,
      dispatcher: this.#dispatcher,
    })
  }

  /** Something is due again that all scans have passed. */
  lookAgain(): void {
    this.poller.rescan()
    this.#doorbell.ring(null)
  }

  register(registration: Registration): void {
    this.#dispatcher.register(registration)
    this.#registerAt = Number.NEGATIVE_INFINITY
    this.#janitor.registerAgain()
    this.poller.rescan()
  }

  get isStarted(): boolean {
    return this.#started
  }

  start(): Promise<void> {
    return this.#inTurn(async () => {
      if (!this.#started) await this.#start()
    })
  }

  stop(): Promise<void> {
    return this.#inTurn(async () => {
      if (this.#started) return this.#stop()
      this.publisher.close()
      await this.#doorbell.close()
    })
  }

  /** Starts and stops one after the other; calls in a heap end as the last of them says. */
  #inTurn(change: () => Promise<void>): Promise<void> {
    const turn = this.#changing.then(change)
    this.#changing = turn.catch(() => {})
    return turn
  }

  /** Claims one batch by hand, handles it, and waits until it is settled. */
  async poll(limit?: number): Promise<number> {
    if (this.#stopping) return 0
    return this.#byHand(async () => {
      const taken = await this.poller.poll(limit)
      const unroutable = limit === undefined && this.#sweeps ? await this.#janitor.claimUnroutable() : 0
      await this.#quiet()
      return taken + unroutable
    })
  }

  /**
   * Whether a call by hand also takes unroutable events. A manual consumer leaves events alone that it cannot handle:
   * they may belong to another script. Tests on the memory store can still watch an event become unroutable, because
   * no other process can use that store.
   */
  get #sweeps(): boolean {
    const { unroutableGraceMs } = this.#settings
    return this.#started || (unroutableGraceMs === 0 && !this.#store.capabilities.multiProcess)
  }

  async drain(): Promise<void> {
    await this.#byHand(async () => {
      const stops = this.#stops
      for (let settled = -1; stops === this.#stops && settled !== this.#settled; ) {
        settled = this.#settled
        await this.#quiet()
        while (stops === this.#stops && (await this.poll()) > 0);
        // A started outbox also claims by itself, and what it has settled may have let others go.
        await this.#quiet()
      }
    })
  }

  /** An outbox that is not started handles events only while somebody asks it to. */
  async #byHand<T>(work: () => Promise<T>): Promise<T> {
    if (this.#started) return work()
    if (this.#helpers++ === 0) this.#help()
    try {
      await this.#registerManual()
      return await work()
    } finally {
      if (--this.#helpers === 0 && !this.#started) {
        this.#dispatcher.giveBack(this.#dispatcher.pause())
        // After a failure there may be handlers under way, which need their leases.
        const rest = async () => {
          if (this.#helpers > 0 || this.#started) return
          await this.#keeper.stop()
          await this.#reportManual()
        }
        if (this.#inFlight.size === 0) await rest()
        else void this.#inFlight.idle().then(rest)
      }
    }
  }

  #help(): void {
    this.#settler.reopen()
    this.#dispatcher.resume()
    this.#keeper.start()
  }

  async stats(): Promise<OutboxStats> {
    const stats = await this.#store.stats()
    return {
      pending: stats.pending,
      dead: stats.dead,
      done: stats.counters.done - this.#flushed.done + this.#counters.done,
      failed: stats.counters.failed - this.#flushed.failed + this.#counters.failed,
      oldestLagMs: stats.oldestLagMs,
    }
  }

  /** Until everything that is in memory is handled and written. */
  #quiet(): Promise<void> {
    return this.#settler.eagerly(() =>
      this.#dispatcher.eagerly(async () => {
        await this.#inFlight.idle()
        await this.#settler.flush()
      }),
    )
  }

  async #start(): Promise<void> {
    const { logger } = this.#settings
    await this.#store.open({
      onRing: (ring) => this.#onRing(ring),
      onWarning: (message, error) => logger.warn(error === undefined ? {} : errorFields(error), message),
    })
    try {
      await this.#janitor.start()
    } catch (error) {
      await this.#store.close()
      throw error
    }
    this.#help()
    this.#started = true
    this.publisher.accepting = true
    this.poller.start()
  }

  #onRing(ring: Ring): void {
    if (ring === null) {
      this.poller.rescan()
      void this.pauses.refresh()
    } else if (ring === 'ordered') this.poller.wakeOrdered()
    else this.poller.wake(ring)
  }

  async #stop(): Promise<void> {
    const { clock } = this.#settings
    this.#stopping = true
    this.#stops++
    this.publisher.close()
    this.#dispatcher.giveBack(this.#dispatcher.pause())
    await this.#finish()
    await atMost(
      clock,
      FAREWELL_MS,
      Promise.all([this.#janitor.stop(), this.#doorbell.close(), this.#keeper.stop()]),
    )
    await this.#store.close()
    this.#started = false
    this.#stopping = false
  }

  /** Until the handlers under way have ended and everything is written, or the drain timeout is over. */
  async #finish(): Promise<void> {
    const { clock, drainTimeoutMs } = this.#settings
    let deadline: Timer | undefined
    const over = new Promise<void>((resolve) => {
      deadline = clock.setTimer(() => {
        this.#abandon()
        resolve()
      }, drainTimeoutMs)
    })
    await this.#settler.eagerly(async () => {
      const quiet = Promise.all([this.poller.stop(), this.#janitor.halt()])
      await Promise.race([quiet.then(() => this.#inFlight.idle()), over])
      // A claim under way may still bring something that has to be given back.
      await atMost(clock, FAREWELL_MS, quiet)
      await atMost(clock, LAST_WRITE_MS, this.#settler.flush())
    })
    deadline?.cancel()
    // From now on nothing is tried twice: the application is about to close its connections.
    this.#settler.giveUp()
  }

  /** The shutdown deadline: handlers are told, and what they hold is given back. */
  #abandon(): void {
    const reason = new AftercommitError('SHUTDOWN', 'The outbox is stopping and the drain timeout is over.')
    const running = [...this.#inFlight.values()].filter((one) => one.running)
    warnAbandoned(this.#settings, running)
    for (const delivery of running) {
      delivery.lose(reason)
      this.#inFlight.abandon(delivery)
      for (const one of [delivery, ...delivery.cut()]) {
        this.#settler.add(abandonedOf(one), one)
      }
    }
    this.#settler.giveUp()
  }

  #forget(delivery: Delivery): void {
    this.#inFlight.remove(delivery)
    if (delivery.suspect) this.poller.triedEnded(delivery)
  }

  #onSettled(delivery: Delivery | null, settlement: Settlement, settled: boolean): void {
    const { logger, metrics } = this.#settings
    if (delivery) this.#forget(delivery)
    if (!settled) {
      if (!delivery) return
      // Somebody else works on the key.
      for (const one of delivery.next?.run ?? []) one.lose(leaseLost())
      metrics?.count('lease_lost', 1, typeLabels(delivery.event.eventType))
      logger.warn(eventFields(delivery.event), 'the lease was lost before the outcome could be written')
      return
    }
    this.#settled++
    if (delivery?.event.orderingKey !== undefined) this.#keyMovedOn()
    if (settlement.outcome === 'done') this.#counters.done++
    else if (settlement.outcome === 'retry') {
      // Without a failure it was given back before all its handlers were called.
      if (settlement.failures.length > 0) this.#failed(delivery)
      this.poller.wakeIn(settlement.delayMs)
    } else if (settlement.outcome === 'dead' && delivery) {
      this.#counters.failed++
      this.#counters.dead++
      announceDead(this.#settings, delivery, settlement)
    } else if (settlement.outcome === 'release') {
      // Scans have passed it: whoever can handle it looks at everything once.
      if (delivery?.event.orderingKey !== undefined) return
      if (settlement.delayMs === 0) this.lookAgain()
      else this.poller.wakeIn(settlement.delayMs)
    }
  }

  /** The next event of an ordering key can be claimed, by whoever comes first. */
  #keyMovedOn(): void {
    this.poller.wakeOrdered()
    this.#doorbell.ring('ordered')
  }

  #failed(delivery: Delivery | null): void {
    this.#counters.failed++
    if (delivery) this.#settings.metrics?.count('retry', 1, typeLabels(delivery.event.eventType))
  }

  /**
   * Registers before anything is claimed, and reads what is paused: one statement does both. A script may call poll()
   * many times per second, so most calls only read.
   */
  #registerManual(): Promise<void> {
    const now = this.#settings.clock.monotonic()
    if (now < this.#registerAt || this.#routes.isEmpty) return this.pauses.read()
    this.#registerAt = now + MANUAL_RENEWAL_MS
    return this.#registerStopped('manual').catch((error) => {
      this.#registerAt = Number.NEGATIVE_INFINITY
      throw error
    })
  }

  /** Adds what was handled by hand to the registry, because a script may end right after the call. */
  async #reportManual(): Promise<void> {
    const { done, failed, dead } = minus(this.#counters, this.#flushed)
    if (done === 0 && failed === 0 && dead === 0) return
    await this.#registerStopped('manual').catch((error) =>
      this.#settings.logger.warn(
        errorFields(error),
        'failed to write the counters of a manual consumer, will retry',
      ),
    )
  }

  /** Moves everything that was counted from the row of this instance to the row that it shares with its successors. */
  #registerStopped(kind: 'manual' | 'stopped'): Promise<void> {
    return this.pauses.take(async () => {
      const counters = { ...this.#counters }
      const record = this.#record(minus(counters, this.#shared))
      const id = sharedId(kind, record.handlers)
      const paused = await this.#store.registerStopped({ ...record, id }, record.id)
      this.#shared = counters
      this.#flushed = counters
      return paused
    })
  }

  async #heartbeat(): Promise<void> {
    await this.pauses.take(async () => {
      const counters = { ...this.#counters }
      const paused = await this.#store.heartbeat(this.#record(minus(counters, this.#shared)))
      this.#flushed = counters
      return paused
    })
    await this.#gauge()
  }

  async #goodbye(): Promise<void> {
    await this.#registerStopped('stopped')
    await this.#gauge()
  }

  #record(counters: InstanceCounters): InstanceRecord {
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

  #gauge(): Promise<void> {
    return gauge(this.#settings.metrics, this.#hot, this.#cold, this.#inFlight, this.#routes, this.#store)
  }
}

function minus(a: InstanceCounters, b: InstanceCounters): InstanceCounters {
  return { done: a.done - b.done, failed: a.failed - b.failed, dead: a.dead - b.dead }
}
