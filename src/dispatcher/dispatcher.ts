import { captureContext } from '../ambient.js'
import type { RetryPolicy } from '../core/backoff.js'
import type { Clock } from '../core/clock.js'
import { AggregateHandlerError, ProcessDiedError, UnroutableEventError } from '../core/errors.js'
import { errorFields, type Logger, logs, type Redact } from '../observe/logger.js'
import type { MetricsExporter } from '../observe/metrics.js'
import type { Settlement } from '../store.js'
import type { BoundedQueue } from './bounded-queue.js'
import type { Delivery } from './delivery.js'
import { Gate, type Lane } from './gate.js'
import type { InFlight } from './in-flight.js'
import type { Interceptor } from './interceptor.js'
import { type CreateScope, eventFields, invoke } from './invoke.js'
import { doneOf, type HandlerFailure, NotStarted, Outcomes, settlementOf } from './outcome.js'
import type { Registration, Routes } from './routing.js'
import type { Settler } from './settler.js'

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
  /** Its lease was over before it could be started. */
  onDropped(delivery: Delivery): void
  /** The cold queue has room for another claim. */
  onRoom(): void
}

/** Takes deliveries from the two queues, at most `concurrency` at a time, and hands their outcome to the settler. */
export class Dispatcher {
  readonly #options: DispatcherOptions
  readonly #inOwnContext = captureContext()
  #workers = 0
  #starting = 0
  #turn = 0
  #paused = true
  #eager = 0
  readonly #outcomes: Outcomes

  constructor(options: DispatcherOptions) {
    this.#options = options
    this.#outcomes = new Outcomes(options)
  }

  /** Fills a place in the hot queue that was reserved before the insert. */
  hot(delivery: Delivery): void {
    const { inFlight, hot, metrics } = this.#options
    inFlight.add(delivery)
    hot.put(delivery)
    metrics?.count('hot_enqueued', 1, { eventType: delivery.event.eventType })
    this.#wake()
  }

  /** Queues what a claim brought, of each run the first. What still runs here is put off; while paused everything is given back. */
  cold(deliveries: readonly Delivery[]): void {
    const { inFlight, cold, settler, metrics } = this.#options
    for (const delivery of deliveries) {
      const run = delivery.next === null ? [delivery] : delivery.run
      if (this.#paused || run.some((one) => inFlight.has(one.event.eventId))) {
        const delayMs = this.#paused ? 0 : 1_000
        for (const one of run) settler.add(settlementOf(one, { outcome: 'release', delayMs }), one)
        continue
      }
      for (const one of run) {
        inFlight.add(one)
        metrics?.count('cold_enqueued', 1, { eventType: one.event.eventType })
      }
      cold.add(delivery)
    }
    this.#wake()
  }

  /** What was claimed and is not going to be handled. */
  giveBack(deliveries: readonly Delivery[]): void {
    for (const one of deliveries) this.#giveBack(one)
  }

  /** Nothing new is started from now on; what waits in the queues is returned. */
  pause(): Delivery[] {
    this.#paused = true
    for (const lane of this.#options.routes.lanes) lane.giveBack()
    return this.#takeAll().flatMap((one) => one.run)
  }

  /** Takes out of the queues what is paused by now. */
  takePaused(): Delivery[] {
    const { hot, cold, routes } = this.#options
    for (const lane of routes.lanes) lane.giveBack()
    const paused: Delivery[] = []
    for (const one of this.#takeAll()) {
      if (one.run.some(({ event }) => routes.isPaused(event.eventType))) paused.push(...one.run)
      else (one.source === 'hot' ? hot : cold).add(one)
    }
    this.#wake()
    return paused
  }

  /** While `work` runs batches do not wait for company. */
  async eagerly<T>(work: () => Promise<T>): Promise<T> {
    this.#eager++
    this.#flushLanes()
    try {
      return await work()
    } finally {
      this.#eager--
    }
  }

  #takeAll(): Delivery[] {
    const waiting: Delivery[] = []
    for (const queue of [this.#options.hot, this.#options.cold]) {
      for (let delivery = queue.take(); delivery; delivery = queue.take()) waiting.push(delivery)
    }
    return waiting
  }

  #flushLanes(): void {
    for (const lane of this.#options.routes.lanes) lane.flush()
  }

  resume(): void {
    this.#paused = false
    this.#wake()
  }

  #wake(): void {
    const waiting = this.#options.hot.length + this.#options.cold.length
    while (!this.#paused && this.#workers < this.#options.concurrency && this.#starting < waiting) {
      this.#workers++
      this.#starting++
      // Not in the context of whoever published: a handler must not see that transaction.
      void this.#inOwnContext(() => this.#work())
    }
  }

  async #work(): Promise<void> {
    const { settler } = this.#options
    await undefined
    this.#starting--
    for (let delivery = this.#next(); delivery; delivery = this.#next()) {
      const lane = this.#laneOf(delivery)
      if (lane) {
        void this.#follow(delivery)
        await lane.room()
      } else if (delivery.next) await this.#follow(delivery)
      else {
        const outcome = this.#begin(delivery)
        if (outcome) this.#end(delivery, outcome instanceof Promise ? await outcome : outcome)
      }
      if (settler.full) await settler.whenRoom()
    }
    this.#workers--
  }

  /** A run: each event when the one before it is done. What is left after a failure is given back. */
  async #follow(first: Delivery): Promise<void> {
    for (let one: Delivery | null = first; one; one = one.next) {
      const settlement: Settlement | null = await this.#begin(one)
      if (settlement) this.#end(one, settlement)
      if (settlement?.outcome === 'done' && !one.lost && !this.#mustStop(one)) continue
      for (const rest of one.next?.run ?? []) this.#giveBack(rest)
      return
    }
  }

  #mustStop({ event }: Delivery): boolean {
    return this.#paused || this.#options.routes.isPaused(event.eventType)
  }

  #giveBack(delivery: Delivery): void {
    if (delivery.lost) this.#options.onDropped(delivery)
    else this.#options.settler.add(settlementOf(delivery, { outcome: 'release', delayMs: 0 }), delivery)
  }

  /** Where it is going to wait without keeping a worker; null when it can run at once. */
  #laneOf({ event }: Delivery): Lane | null {
    const handlers = this.#options.routes.handlersOf(event)
    for (const { lane } of handlers) if (lane) return lane
    return null
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
    const { clock, metrics } = this.#options
    const now = clock.monotonic()
    if (delivery.lost || now >= delivery.leasedUntil) {
      metrics?.count('lease_lost', 1, { eventType: delivery.event.eventType })
      this.#options.onDropped(delivery)
      return null
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
    if (delivery.unroutable) {
      const failures = [{ handler: null, error: new UnroutableEventError(event.eventType) }]
      return onUnroutable === 'dead'
        ? this.#outcomes.dead(delivery, failures, [])
        : this.#outcomes.unroutable(delivery, failures)
    }
    const every = routes.handlersOf(event)
    if (every.length === 0) return settlementOf(delivery, { outcome: 'release', delayMs: 1_000 })
    const handlers = this.#outcomes.left(every, delivery)
    if (handlers.length === 0 && delivery.attempts > 0 && every.some((one) => !wasHandledBy(delivery, one))) {
      return this.#outcomes.dead(delivery, [{ handler: null, error: new ProcessDiedError() }], [], 0)
    }
    try {
      event.decodePayload()
    } catch (error) {
      return this.#outcomes.dead(delivery, [{ handler: null, error }], [])
    }
    return interceptors.length === 0 && handlers.length === 1 && every.length === 1
      ? this.#single(handlers[0] as Registration, delivery)
      : this.#several(handlers, every, delivery)
  }

  async #several(
    handlers: readonly Registration[],
    every: readonly Registration[],
    delivery: Delivery,
  ): Promise<Settlement> {
    const failures: HandlerFailure[] = []
    const succeeded: string[] = []
    if (await this.#before(delivery, failures)) {
      const errors = await Promise.all(handlers.map((handler) => this.#run(handler, delivery)))
      handlers.forEach(({ name }, at) => {
        const error = errors[at]
        if (error) failures.push({ handler: name, error: error.thrown })
        else succeeded.push(name)
      })
    }
    await this.#after(delivery, failures)
    return failures.length === 0
      ? this.#outcomes.succeeded(delivery, every, succeeded)
      : this.#outcomes.failed(delivery, every, failures, succeeded)
  }

  /** The common case without the arrays of the general one. */
  async #single(handler: Registration, delivery: Delivery): Promise<Settlement> {
    try {
      await (handler.lane ? this.#inLane(handler, delivery) : invoke(handler, delivery, this.#options))
    } catch (error) {
      this.#noteHandled(handler, delivery, error, false)
      return this.#outcomes.failed(delivery, [handler], [{ handler: handler.name, error }], [])
    }
    this.#noteHandled(handler, delivery, null, true)
    return doneOf(delivery)
  }

  /** Never rejects: what one handler throws does not stop the others. */
  async #run(handler: Registration, delivery: Delivery): Promise<{ thrown: unknown } | null> {
    try {
      await (handler.lane ? this.#inLane(handler, delivery) : invoke(handler, delivery, this.#options))
    } catch (thrown) {
      this.#noteHandled(handler, delivery, thrown, false)
      return { thrown }
    }
    this.#noteHandled(handler, delivery, null, true)
    return null
  }

  /** Rejects with NotStarted when its turn never came, or came too late. */
  async #inLane(handler: Registration, delivery: Delivery): Promise<void> {
    const { lane } = handler
    if (!(lane instanceof Gate)) {
      const result = invoke(handler, delivery, this.#options)
      if (this.#eager > 0) this.#flushLanes()
      await result
      return
    }
    await lane.enter()
    try {
      if (delivery.lost || this.#options.clock.monotonic() >= delivery.leasedUntil) throw new NotStarted()
      await invoke(handler, delivery, this.#options)
    } finally {
      lane.leave()
    }
  }

  async #before(delivery: Delivery, failures: HandlerFailure[]): Promise<boolean> {
    try {
      for (const interceptor of this.#options.interceptors) await interceptor.beforeDispatch?.(delivery.event)
      return true
    } catch (error) {
      failures.push({ handler: null, error })
      return false
    }
  }

  async #after(delivery: Delivery, failures: readonly HandlerFailure[]): Promise<void> {
    const { interceptors, logger, redact } = this.#options
    const error = combined(failures, delivery.event.eventType)
    for (let i = interceptors.length - 1; i >= 0; i--) {
      try {
        await interceptors[i]?.afterDispatch?.(delivery.event, error)
      } catch (thrown) {
        const fields = { ...eventFields(delivery.event), ...errorFields(thrown, redact) }
        logger.error(fields, 'an interceptor failed after the dispatch')
      }
    }
  }

  #noteHandled(handler: Registration, delivery: Delivery, error: unknown, succeeded: boolean): void {
    if (error instanceof NotStarted) return
    const { clock, logger, metrics, redact } = this.#options
    if (metrics) {
      const labels = { eventType: delivery.event.eventType, handler: handler.name }
      metrics.count(succeeded ? 'success' : 'failure', 1, labels)
      metrics.duration('handler_ms', clock.monotonic() - delivery.startedAt, labels)
    }
    if (!logs(logger, succeeded ? 'info' : 'warn')) return
    const fields = {
      ...eventFields(delivery.event),
      handler: handler.name,
      attempt: delivery.attempts + 1,
      duration_ms: Math.round((clock.monotonic() - delivery.startedAt) * 1000) / 1000,
    }
    if (succeeded) logger.info({ ...fields, outcome: 'done' }, 'event handled')
    else logger.warn({ ...fields, outcome: 'failed', ...errorFields(error, redact) }, 'handler failed')
  }
}

function wasHandledBy({ handledBy }: Delivery, { name }: Registration): boolean {
  return handledBy.includes(name)
}

function combined(failures: readonly HandlerFailure[], eventType: string): unknown | null {
  if (failures.length === 0) return null
  if (failures.length === 1) return failures[0]?.error
  return new AggregateHandlerError(
    failures.map((failure) => failure.error),
    eventType,
  )
}
