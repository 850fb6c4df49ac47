import type { RetryPolicy } from '../core/backoff.js'
import {
  AftercommitError,
  AggregateHandlerError,
  HandlerGaveUpError,
  RetryAfter,
  Unrecoverable,
} from '../core/errors.js'
import { sanitizeText } from '../core/text.js'
import { describeError, ignoreRejection, isA } from '../core/unknown.js'
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
    const isComplete = failures.length === all.length
    const counted = isComplete && failures.some(({ error }) => !isA(error, RetryAfter)) ? 1 : 0
    const attempts = delivery.attempts + counted
    const handledBy = [...delivery.handledBy, ...succeeded]
    const left = handlers.filter(
      (handler) => !handledBy.includes(handler.name) && attempts < this.#limitOf(handler),
    )
    if (left.length === 0 || failures.some(({ error }) => isA(error, Unrecoverable))) {
      return this.dead(delivery, failures, succeeded, counted)
    }
    const delays = failures.map((failure) => {
      const handler = left.find(({ name }) => name === failure.handler)
      if (failure.handler !== null && !handler) return 0
      const policy = handler?.retry?.policy ?? this.#options.retry.policy
      return delayOf(policy, Math.max(1, attempts), failure.error)
    })
    return settlementOf(delivery, {
      outcome: 'retry',
      delayMs: Math.max(0, ...delays),
      attempts: counted,
      ...this.#history(delivery, failures, succeeded),
    })
  }

  /** The event has no handler, and the settings ask for retries instead of a dead letter. */
  unroutable(delivery: Delivery, error: unknown): Settlement {
    const { maxAttempts, policy } = this.#options.retry
    const attempts = delivery.attempts + 1
    const failures = [{ handler: null, error }]
    if (attempts >= maxAttempts) return this.dead(delivery, failures, [])
    return settlementOf(delivery, {
      outcome: 'retry',
      delayMs: delayOf(policy, attempts, error),
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

/** A hundred years. Databases have no dates that are much later. */
const LONGEST_DELAY_MS = 3_155_760_000_000

/** Delay after an unexpected error, and after a policy that throws or returns no number of milliseconds. */
const FALLBACK_DELAY_MS = 60_000

function delayOf(policy: RetryPolicy, attempts: number, error: unknown): number {
  try {
    const delay: unknown = isA(error, RetryAfter) ? error.delayMs : policy.delayMs(attempts, error)
    if (typeof delay === 'number' && Number.isFinite(delay) && delay >= 0) {
      return Math.min(delay, LONGEST_DELAY_MS)
    }
    ignoreRejection(delay)
  } catch {}
  return FALLBACK_DELAY_MS
}
