import type { OrderedClaimResult } from '../store.js'
import type { Delivery } from './delivery.js'

/** Rows of one key per claim. All claimers must use the same number, because they recognise each other's runs by it. */
export const RUN_LENGTH = 16
/** Most keys per claim. */
const MAX_KEYS = 500

/** Position of the scan over the ordering keys, and whether it should continue. */
export class OrderedScan {
  #afterKey = ''
  #isWanted = false
  /** Whether a claim is under way. */
  #isAsking = false
  /** Whether another pass is wanted, because a key behind the position of this pass may have changed. */
  #isWantedAgain = false
  /** Average rows per key in recent claims. It falls slowly, because rows that do not fit into a claim have to wait. */
  #rowsPerKey = RUN_LENGTH

  get isWanted(): boolean {
    return this.#isWanted
  }

  /** A key may have a row to claim. */
  want(): void {
    if (this.#isAsking || this.#afterKey !== '') this.#isWantedAgain = true
    this.#isWanted = true
  }

  next(freeCapacity: number): { afterKey: string; keys: number; limit: number } {
    this.#isAsking = true
    const keys = Math.min(MAX_KEYS, Math.max(1, Math.floor(freeCapacity / this.#rowsPerKey)))
    return { afterKey: this.#afterKey, keys, limit: Math.max(1, freeCapacity) }
  }

  /** The scan ends at the last key, unless another pass is wanted. */
  observe({ afterKey, rows }: OrderedClaimResult): void {
    this.#isAsking = false
    if (rows.length > 0) {
      const average = rows.length / countRuns(rows)
      this.#rowsPerKey = Math.max(average, (this.#rowsPerKey + average) / 2)
    }
    this.#afterKey = afterKey ?? ''
    if (afterKey !== null) return
    this.#isWanted = this.#isWantedAgain
    this.#isWantedAgain = false
  }

  /** The claim has failed and is repeated. */
  failed(): void {
    this.#isAsking = false
  }
}

/** The rows of a run follow each other. */
function countRuns(rows: OrderedClaimResult['rows']): number {
  return rows.filter(({ orderingKey }, at) => orderingKey !== rows[at - 1]?.orderingKey).length
}

/** Links the deliveries of each key. Returns the first delivery of each run. */
export function linkRuns(deliveries: readonly Delivery[]): Delivery[] {
  return deliveries.filter((delivery, at) => {
    const before = deliveries[at - 1]
    if (!before || before.event.orderingKey !== delivery.event.orderingKey) return true
    before.next = delivery
    return false
  })
}
