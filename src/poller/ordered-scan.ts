import type { Delivery } from '../dispatcher/delivery.js'
import type { OrderedClaimResult } from '../store.js'

/** Rows of one key in one claim. All claimers must use the same number: it is how they see each other's runs. */
export const RUN_LENGTH = 16
/** Keys in one claim. */
const MOST_KEYS = 500

/** Where the scan over the ordering keys stands, and whether there is a reason to go on with it. */
export class OrderedScan {
  #afterKey = ''
  #wanted = false
  #asking = false
  /** Something happened behind the back of the scan under way. */
  #again = false
  /** Rows that a key brings, by the last claims that brought any. Falls slowly: what is too much for one claim waits. */
  #perKey = RUN_LENGTH

  get wanted(): boolean {
    return this.#wanted
  }

  /** A key may have something to claim. */
  want(): void {
    if (this.#asking || this.#afterKey !== '') this.#again = true
    this.#wanted = true
  }

  /** What to ask for, given so many places in the queue. */
  next(room: number): { afterKey: string; keys: number; limit: number } {
    this.#asking = true
    const keys = Math.min(MOST_KEYS, Math.max(1, Math.floor(room / this.#perKey)))
    return { afterKey: this.#afterKey, keys, limit: Math.max(1, room) }
  }

  /** The scan is over when it has come to the last key, unless there is a reason for another one. */
  scanned({ afterKey, rows }: OrderedClaimResult): void {
    this.#asking = false
    if (rows.length > 0) {
      const average = rows.length / countRuns(rows)
      this.#perKey = Math.max(average, (this.#perKey + average) / 2)
    }
    this.#afterKey = afterKey ?? ''
    if (afterKey !== null) return
    this.#wanted = this.#again
    this.#again = false
  }

  failed(): void {
    this.#asking = false
  }
}

/** Runs come one after the other. */
function countRuns(rows: OrderedClaimResult['rows']): number {
  return rows.filter(({ orderingKey }, at) => orderingKey !== rows[at - 1]?.orderingKey).length
}

/** Chains the events of each key. Returns the first of each run. */
export function linkRuns(deliveries: readonly Delivery[]): Delivery[] {
  return deliveries.filter((one, at) => {
    const before = deliveries[at - 1]
    if (!before || before.event.orderingKey !== one.event.orderingKey) return true
    before.next = one
    return false
  })
}
