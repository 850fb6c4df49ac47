import type { Delivery } from './delivery.js'

/** More than these do not wait for one handler, outside of the queues. */
export const MOST_WAITING = 100
/** Nor more payload than this; a batch of it is full. */
export const MOST_BYTES = 8 * 1_048_576

/** From this part on nothing more is claimed for it: what finds no room would have been claimed in vain. */
const CROWDED = 3 / 4

/** Who waits for a handler's turn, or is on the way there: bounded by events and by bytes. Nobody waits for room. */
export class WaitingRoom {
  most: number
  readonly #inside = new Set<Delivery>()
  #bytes = 0
  #whenRoomy: (() => void)[] = []
  #isClosed = false

  constructor(most: number) {
    this.most = most
  }

  get isFull(): boolean {
    return this.#isClosed || this.#inside.size >= this.most || this.#bytes >= MOST_BYTES
  }

  /** The next claim would not find room for all that it brings. */
  get isCrowded(): boolean {
    return this.#inside.size >= this.most * CROWDED || this.#bytes >= MOST_BYTES * CROWDED
  }

  /** Room for a good part of a claim: otherwise each event that leaves would cost a claim. */
  get #isRoomy(): boolean {
    return !this.#isClosed && this.#inside.size <= this.most / 4 && this.#bytes <= MOST_BYTES / 4
  }

  has(delivery: Delivery): boolean {
    return this.#inside.has(delivery)
  }

  enter(delivery: Delivery): void {
    if (this.has(delivery)) return
    this.#inside.add(delivery)
    this.#bytes += delivery.bytes
  }

  /** Its turn has come, or never will. */
  leave(delivery: Delivery): void {
    if (!this.#inside.delete(delivery)) return
    this.#bytes -= delivery.bytes
    this.#tell()
  }

  /** Nobody enters until `open`: the handler could do nothing with it. */
  close(): void {
    this.#isClosed = true
  }

  open(): void {
    this.#isClosed = false
    this.#tell()
  }

  /** Tells once, when there is room for many again. */
  whenRoomy(tell: () => void): void {
    this.#whenRoomy.push(tell)
  }

  #tell(): void {
    if (this.#whenRoomy.length > 0 && this.#isRoomy) for (const tell of this.#whenRoomy.splice(0)) tell()
  }
}
