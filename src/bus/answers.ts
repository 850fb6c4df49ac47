import type { Clock, Timer } from '../core/clock.js'
import type { Held } from './held.js'
import type { Burial, Consumption } from './transport.js'

interface AnswersOptions {
  readonly clock: Clock
  readonly takeoverMs: number
  onProblem(error: unknown): void
}

const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 5_000

/** Answers messages in batches, and tells the broker of those that are still worked on. */
export class Answers {
  readonly #options: AnswersOptions
  readonly #consumption: Consumption
  readonly #held: ReadonlySet<Held>
  #done: Held[] = []
  #acking: Promise<void> | null = null
  #timer: Timer | null = null
  #isClosed = false
  readonly #pauses = new Set<() => void>()

  constructor(options: AnswersOptions, consumption: Consumption, held: ReadonlySet<Held>) {
    this.#options = options
    this.#consumption = consumption
    this.#held = held
    if (consumption.extend) this.#extendLater()
  }

  /** Handled: what is done while one call is under way goes with the next. */
  ack(held: Held): void {
    if (held.isLost || held.isAnswered) return
    held.isAnswered = true
    this.#done.push(held)
    this.#acking ??= this.#ackAll()
  }

  /** Until the dead-letter destination has it, or the message is not ours any more. */
  async bury(held: Held, burial: Burial, isOver: () => boolean): Promise<void> {
    for (let waitMs = FIRST_WAIT_MS; !isOver(); waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2)) {
      try {
        await this.#consumption.bury(held.message, burial)
        held.isAnswered = true
        return
      } catch (error) {
        this.#options.onProblem(error)
        await this.#pause(waitMs)
      }
    }
  }

  /** Ends at once when there is nothing more to wait for. */
  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        timer.cancel()
        this.#pauses.delete(end)
        resolve()
      }
      const timer = this.#options.clock.setTimer(end, ms)
      if (this.#isClosed) end()
      else this.#pauses.add(end)
    })
  }

  async release(all: readonly Held[]): Promise<void> {
    const ours = all.filter((held) => !held.isLost && !held.isAnswered)
    for (const held of ours) held.isAnswered = true
    if (ours.length > 0) await this.#quietly(this.#consumption.release(ours.map((held) => held.message)))
  }

  /** Until the acknowledgements so far are sent. */
  async flush(): Promise<void> {
    while (this.#acking) await this.#acking
  }

  close(): void {
    this.#isClosed = true
    this.#timer?.cancel()
    for (const end of [...this.#pauses]) end()
  }

  async #ackAll(): Promise<void> {
    await undefined
    while (this.#done.length > 0) {
      const messages = this.#done.filter((held) => !held.isLost).map((held) => held.message)
      this.#done = []
      if (messages.length > 0) await this.#quietly(this.#consumption.ack(messages))
    }
    this.#acking = null
  }

  #extendLater(): void {
    const { clock, takeoverMs } = this.#options
    this.#timer = clock.setTimer(async () => {
      const messages = [...this.#held].filter((held) => !held.isLost).map((held) => held.message)
      if (messages.length > 0) await this.#quietly(this.#consumption.extend?.(messages))
      if (!this.#isClosed) this.#extendLater()
    }, takeoverMs / 3)
    this.#timer.unref?.()
  }

  /** An answer that fails is no loss: the message comes again. */
  async #quietly(answer: Promise<void> | undefined): Promise<void> {
    try {
      await answer
    } catch (error) {
      this.#options.onProblem(error)
    }
  }
}
