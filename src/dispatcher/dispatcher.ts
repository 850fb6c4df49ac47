import type { RetryPolicy } from '../core/backoff.js'
import type { Clock } from '../core/clock.js'
import { InvalidRowError, ProcessDiedError, UnroutableEventError } from '../core/errors.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields, type Logger, type Redact } from '../observe/logger.js'
import { type MetricsExporter, typeLabels } from '../observe/metrics.js'
import type { Tracer } from '../observe/tracing.js'
import type { Settlement } from '../store.js'
import { Admission } from './admission.js'
import type { BoundedQueue } from './bounded-queue.js'
import { Calls } from './calls.js'
import type { Delivery } from './delivery.js'
import { Gate } from './gate.js'
import type { InFlight } from './in-flight.js'
import { type Interceptor, runAfter, runBefore } from './interceptor.js'
import { type CreateScope, noteHandled } from './invoke.js'
import { combined, doneOf, type HandlerFailure, NotStarted, Outcomes, settlementOf } from './outcome.js'
import type { Registration, Routes } from './routing.js'
import type { Settler } from './settler.js'
import { Workers } from './workers.js'

const NO_KEYS: ReadonlySet<string> = new Set()

/** With so many waiting nobody waits for the next turn of the event loop: it may not come while others publish. */
const MOST_TOGETHER = 64

const wantsPayload = (handler: Registration) => handler.isRaw !== true

const isUnhandled = ({ handledBy }: Delivery, every: readonly Registration[]) =>
  every.some((one) => !handledBy.includes(one.name))

export interface DispatcherOptions {
  readonly instance: string
  readonly concurrency: number
  readonly hot: BoundedQueue<Delivery>
  readonly cold: BoundedQueue<Delivery>
  readonly inFlight: InFlight
  readonly routes: Routes
  readonly settler: Settler
  readonly retry: { readonly maxAttempts: number; readonly policy: RetryPolicy }
  /** A dead event stops its ordering key. */
  readonly haltsKeys: boolean
  readonly onUnroutable: 'dead' | 'retry'
  readonly interceptors: readonly Interceptor[]
  readonly createScope: CreateScope | undefined
  readonly clock: Clock
  readonly logger: Logger
  readonly redact: Redact | undefined
  readonly metrics: MetricsExporter | undefined
  readonly tracer?: Tracer | undefined
  /** Its lease was over before it could be started. */
  onDropped(delivery: Delivery): void
  /** The cold queue has room for another claim. */
  onRoom(): void
  /** Event types that had been left out of claims can be taken again. */
  onLaneRoom(): void
}

/** Takes deliveries from the two queues, at most `concurrency` at a time, and hands their outcome to the settler. */
export class Dispatcher {
  readonly #options: DispatcherOptions
  /** One for each worker, and for what a detached delivery does outside of its lanes. */
  readonly #places: Gate
  readonly #workers: Workers
  #turn = 0
  #paused = true
  readonly #outcomes: Outcomes
  readonly #admission: Admission
  readonly #calls: Calls

  constructor(options: DispatcherOptions) {
    this.#options = options
    this.#places = new Gate(options.concurrency)
    this.#workers = new Workers({
      places: this.#places,
      isAwaited: () => !this.#paused && (options.hot.length > 0 || options.cold.length > 0),
      work: () => this.#work(),
      onError: (error) => this.#unexpected(error),
    })
    const { clock, logger, inFlight, createScope, routes, tracer, redact } = options
    this.#calls = new Calls({
      ...{ clock, logger, inFlight, createScope, routes, tracer, redact, places: this.#places },
      mayStart: (delivery) => this.#mayStart(delivery),
      onFreePlace: () => this.#workers.callNow(),
    })
    this.#outcomes = new Outcomes(options)
    this.#admission = new Admission(options.routes, this.#outcomes, () => options.onLaneRoom())
  }

  register(registration: Registration): void {
    this.#options.routes.add(registration)
    this.#calls.connect(registration)
  }

  /** Fills a place in the hot queue that was reserved before the insert. */
  hot(delivery: Delivery): void {
    const { inFlight, hot, metrics } = this.#options
    inFlight.add(delivery)
    hot.put(delivery)
    metrics?.count('hot_enqueued', 1, typeLabels(delivery.event.eventType))
    if (hot.length < MOST_TOGETHER) this.#workers.call()
    else this.#workers.callNow()
  }

  /** Queues what a claim brought, of each run the first. What still runs here is put off; what has no room is given back, and while paused everything. */
  cold(deliveries: readonly Delivery[]): void {
    const { inFlight, cold, settler, metrics } = this.#options
    // A key that can be claimed while it runs here has lost its lease, whether or not that is known by now.
    const isOrdered = deliveries.some((one) => one.isOrdered)
    const running = isOrdered ? inFlight.runningKeys() : NO_KEYS
    for (const delivery of deliveries) {
      if (this.#paused || inFlight.hasAny(delivery) || delivery.isOfKey(running)) {
        const delayMs = this.#paused ? 0 : 1_000
        for (const one of delivery.run) settler.add(settlementOf(one, { outcome: 'release', delayMs }), one)
        continue
      }
      // Right away, so that the next claim does not bring more of it.
      if (!this.#admission.admit(delivery)) {
        this.giveBack(delivery.run)
        continue
      }
      for (let one: Delivery | null = delivery; one; one = one.next) {
        inFlight.add(one)
        metrics?.count('cold_enqueued', 1, typeLabels(one.event.eventType))
      }
      cold.add(delivery)
    }
    this.#workers.callSoon()
  }

  /** What was claimed and is not going to be handled. */
  giveBack(deliveries: readonly Delivery[]): void {
    for (const one of deliveries) this.#giveBack(one)
  }

  /** Nothing new is started from now on but what workers were called for; what waits in the queues is returned. */
  pause(): Delivery[] {
    this.#workers.gather()
    this.#paused = true
    this.#emptyLanes(() => true)
    const waiting = this.#takeAll()
    for (const one of waiting) this.#admission.dismiss(one)
    return waiting.flatMap((one) => one.run)
  }

  /** Takes out of the queues what is paused by now. */
  takePaused(): Delivery[] {
    const { hot, cold, routes, onRoom } = this.#options
    const isPaused = ({ event }: Delivery) => routes.isPausedForAll(event.eventType)
    this.#emptyLanes(isPaused)
    const paused: Delivery[] = []
    for (const one of this.#takeAll()) {
      if (one.run.some(isPaused)) {
        this.#admission.dismiss(one)
        paused.push(...one.run)
      } else (one.source === 'hot' ? hot : cold).add(one)
    }
    onRoom()
    this.#workers.call()
    return paused
  }

  #takeAll(): Delivery[] {
    const waiting: Delivery[] = []
    for (const queue of [this.#options.hot, this.#options.cold]) {
      for (let delivery = queue.take(); delivery; delivery = queue.take()) waiting.push(delivery)
    }
    return waiting
  }

  #emptyLanes(which: (delivery: Delivery) => boolean): void {
    for (const lane of this.#options.routes.lanes) lane.giveBack(which)
    this.#places.giveBack(which)
  }

  /** While `work` runs batches do not wait for company. */
  eagerly<T>(work: () => Promise<T>): Promise<T> {
    return this.#calls.eagerly(work)
  }

  resume(): void {
    this.#paused = false
    this.#workers.call()
  }

  async #work(): Promise<void> {
    const { settler } = this.#options
    try {
      for (let delivery = this.#next(); delivery; delivery = this.#next()) {
        if (this.#keepsNoWorker(delivery)) {
          for (let one: Delivery | null = delivery; one; one = one.next) one.detached = true
          this.#follow(delivery).catch((error) => this.#unexpected(error))
          // Quick handlers make room for the next.
          await undefined
        } else if (delivery.next) await this.#follow(delivery)
        else {
          let settlement: Settlement | null
          try {
            const outcome = this.#begin(delivery)
            // Not by `instanceof Promise`: the application may have replaced the global one.
            settlement = outcome === null || 'outcome' in outcome ? outcome : await outcome
          } catch (error) {
            settlement = this.#failed(delivery, error)
          }
          if (settlement) this.#end(delivery, settlement)
        }
        if (settler.full) await settler.whenRoom()
        if (this.#places.isAwaited) break
      }
    } finally {
      this.#workers.leave()
    }
  }

  /** Number of workers that can take events; `concurrency` unless workers have ended without leaving their place. */
  get liveWorkers(): number {
    return this.#options.concurrency - this.#workers.missing
  }

  /** Settles an event after an error that no handler threw, so that neither the event nor its worker is lost. */
  #failed(delivery: Delivery, error: unknown): Settlement {
    this.#unexpected(error, delivery)
    return this.#outcomes.unexpected(delivery, error)
  }

  #unexpected(error: unknown, delivery?: Delivery): void {
    const { logger } = this.#options
    const fields = { ...(delivery && eventFields(delivery.event)), ...errorFields(error) }
    logger.error(fields, 'unexpected error in the dispatcher')
  }

  /** A run: each event when the one before it is done. What is left after a failure, or finds no room, is given back. */
  async #follow(first: Delivery): Promise<void> {
    for (let one: Delivery | null = first; one; one = one.next) {
      if (!this.#admission.admit(one)) {
        for (const rest of one.run) this.#giveBack(rest)
        return
      }
      let settlement: Settlement | null
      try {
        settlement = await this.#begin(one)
      } catch (error) {
        settlement = this.#failed(one, error)
      }
      this.#admission.dismiss(one)
      if (settlement) this.#end(one, settlement)
      if (settlement?.outcome === 'done' && !one.lost && !this.#paused) continue
      for (const rest of one.next?.run ?? []) this.#giveBack(rest)
      return
    }
  }

  #giveBack(delivery: Delivery): void {
    if (delivery.lost) this.#options.onDropped(delivery)
    else this.#options.settler.add(settlementOf(delivery, { outcome: 'release', delayMs: 0 }), delivery)
  }

  /** Its run may wait in a lane, or be held until a call has ended that is overdue. */
  #keepsNoWorker(delivery: Delivery): boolean {
    if (!this.#options.routes.mayKeepWaiting) return false
    for (let one: Delivery | null = delivery; one; one = one.next) {
      for (const { lane, timeoutMs } of this.#options.routes.handlersOf(one.event)) {
        if (lane || (timeoutMs > 0 && one.isOrdered)) return true
      }
    }
    return false
  }

  #mayStart(delivery: Delivery): boolean {
    const { clock, routes } = this.#options
    const isOurs = !delivery.lost && clock.monotonic() < delivery.leasedUntil
    return isOurs && !this.#paused && !routes.isPausedForAll(delivery.event.eventType)
  }

  /** Two hot ones for each cold one, as long as there are both. */
  #next(): Delivery | undefined {
    if (this.#paused) return undefined
    const { hot, cold } = this.#options
    const coldFirst = this.#turn === 2
    const delivery = coldFirst ? (cold.take() ?? hot.take()) : (hot.take() ?? cold.take())
    this.#turn = coldFirst ? 0 : this.#turn + 1
    if (delivery?.source === 'cold') this.#options.onRoom()
    return delivery
  }

  /** Null when the lease is over and the event is not ours any more. */
  #begin(delivery: Delivery): Settlement | Promise<Settlement> | null {
    const { clock, metrics, routes } = this.#options
    const now = clock.monotonic()
    if (delivery.lost || now >= delivery.leasedUntil) {
      metrics?.count('lease_lost', 1, typeLabels(delivery.event.eventType))
      this.#options.onDropped(delivery)
      return null
    }
    // Paused since it was claimed, or while its transaction was open.
    if (routes.isPausedForAll(delivery.event.eventType) && !delivery.unroutable) {
      return settlementOf(delivery, { outcome: 'release', delayMs: 0 })
    }
    delivery.startedAt = now
    delivery.running = true
    return this.#attempt(delivery)
  }

  #end(delivery: Delivery, settlement: Settlement): void {
    delivery.running = false
    if (delivery.lost && this.#options.inFlight.ended(delivery)) return
    this.#options.settler.add(settlement, delivery)
  }

  /** Never throws or rejects. Promises are made only where a handler runs: this is the path of every event. */
  #attempt(delivery: Delivery): Settlement | Promise<Settlement> {
    const { routes, interceptors, onUnroutable } = this.#options
    const { event } = delivery
    if (delivery.invalid !== undefined) {
      // Interceptors do not see it: there is no envelope that keeps the promises of one.
      const error = new InvalidRowError(delivery.invalid)
      return this.#outcomes.dead(delivery, [{ handler: null, error }], [])
    }
    if (delivery.unroutable) {
      const error = new UnroutableEventError(event.eventType)
      return this.#withoutHandlers(delivery, error, (failures) =>
        onUnroutable === 'dead'
          ? this.#outcomes.dead(delivery, failures, [])
          : this.#outcomes.unroutable(delivery, failures),
      )
    }
    const every = routes.handlersOf(event)
    if (every.length === 0) return settlementOf(delivery, { outcome: 'release', delayMs: 1_000 })
    const handlers = this.#outcomes.left(every, delivery)
    if (handlers.length === 0 && delivery.attempts > 0 && isUnhandled(delivery, every)) {
      // Without a crash it was given up by settings that allowed more.
      if (!delivery.suspect) return this.#outcomes.succeeded(delivery, every, [])
      // Interceptors do not see it: they may be what ended the process.
      return this.#outcomes.dead(delivery, [{ handler: null, error: new ProcessDiedError() }], [], 0)
    }
    try {
      if (handlers.some(wantsPayload)) event.decodePayload()
    } catch (error) {
      return this.#withoutHandlers(delivery, error, (failures) => this.#outcomes.dead(delivery, failures, []))
    }
    return interceptors.length === 0 && handlers.length === 1 && every.length === 1
      ? this.#single(handlers, delivery)
      : this.#several(handlers, every, delivery)
  }

  /** An attempt that fails before any handler is called. Interceptors see it like any other attempt. */
  #withoutHandlers(
    delivery: Delivery,
    error: unknown,
    settle: (failures: readonly HandlerFailure[]) => Settlement,
  ): Settlement | Promise<Settlement> {
    const failures: HandlerFailure[] = [{ handler: null, error }]
    return this.#options.interceptors.length === 0
      ? settle(failures)
      : this.#interceptedFailure(delivery, failures, settle)
  }

  async #interceptedFailure(
    delivery: Delivery,
    failures: HandlerFailure[],
    settle: (failures: readonly HandlerFailure[]) => Settlement,
  ): Promise<Settlement> {
    if (!(await this.#calls.inPlace(delivery, () => this.#before(delivery, failures)))) {
      return settlementOf(delivery, { outcome: 'release', delayMs: 0 })
    }
    await this.#after(delivery, failures)
    return settle(failures)
  }

  async #several(
    handlers: readonly Registration[],
    every: readonly Registration[],
    delivery: Delivery,
  ): Promise<Settlement> {
    const { interceptors } = this.#options
    const failures: HandlerFailure[] = []
    const succeeded: string[] = []
    if (
      interceptors.length > 0 &&
      !(await this.#calls.inPlace(delivery, () => this.#before(delivery, failures)))
    ) {
      return settlementOf(delivery, { outcome: 'release', delayMs: 0 })
    }
    if (failures.length === 0) {
      // Interceptors take their time.
      const mayStart = interceptors.length === 0 || this.#mayStart(delivery)
      const run = mayStart ? (one: Registration) => this.#run(one, delivery) : notStarted
      delivery.handlers = handlers
      const errors = await Promise.all(handlers.map(run))
      handlers.forEach(({ name }, at) => {
        const error = errors[at]
        if (error) failures.push({ handler: name, error: error.thrown })
        else succeeded.push(name)
      })
    }
    if (interceptors.length > 0) await this.#after(delivery, failures)
    return failures.length === 0
      ? this.#outcomes.succeeded(delivery, every, succeeded)
      : this.#outcomes.failed(delivery, every, failures, succeeded)
  }

  /** The common case without the arrays of the general one, and without a promise when the handler gives none. */
  #single(handlers: readonly Registration[], delivery: Delivery): Settlement | Promise<Settlement> {
    const handler = handlers[0] as Registration
    delivery.handlers = handlers
    let result: unknown
    try {
      result = this.#calls.call(handler, delivery)
    } catch (error) {
      return this.#singleEnd(handlers, delivery, error, false)
    }
    if (result === undefined) return this.#singleEnd(handlers, delivery, null, true)
    return this.#awaited(handlers, delivery, result)
  }

  /** `await` never calls a `then` that throws out of this function, unlike `result.then()`. */
  async #awaited(
    handlers: readonly Registration[],
    delivery: Delivery,
    result: unknown,
  ): Promise<Settlement> {
    try {
      await result
    } catch (error) {
      return this.#singleEnd(handlers, delivery, error, false)
    }
    return this.#singleEnd(handlers, delivery, null, true)
  }

  #singleEnd(
    handlers: readonly Registration[],
    delivery: Delivery,
    error: unknown,
    succeeded: boolean,
  ): Settlement {
    const handler = handlers[0] as Registration
    noteHandled(this.#options, handler, delivery, error, succeeded)
    if (succeeded) return doneOf(delivery)
    return this.#outcomes.failed(delivery, handlers, [{ handler: handler.name, error }], [])
  }

  /** Never rejects: what one handler throws does not stop the others. */
  async #run(handler: Registration, delivery: Delivery): Promise<{ thrown: unknown } | null> {
    try {
      await this.#calls.call(handler, delivery)
    } catch (thrown) {
      delivery.failed ??= []
      delivery.failed.push(handler.name)
      noteHandled(this.#options, handler, delivery, thrown, false)
      return { thrown }
    }
    delivery.succeeded ??= []
    delivery.succeeded.push(handler.name)
    noteHandled(this.#options, handler, delivery, null, true)
    return null
  }

  async #before(delivery: Delivery, failures: HandlerFailure[]): Promise<void> {
    try {
      await runBefore(this.#options, delivery.event)
    } catch (error) {
      failures.push({ handler: null, error })
    }
  }

  async #after(delivery: Delivery, failures: readonly HandlerFailure[]): Promise<void> {
    const error = combined(failures, delivery.event.eventType)
    const after = () => runAfter(this.#options, delivery.event, error)
    if (!(await this.#calls.inPlace(delivery, after))) await after()
  }
}

async function notStarted(): Promise<{ thrown: unknown }> {
  return { thrown: new NotStarted() }
}
