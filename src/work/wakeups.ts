import type { Clock, Timer } from '../core/clock.js'
import type { Wakeup, Wakeups } from '../ports.js'

/** Merged requests since the last scan. */
export interface PendingWakeups {
  new: boolean
  /** Lowest `seq` of a new row that is known. */
  lowestSeq: number
  ordered: boolean
  everything: boolean
  suspects: boolean
  capacity: boolean
  /** Whether a row has become due. */
  due: boolean
}

/** Merges the requests for scans, and wakes the claim loop. */
export class ScanWakeups implements Wakeups {
  readonly #clock: Clock
  #pending = nothing()
  #isPending = false
  /** Monotonic time at which the next row becomes due. */
  #dueAt = Number.POSITIVE_INFINITY
  /** Monotonic time until which the loop sleeps at the latest. */
  #sleepUntil = Number.POSITIVE_INFINITY
  #timer: Timer | null = null
  #wake: (() => void) | null = null
  #hasSpace: (() => boolean) | null = null

  constructor(clock: Clock) {
    this.#clock = clock
  }

  request(wakeup: Wakeup): void {
    if (wakeup.reason === 'space') {
      if (this.#hasSpace?.()) this.interrupt()
      return
    }
    if (wakeup.reason === 'due') {
      this.#dueAt = Math.min(this.#dueAt, this.#clock.monotonic() + wakeup.inMs)
      if (this.#wake) this.#arm()
      return
    }
    this.#pending[wakeup.reason] = true
    if (wakeup.reason === 'new' && wakeup.fromSeq !== null) {
      this.#pending.lowestSeq = Math.min(this.#pending.lowestSeq, wakeup.fromSeq)
    }
    this.#isPending = true
    if (!this.#hasSpace) this.interrupt()
  }

  /** Whether a scan was requested; rows that become due do not count. */
  get isPending(): boolean {
    return this.#isPending
  }

  /** Returns the merged requests, and forgets them. */
  take(): PendingWakeups {
    const pending = this.#pending
    pending.due = this.#clock.monotonic() >= this.#dueAt
    if (pending.due) this.#dueAt = Number.POSITIVE_INFINITY
    this.#pending = nothing()
    this.#isPending = false
    return pending
  }

  /** Resolves at the next request, when a row is due, or at `until` (monotonic time). */
  async sleep(until: number): Promise<void> {
    this.#sleepUntil = until
    await new Promise<void>((resolve) => {
      this.#wake = resolve
      this.#arm()
    })
    this.#sleepUntil = Number.POSITIVE_INFINITY
  }

  /** Resolves once `hasSpace()` returns true, or after `interrupt()`. Other requests have to wait. */
  async untilSpace(hasSpace: () => boolean): Promise<void> {
    if (hasSpace()) return
    this.#hasSpace = hasSpace
    await new Promise<void>((resolve) => (this.#wake = resolve))
    this.#hasSpace = null
  }

  /** Resolves after this time, or after `interrupt()`. Requests do not shorten it. */
  async pause(ms: number): Promise<void> {
    this.#hasSpace = () => false
    const timer = this.#clock.setTimer(() => this.interrupt(), ms)
    await new Promise<void>((resolve) => (this.#wake = resolve))
    timer.cancel()
    this.#hasSpace = null
  }

  /** Ends whatever the loop waits for. */
  interrupt(): void {
    this.#timer?.cancel()
    this.#timer = null
    const wake = this.#wake
    this.#wake = null
    wake?.()
  }

  #arm(): void {
    if (this.#hasSpace) return
    this.#timer?.cancel()
    this.#timer = null
    const at = Math.min(this.#dueAt, this.#sleepUntil)
    if (at === Number.POSITIVE_INFINITY) return
    this.#timer = this.#clock.setTimer(() => this.interrupt(), at - this.#clock.monotonic())
  }
}

function nothing(): PendingWakeups {
  return {
    new: false,
    lowestSeq: Number.POSITIVE_INFINITY,
    ordered: false,
    everything: false,
    suspects: false,
    capacity: false,
    due: false,
  }
}
