import type { RetryPolicy } from '../core/backoff.js'
import { AftercommitError, AggregateHandlerError, HandlerGaveUpError } from '../core/errors.js'
import { decideRetry, FALLBACK_DELAY_MS, type FailedCall } from '../core/retry-decision.js'
import { sanitizeText } from '../core/text.js'
import { describeError, isA } from '../core/unknown.js'
import type { Failure, Settlement } from '../store.js'
import type { Delivery } from './delivery.js'
import { NotStarted } from './not-started.js'
import type { Handler } from './routes.js'

export interface HandlerFailure {
  /** Null for an error that no handler threw. */
  readonly handler: string | null
  readonly error: unknown
}

export interface SettlementOptions {
  readonly instance: string
  readonly retry: { readonly maxAttempts: number; readonly policy: RetryPolicy }
  /** Whether a dead event stops its ordering key. */
  readonly haltsKeys: boolean
}

/** Decides the outcome of a delivery from the results of its handlers. */
export class Settlements {
  readonly #options: SettlementOptions

  constructor(options: SettlementOptions) {
    this.#options = options
  }

  /** Returns the handlers that have not succeeded and have attempts left. */
  handlersLeft(handlers: readonly Handler[], delivery: Delivery): readonly Handler[] {
    const { attempts, handledBy } = delivery
    if (attempts === 0 && handledBy.length === 0) return handlers
    return handlers.filter(
      (handler) => !handledBy.includes(handler.name) && attempts < this.#limitOf(handler),
    )
  }

  /** All handlers that ran have succeeded: the event is done, unless another handler has no attempts left. */
  succeeded(delivery: Delivery, handlers: readonly Handler[], ran: readonly string[]): Settlement {
    if (delivery.attempts === 0) return doneOf(delivery)
    const handledBy = [...delivery.handledBy, ...ran]
    const gaveUp = handlers.filter(({ name }) => !handledBy.includes(name))
    if (gaveUp.length === 0) return doneOf(delivery)
    const failures = gaveUp.map((handler) => ({
      handler: handler.name,
      error: new HandlerGaveUpError(handler.name, delivery.attempts, this.#limitOf(handler)),
    }))
    return this.dead(delivery, failures, ran, 0)
  }

  /**
   * The event is retried after the longest delay among the failed handlers that have attempts left. An attempt in which a
   * handler was not called does not count, because the event has one attempt counter for all its handlers.
   */
  failed(
    delivery: Delivery,
    handlers: readonly Handler[],
    all: readonly HandlerFailure[],
    succeeded: readonly string[],
  ): Settlement {
    const failures = all.filter(wasCalled)
    if (failures.length === 0 && succeeded.length === 0) return releaseOf(delivery)
    const handledBy = [...delivery.handledBy, ...succeeded]
    const left = handlers.filter(({ name }) => !handledBy.includes(name))
    const decision = decideRetry({
      attempts: delivery.attempts,
      failures: failures.map((failure) => this.#failedCall(failure, left)),
      isComplete: failures.length === all.length,
    })
    const counted = decision.attempts - delivery.attempts
    if (decision.action === 'deadLetter') return this.dead(delivery, failures, succeeded, counted)
    return settlementOf(delivery, {
      outcome: 'retry',
      delayMs: decision.action === 'retry' ? decision.delayMs : 0,
      attempts: counted,
      ...this.#history(delivery, failures, succeeded),
    })
  }

  /** An error that no handler threw keeps all the handlers that are left from being called. */
  #failedCall({ handler: name, error }: HandlerFailure, left: readonly Handler[]): FailedCall {
    const { policy } = this.#options.retry
    if (name === null)
      return { error, policy, maxAttempts: Math.max(...left.map((each) => this.#limitOf(each))) }
    const handler = left.find((each) => each.name === name)
    return {
      error,
      policy: handler?.retry?.policy ?? policy,
      maxAttempts: handler ? this.#limitOf(handler) : 0,
    }
  }

  /** The event has no handler, and the settings ask for retries instead of a dead letter. */
  unroutable(delivery: Delivery, error: unknown): Settlement {
    const failures = [{ handler: null, error }]
    const { attempts } = delivery
    const failedCall = { error, ...this.#options.retry }
    const decision = decideRetry({ attempts, failures: [failedCall], isComplete: true })
    if (decision.action !== 'retry') return this.dead(delivery, failures, [])
    return settlementOf(delivery, {
      outcome: 'retry',
      delayMs: decision.delayMs,
      attempts: 1,
      ...this.#history(delivery, failures, []),
    })
  }

  /** An error that no handler threw: the event is retried after a minute. */
  unexpected(delivery: Delivery, error: unknown): Settlement {
    const history = this.#history(delivery, [{ handler: null, error }], delivery.succeeded ?? [])
    return settlementOf(delivery, { outcome: 'retry', delayMs: FALLBACK_DELAY_MS, attempts: 1, ...history })
  }

  dead(
    delivery: Delivery,
    failures: readonly HandlerFailure[],
    succeeded: readonly string[],
    attempts = 1,
  ): Settlement {
    const halts = this.#options.haltsKeys && delivery.isOrdered
    return settlementOf(delivery, {
      outcome: 'dead',
      delayMs: 0,
      attempts,
      ...this.#history(delivery, failures, succeeded),
      ...(halts ? { halts } : {}),
    })
  }

  #limitOf(handler: Handler): number {
    return handler.retry?.maxAttempts ?? this.#options.retry.maxAttempts
  }

  /** The part of a settlement that tells operators what happened. */
  #history(delivery: Delivery, failures: readonly HandlerFailure[], succeeded: readonly string[]) {
    const described = failures.map(({ handler, error }): Failure => {
      const { name, message } = describeError(error)
      return {
        handler,
        instance: this.#options.instance,
        message: sanitizeText(`${name}: ${message}`, 4_000),
      }
    })
    const error = described
      .map(({ handler, message }) => (handler ? `${handler}: ${message}` : message))
      .join('\n')
    return { error, failures: described, handledBy: [...delivery.handledBy, ...succeeded] }
  }
}

type Outcome = Settlement extends infer Each
  ? Each extends unknown
    ? Omit<Each, 'eventId' | 'token'>
    : never
  : never

export function settlementOf(delivery: Delivery, outcome: Outcome): Settlement {
  return {
    eventId: delivery.event.eventId,
    token: delivery.token,
    seq: delivery.seq,
    ...outcome,
  } as Settlement
}

export function doneOf(delivery: Delivery): Settlement {
  return { eventId: delivery.event.eventId, token: delivery.token, seq: delivery.seq, outcome: 'done' }
}

/** Gives the lease back without counting an attempt. */
export function releaseOf(delivery: Delivery, delayMs = 0): Settlement {
  return settlementOf(delivery, { outcome: 'release', delayMs })
}

/** Gives the lease of a running delivery back: handlers that have succeeded are not called again. */
export function abortOf(delivery: Delivery): Settlement {
  if (!delivery.succeeded) return releaseOf(delivery)
  const handledBy = [...delivery.handledBy, ...delivery.succeeded]
  const noFailure = { delayMs: 0, attempts: 0, error: '', failures: [] }
  return settlementOf(delivery, { outcome: 'retry', ...noFailure, handledBy })
}

/** Returns the error of the attempt as interceptors see it; null if nothing has failed. */
export function combinedError(all: readonly HandlerFailure[], eventType: string): unknown | null {
  const failures = all.filter(wasCalled)
  if (failures.length === 0) return null
  if (failures.length === 1) return failures[0]?.error
  return new AggregateHandlerError(failures, eventType)
}

/**
 * Adds the error of an interceptor as `cause`, because the first error alone decides the outcome. The property is not
 * enumerable, like every `cause`.
 */
export function withCause(error: unknown, cause: unknown): unknown {
  if (isA(error, AftercommitError)) {
    Object.defineProperty(error, 'cause', { value: cause, configurable: true, writable: true })
  }
  return error
}

function wasCalled({ error }: HandlerFailure): boolean {
  return !isA(error, NotStarted)
}
