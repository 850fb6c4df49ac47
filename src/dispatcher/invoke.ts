import { runHandling } from '../ambient.js'
import type { Clock } from '../core/clock.js'
import type { EventEnvelope } from '../core/envelope.js'
import { HandlerTimeoutError } from '../core/errors.js'
import { isA } from '../core/unknown.js'
import { callFields } from '../observe/event-fields.js'
import { errorFields, type Logger, logs, type Redact, withFields } from '../observe/logger.js'
import { handlerLabels, type MetricsExporter } from '../observe/metrics.js'
import { type Tracer, traced, tracedEvent } from '../observe/tracing.js'
import { Batcher } from './batcher.js'
import type { Delivery } from './delivery.js'
import type { InFlight } from './in-flight.js'
import { NotStarted } from './outcome.js'
import type { HandlerContext, Registration } from './routing.js'

/** Makes what one handler call works with (a request scope, a unit of work); it is disposed of afterwards. */
export type CreateScope = (event: EventEnvelope) => unknown

export interface InvokeOptions {
  readonly clock: Clock
  readonly logger: Logger
  readonly inFlight: InFlight
  readonly createScope: CreateScope | undefined
  readonly tracer?: Tracer | undefined
  readonly redact: Redact | undefined
  /** Neither paused nor lost, and nothing is stopping. */
  mayStart(delivery: Delivery): boolean
}

/** Whoever keeps a place for a call. */
export interface Watch {
  /** Its timeout is over, and it runs on. */
  overdue(): void
  /** It has really ended, whatever came of it. */
  ended(): void
}

class Context implements HandlerContext {
  readonly attempt: number
  readonly scope: unknown
  readonly #delivery: Delivery
  readonly handler: string
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

/**
 * Calls one handler in its own async context and scope. Rejects with whatever it threw, or after its timeout: with an
 * ordering key once the call has ended, otherwise at once.
 */
export function invoke(
  handler: Registration,
  delivery: Delivery,
  options: InvokeOptions,
  watch?: Watch,
): unknown {
  if (options.createScope === undefined && handler.timeoutMs === 0 && !watch) {
    return call(handler, delivery, options, undefined, undefined)
  }
  // Its own: the neighbours that handle the same event have time left.
  const timeout = handler.timeoutMs === 0 ? undefined : new AbortController()
  const run = options.createScope
    ? inScope(handler, delivery, options, options.createScope, timeout)
    : (async () => call(handler, delivery, options, undefined, timeout))()
  if (watch) run.then(watch.ended, watch.ended)
  return timeout ? within(run, handler, delivery, options, timeout, watch) : run
}

function call(
  handler: Registration,
  delivery: Delivery,
  options: InvokeOptions,
  scope: unknown,
  timeout: AbortController | undefined,
): unknown {
  const { handle } = handler
  if (handle instanceof Batcher) return handle.add(delivery)
  const context = new Context(delivery, handler.name, options.logger, scope, timeout)
  const { tracer, redact } = options
  if (tracer === undefined) return runHandling(delivery.event, handle, context)
  const events = [tracedEvent(delivery.event)]
  const plan = { operation: 'process', events, handler: handler.name, attempt: context.attempt } as const
  return traced<unknown>(tracer, plan, { redact, until: timeout?.signal }, () =>
    runHandling(delivery.event, handle, context),
  )
}

async function inScope(
  handler: Registration,
  delivery: Delivery,
  options: InvokeOptions,
  createScope: CreateScope,
  timeout: AbortController | undefined,
): Promise<unknown> {
  const scope = await createScope(delivery.event)
  let result: unknown
  try {
    // That took its time.
    if (!options.mayStart(delivery)) throw new NotStarted()
    result = await call(handler, delivery, options, scope, timeout)
  } catch (error) {
    // The handler's own error is the one to see.
    await dispose(scope).catch(() => {})
    throw error
  }
  await dispose(scope)
  return result
}

async function dispose(scope: unknown): Promise<void> {
  if (typeof scope !== 'object' || scope === null) return
  const disposable = scope as { dispose?: unknown } & Partial<AsyncDisposable & Disposable>
  const end = disposable[Symbol.asyncDispose] ?? disposable[Symbol.dispose] ?? disposable.dispose
  if (typeof end === 'function') await end.call(scope)
}

function within(
  run: Promise<unknown>,
  handler: Registration,
  delivery: Delivery,
  options: InvokeOptions,
  timeout: AbortController,
  watch: Watch | undefined,
): Promise<unknown> {
  const { clock, inFlight } = options
  const startedAt = clock.monotonic()
  return new Promise((resolve, reject) => {
    let late: Error | null = null
    const timer = clock.setTimer(() => {
      late = new HandlerTimeoutError(handler.name, handler.timeoutMs)
      timeout.abort(late)
      watch?.overdue()
      // The lease goes on, so that nobody starts the next event of the key beside it.
      if (delivery.isOrdered) return
      inFlight.outlives(delivery, startedAt, run)
      reject(late)
    }, handler.timeoutMs)
    const ended = run.finally(() => timer.cancel())
    ended.then(
      (result) => (late ? reject(late) : resolve(result)),
      (error) => reject(late ?? error),
    )
  })
}

interface NoteOptions {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: MetricsExporter | undefined
}

/** Log line and metrics of one call. */
export function noteHandled(
  options: NoteOptions,
  handler: Registration,
  delivery: Delivery,
  error: unknown,
  succeeded: boolean,
): void {
  if (!succeeded && isA(error, NotStarted)) return
  const { clock, logger, metrics } = options
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
  else logger.warn({ ...fields, outcome: 'failed', ...errorFields(error) }, 'handler failed')
}
