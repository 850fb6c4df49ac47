import type { Clock } from '../core/clock.js'

const GATHER_MS = 100

/**
 * A semaphore that limits the number of running handlers. A crash suspect, which is a message with many deliveries, takes
 * all slots: if the process dies, only this message can be the cause.
 */
export class WorkerSlots {
  readonly #limit: number
  readonly #clock: Clock
  #running = 0
  #isExclusive = false
  #isGathering = false
  readonly #waiting: (() => void)[] = []
  readonly #suspects: (() => void)[] = []

  constructor(limit: number, clock: Clock) {
    this.#limit = limit
    this.#clock = clock
  }

  acquire(): Promise<void> {
    return this.#wait(this.#waiting)
  }

  /**
   * Acquires all slots. Suspects run in random order, so that the message that kills the process does not always run before
   * the other suspects.
   */
  acquireAll(): Promise<void> {
    if (this.#suspects.length === 0 && !this.#isExclusive) this.#gather()
    return this.#wait(this.#suspects)
  }

  /** Waits for the other suspects, which the broker delivers within a short time. */
  #gather(): void {
    this.#isGathering = true
    const timer = this.#clock.setTimer(() => {
      this.#isGathering = false
      this.#admit()
    }, GATHER_MS)
    timer.unref?.()
  }

  release(): void {
    this.#running--
    this.#isExclusive = false
    this.#admit()
  }

  #wait(queue: (() => void)[]): Promise<void> {
    return new Promise((resolve) => {
      queue.push(resolve)
      this.#admit()
    })
  }

  #admit(): void {
    if (this.#isExclusive || this.#isGathering) return
    if (this.#suspects.length > 0) {
      if (this.#running > 0) return
      const [next] = this.#suspects.splice(Math.floor(Math.random() * this.#suspects.length), 1)
      this.#isExclusive = true
      this.#running++
      next?.()
      return
    }
    while (this.#running < this.#limit && this.#waiting.length > 0) {
      this.#running++
      this.#waiting.shift()?.()
    }
  }
}
