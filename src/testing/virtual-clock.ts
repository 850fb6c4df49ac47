import type { Clock, Timer } from '../core/clock.js'
import { InvalidSettingError } from '../core/errors.js'

interface PendingTimer {
  readonly due: number
  readonly order: number
  readonly callback: () => void
}

/** Turns of the event loop after each timer: enough for promise chains with a few setImmediate steps in them. */
const TURNS = 4

/** Time that passes only when a test says so. Timers run inside `advance`, in the order of their times. */
export class VirtualClock implements Clock {
  readonly #timers = new Set<PendingTimer>()
  #wall: number
  #monotonic = 0
  #order = 0
  #advancing: Promise<void> = Promise.resolve()

  constructor(start: Date | number = Date.UTC(2030, 0, 1)) {
    this.#wall = Number(start)
  }

  now(): number {
    return this.#wall
  }

  monotonic(): number {
    return this.#monotonic
  }

  /** How many timers wait; 0 after a clean stop. */
  get timerCount(): number {
    return this.#timers.size
  }

  setTimer(callback: () => void, delayMs: number): Timer {
    if (Number.isNaN(delayMs)) throw new InvalidSettingError('delayMs', 'must be a number of milliseconds')
    const timer = { due: this.#monotonic + Math.max(0, delayMs), order: this.#order++, callback }
    this.#timers.add(timer)
    return { cancel: () => void this.#timers.delete(timer), unref: () => {} }
  }

  /**
   * Lets this much time pass and runs what falls due, with promise jobs and setImmediate callbacks settling in
   * between. Calls that overlap run one after the other. Rejects with what a timer's callback throws.
   */
  advance(ms: number): Promise<void> {
    if (!(ms >= 0)) throw new InvalidSettingError('ms', 'must be zero or more milliseconds')
    const result = this.#advancing.then(() => this.#advance(ms))
    this.#advancing = result.catch(() => {})
    return result
  }

  /** The wall clock steps, forward or back, while no time passes; timers don't notice. */
  step(ms: number): void {
    this.#wall += ms
  }

  async #advance(ms: number): Promise<void> {
    const end = this.#monotonic + ms
    await turns()
    for (let timer = this.#next(end); timer; timer = this.#next(end)) {
      this.#timers.delete(timer)
      this.#pass(timer.due)
      timer.callback()
      await turns()
    }
    this.#pass(end)
  }

  #pass(until: number): void {
    const ms = Math.max(0, until - this.#monotonic)
    this.#monotonic += ms
    this.#wall += ms
  }

  #next(end: number): PendingTimer | undefined {
    let next: PendingTimer | undefined
    for (const timer of this.#timers) {
      if (timer.due > end) continue
      if (!next || timer.due < next.due || (timer.due === next.due && timer.order < next.order)) next = timer
    }
    return next
  }
}

async function turns(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn++) await new Promise((resolve) => setImmediate(resolve))
}
