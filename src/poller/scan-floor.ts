import type { Clock } from '../core/clock.js'
import type { ClaimResult } from '../store.js'

/** Rows that commit later than this after drawing their `seq` are left to the doorbell and the sweep. */
const TRAIL_MS = 1_000

export interface Scan {
  readonly fromSeq: number
  /** From 0. */
  readonly sweep: boolean
  /** From where things stood a while ago, or from 0. */
  readonly trailing: boolean
}

/**
 * Where the next scan for new rows starts. Starting at the lowest `seq` that may still be new keeps the claim
 * from walking over dead rows that cannot be vacuumed. A row may appear late with a lower `seq`: the doorbell
 * names it, once a second a scan starts where things stood a second ago, and each poll interval one starts at 0.
 */
export class ScanFloor {
  readonly #clock: Clock
  readonly #sweepEveryMs: number
  #cursor = 0
  #rung = Number.POSITIVE_INFINITY
  #sweptAt = Number.NEGATIVE_INFINITY
  #trailedAt = Number.NEGATIVE_INFINITY
  #past: { at: number; highSeq: number }[] = []

  constructor(clock: Clock, sweepEveryMs: number) {
    this.#clock = clock
    this.#sweepEveryMs = sweepEveryMs
  }

  /** The next scan starts at 0. */
  reset(): void {
    this.#sweptAt = Number.NEGATIVE_INFINITY
  }

  /** A row with this `seq` has appeared. */
  lower(seq: number): void {
    if (seq < this.#rung) this.#rung = seq
  }

  next(): Scan {
    const now = this.#clock.monotonic()
    const rung = this.#rung
    this.#rung = Number.POSITIVE_INFINITY
    if (now - this.#sweptAt >= this.#sweepEveryMs) {
      this.#sweptAt = now
      this.#trailedAt = now
      return { fromSeq: 0, sweep: true, trailing: true }
    }
    let fromSeq = Math.min(this.#cursor, rung)
    const trailing = now - this.#trailedAt >= TRAIL_MS
    if (trailing) {
      this.#trailedAt = now
      fromSeq = Math.min(fromSeq, this.#trailing(now))
    }
    return { fromSeq, sweep: false, trailing }
  }

  scanned(result: ClaimResult): void {
    this.#cursor = result.complete ? result.highSeq + 1 : result.nextSeq
    const now = this.#clock.monotonic()
    const last = this.#past[this.#past.length - 1]
    if (!last || now - last.at >= TRAIL_MS / 4) this.#past.push({ at: now, highSeq: this.#cursor - 1 })
    while (this.#past.length > 1 && now - (this.#past[1] as { at: number }).at >= TRAIL_MS) this.#past.shift()
  }

  /** How far the scans had come a while ago. */
  #trailing(now: number): number {
    const [oldest] = this.#past
    return oldest && now - oldest.at >= TRAIL_MS ? oldest.highSeq + 1 : 0
  }
}
