import type { Delivery } from '../dispatcher/delivery.js'

/** Most rows to try at a time. */
const MOST = 32

/** Rows whose former owner vanished: one at a time or one group of them is tried here, so that a crash has few culprits. */
export class Trials {
  readonly #leaseMs: number
  readonly #underWay = new Set<Delivery>()
  /** How many at a time: twice as many after each that did no harm, from one on in a new process. */
  #most = 1
  /** They are to be looked for. Each reason is a new object, so that no claim under way crosses it out. */
  wanted = { plain: true, ordered: true }

  constructor(leaseMs: number) {
    this.#leaseMs = leaseMs
  }

  want(): void {
    this.wanted = { plain: true, ordered: true }
  }

  /** How many may be tried now. What has run for a whole lease may hang, but does not kill. */
  room(now: number): number {
    const mayHang = ({ startedAt }: Delivery) => startedAt > 0 && now - startedAt >= this.#leaseMs
    return [...this.#underWay].every(mayHang) ? this.#most : 0
  }

  /** From now on they are tried one at a time. */
  oneByOne(): void {
    this.#most = 1
  }

  begin(delivery: Delivery): void {
    this.#underWay.add(delivery)
  }

  /** It is through. True when the next ones may be tried. */
  end(delivery: Delivery, now: number): boolean {
    if (!this.#underWay.delete(delivery) || this.room(now) === 0) return false
    if (delivery.startedAt > 0) this.#most = Math.min(this.#most * 2, MOST)
    this.want()
    return true
  }
}
