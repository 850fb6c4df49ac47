import type { Clock, Timer } from '../core/clock.js'

/** One sleeper, woken by a call or at the earliest moment it was set to, also while it sleeps. */
export class Alarm {
  readonly #clock: Clock
  #at = Number.POSITIVE_INFINITY
  #timer: Timer | null = null
  #wake: (() => void) | null = null

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Not later than this, by the monotonic clock. */
  set(at: number): void {
    if (at >= this.#at) return
    this.#at = at
    if (this.#wake) this.#arm()
  }

  /** True once the moment has come; it is forgotten then. */
  rang(): boolean {
    if (this.#clock.monotonic() < this.#at) return false
    this.#at = Number.POSITIVE_INFINITY
    return true
  }

  /** Until `ring`, or until the moment that was set has come. */
  sleep(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
      this.#arm()
    })
  }

  ring(): void {
    this.#timer?.cancel()
    this.#timer = null
    const wake = this.#wake
    this.#wake = null
    wake?.()
  }

  #arm(): void {
    this.#timer?.cancel()
    this.#timer = null
    if (this.#at === Number.POSITIVE_INFINITY) return
    this.#timer = this.#clock.setTimer(() => this.ring(), this.#at - this.#clock.monotonic())
  }
}
