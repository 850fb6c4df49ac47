import { captureContext, runHandling } from '../ambient.js'
import type { Clock } from '../core/clock.js'
import type { EventEnvelope } from '../core/envelope.js'
import { HandlerTimeoutError } from '../core/errors.js'
import { describeError } from '../core/unknown.js'
import type { HandlerContext } from '../handler.js'
import { callFields } from '../observe/event-fields.js'
import { type Logger, type Redact, withFields } from '../observe/logger.js'
import { type Tracer, traced, tracedEvent } from '../observe/tracing.js'
import { type BatchErrors, errorsOf } from './batch-results.js'
import type { Delivery } from './delivery.js'
import { HandlerQueue, type QueuedCall } from './handler-queue.js'
import type { InFlight } from './in-flight.js'
import { NotStarted } from './not-started.js'
import type { BatchRegistration, Handler, Registration } from './routes.js'

/** Creates what one handler call works with (a request scope, a unit of work). It is disposed of after the call. */
export type CreateScope = (event: EventEnvelope) => unknown

export interface HandlerCallOptions {
  readonly clock: Clock
  readonly logger: Logger
  readonly inFlight: Pick<InFlight, 'overruns'>
  /** Queues of all registered handlers. */
  readonly queues: readonly HandlerQueue[]
  readonly createScope: CreateScope | undefined
  readonly tracer?: Tracer | undefined
  readonly redact: Redact | undefined
  /** Whether the delivery is neither paused nor lost, and nothing is stopping. */
  mayStart(delivery: Delivery): boolean
  /** Called when the event types that must not be claimed have changed. */
  onSaturationChange(): void
}

/** Handler call in progress. With a timeout, `result` can settle before `run`. */
interface StartedCall {
  readonly result: Promise<unknown>
  /** The call itself, without the timeout. */
  readonly run: Promise<unknown>
}

/** Calls handlers: with their context, scope, span and timeout, directly or through the queue of the handler. */
export class HandlerCalls {
  readonly #options: HandlerCallOptions
  readonly #inOwnContext = captureContext()
  #eager = 0
  #isFlushing = false

  constructor(options: HandlerCallOptions) {
    this.#options = options
  }

  /** Creates the handler of a registration, with a queue if it has batches or a concurrency of its own. */
  createHandler(registration: Registration): Handler {
    const { batch, concurrency } = registration
    if (batch === null && concurrency === Number.POSITIVE_INFINITY)
      return { ...registration, queue: undefined }
    const { clock, mayStart, onSaturationChange } = this.#options
    const queue: HandlerQueue = new HandlerQueue({
      ...{ concurrency, clock, mayStart, onSaturationChange },
      batchSize: batch?.size ?? 1,
      batchWaitMs: batch?.waitMs ?? 0,
      // A call must not run in the async context of one of its events.
      call: (calls) => this.#inOwnContext(() => this.#callQueued({ ...registration, queue }, calls)),
    })
    return { ...registration, queue }
  }

  /**
   * Returns the result of the handler, often a promise. Rejects with the error of the handler or with NotStarted. After a
   * timeout it rejects at once, or with an ordering key when the call has ended. `onOverdue` is called if an ordered
   * call goes on after its timeout, except for handlers with a queue.
   */
  call(handler: Handler, delivery: Delivery, onOverdue?: (delivery: Delivery) => void): unknown {
    if (handler.queue) {
      const result = handler.queue.call(delivery)
      if (this.#eager > 0) this.#flushSoon()
      return result
    }
    if (this.#options.createScope === undefined && handler.timeoutMs === 0) {
      return this.#invoke(handler, delivery, undefined, undefined)
    }
    return this.#startCall(handler, delivery, onOverdue).result
  }

  /** While `work` runs, events do not wait until their batch is full. */
  async eagerly<T>(work: () => Promise<T>): Promise<T> {
    this.#eager++
    this.#flushSoon()
    try {
      return await work()
    } finally {
      this.#eager--
    }
  }

  /** Flushes all queues in the next turn of the event loop, after ready events have reached them. */
  #flushSoon(): void {
    if (this.#isFlushing) return
    this.#isFlushing = true
    setImmediate(() => {
      this.#isFlushing = false
      for (const queue of this.#options.queues) queue.flush()
    })
  }

  async #callQueued(handler: Handler, calls: readonly QueuedCall[]): Promise<void> {
    if (handler.batch !== null) return this.#callBatch(handler, calls)
    const [call] = calls
    if (!call) return
    const { result, run } = this.#startCall(handler, call.delivery)
    result.then(call.succeed, call.fail)
    await run.catch(() => {})
  }

  // ── one event ────────────────────────────────────────────────────────────────────────────────────────────

  #startCall(handler: Handler, delivery: Delivery, onOverdue?: (delivery: Delivery) => void): StartedCall {
    // Each call has its own timeout signal, because a timeout must not abort the other handlers of the event.
    const timeout = handler.timeoutMs === 0 ? undefined : new AbortController()
    const { createScope } = this.#options
    const run = createScope
      ? this.#runInScope(handler, delivery, createScope, timeout)
      : (async () => this.#invoke(handler, delivery, undefined, timeout))()
    return { run, result: timeout ? this.#withTimeout(run, handler, delivery, timeout, onOverdue) : run }
  }

  #invoke(
    handler: Handler,
    delivery: Delivery,
    scope: unknown,
    timeout: AbortController | undefined,
  ): unknown {
    if (handler.batch !== null) throw new TypeError('A batch handler is called through its queue.')
    const { handle, name } = handler
    const { logger, tracer, redact } = this.#options
    const context = new CallContext(delivery, name, logger, scope, timeout)
    if (tracer === undefined) return runHandling(delivery.event, handle, context)
    const events = [tracedEvent(delivery.event)]
    const plan = { operation: 'process', events, handler: name, attempt: context.attempt } as const
    return traced<unknown>(tracer, plan, { redact, until: timeout?.signal }, () =>
      runHandling(delivery.event, handle, context),
    )
  }

  async #runInScope(
    handler: Handler,
    delivery: Delivery,
    createScope: CreateScope,
    timeout: AbortController | undefined,
  ): Promise<unknown> {
    const scope = await createScope(delivery.event)
    let result: unknown
    try {
      // The event may have been paused or lost while the scope was created.
      if (!this.#options.mayStart(delivery)) throw new NotStarted()
      result = await this.#invoke(handler, delivery, scope, timeout)
    } catch (error) {
      // The error of the handler is more useful than that of its disposal.
      await dispose(scope).catch(() => {})
      throw error
    }
    await dispose(scope)
    return result
  }

  #withTimeout(
    run: Promise<unknown>,
    handler: Handler,
    delivery: Delivery,
    timeout: AbortController,
    onOverdue: ((delivery: Delivery) => void) | undefined,
  ): Promise<unknown> {
    const { clock, inFlight } = this.#options
    const startedAt = clock.monotonic()
    return new Promise((resolve, reject) => {
      let late: Error | null = null
      const timer = clock.setTimer(() => {
        late = new HandlerTimeoutError(handler.name, handler.timeoutMs)
        timeout.abort(late)
        // The lease of an ordered event is kept, so that the next event of its key does not start beside it.
        if (delivery.isOrdered) {
          onOverdue?.(delivery)
          return
        }
        inFlight.overruns(delivery, startedAt, run)
        reject(late)
      }, handler.timeoutMs)
      run
        .finally(() => timer.cancel())
        .then(
          (result) => (late ? reject(late) : resolve(result)),
          (error) => reject(late ?? error),
        )
    })
  }

  // ── batches ──────────────────────────────────────────────────────────────────────────────────────────────

  /**
   * Resolves when the call has ended. After its timeout, events without an ordering key fail at once, and the other
   * events when the call ends.
   */
  async #callBatch(handler: BatchRegistration, calls: readonly QueuedCall[]): Promise<void> {
    const { handle, name, timeoutMs } = handler
    const { clock, inFlight } = this.#options
    const deliveries = calls.map(({ delivery }) => delivery)
    const timeout = new AbortController()
    let signal: AbortSignal | undefined
    const events = deliveries.map(({ event }) => event)
    const attempts = deliveries.map((delivery) => delivery.attempts + 1)
    const startedAt = clock.monotonic()
    const context = {
      attempts,
      /** Created when the handler first reads it, because it listens to one signal per event. */
      get signal() {
        signal ??= AbortSignal.any([timeout.signal, whenAll(deliveries.map((delivery) => delivery.signal))])
        return signal
      },
    }
    // errorsOf() reads the number of calls, because the handler may change its arrays.
    const run = this.#traced(handler, deliveries, timeout.signal, async () =>
      errorsOf(name, await handle(events, context), calls.length),
    )
    let late: Error | null = null
    const endForCallers = () => {
      late = new HandlerTimeoutError(name, timeoutMs)
      timeout.abort(late)
      for (const { delivery, fail } of calls) {
        if (delivery.isOrdered) continue
        inFlight.overruns(delivery, startedAt, run)
        fail(late)
      }
    }
    const timer = timeoutMs === 0 ? undefined : clock.setTimer(endForCallers, timeoutMs)
    try {
      const errors = await run
      calls.forEach(({ succeed, fail }, at) => {
        const error = late ? { thrown: late } : errors[at]
        if (error) fail(error.thrown)
        else succeed()
      })
    } catch (error) {
      for (const { fail } of calls) fail(late ?? error)
    } finally {
      timer?.cancel()
    }
  }

  #traced(
    { name, isRaw }: BatchRegistration,
    deliveries: readonly Delivery[],
    until: AbortSignal,
    work: () => Promise<BatchErrors>,
  ): Promise<BatchErrors> {
    const { tracer, redact } = this.#options
    // A raw handler is a relay, which has its own spans.
    if (tracer === undefined || isRaw) return work()
    const events = deliveries.map(({ event }) => tracedEvent(event))
    const plan = { operation: 'process', events, handler: name } as const
    return traced(tracer, plan, { redact, until, failureOf }, work)
  }
}

class CallContext implements HandlerContext {
  readonly attempt: number
  readonly scope: unknown
  readonly handler: string
  readonly #delivery: Delivery
  readonly #logger: Logger
  readonly #timeout: AbortController | undefined
  #signal: AbortSignal | undefined
  #log: Logger | undefined

  constructor(
    delivery: Delivery,
    handler: string,
    logger: Logger,
    scope: unknown,
    timeout: AbortController | undefined,
  ) {
    this.attempt = delivery.attempts + 1
    this.scope = scope
    this.#timeout = timeout
    this.#delivery = delivery
    this.handler = handler
    this.#logger = logger
  }

  get signal(): AbortSignal {
    if (!this.#timeout) return this.#delivery.signal
    this.#signal ??= AbortSignal.any([this.#delivery.signal, this.#timeout.signal])
    return this.#signal
  }

  get log(): Logger {
    this.#log ??= withFields(this.#logger, callFields(this.#delivery.event, this.handler, this.attempt))
    return this.#log
  }
}

async function dispose(scope: unknown): Promise<void> {
  if (typeof scope !== 'object' || scope === null) return
  const disposable = scope as { dispose?: unknown } & Partial<AsyncDisposable & Disposable>
  const end = disposable[Symbol.asyncDispose] ?? disposable[Symbol.dispose] ?? disposable.dispose
  if (typeof end === 'function') await end.call(scope)
}

/** Returns the error that the span of a batch shows; undefined if all events were handled. */
function failureOf(errors: BatchErrors): unknown {
  const failed = errors.filter((error) => error !== null)
  if (failed.length === 0 || errors.length === 1) return failed[0]?.thrown
  const { name, message } = describeError(failed[0]?.thrown)
  return { name, message: `${failed.length} of ${errors.length} events failed, the first: ${message}` }
}

/** Returns a signal that is aborted when all the signals are aborted. */
function whenAll(signals: readonly AbortSignal[]): AbortSignal {
  const all = new AbortController()
  const pending = new Set(signals.filter(({ aborted }) => !aborted))
  for (const signal of pending) {
    const fired = () => {
      pending.delete(signal)
      if (pending.size === 0) all.abort(signal.reason)
    }
    signal.addEventListener('abort', fired, { once: true })
  }
  if (pending.size === 0) all.abort(signals[0]?.reason)
  return all.signal
}
