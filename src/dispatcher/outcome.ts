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
import type { Registration } from './routing.js'

export interface HandlerFailure {
  /** Null when it was not a handler that failed. */
  readonly handler: string | null
  readonly error: unknown
}

/** A handler waited for its turn and did not get it: nothing was tried. */
export class NotStarted extends Error {
  constructor() {
    super('The event was given back before the turn of the handler came.')
  }
}

export interface OutcomeOptions {
  readonly instance: string
  readonly retry: { readonly maxAttempts: number; readonly policy: RetryPolicy }
  /** A dead event stops its ordering key. */
  readonly haltsKeys: boolean
}

/** What becomes of an event, from what its handlers did. */
export class Outcomes {
  readonly #options: OutcomeOptions

  constructor(options: OutcomeOptions) {
    this.#options = options
  }

  /** Those that have neither succeeded nor failed as often as they may. */
  left(handlers: readonly Registration[], delivery: Delivery): readonly Registration[] {
    const { attempts, handledBy } = delivery
    if (attempts === 0 && handledBy.length === 0) return handlers
    return handlers.filter((one) => !handledBy.includes(one.name) && attempts < this.#limitOf(one))
  }

  /** All that ran have succeeded: done, unless another one gave up before. */
  succeeded(delivery: Delivery, handlers: readonly Registration[], ran: readonly string[]): Settlement {
    if (delivery.attempts === 0) return doneOf(delivery)
    const handledBy = [...delivery.handledBy, ...ran]
    const gaveUp = handlers.filter((one) => !handledBy.includes(one.name))
    if (gaveUp.length === 0) return doneOf(delivery)
    const failures = gaveUp.map((one) => ({
      handler: one.name,
      error: new HandlerGaveUpError(one.name, delivery.attempts, this.#limitOf(one)),
    }))
    return this.dead(delivery, failures, ran, 0)
  }

  /**
   * One attempt counter per event; the longest delay among those who failed and are left decides. An attempt that was
   * broken off does not count: it would bring handlers nearer to their limit that were not tried.
   */
  failed(
    delivery: Delivery,
    handlers: readonly Registration[],
    all: readonly HandlerFailure[],
    succeeded: readonly string[],
  ): Settlement {
    const failures = all.filter((one) => !isA(one.error, NotStarted))
    if (failures.length === 0 && succeeded.length === 0) {
      return settlementOf(delivery, { outcome: 'release', delayMs: 0 })
    }
    const isComplete = failures.length === all.length
    const counted = isComplete && failures.some((one) => !isA(one.error, RetryAfter)) ? 1 : 0
    const attempts = delivery.attempts + counted
    const handledBy = [...delivery.handledBy, ...succeeded]
    const left = handlers.filter((one) => !handledBy.includes(one.name) && attempts < this.#limitOf(one))
    if (left.length === 0 || failures.some((one) => isA(one.error, Unrecoverable))) {
      return this.dead(delivery, failures, succeeded, counted)
    }
    const delays = failures.map(({ handler, error }) => {
      const one = left.find(({ name }) => name === handler)
      if (handler !== null && !one) return 0
      return delayOf(one?.retry?.policy ?? this.#options.retry.policy, Math.max(1, attempts), error)
    })
    return settlementOf(delivery, {
      outcome: 'retry',
      delayMs: Math.max(0, ...delays),
      attempts: counted,
      ...this.#story(delivery, failures, succeeded),
    })
  }

  /** Nobody handles it, and it is to be retried all the same. */
  unroutable(delivery: Delivery, failures: readonly HandlerFailure[]): Settlement {
    const { maxAttempts, policy } = this.#options.retry
    const attempts = delivery.attempts + 1
    if (attempts >= maxAttempts) return this.dead(delivery, failures, [])
    return settlementOf(delivery, {
      outcome: 'retry',
      delayMs: delayOf(policy, attempts, failures[0]?.error),
      attempts: 1,
      ...this.#story(delivery, failures, []),
    })
  }

  /** An error that no handler threw: the event is tried again after a while. */
  unexpected(delivery: Delivery, error: unknown): Settlement {
    const story = this.#story(delivery, [{ handler: null, error }], delivery.succeeded ?? [])
    return settlementOf(delivery, { outcome: 'retry', delayMs: FALLBACK_DELAY_MS, attempts: 1, ...story })
  }

  dead(
    delivery: Delivery,
    failures: readonly HandlerFailure[],
    succeeded: readonly string[],
    attempts = 1,
  ): Settlement {
    const halts = this.#options.haltsKeys && delivery.event.orderingKey !== undefined
    return settlementOf(delivery, {
      outcome: 'dead',
      delayMs: 0,
      attempts,
      ...this.#story(delivery, failures, succeeded),
      ...(halts ? { halts } : {}),
    })
  }

  #limitOf(handler: Registration): number {
    return handler.retry?.maxAttempts ?? this.#options.retry.maxAttempts
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

type Outcome = Settlement extends infer One
  ? One extends unknown
    ? Omit<One, 'eventId' | 'token'>
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

/** Given up while its handlers run: those that have succeeded are not run again, and no attempt is counted. */
export function abandonedOf(delivery: Delivery): Settlement {
  if (!delivery.succeeded) return settlementOf(delivery, { outcome: 'release', delayMs: 0 })
  const handledBy = [...delivery.handledBy, ...delivery.succeeded]
  return settlementOf(delivery, {
    outcome: 'retry',
    delayMs: 0,
    attempts: 0,
    error: '',
    failures: [],
    handledBy,
  })
}

export function doneOf(delivery: Delivery): Settlement {
  return { eventId: delivery.event.eventId, token: delivery.token, seq: delivery.seq, outcome: 'done' }
}

/** The one error, or all of them together; null when there is none. What was not started has not failed. */
export function combined(all: readonly HandlerFailure[], eventType: string): unknown | null {
  const failures = all.filter((one) => !isA(one.error, NotStarted))
  if (failures.length === 0) return null
  if (failures.length === 1) return failures[0]?.error
  return new AggregateHandlerError(failures, eventType)
}

/**
 * Returns the error of an event that no handler was called with. The error of an interceptor becomes its `cause`, because the
 * first error alone decides the outcome. The property is not enumerable, like every `cause`.
 */
export function firstCausedBySecond([first, second]: readonly HandlerFailure[]): unknown {
  if (second && isA(first?.error, AftercommitError)) {
    Object.defineProperty(first.error, 'cause', { value: second.error, configurable: true, writable: true })
  }
  return first?.error
}

/** A hundred years: later moments are no dates for a database. */
const LONGEST_DELAY_MS = 3_155_760_000_000

/** Delay after a policy that throws, or returns something that is not a number of milliseconds. */
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
