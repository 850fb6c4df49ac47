import type { RetryPolicy } from './backoff.js'
import { RetryAfter, Unrecoverable } from './errors.js'
import { ignoreRejection, isA } from './unknown.js'

/** A handler that failed in an attempt, with the policy and the limit that apply to this handler. */
export interface FailedCall {
  readonly error: unknown
  readonly policy: RetryPolicy
  /** Number of failed attempts after which the handler is not called again. */
  readonly maxAttempts: number
}

/** Result of one attempt to handle an event. */
export interface Attempt {
  /** Number of failed attempts before this attempt. */
  readonly attempts: number
  /** Handlers that failed in this attempt. A handler that was not called is not listed. */
  readonly failures: readonly FailedCall[]
  /**
   * Whether every handler that was due has been called. An attempt that ended early is not counted, because it would move
   * the uncalled handlers closer to their limit.
   */
  readonly isComplete: boolean
}

/** `attempts` is the number of failed attempts after the decision. The event stores this number. */
export type RetryDecision =
  | { readonly action: 'retry'; readonly attempts: number; readonly delayMs: number }
  | {
      readonly action: 'deadLetter'
      readonly attempts: number
      readonly reason: 'unrecoverable' | 'attemptsExhausted'
    }
  | { readonly action: 'release'; readonly attempts: number }

/** Delay in milliseconds after a policy that throws, or that returns anything but a number of milliseconds of 0 or more. */
export const FALLBACK_DELAY_MS = 60_000

/** One hundred years. Databases cannot store a due time that is much later. */
const MAX_DELAY_MS = 3_155_760_000_000

/**
 * Decides what happens to an event after an attempt. The outbox and the consumers of all buses use this function.
 *
 * - `release`: no handler failed. The event is due again at once.
 * - `deadLetter`: a handler threw Unrecoverable, or every failed handler has reached its limit.
 * - `retry`: the event is due again after the longest delay of the handlers that are below their limit.
 *
 * An attempt in which every failed handler threw RetryAfter is not counted.
 */
export function decideRetry({ attempts: before, failures, isComplete }: Attempt): RetryDecision {
  if (failures.length === 0) return { action: 'release', attempts: before }
  const isCounted = isComplete && failures.some(({ error }) => !isA(error, RetryAfter))
  const attempts = isCounted ? before + 1 : before
  if (failures.some(({ error }) => isA(error, Unrecoverable))) {
    return { action: 'deadLetter', attempts, reason: 'unrecoverable' }
  }
  const retried = failures.filter(({ maxAttempts }) => attempts < maxAttempts)
  if (retried.length === 0) return { action: 'deadLetter', attempts, reason: 'attemptsExhausted' }
  const delays = retried.map(({ policy, error }) => delayOf(policy, Math.max(1, attempts), error))
  return { action: 'retry', attempts, delayMs: Math.max(...delays) }
}

function delayOf(policy: RetryPolicy, attempts: number, error: unknown): number {
  try {
    const delay: unknown = isA(error, RetryAfter) ? error.delayMs : policy.delayMs(attempts, error)
    if (typeof delay === 'number' && Number.isFinite(delay) && delay >= 0) {
      return Math.min(delay, MAX_DELAY_MS)
    }
    ignoreRejection(delay)
  } catch {}
  return FALLBACK_DELAY_MS
}
