import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { systemClock } from './clock.js'
import { InvalidSettingError } from './errors.js'

const DAY = 86_400_000

describe('systemClock', () => {
  beforeEach(() => {
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  it('calls back once after the delay', () => {
    const callback = vi.fn()
    systemClock.setTimer(callback, 100)
    vi.advanceTimersByTime(99)
    expect(callback).not.toHaveBeenCalled()
    vi.advanceTimersByTime(1_000)
    expect(callback).toHaveBeenCalledTimes(1)
  })

  it('waits the whole of a delay that setTimeout would fire at once', () => {
    const callback = vi.fn()
    systemClock.setTimer(callback, 60 * DAY)
    vi.advanceTimersByTime(60 * DAY - 1)
    expect(callback).not.toHaveBeenCalled()
    vi.advanceTimersByTime(1)
    expect(callback).toHaveBeenCalledTimes(1)
  })

  it('can be cancelled at any time, also in the middle of a long delay and twice', () => {
    const callback = vi.fn()
    const timer = systemClock.setTimer(callback, 60 * DAY)
    vi.advanceTimersByTime(30 * DAY)
    timer.cancel()
    timer.cancel()
    vi.advanceTimersByTime(60 * DAY)
    expect(callback).not.toHaveBeenCalled()
    expect(vi.getTimerCount()).toBe(0)
  })

  it('waits for ever when the delay is Infinity, and not at all when it is negative', () => {
    const never = vi.fn()
    const soon = vi.fn()
    const timer = systemClock.setTimer(never, Number.POSITIVE_INFINITY)
    systemClock.setTimer(soon, -5)
    vi.advanceTimersByTime(100 * DAY)
    expect(never).not.toHaveBeenCalled()
    expect(soon).toHaveBeenCalledTimes(1)
    timer.cancel()
  })

  it('refuses NaN', () => {
    expect(() => systemClock.setTimer(() => {}, Number.NaN)).toThrow(InvalidSettingError)
  })
})

describe('the real systemClock', () => {
  it('has a monotonic time beside the wall clock, and timers that let the process exit', () => {
    const before = systemClock.monotonic()
    expect(Math.abs(systemClock.now() - Date.now())).toBeLessThan(1_000)
    const timer = systemClock.setTimer(() => {}, 60 * DAY)
    timer.unref?.()
    timer.cancel()
    expect(systemClock.monotonic()).toBeGreaterThanOrEqual(before)
  })
})
