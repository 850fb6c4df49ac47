import type { UnackedMessage } from './unacked-message.js'

/** Handles messages with a common chain key sequentially, in the order in which they were added. */
export class KeyChains {
  readonly #last = new Map<string, UnackedMessage>()

  /** Runs the work when all earlier messages with a common chain key have ended. */
  append(unacked: UnackedMessage, work: () => Promise<void>): void {
    const earlier: UnackedMessage[] = []
    for (const key of unacked.chainKeys) {
      const last = this.#last.get(key)
      if (last) earlier.push(last)
      this.#last.set(key, unacked)
    }
    unacked.ended = this.#run(unacked, earlier, work)
  }

  async #run(
    unacked: UnackedMessage,
    earlier: readonly UnackedMessage[],
    work: () => Promise<void>,
  ): Promise<void> {
    for (const former of earlier) {
      await former.ended
      unacked.inherit(former)
    }
    try {
      await work()
    } finally {
      for (const key of unacked.chainKeys) if (this.#last.get(key) === unacked) this.#last.delete(key)
    }
  }
}
