// As it is, also where a test has put its own in place of the global one.
import { setImmediate } from 'node:timers'
import { captureContext } from '../ambient.js'
import type { Gate } from './gate.js'

export interface WorkersOptions {
  readonly places: Gate
  /** Something waits that may be started. */
  isAwaited(): boolean
  /** Takes a place's work, one delivery after the other, the first at once, and leaves the place in the end. */
  work(): Promise<void>
  onError(error: unknown): void
}

/** Calls workers, as many as there are places, when there is something to do. */
export class Workers {
  readonly #options: WorkersOptions
  readonly #inOwnContext = captureContext()
  #isCalled = false
  /** Places that workers hold. */
  #held = 0
  /** Workers whose work has not ended. */
  #running = 0

  constructor(options: WorkersOptions) {
    this.#options = options
  }

  /**
   * They come in the next turn of the event loop: whoever waits for the answer to a COMMIT goes on first, and what was
   * committed in the same turn is handled together.
   */
  call(): void {
    if (this.#isCalled || !this.#options.isAwaited()) return
    this.#isCalled = true
    setImmediate(this.#come)
  }

  /**
   * They come as soon as the caller is through, but only once in a turn: with a store that answers without ever waiting
   * for anything, claims and handlers would follow each other for ever, and nobody else would have a turn.
   */
  callSoon(): void {
    if (this.#isCalled) return
    this.callNow()
    this.call()
  }

  /** They come as soon as the caller is through. */
  callNow(): void {
    if (this.#options.isAwaited()) queueMicrotask(this.#start)
  }

  /** Those that were called come before this returns. */
  gather(): void {
    if (this.#isCalled) this.#start()
  }

  /** Number of workers that ended without leaving their place. */
  get missing(): number {
    return Math.max(0, this.#held - this.#running)
  }

  /** Releases the place of a worker, which goes to the next waiting delivery. */
  leave(): void {
    this.#held--
    this.#options.places.leave()
    this.callNow()
  }

  readonly #come = (): void => {
    this.#isCalled = false
    this.#start()
  }

  /** Not in the context of whoever published: a handler must not see that transaction. */
  readonly #start = (): void => this.#inOwnContext(this.#fill)

  readonly #ended = (): void => {
    this.#running--
  }

  readonly #endedBadly = (error: unknown): void => {
    this.#running--
    this.#options.onError(error)
  }

  readonly #fill = (): void => {
    const { places, isAwaited, work } = this.#options
    while (isAwaited() && places.tryEnter()) {
      this.#held++
      this.#running++
      work().then(this.#ended, this.#endedBadly)
    }
  }
}
