import type { Clock } from '../core/clock.js'
import type { ClaimResult } from '../store.js'

/** A scan each so often looks back twice as far; rows that commit later still are left to doorbell and sweep. */
const TRAIL_MS = 1_000

export interface Scan {
  readonly fromSeq: number
  /** From where things stood a while ago, or from 0. */
  readonly trailing: boolean
}

/**
 * Where the next scan for new rows starts. Starting at the lowest `seq` that may still be new keeps the claim
 * from walking over dead rows that cannot be vacuumed. A row may appear late with a lower `seq`: the doorbell
 * names it, once a second a scan starts where things stood two seconds ago, and each poll interval one at 0.
 */
export class ScanFloor {
  readonly #clock: Clock
  #cursor = 0
  #rung = Number.POSITIVE_INFINITY
  #trailedAt = Number.NEGATIVE_INFINITY
  #past: { at: number; seq: number }[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** A row with this `seq` has appeared. */
  lower(seq: number): void {
    if (seq < this.#rung) this.#rung = seq
  }

  /** `sweep`: from 0, whatever is known. */
  next(sweep: boolean): Scan {
    const now = this.#clock.monotonic()
    const rung = this.#rung
    this.#rung = Number.POSITIVE_INFINITY
    const trailing = sweep || now - this.#trailedAt >= TRAIL_MS
    if (trailing) this.#trailedAt = now
    const floor = sweep ? 0 : trailing ? this.#aWhileAgo(now) : this.#cursor
    return { fromSeq: Math.min(floor, this.#cursor, rung), trailing }
  }

  scanned(result: ClaimResult): void {
    if (result.highSeq === null)
      this.#cursor = result.complete ? Math.max(this.#cursor, result.nextSeq) : result.nextSeq
    else this.#cursor = result.complete ? result.highSeq + 1 : result.nextSeq
    const now = this.#clock.monotonic()
    const last = this.#past[this.#past.length - 1]
    if (!last || now - last.at >= TRAIL_MS / 4) this.#past.push({ at: now, seq: this.#cursor })
    while (this.#past.length > 1 && now - (this.#past[1] as { at: number }).at >= 2 * TRAIL_MS)
      this.#past.shift()
  }

  /** How far the scans had come then; 0 when that is not known. */
  #aWhileAgo(now: number): number {
    const [oldest] = this.#past
    return oldest && now - oldest.at >= 2 * TRAIL_MS ? oldest.seq : 0
  }
}
