import { captureContext } from '../ambient.js'
import type { RetryPolicy } from '../core/backoff.js'
import type { Clock } from '../core/clock.js'
import { AggregateHandlerError, ProcessDiedError, UnroutableEventError } from '../core/errors.js'
import { describeError, sanitizeText } from '../core/text.js'
import { errorFields, type Logger, logs, type Redact } from '../observe/logger.js'
import type { MetricsExporter } from '../observe/metrics.js'
import type { Failure, Settlement } from '../store.js'
import type { BoundedQueue } from './bounded-queue.js'
import type { Delivery } from './delivery.js'
import type { InFlight } from './in-flight.js'
import type { Interceptor } from './interceptor.js'
import { type CreateScope, eventFields, invoke } from './invoke.js'
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

  constructor(options: DispatcherOptions) {
    this.#options = options
  }

  /** Fills a place in the hot queue that was reserved before the insert. */
  hot(delivery: Delivery): void {
    const { inFlight, hot, metrics } = this.#options
    inFlight.add(delivery)
    hot.put(delivery)
    metrics?.count('hot_enqueued', 1, { eventType: delivery.event.eventType })
    this.#wake()
  }

  /** Queues what a claim brought. What still runs here is put off; while paused everything is given back. */
  cold(deliveries: readonly Delivery[]): void {
    const { inFlight, cold, settler, metrics } = this.#options
    for (const delivery of deliveries) {
      if (this.#paused || inFlight.has(delivery.event.eventId)) {
        const delayMs = this.#paused ? 0 : 1_000
        settler.add(settlementOf(delivery, { outcome: 'release', delayMs }), delivery)
        continue
      }
      inFlight.add(delivery)
      cold.add(delivery)
      metrics?.count('cold_enqueued', 1, { eventType: delivery.event.eventType })
    }
    this.#wake()
  }

  /** Nothing new is started from now on; what waits in the queues is returned. */
  pause(): Delivery[] {
    this.#paused = true
    const waiting: Delivery[] = []
    for (const queue of [this.#options.hot, this.#options.cold]) {
      for (let delivery = queue.take(); delivery; delivery = queue.take()) waiting.push(delivery)
    }
    return waiting
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
      const outcome = this.#begin(delivery)
      if (outcome) this.#end(delivery, outcome instanceof Promise ? await outcome : outcome)
      if (settler.full) await settler.whenRoom()
    }
    this.#workers--
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
    const { routes, retry, interceptors, onUnroutable } = this.#options
    const { event } = delivery
    if (delivery.unroutable) {
      const failures = [{ handler: null, error: new UnroutableEventError(event.eventType) }]
      return onUnroutable === 'dead'
        ? this.#dead(delivery, failures, [])
        : this.#failed(delivery, failures, [])
    }
    if (delivery.attempts >= retry.maxAttempts) {
      return this.#dead(delivery, [{ handler: null, error: new ProcessDiedError() }], [], 0)
    }
    try {
      event.decodePayload()
    } catch (error) {
      return this.#dead(delivery, [{ handler: null, error }], [])
    }
    let handlers = routes.handlersOf(event)
    if (handlers.length === 0) return settlementOf(delivery, { outcome: 'release', delayMs: 1_000 })
    if (delivery.handledBy.length > 0) {
      handlers = handlers.filter((one) => !delivery.handledBy.includes(one.name))
    }
    return interceptors.length === 0 && handlers.length === 1
      ? this.#single(handlers[0] as Registration, delivery)
      : this.#several(handlers, delivery)
  }

  async #several(handlers: readonly Registration[], delivery: Delivery): Promise<Settlement> {
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
    return failures.length === 0 ? doneOf(delivery) : this.#failed(delivery, failures, succeeded)
  }

  /** The common case without the arrays of the general one. */
  async #single(handler: Registration, delivery: Delivery): Promise<Settlement> {
    try {
      await invoke(handler, delivery, this.#options)
    } catch (error) {
      this.#noteHandled(handler, delivery, error, false)
      return this.#failed(delivery, [{ handler: handler.name, error }], [])
    }
    this.#noteHandled(handler, delivery, null, true)
    return doneOf(delivery)
  }

  /** Never rejects: what one handler throws does not stop the others. */
  async #run(handler: Registration, delivery: Delivery): Promise<{ thrown: unknown } | null> {
    try {
      await invoke(handler, delivery, this.#options)
    } catch (thrown) {
      this.#noteHandled(handler, delivery, thrown, false)
      return { thrown }
    }
    this.#noteHandled(handler, delivery, null, true)
    return null
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

  #failed(delivery: Delivery, failures: readonly HandlerFailure[], succeeded: readonly string[]): Settlement {
    const attempts = delivery.attempts + 1
    const { maxAttempts, policy } = this.#options.retry
    if (attempts >= maxAttempts) return this.#dead(delivery, failures, succeeded)
    return settlementOf(delivery, {
      outcome: 'retry',
      delayMs: delayOf(policy, attempts, failures[0]?.error),
      attempts: 1,
      ...this.#story(delivery, failures, succeeded),
    })
  }

  #dead(
    delivery: Delivery,
    failures: readonly HandlerFailure[],
    succeeded: readonly string[],
    attempts = 1,
  ): Settlement {
    return settlementOf(delivery, {
      outcome: 'dead',
      delayMs: 0,
      attempts,
      ...this.#story(delivery, failures, succeeded),
    })
  }

  #story(delivery: Delivery, failures: readonly HandlerFailure[], succeeded: readonly string[]) {
    const described = failures.map(({ handler, error }): Failure => {
      const { name, message } = describeError(error)
      return {
        handler,
        instance: this.#options.instance,
        message: sanitizeText(`${name}: ${message}`, 4_000),
      }
    })
    const error = described
      .map((one) => (one.handler ? `${one.handler}: ${one.message}` : one.message))
      .join('\n')
    return { error, failures: described, handledBy: [...delivery.handledBy, ...succeeded] }
  }
}

interface HandlerFailure {
  readonly handler: string | null
  readonly error: unknown
}

type Outcome = Settlement extends infer One
  ? One extends unknown
    ? Omit<One, 'eventId' | 'token'>
    : never
  : never

export function settlementOf(delivery: Delivery, outcome: Outcome): Settlement {
  return { eventId: delivery.event.eventId, token: delivery.token, ...outcome } as Settlement
}

function doneOf(delivery: Delivery): Settlement {
  return { eventId: delivery.event.eventId, token: delivery.token, outcome: 'done' }
}

function combined(failures: readonly HandlerFailure[], eventType: string): unknown | null {
  if (failures.length === 0) return null
  if (failures.length === 1) return failures[0]?.error
  return new AggregateHandlerError(
    failures.map((failure) => failure.error),
    eventType,
  )
}

/** A hundred years: later moments are no dates for a database. */
const LONGEST_DELAY_MS = 3_155_760_000_000

/** A policy that throws or answers nonsense must not lose the event: a minute is as good as any. */
function delayOf(policy: RetryPolicy, attempts: number, error: unknown): number {
  try {
    const delay = policy.delayMs(attempts, error)
    return Number.isFinite(delay) && delay >= 0 ? Math.min(delay, LONGEST_DELAY_MS) : 60_000
  } catch {
    return 60_000
  }
}
