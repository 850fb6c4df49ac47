// Tests replace the global setImmediate, so this one is imported.
import { setImmediate } from 'node:timers'
import { captureContext } from '../ambient.js'
import type { EventDefinition } from '../core/define-event.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields } from '../observe/logger.js'
import { typeLabels } from '../observe/metrics.js'
import type { Wakeups } from '../ports.js'
import type { Settlement } from '../store.js'
import type { BoundedQueue } from './bounded-queue.js'
import type { Delivery } from './delivery.js'
import { Executor, type ExecutorOptions } from './executor.js'
import { type HandlerCallOptions, HandlerCalls } from './handler-call.js'
import type { HandlerQueue } from './handler-queue.js'
import type { InFlight } from './in-flight.js'
import type { Handler, Registration } from './routes.js'
import { releaseOf, type SettlementOptions, Settlements } from './settlements.js'
import type { Settler } from './settler.js'
import { WorkerSlots } from './worker-slots.js'

const NO_KEYS: ReadonlySet<string> = new Set()
const NO_QUEUES: readonly HandlerQueue[] = []

/** With this many waiting events, handlers start before the next turn of the event loop, which may come late. */
const MANY_WAITING = 64
/** An event that still runs here is claimable again after this time. */
const STILL_RUNNING_DELAY_MS = 1_000

type FromParts = 'settlements' | 'calls' | 'slots' | 'mayStart' | 'releaseSlot'

export interface DispatcherOptions
  extends Omit<ExecutorOptions, FromParts>,
    Omit<HandlerCallOptions, 'mayStart' | 'onSaturationChange' | 'inFlight' | 'queues'>,
    SettlementOptions {
  /** Deliveries that run handlers at the same time. */
  readonly concurrency: number
  readonly hot: BoundedQueue<Delivery>
  readonly cold: BoundedQueue<Delivery>
  readonly inFlight: InFlight
  readonly settler: Pick<Settler, 'add' | 'isFull' | 'whenCapacity'>
  readonly wakeups: Wakeups
}

/** Takes deliveries from the hot and the cold queue, runs them while worker slots are free, and settles them. */
export class Dispatcher {
  readonly #options: DispatcherOptions
  readonly #inOwnContext = captureContext()
  readonly #slots: WorkerSlots
  readonly #calls: HandlerCalls
  readonly #settlements: Settlements
  readonly #executor: Executor
  #isSuspended = true
  /** Whether `#start` is going to run in the next turn of the event loop. */
  #isScheduled = false
  /** Number of hot events taken since the last cold one. */
  #hotInRow = 0
  #saturatedTypes: readonly string[] = []

  constructor(options: DispatcherOptions) {
    this.#options = options
    this.#slots = new WorkerSlots(options.concurrency)
    const mayStart = (delivery: Delivery) => this.#mayStart(delivery)
    const onSaturationChange = () => this.#updateSaturatedTypes()
    const { queues } = options.routes
    this.#calls = new HandlerCalls({ ...options, queues, mayStart, onSaturationChange })
    this.#settlements = new Settlements(options)
    this.#executor = new Executor({
      ...options,
      ...{ mayStart, settlements: this.#settlements, calls: this.#calls, slots: this.#slots },
      releaseSlot: this.#releaseSlot,
    })
  }

  /** Registers all of the handlers, or none of them if it throws. */
  register(
    registrations: readonly Registration[],
    definitions: readonly EventDefinition[] = [],
  ): readonly Handler[] {
    const handlers = registrations.map((registration) => this.#calls.createHandler(registration))
    this.#options.routes.add(handlers, definitions)
    return handlers
  }

  /** Adds an event that was published here. Its capacity in the hot queue was reserved before. */
  addHot(delivery: Delivery): void {
    const { inFlight, hot, metrics } = this.#options
    inFlight.add(delivery)
    hot.addReserved(delivery)
    metrics?.count('hot_enqueued', 1, typeLabels(delivery.event.eventType))
    if (hot.length < MANY_WAITING) this.#startNextTurn()
    else this.#startSoon()
  }

  /**
   * Adds claimed events: the first of each run. Releases the events that cannot run here now. Returns for how long events were
   * deferred because they still run here, or 0.
   */
  addCold(deliveries: readonly Delivery[]): number {
    let deferredMs = 0
    const { inFlight, cold, metrics, settler } = this.#options
    // A key that can be claimed while it runs here has lost its lease, even if this is not known yet.
    const isOrdered = deliveries.some((delivery) => delivery.isOrdered)
    const runningKeys = isOrdered ? inFlight.runningKeys() : NO_KEYS
    for (const first of deliveries) {
      if (this.#isSuspended || inFlight.hasAnyOf(first) || first.isOfKey(runningKeys)) {
        const delayMs = this.#isSuspended ? 0 : STILL_RUNNING_DELAY_MS
        deferredMs = Math.max(deferredMs, delayMs)
        for (const delivery of first.run) settler.add(releaseOf(delivery, delayMs), delivery)
        continue
      }
      // Admitted before it is queued, so that the next claim does not bring more than the handler queues accept.
      if (!this.#admit(first)) {
        this.release(first.run)
        continue
      }
      for (const delivery of first.run) {
        inFlight.add(delivery)
        metrics?.count('cold_enqueued', 1, typeLabels(delivery.event.eventType))
      }
      cold.add(first)
    }
    this.#startOncePerTurn()
    return deferredMs
  }

  /** Gives back the leases of deliveries that are not going to run here. */
  release(deliveries: readonly Delivery[]): void {
    const { settler, onDropped } = this.#options
    for (const delivery of deliveries) {
      if (delivery.lost) onDropped(delivery)
      else settler.add(releaseOf(delivery), delivery)
    }
  }

  /** Starts nothing more until `resume()`, and releases all waiting deliveries. */
  suspend(): void {
    // Events that were published right before still start.
    while (this.#isScheduled && this.#isAwaited && this.#slots.used < this.#slots.capacity) {
      if (this.#options.settler.isFull) break
      this.#start()
    }
    this.#isSuspended = true
    this.#refuseWaiting(() => true)
    for (const first of this.#takeAll()) this.#releaseRun(first)
  }

  resume(): void {
    this.#isSuspended = false
    this.#startNextTurn()
  }

  /** Releases the waiting deliveries whose type is paused by now. */
  releasePaused(): void {
    const { hot, cold, routes, wakeups } = this.#options
    const isPaused = ({ event }: Delivery) => routes.isPaused(event.eventType)
    this.#refuseWaiting(isPaused)
    for (const first of this.#takeAll()) {
      if (first.run.some(isPaused)) this.#releaseRun(first)
      else (first.source === 'hot' ? hot : cold).add(first)
    }
    wakeups.request(SPACE)
    this.#startNextTurn()
  }

  /** While `work` runs, events do not wait until their batch is full. */
  eagerly<T>(work: () => Promise<T>): Promise<T> {
    return this.#calls.eagerly(work)
  }

  /** Number of slots that can run deliveries: `concurrency`, less slots that were lost by a defect of aftercommit. */
  get usableSlots(): number {
    const lost = Math.max(0, this.#slots.used - this.#options.inFlight.countSlots())
    return this.#slots.capacity - lost
  }

  #releaseRun(first: Delivery): void {
    this.#leaveQueues(first)
    this.release(first.run)
  }

  #refuseWaiting(isReleased: (delivery: Delivery) => boolean): void {
    for (const queue of this.#options.routes.queues) queue.release(isReleased)
    this.#slots.refuse(isReleased)
  }

  #takeAll(): Delivery[] {
    const waiting: Delivery[] = []
    for (const queue of [this.#options.hot, this.#options.cold]) {
      for (let delivery = queue.take(); delivery; delivery = queue.take()) waiting.push(delivery)
    }
    return waiting
  }

  // ── handler queues ───────────────────────────────────────────────────────────────────────────────────────

  /** Adds the delivery to the backlog of its handlers. Returns false, and adds nothing, if a backlog is full. */
  #admit(delivery: Delivery): boolean {
    const queues = this.#queuesOf(delivery)
    let isAccepted = true
    for (const queue of queues) {
      if (queue.accepts(delivery)) continue
      queue.exclude(delivery.event.eventType)
      isAccepted = false
    }
    if (!isAccepted) return false
    delivery.queues = queues
    for (const queue of queues) queue.admit(delivery)
    return true
  }

  #leaveQueues(delivery: Delivery): void {
    for (const queue of delivery.queues) queue.leave(delivery)
  }

  #queuesOf(delivery: Delivery): readonly HandlerQueue[] {
    const { routes } = this.#options
    if (routes.queues.length === 0 || delivery.unroutable) return NO_QUEUES
    const handlers = this.#settlements.handlersLeft(routes.handlersOf(delivery.event), delivery)
    return handlers.flatMap(({ queue }) => queue ?? [])
  }

  #updateSaturatedTypes(): void {
    const { routes, wakeups } = this.#options
    const before = this.#saturatedTypes
    this.#saturatedTypes = [...new Set(routes.queues.flatMap(({ saturatedTypes }) => saturatedTypes))]
    routes.setSaturatedTypes(this.#saturatedTypes)
    if (before.some((type) => !this.#saturatedTypes.includes(type))) wakeups.request({ reason: 'capacity' })
  }

  // ── when deliveries start ────────────────────────────────────────────────────────────────────────────────

  get #isAwaited(): boolean {
    return !this.#isSuspended && (this.#options.hot.length > 0 || this.#options.cold.length > 0)
  }

  /**
   * Code that waits for the answer to a COMMIT continues before handlers start, and events that are committed in the same
   * turn of the event loop are handled together. This keeps publishers fast (bar B3).
   */
  #startNextTurn(): void {
    if (this.#isScheduled || !this.#isAwaited) return
    this.#isScheduled = true
    setImmediate(this.#startScheduled)
  }

  #startSoon(): void {
    if (this.#isAwaited) queueMicrotask(this.#start)
  }

  /** With a store that answers without I/O, claims and handlers would otherwise follow each other without end. */
  #startOncePerTurn(): void {
    if (this.#isScheduled) return
    this.#startSoon()
    this.#startNextTurn()
  }

  readonly #startScheduled = (): void => {
    this.#isScheduled = false
    this.#start()
  }

  /** A handler must not run in the async context of a publisher, because it would see that transaction. */
  readonly #start = (): void => this.#inOwnContext(this.#startWhileFree)

  /** Starts deliveries while worker slots are free. */
  readonly #startWhileFree = (): void => {
    const { routes, settler } = this.#options
    while (this.#slots.used < this.#slots.capacity) {
      if (settler.isFull) {
        void settler.whenCapacity().then(this.#start)
        return
      }
      const delivery = this.#next()
      if (!delivery) return
      this.#slots.tryAcquire(delivery)
      const mayWait = routes.haveQueuesOrTimeouts && this.#mayReleaseSlot(delivery)
      if (mayWait || delivery.next) {
        this.#executeRun(delivery).catch((error) => {
          this.#report(error, delivery)
          this.#releaseSlot(delivery)
        })
        if (!delivery.queues.some(({ isFull }) => isFull)) continue
        // A handler that ends at once makes capacity for the next delivery.
        this.#startSoon()
        return
      }
      this.#executeOne(delivery)
    }
  }

  /** Takes one cold event after two hot events, so that neither queue starves. */
  #next(): Delivery | undefined {
    if (this.#isSuspended) return undefined
    const { hot, cold, wakeups } = this.#options
    const isColdFirst = this.#hotInRow === 2
    const delivery = isColdFirst ? (cold.take() ?? hot.take()) : (hot.take() ?? cold.take())
    this.#hotInRow = isColdFirst ? 0 : this.#hotInRow + 1
    if (delivery?.source === 'cold') wakeups.request(SPACE)
    return delivery
  }

  /** Whether an event of the run can wait for a handler queue, or for an ordered call whose timeout is over. */
  #mayReleaseSlot(first: Delivery): boolean {
    for (let delivery: Delivery | null = first; delivery; delivery = delivery.next) {
      for (const { queue, timeoutMs } of this.#options.routes.handlersOf(delivery.event)) {
        if (queue || (timeoutMs > 0 && delivery.isOrdered)) return true
      }
    }
    return false
  }

  readonly #releaseSlot = (delivery: Delivery): void => {
    if (this.#slots.release(delivery)) this.#startSoon()
  }

  #mayStart(delivery: Delivery): boolean {
    const { clock, routes } = this.#options
    const isLeased = !delivery.lost && clock.monotonic() < delivery.leasedUntil
    return isLeased && !this.#isSuspended && !routes.isPaused(delivery.event.eventType)
  }

  // ── execution ────────────────────────────────────────────────────────────────────────────────────────────

  /** Executes a delivery without a run. No promise is created if its handler returns none (bars B3 and B4). */
  #executeOne(delivery: Delivery): void {
    let settlement: Settlement | Promise<Settlement> | null
    try {
      settlement = this.#executor.execute(delivery)
    } catch (error) {
      settlement = this.#failed(delivery, error)
    }
    // `instanceof Promise` would not recognise promises if the application has replaced the global Promise.
    if (settlement !== null && !('outcome' in settlement)) {
      void this.#endLater(delivery, settlement)
      return
    }
    this.#end(delivery, settlement)
    this.#slots.release(delivery)
  }

  async #endLater(delivery: Delivery, executed: Promise<Settlement>): Promise<void> {
    let settlement: Settlement
    try {
      settlement = await executed
    } catch (error) {
      settlement = this.#failed(delivery, error)
    }
    this.#end(delivery, settlement)
    if (this.#slots.release(delivery)) this.#startWhileFree()
  }

  /** Executes each event of a run after the event before it is done. Releases the rest after a failure. */
  async #executeRun(first: Delivery): Promise<void> {
    for (let delivery: Delivery | null = first; delivery; ) {
      if (!this.#admit(delivery)) {
        this.release(delivery.run)
        this.#releaseSlot(delivery)
        return
      }
      let settlement: Settlement | null
      try {
        settlement = await this.#executor.execute(delivery)
      } catch (error) {
        settlement = this.#failed(delivery, error)
      }
      this.#leaveQueues(delivery)
      this.#end(delivery, settlement)
      const next: Delivery | null = delivery.next
      const goesOn = settlement?.outcome === 'done' && !delivery.lost && !this.#isSuspended
      if (!next || !goesOn || !(await this.#passSlot(delivery, next))) {
        this.#releaseSlot(delivery)
        if (next) this.release(next.run)
        return
      }
      delivery = next
    }
  }

  /** Returns false if the next delivery got no slot, because it is being released. */
  async #passSlot(delivery: Delivery, next: Delivery): Promise<boolean> {
    this.#slots.pass(delivery, next)
    if (this.#waitsInQueuesOnly(next)) return true
    try {
      await this.#slots.acquire(next)
      return true
    } catch {
      return false
    }
  }

  /** Whether the delivery needs no slot, because nothing but handlers with queues sees it. */
  #waitsInQueuesOnly(delivery: Delivery): boolean {
    const { interceptors, routes } = this.#options
    if (interceptors.length > 0 || delivery.unroutable) return false
    return routes.handlersOf(delivery.event).every(({ queue }) => queue)
  }

  /** Never throws, because its callers release the slot of the delivery afterwards. */
  #end(delivery: Delivery, settlement: Settlement | null): void {
    delivery.running = false
    try {
      if (!settlement || (delivery.lost && this.#options.inFlight.endAborted(delivery))) return
      this.#options.settler.add(settlement, delivery)
    } catch (error) {
      this.#report(error, delivery)
    }
  }

  /** Returns the outcome after an error that no handler threw, so that the event is not lost. */
  #failed(delivery: Delivery, error: unknown): Settlement {
    this.#report(error, delivery)
    return this.#settlements.unexpected(delivery, error)
  }

  #report(error: unknown, { event }: Delivery): void {
    const fields = { ...eventFields(event), ...errorFields(error) }
    this.#options.logger.error(fields, 'unexpected error in the dispatcher')
  }
}

const SPACE = { reason: 'space' } as const
