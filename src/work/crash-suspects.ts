import type { Delivery } from './delivery.js'

/** Most rows to try at the same time. */
const LARGEST_GROUP = 32

/**
 * Rows whose former owner vanished. Any of them may end the process, so they are tried in groups: after each row that did
 * no harm, twice as many are tried together, up to 32. If the process dies, the store isolates the rows of the group, and
 * only the row that is at fault is charged an attempt.
 */
export class CrashSuspects {
  readonly #leaseMs: number
  readonly #running = new Set<Delivery>()
  /** Rows to try together; 1 in a new process. */
  #groupSize = 1
  /** Which scans look for suspects. */
  wanted = { plain: true, ordered: true }

  constructor(leaseMs: number) {
    this.#leaseMs = leaseMs
  }

  /** Lets the next scans look for suspects. */
  want(): void {
    this.wanted = { plain: true, ordered: true }
  }

  /** Number of rows that may be claimed now. A row that runs for longer than a lease may hang, but does not kill. */
  capacity(now: number): number {
    const mayHang = ({ startedAt }: Delivery) => startedAt > 0 && now - startedAt >= this.#leaseMs
    return [...this.#running].every(mayHang) ? this.#groupSize : 0
  }

  /** Tries one row at a time from now on. */
  isolate(): void {
    this.#groupSize = 1
  }

  begin(delivery: Delivery): void {
    this.#running.add(delivery)
  }

  /** The delivery has ended. Returns whether more rows may be tried now. */
  end(delivery: Delivery, now: number): boolean {
    if (!this.#running.delete(delivery) || this.capacity(now) === 0) return false
    if (delivery.startedAt > 0) this.#groupSize = Math.min(this.#groupSize * 2, LARGEST_GROUP)
    return true
  }
}
