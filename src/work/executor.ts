import type { Clock } from '../core/clock.js'
import { InvalidRowError, ProcessDiedError, UnroutableEventError } from '../core/errors.js'
import { isA } from '../core/unknown.js'
import { callFields } from '../observe/event-fields.js'
import { errorFields, type Logger, logs } from '../observe/logger.js'
import { handlerLabels, type MetricsExporter, typeLabels } from '../observe/metrics.js'
import type { Settlement } from '../store.js'
import type { Delivery } from './delivery.js'
import type { HandlerCalls } from './handler-call.js'
import { type Interceptor, runAfter, runBefore } from './interceptors.js'
import { NotStarted } from './not-started.js'
import type { Handler, Routes } from './routes.js'
import {
  combinedError,
  doneOf,
  type HandlerFailure,
  releaseOf,
  type Settlements,
  withCause,
} from './settlements.js'
import type { WorkerSlots } from './worker-slots.js'

/** Delay after which an instance without a handler for an event lets others try. */
const NO_HANDLER_DELAY_MS = 1_000

export interface ExecutorOptions {
  readonly routes: Routes
  readonly settlements: Settlements
  readonly calls: Pick<HandlerCalls, 'call'>
  readonly slots: Pick<WorkerSlots, 'acquire'>
  readonly interceptors: readonly Interceptor[]
  readonly onUnroutable: 'dead' | 'retry'
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: MetricsExporter | undefined
  /** Whether the delivery is neither paused nor lost, and nothing is stopping. */
  mayStart(delivery: Delivery): boolean
  /** Called with a delivery whose lease was over before it could start. */
  onDropped(delivery: Delivery): void
  /** Releases the worker slot of a delivery that only waits for a queue or for an overdue call. */
  releaseSlot(delivery: Delivery): void
}

type HandlerResult = { readonly thrown: unknown } | null

/** Runs one delivery: checks, interceptors, handlers, outcome. */
export class Executor {
  readonly #options: ExecutorOptions

  constructor(options: ExecutorOptions) {
    this.#options = options
  }

  /**
   * Returns the outcome of the delivery, or null if its lease is over and the event belongs to another instance. Returns
   * a promise only if a handler or interceptor does, because this is the path of every event.
   */
  execute(delivery: Delivery): Settlement | Promise<Settlement> | null {
    const { clock, metrics, routes, onDropped } = this.#options
    const now = clock.monotonic()
    if (delivery.lost || now >= delivery.leasedUntil) {
      metrics?.count('lease_lost', 1, typeLabels(delivery.event.eventType))
      onDropped(delivery)
      return null
    }
    // The type may have been paused since the claim, or while the transaction was open.
    if (routes.isPaused(delivery.event.eventType) && !delivery.unroutable) return releaseOf(delivery)
    delivery.startedAt = now
    delivery.running = true
    return this.#attempt(delivery)
  }

  #attempt(delivery: Delivery): Settlement | Promise<Settlement> {
    const { routes, settlements, interceptors } = this.#options
    const { event } = delivery
    if (delivery.invalid !== undefined) {
      // Interceptors do not see the event, because no valid envelope can be made of the row.
      const error = new InvalidRowError(delivery.invalid)
      return settlements.dead(delivery, [{ handler: null, error }], [])
    }
    if (delivery.unroutable) return this.#unroutable(delivery)
    const registered = routes.handlersOf(event)
    if (registered.length === 0) return releaseOf(delivery, NO_HANDLER_DELAY_MS)
    const handlers = settlements.handlersLeft(registered, delivery)
    if (handlers.length === 0 && delivery.attempts > 0 && hasUnfinishedHandler(delivery, registered)) {
      // Without a crash, `maxAttempts` was lowered after the last attempt. The event becomes dead.
      if (!delivery.suspect) return settlements.succeeded(delivery, registered, [])
      // Interceptors do not see the event, because an interceptor may be what ended the process.
      return settlements.dead(delivery, [{ handler: null, error: new ProcessDiedError() }], [], 0)
    }
    try {
      if (handlers.some(needsPayload)) event.decodePayload()
    } catch (error) {
      return this.#failBeforeHandlers(delivery, error, (failures) => settlements.dead(delivery, failures, []))
    }
    // The benchmarks B3 and B4 (bench/bars) depend on this branch: most events have one handler and no interceptor.
    if (interceptors.length === 0 && handlers.length === 1 && registered.length === 1) {
      return this.#callSingle(handlers, delivery)
    }
    return this.#callAll(handlers, registered, delivery)
  }

  #unroutable(delivery: Delivery): Settlement | Promise<Settlement> {
    const { settlements, onUnroutable } = this.#options
    const error = new UnroutableEventError(delivery.event.eventType)
    return this.#failBeforeHandlers(delivery, error, (failures) =>
      onUnroutable === 'dead'
        ? settlements.dead(delivery, failures, [])
        : settlements.unroutable(delivery, failures[0]?.error),
    )
  }

  /** Settles an attempt that failed before any handler was called. Interceptors see it like any other attempt. */
  #failBeforeHandlers(
    delivery: Delivery,
    error: unknown,
    settle: (failures: readonly HandlerFailure[]) => Settlement,
  ): Settlement | Promise<Settlement> {
    const failures: HandlerFailure[] = [{ handler: null, error }]
    if (this.#options.interceptors.length === 0) return settle(failures)
    return (async () => {
      const thrown = await this.#runBefore(delivery)
      if (thrown) failures.push({ handler: null, error: thrown.thrown })
      await this.#runAfter(delivery, thrown ? withCause(error, thrown.thrown) : error)
      return settle(failures)
    })()
  }

  // ── one handler, no interceptors ─────────────────────────────────────────────────────────────────────────

  #callSingle(handlers: readonly Handler[], delivery: Delivery): Settlement | Promise<Settlement> {
    const { calls, releaseSlot } = this.#options
    const handler = handlers[0] as Handler
    delivery.handlers = handlers
    let result: unknown
    try {
      result = calls.call(handler, delivery, releaseSlot)
    } catch (error) {
      return this.#endSingle(handlers, delivery, { thrown: error })
    }
    if (result === undefined) return this.#endSingle(handlers, delivery, null)
    if (handler.queue) releaseSlot(delivery)
    return this.#awaitSingle(handlers, delivery, result)
  }

  /** Uses `await` instead of `result.then()`, because the `then` of a foreign thenable can throw. */
  async #awaitSingle(handlers: readonly Handler[], delivery: Delivery, result: unknown): Promise<Settlement> {
    try {
      await result
    } catch (error) {
      return this.#endSingle(handlers, delivery, { thrown: error })
    }
    return this.#endSingle(handlers, delivery, null)
  }

  #endSingle(handlers: readonly Handler[], delivery: Delivery, result: HandlerResult): Settlement {
    const handler = handlers[0] as Handler
    this.#recordResult(handler, delivery, result)
    if (result === null) return doneOf(delivery)
    const failures = [{ handler: handler.name, error: result.thrown }]
    return this.#options.settlements.failed(delivery, handlers, failures, [])
  }

  // ── several handlers, or interceptors ────────────────────────────────────────────────────────────────────

  async #callAll(
    handlers: readonly Handler[],
    registered: readonly Handler[],
    delivery: Delivery,
  ): Promise<Settlement> {
    const { interceptors, settlements } = this.#options
    const failures: HandlerFailure[] = []
    const succeeded: string[] = []
    const thrown = interceptors.length > 0 ? await this.#runBefore(delivery) : null
    if (thrown) failures.push({ handler: null, error: thrown.thrown })
    else {
      const results = await this.#callHandlers(handlers, delivery)
      handlers.forEach(({ name }, at) => {
        const result = results[at]
        if (result) failures.push({ handler: name, error: result.thrown })
        else succeeded.push(name)
      })
    }
    if (interceptors.length > 0) {
      await this.#runAfter(delivery, combinedError(failures, delivery.event.eventType))
    }
    return failures.length === 0
      ? settlements.succeeded(delivery, registered, succeeded)
      : settlements.failed(delivery, registered, failures, succeeded)
  }

  /** Calls the handlers at the same time. The slot is released when only queued or overdue calls are left. */
  async #callHandlers(handlers: readonly Handler[], delivery: Delivery): Promise<readonly HandlerResult[]> {
    const { interceptors, mayStart, releaseSlot } = this.#options
    // The event may have been paused or lost while an interceptor ran.
    if (interceptors.length > 0 && !mayStart(delivery)) {
      return handlers.map(() => ({ thrown: new NotStarted() }))
    }
    delivery.handlers = handlers
    let callsInSlot = handlers.filter(({ queue }) => !queue).length
    let hasQueuedOrOverdueCall = callsInSlot < handlers.length
    if (callsInSlot === 0 && hasQueuedOrOverdueCall) releaseSlot(delivery)
    const endCallInSlot = () => {
      callsInSlot--
      if (callsInSlot === 0 && hasQueuedOrOverdueCall) releaseSlot(delivery)
    }
    return Promise.all(
      handlers.map(async (handler) => {
        let holdsSlot = !handler.queue
        const endOnce = () => {
          if (holdsSlot) endCallInSlot()
          holdsSlot = false
        }
        const result = await this.#callHandler(handler, delivery, () => {
          hasQueuedOrOverdueCall = true
          endOnce()
        })
        endOnce()
        return result
      }),
    )
  }

  /** Never rejects: an error of one handler does not stop the others. */
  async #callHandler(handler: Handler, delivery: Delivery, onOverdue: () => void): Promise<HandlerResult> {
    try {
      await this.#options.calls.call(handler, delivery, onOverdue)
    } catch (thrown) {
      delivery.failed ??= []
      delivery.failed.push(handler.name)
      this.#recordResult(handler, delivery, { thrown })
      return { thrown }
    }
    delivery.succeeded ??= []
    delivery.succeeded.push(handler.name)
    this.#recordResult(handler, delivery, null)
    return null
  }

  /** Returns the error of an interceptor, or null. */
  async #runBefore(delivery: Delivery): Promise<HandlerResult> {
    try {
      await runBefore(this.#options, delivery.event)
      return null
    } catch (thrown) {
      return { thrown }
    }
  }

  async #runAfter(delivery: Delivery, error: unknown | null): Promise<void> {
    try {
      await this.#options.slots.acquire(delivery)
    } catch {
      // The delivery is being released. Its interceptors still see the end of the attempt.
    }
    await runAfter(this.#options, delivery.event, error)
  }

  /** Writes the log line and the metrics of one call. */
  #recordResult(handler: Handler, delivery: Delivery, result: HandlerResult): void {
    if (result && isA(result.thrown, NotStarted)) return
    const { clock, logger, metrics } = this.#options
    const succeeded = result === null
    if (metrics) {
      const labels = handlerLabels(delivery.event.eventType, handler.name, succeeded)
      metrics.count(succeeded ? 'success' : 'failure', 1, labels)
      metrics.duration('handler_ms', clock.monotonic() - delivery.startedAt, labels)
    }
    if (!logs(logger, succeeded ? 'info' : 'warn')) return
    const fields = {
      ...callFields(delivery.event, handler.name, delivery.attempts + 1),
      duration_ms: Math.round((clock.monotonic() - delivery.startedAt) * 1000) / 1000,
    }
    if (succeeded) logger.info({ ...fields, outcome: 'done' }, 'event handled')
    else logger.warn({ ...fields, outcome: 'failed', ...errorFields(result.thrown) }, 'handler failed')
  }
}

function needsPayload({ isRaw }: Handler): boolean {
  return isRaw !== true
}

function hasUnfinishedHandler({ handledBy }: Delivery, handlers: readonly Handler[]): boolean {
  return handlers.some(({ name }) => !handledBy.includes(name))
}
