import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { exponentialBackoff, fixedDelay, linearBackoff, patient, type RetryPolicy } from './backoff.js'
import { InvalidSettingError } from './errors.js'

const middle = () => 0.5

function delays(policy: RetryPolicy, attempts: readonly number[]): number[] {
  return attempts.map((attempt) => policy.delayMs(attempt, new Error('x')))
}

describe('exponentialBackoff', () => {
  it('doubles from 200 ms up to 60 s by default', () => {
    expect(
      delays(exponentialBackoff(undefined, undefined, middle), [1, 2, 3, 4, 9, 10, 500, 10_000]),
    ).toEqual([200, 400, 800, 1_600, 51_200, 60_000, 60_000, 60_000])
  })

  it('spreads every delay from a half to one and a half of it', () => {
    expect(exponentialBackoff(200, 60_000, () => 0).delayMs(1, null)).toBe(100)
    expect(exponentialBackoff(200, 60_000, () => 0.999_999).delayMs(1, null)).toBe(300)
    const policy = exponentialBackoff()
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2_000 }), (attempts) => {
        const plain = Math.min(60_000, 200 * 2 ** (attempts - 1))
        const delay = policy.delayMs(attempts, null)
        expect(Number.isInteger(delay)).toBe(true)
        expect(delay).toBeGreaterThanOrEqual(plain / 2)
        expect(delay).toBeLessThanOrEqual(plain * 1.5)
      }),
    )
  })

  it('stays 0 with a base of 0, and treats odd attempt numbers as the first', () => {
    expect(delays(exponentialBackoff(0, 0, middle), [1, 5_000])).toEqual([0, 0])
    expect(delays(exponentialBackoff(200, 60_000, middle), [0, -3, Number.NaN])).toEqual([200, 200, 200])
  })
})

describe('linearBackoff, fixedDelay', () => {
  it('wait step × (attempts + 1)', () => {
    expect(delays(linearBackoff(), [1, 2, 9])).toEqual([120_000, 180_000, 600_000])
  })

  it('wait the same every time', () => {
    expect(delays(fixedDelay(1_500), [1, 2, 100])).toEqual([1_500, 1_500, 1_500])
  })
})

describe('patient', () => {
  it('makes 25 attempts over about three days', () => {
    const policy = patient(middle)
    expect(policy.maxAttempts).toBe(25)
    const waits = delays(
      policy,
      Array.from({ length: 24 }, (_, i) => i + 1),
    )
    const days = waits.reduce((sum, wait) => sum + wait, 0) / 86_400_000
    expect(days).toBeGreaterThan(2.8)
    expect(days).toBeLessThan(3.2)
    expect(waits[0]).toBe(1_000)
  })
})

describe('bad numbers', () => {
  it.each<[string, () => RetryPolicy]>([
    ['baseMs', () => exponentialBackoff(-1)],
    ['baseMs', () => exponentialBackoff(Number.NaN)],
    ['maxMs', () => exponentialBackoff(1, Number.POSITIVE_INFINITY)],
    ['maxMs', () => exponentialBackoff(1_000, 10)],
    ['stepMs', () => linearBackoff(-60_000)],
    ['ms', () => fixedDelay('5' as unknown as number)],
  ])('are refused by the name of the setting: %s', (setting, make) => {
    expect(make).toThrow(InvalidSettingError)
    expect(make).toThrow(expect.objectContaining({ setting }) as unknown as Error)
  })
})
