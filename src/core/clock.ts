import { InvalidSettingError } from './errors.js'

/** The process's own time. Never compared with times in the database, which keeps its own. */
export interface Clock {
  /** Wall clock, milliseconds since 1970; may step. */
  now(): number
  /** Milliseconds from an arbitrary start; never steps back. */
  monotonic(): number
  /** Calls back once, not before `delayMs` have passed. A negative delay counts as 0; NaN throws InvalidSettingError. */
  setTimer(callback: () => void, delayMs: number): Timer
}

export interface Timer {
  /** After this the callback does not run. Safe to call twice, and after it ran. */
  cancel(): void
  /** Lets the process exit although the timer is pending. */
  unref?(): void
}

/** setTimeout fires at once when the delay does not fit into 31 bits. */
const LONGEST_TIMEOUT_MS = 2 ** 31 - 1

/** The machine's clock and timers; delays beyond 24.8 days are chained, `Infinity` waits for ever. */
export const systemClock: Clock = Object.freeze({
  now: () => Date.now(),
  monotonic: () => performance.now(),
  setTimer: (callback: () => void, delayMs: number): Timer => new SystemTimer(callback, delayMs),
})

class SystemTimer implements Timer {
  #handle: ReturnType<typeof setTimeout>
  #isUnref = false

  constructor(callback: () => void, delayMs: number) {
    if (Number.isNaN(delayMs)) throw new InvalidSettingError('delayMs', 'must be a number of milliseconds')
    this.#handle = this.#arm(callback, Math.max(0, delayMs))
  }

  cancel(): void {
    clearTimeout(this.#handle)
  }

  unref(): void {
    this.#isUnref = true
    this.#handle.unref()
  }

  #arm(callback: () => void, remainingMs: number): ReturnType<typeof setTimeout> {
    if (remainingMs <= LONGEST_TIMEOUT_MS) return setTimeout(callback, remainingMs)
    return setTimeout(() => {
      this.#handle = this.#arm(callback, remainingMs - LONGEST_TIMEOUT_MS)
      if (this.#isUnref) this.#handle.unref()
    }, LONGEST_TIMEOUT_MS)
  }
}

/** Waits for the work, but not longer than this. */
export async function atMost(clock: Clock, ms: number, work: Promise<unknown>): Promise<void> {
  let timer: Timer | undefined
  const over = new Promise<void>((resolve) => {
    timer = clock.setTimer(resolve, ms)
  })
  await Promise.race([work, over])
  timer?.cancel()
}
