import type { Consumption, DeadLetterReason } from '../bus.js'
import type { Clock, Timer } from '../core/clock.js'
import type { UnackedMessage } from './unacked-message.js'

interface MessageSettlerOptions {
  readonly clock: Clock
  readonly takeoverMs: number
  onError(error: unknown): void
}

const FIRST_DELAY_MS = 100
const MAX_DELAY_MS = 5_000

/** Settles messages at the broker, and extends the leases of the messages that are not settled yet. */
export class MessageSettler {
  readonly #options: MessageSettlerOptions
  readonly #consumption: Consumption
  readonly #unacked: ReadonlySet<UnackedMessage>
  #done: UnackedMessage[] = []
  #acking: Promise<void> | null = null
  #timer: Timer | null = null
  #isClosed = false
  /** Functions that end a wait before its time. */
  readonly #waits = new Set<() => void>()

  constructor(
    options: MessageSettlerOptions,
    consumption: Consumption,
    unacked: ReadonlySet<UnackedMessage>,
  ) {
    this.#options = options
    this.#consumption = consumption
    this.#unacked = unacked
    if (consumption.extendLeases) this.#extendLater()
  }

  /** Acknowledges a handled message. Messages that finish during an `ack` call are acknowledged together in the next call. */
  ack(unacked: UnackedMessage): void {
    if (unacked.isLeaseLost || unacked.isSettled) return
    unacked.isSettled = true
    this.#done.push(unacked)
    this.#acking ??= this.#ackAll()
  }

  /** Repeats `deadLetter` until it succeeds or `isOver` returns true. */
  async deadLetter(unacked: UnackedMessage, reason: DeadLetterReason, isOver: () => boolean): Promise<void> {
    for (let delayMs = FIRST_DELAY_MS; !isOver(); delayMs = Math.min(MAX_DELAY_MS, delayMs * 2)) {
      try {
        await this.#consumption.deadLetter(unacked.message, reason)
        unacked.isSettled = true
        return
      } catch (error) {
        this.#options.onError(error)
        await this.#wait(delayMs)
      }
    }
  }

  /** Ends early when the settler is closed. */
  #wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        timer.cancel()
        this.#waits.delete(end)
        resolve()
      }
      const timer = this.#options.clock.setTimer(end, ms)
      if (this.#isClosed) end()
      else this.#waits.add(end)
    })
  }

  async release(all: readonly UnackedMessage[]): Promise<void> {
    const unsettled = all.filter((unacked) => !unacked.isLeaseLost && !unacked.isSettled)
    for (const unacked of unsettled) unacked.isSettled = true
    if (unsettled.length > 0)
      await this.#reported(this.#consumption.release(unsettled.map(({ message }) => message)))
  }

  /** Resolves when all acknowledgements so far have been sent. */
  async flush(): Promise<void> {
    while (this.#acking) await this.#acking
  }

  close(): void {
    this.#isClosed = true
    this.#timer?.cancel()
    for (const end of [...this.#waits]) end()
  }

  async #ackAll(): Promise<void> {
    await undefined
    while (this.#done.length > 0) {
      const messages = this.#done.filter(({ isLeaseLost }) => !isLeaseLost).map(({ message }) => message)
      this.#done = []
      if (messages.length > 0) await this.#reported(this.#consumption.ack(messages))
    }
    this.#acking = null
  }

  #extendLater(): void {
    const { clock, takeoverMs } = this.#options
    this.#timer = clock.setTimer(async () => {
      const leased = [...this.#unacked].filter(({ isLeaseLost }) => !isLeaseLost)
      const messages = leased.map(({ message }) => message)
      if (messages.length > 0) await this.#reported(this.#consumption.extendLeases?.(messages))
      if (!this.#isClosed) this.#extendLater()
    }, takeoverMs / 3)
    this.#timer.unref?.()
  }

  /** Reports a failed call and continues. No message is lost, because the broker delivers it again. */
  async #reported(call: Promise<void> | undefined): Promise<void> {
    try {
      await call
    } catch (error) {
      this.#options.onError(error)
    }
  }
}
