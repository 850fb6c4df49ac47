import type { ClaimResult } from '../store.js'

/** How far back a trailing scan starts. Rows that are committed even later are found by the doorbell and by full scans. */
const LOOK_BACK_MS = 2_000
/** Distance from the first claimed row to the start of a trailing scan, until the position 2 s ago is known. */
const SLACK = 10_000
/** Interval of trailing scans, with a doorbell that names late rows and without a doorbell. */
const TRAILING_SCAN_MS = { doorbell: 1_000, none: 100 }

export interface ScanStart {
  readonly fromSeq: number
  /** Whether the scan starts further back than the last one ended. */
  readonly isTrailing: boolean
}

/**
 * Decides where the next scan for new rows starts. Starting at the lowest `seq` that may still be new keeps the claim from
 * reading dead rows that cannot be vacuumed. A row with a lower `seq` may be committed late: the doorbell names it, a
 * trailing scan starts where scans stood two seconds ago, and once per poll interval a full scan starts at 0.
 */
export class ScanFloor {
  readonly #hasDoorbell: boolean
  readonly #trailingScanMs: number
  /** Whether the last scan reached the end. Before that, a trailing scan costs more than the doorbell's hint is worth. */
  #reachedEnd = true
  #cursor = 0
  #rungSeq = Number.POSITIVE_INFINITY
  #trailedAt = Number.NEGATIVE_INFINITY
  #positions: { at: number; seq: number }[] = []
  #firstSeq = 0

  constructor(hasDoorbell: boolean) {
    this.#hasDoorbell = hasDoorbell
    this.#trailingScanMs = hasDoorbell ? TRAILING_SCAN_MS.doorbell : TRAILING_SCAN_MS.none
  }

  /** Records that a row with this `seq` has appeared. */
  lower(seq: number): void {
    if (seq < this.#rungSeq) this.#rungSeq = seq
  }

  next(now: number, isFullScan: boolean): ScanStart {
    const rungSeq = this.#rungSeq
    this.#rungSeq = Number.POSITIVE_INFINITY
    const mayTrail = this.#reachedEnd || !this.#hasDoorbell
    const isTrailing = isFullScan || (mayTrail && now - this.#trailedAt >= this.#trailingScanMs)
    if (isTrailing) this.#trailedAt = now
    const floor = isFullScan ? 0 : isTrailing ? this.#earlierPosition(now) : this.#cursor
    return { fromSeq: Math.min(floor, this.#cursor, rungSeq), isTrailing }
  }

  observe(now: number, result: ClaimResult): void {
    if (result.highSeq === null)
      this.#cursor = result.complete ? Math.max(this.#cursor, result.nextSeq) : result.nextSeq
    else this.#cursor = result.complete ? result.highSeq + 1 : result.nextSeq
    this.#reachedEnd = result.complete
    if (this.#positions.length === 0 && result.rows.length > 0) {
      this.#firstSeq = Math.max(0, Math.min(...result.rows.map(({ seq }) => seq)) - SLACK)
    }
    const last = this.#positions.at(-1)
    if (!last || now - last.at >= LOOK_BACK_MS / 8) this.#positions.push({ at: now, seq: this.#cursor })
    while (now - (this.#positions[1]?.at ?? now) >= LOOK_BACK_MS) this.#positions.shift()
  }

  /** Position of the scans two seconds ago; before that is known, the position of the first scan, or 0. */
  #earlierPosition(now: number): number {
    const [oldest] = this.#positions
    return oldest && now - oldest.at >= LOOK_BACK_MS ? oldest.seq : this.#firstSeq
  }
}
