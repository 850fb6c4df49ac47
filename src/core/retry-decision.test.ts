import { describe, expect, it } from 'vitest'
import { fixedDelay, type RetryPolicy } from './backoff.js'
import { RetryAfter, Unrecoverable } from './errors.js'
import { type Attempt, decideRetry, type FailedCall } from './retry-decision.js'

const ERROR = new Error('no')

function failure(fields: Partial<FailedCall> = {}): FailedCall {
  return { error: ERROR, policy: fixedDelay(1_000), maxAttempts: 3, ...fields }
}

function decide(failures: readonly FailedCall[], fields: Partial<Attempt> = {}) {
  return decideRetry({ attempts: 0, failures, isComplete: true, ...fields })
}

describe('decideRetry', () => {
  it('releases an event without counting an attempt when no handler failed', () => {
    expect(decide([], { attempts: 2, isComplete: false })).toEqual({ action: 'release', attempts: 2 })
  })

  it('retries a failed event after the delay of its policy, and counts the attempt', () => {
    expect(decide([failure()])).toEqual({ action: 'retry', attempts: 1, delayMs: 1_000 })
  })

  it('passes the number of failed attempts and the error to the policy', () => {
    const seen: unknown[] = []
    const policy = { delayMs: (...args: unknown[]) => seen.push(args) }
    decide([failure({ policy })], { attempts: 1 })
    expect(seen).toEqual([[2, ERROR]])
  })

  it('passes at least 1 as the number of failed attempts to the policy', () => {
    const seen: number[] = []
    const policy = { delayMs: (attempts: number) => seen.push(attempts) }
    decide([failure({ policy })], { isComplete: false })
    expect(seen).toEqual([1])
  })

  it('retries after the longest delay of several failed handlers', () => {
    const failures = [10, 30, 20].map((ms) => failure({ policy: fixedDelay(ms) }))
    expect(decide(failures)).toMatchObject({ delayMs: 30 })
  })

  it('ignores the delay of a handler that has reached its limit', () => {
    const exhausted = failure({ maxAttempts: 1, policy: fixedDelay(9_000) })
    expect(decide([exhausted, failure()])).toEqual({ action: 'retry', attempts: 1, delayMs: 1_000 })
  })

  it('dead-letters an event when every failed handler has reached its limit', () => {
    const failures = [failure({ maxAttempts: 2 }), failure()]
    expect(decide(failures, { attempts: 1 })).toMatchObject({ action: 'retry' })
    expect(decide(failures, { attempts: 2 })).toEqual({
      action: 'deadLetter',
      attempts: 3,
      reason: 'attemptsExhausted',
    })
  })

  it('dead-letters an event at once when a handler throws Unrecoverable', () => {
    const failures = [failure(), failure({ error: new Unrecoverable() })]
    expect(decide(failures)).toEqual({ action: 'deadLetter', attempts: 1, reason: 'unrecoverable' })
  })

  it('does not count an attempt in which every failed handler threw RetryAfter', () => {
    const asked = failure({ error: new RetryAfter(7_000), maxAttempts: 1 })
    expect(decide([asked])).toEqual({ action: 'retry', attempts: 0, delayMs: 7_000 })
    expect(decide([asked, failure()])).toEqual({ action: 'retry', attempts: 1, delayMs: 1_000 })
  })

  it('does not count an attempt in which a handler was not called', () => {
    const decision = decide([failure({ maxAttempts: 1 })], { isComplete: false })
    expect(decision).toEqual({ action: 'retry', attempts: 0, delayMs: 1_000 })
  })

  it.each<[string, () => unknown]>([
    ['a negative number', () => -1],
    ['NaN', () => Number.NaN],
    ['infinity', () => Number.POSITIVE_INFINITY],
    ['text', () => '5'],
    ['a promise that rejects', () => Promise.reject(new Error('late'))],
    [
      'an error',
      () => {
        throw new Error('broken')
      },
    ],
  ])('retries after 60 seconds when the policy gives %s', (_, delayMs) => {
    const policy = { delayMs } as unknown as RetryPolicy
    expect(decide([failure({ policy })])).toMatchObject({ delayMs: 60_000 })
  })

  it('limits the delay to one hundred years', () => {
    const policy = { delayMs: () => Number.MAX_VALUE }
    expect(decide([failure({ policy })])).toMatchObject({ delayMs: 3_155_760_000_000 })
  })
})
