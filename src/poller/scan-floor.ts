import type { Clock } from '../core/clock.js'
import type { ClaimResult } from '../store.js'

/** How far a trailing scan looks back; rows that commit later still are left to doorbell and sweep. */
const LOOK_BACK_MS = 2_000
/** Before that is known it begins so far in front of the first row that was ever taken. */
const SLACK = 10_000
/** How often one is made, with a doorbell that names late rows and without. */
const TRAIL_MS = { doorbell: 1_000, none: 100 }

export interface Scan {
  readonly fromSeq: number
  /** From where things stood a while ago, or from 0. */
  readonly trailing: boolean
}

/**
 * Where the next scan for new rows starts. Starting at the lowest `seq` that may still be new keeps the claim
 * from walking over dead rows that cannot be vacuumed. A row may appear late with a lower `seq`: the doorbell
 * names it, now and then a scan starts where things stood two seconds ago, and each poll interval one at 0.
 */
export class ScanFloor {
  readonly #clock: Clock
  readonly #hasDoorbell: boolean
  readonly #trailMs: number
  /** The last scan came to the end. While it does not, looking back costs more than the doorbell's word is worth. */
  #isThrough = true
  #cursor = 0
  #rung = Number.POSITIVE_INFINITY
  #trailedAt = Number.NEGATIVE_INFINITY
  #past: { at: number; seq: number }[] = []
  #first = 0

  constructor(clock: Clock, hasDoorbell = true) {
    this.#clock = clock
    this.#hasDoorbell = hasDoorbell
    this.#trailMs = hasDoorbell ? TRAIL_MS.doorbell : TRAIL_MS.none
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
    const mayTrail = this.#isThrough || !this.#hasDoorbell
    const trailing = sweep || (mayTrail && now - this.#trailedAt >= this.#trailMs)
    if (trailing) this.#trailedAt = now
    const floor = sweep ? 0 : trailing ? this.#aWhileAgo(now) : this.#cursor
    return { fromSeq: Math.min(floor, this.#cursor, rung), trailing }
  }

  scanned(result: ClaimResult): void {
    if (result.highSeq === null)
      this.#cursor = result.complete ? Math.max(this.#cursor, result.nextSeq) : result.nextSeq
    else this.#cursor = result.complete ? result.highSeq + 1 : result.nextSeq
    this.#isThrough = result.complete
    const now = this.#clock.monotonic()
    if (this.#past.length === 0 && result.rows.length > 0) {
      this.#first = Math.max(0, Math.min(...result.rows.map(({ seq }) => seq)) - SLACK)
    }
    const last = this.#past[this.#past.length - 1]
    if (!last || now - last.at >= LOOK_BACK_MS / 8) this.#past.push({ at: now, seq: this.#cursor })
    while (this.#past.length > 1 && now - (this.#past[1] as { at: number }).at >= LOOK_BACK_MS)
      this.#past.shift()
  }

  /** How far the scans had come then; when that is not known, where the first one began, or 0. */
  #aWhileAgo(now: number): number {
    const [oldest] = this.#past
    return oldest && now - oldest.at >= LOOK_BACK_MS ? oldest.seq : this.#first
  }
}
