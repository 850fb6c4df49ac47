import type { ClaimResult, OrderedClaimResult } from '../store.js'
import type { CrashSuspects } from './crash-suspects.js'
import { OrderedScan } from './ordered-scan.js'
import { ScanFloor } from './scan-floor.js'
import type { PendingWakeups } from './wakeups.js'

/** Shortest time between claims of rows that become due one after the other. */
const MIN_WAIT_MS = 20
/** Without a doorbell, the next scan comes after this share of the time in which nothing was claimed. */
const PATIENCE = 1 / 4
/**
 * Share of the time that full scans may take while there is a backlog, because rows that cannot be vacuumed make them slow.
 * A full scan is delayed by at most this number of poll intervals.
 */
const FULL_SCANS = { share: 1 / 20, mostIntervals: 4 }
/** How long this process leaves a key to others after the delay of rows that it deferred, because it still runs the key. */
const HEAD_START_MS = 250
/** Longest time between the due time of a row and its commit that partial scans cover. */
const DUE_MARGIN_MS = 2_000

export interface ScanPlanOptions {
  readonly hasDoorbell: boolean
  readonly pollIntervalMs: number
  readonly suspects: CrashSuspects
}

/** The types that can be claimed in this round. */
export interface RoundTypes {
  /** Whether there is no type that can be claimed. */
  readonly none: boolean
  /** Whether types are excluded because a handler queue is saturated. */
  readonly areSaturated: boolean
}

/** Scan for rows without an ordering key. */
export interface PlainScan {
  readonly kind: 'plain'
  readonly isFullScan: boolean
  readonly askedAt: number
  readonly fromSeq: number
  readonly dueWithinMs: number | null
  readonly suspects: number
  readonly freshOnly: boolean
}

/** Scan for rows with an ordering key. */
export interface OrderedKeysScan {
  readonly kind: 'ordered'
  readonly afterKey: string
  readonly keys: number
  readonly limit: number
  readonly suspects: number
}

export type Scan = PlainScan | OrderedKeysScan

interface Round {
  /** Whether there is no type that can be claimed. */
  readonly isEmpty: boolean
  readonly isFullScan: boolean
  readonly isDue: boolean
  readonly isOrderedFirst: boolean
  /** Scans that are still to be considered, in this order. */
  steps: readonly Scan['kind'][]
  isComplete: boolean
}

/**
 * Decides which scan comes next, from the requests and the results so far. Contains no timers and makes no calls.
 *
 * A round has at most one successful scan of each kind. If a round filled its limit before it came to the ordered rows,
 * the next round begins with them, so that neither kind starves.
 */
export class ScanPlan {
  readonly #options: ScanPlanOptions
  readonly #floor: ScanFloor
  readonly #ordered = new OrderedScan()
  #fullScanAt = Number.NEGATIVE_INFINITY
  #isPlainWanted = true
  #isDue = false
  /** Whether the last round found no capacity for ordered rows. */
  #isOrderedTurn = false
  /** Whether a scan excluded saturated types, so that it may have passed rows of these types. */
  #skippedWhileSaturated = false
  /** When a scan last saw all due rows. */
  #allDueSeenAt = Number.NEGATIVE_INFINITY
  /** Time in which this process claims no ordered rows: from when its deferred rows are due until others had a head start. */
  #yield = { from: Number.POSITIVE_INFINITY, until: Number.NEGATIVE_INFINITY }
  #round: Round = NO_ROUND

  constructor(options: ScanPlanOptions) {
    this.#options = options
    this.#floor = new ScanFloor(options.hasDoorbell)
  }

  /** Ends a head start of other processes, because a manual call looks once and not again. */
  claimAllKeys(): void {
    this.#yield = { from: Number.POSITIVE_INFINITY, until: Number.NEGATIVE_INFINITY }
  }

  /** Begins a round with the requests that have arrived. */
  begin(wakeups: PendingWakeups, now: number, types: RoundTypes): void {
    this.#apply(wakeups, types)
    const isFullScan = now >= this.#fullScanAt
    if (isFullScan) {
      this.#fullScanAt = now + this.#options.pollIntervalMs
      this.#options.suspects.want()
    }
    const isDue = wakeups.due || this.#isDue
    this.#isDue = isDue && types.none
    if (types.areSaturated && (!types.none || isFullScan)) this.#skippedWhileSaturated = true
    const isOrderedFirst = this.#ordered.isWanted && this.#isOrderedTurn
    this.#round = {
      ...{ isEmpty: types.none, isFullScan, isDue, isOrderedFirst, isComplete: true },
      steps: isOrderedFirst ? ['ordered', 'plain'] : ['plain', 'ordered'],
    }
  }

  #apply(wakeups: PendingWakeups, types: RoundTypes): void {
    const { suspects } = this.#options
    const seesSkipped = wakeups.capacity && this.#skippedWhileSaturated
    if (wakeups.capacity) this.#skippedWhileSaturated &&= types.areSaturated
    if (wakeups.everything || seesSkipped) this.#fullScanAt = Number.NEGATIVE_INFINITY
    if (wakeups.suspects) suspects.want()
    if (wakeups.ordered || wakeups.everything || seesSkipped || wakeups.suspects) this.#ordered.want()
    if (wakeups.new || wakeups.everything || wakeups.capacity || wakeups.suspects) this.#isPlainWanted = true
    this.#floor.lower(wakeups.lowestSeq)
  }

  /** Returns the next scan of the round, or null at its end. `limit` and `free` are the rows that may still be claimed. */
  next(now: number, limit: number, free: number): Scan | null {
    const round = this.#round
    if (round.isEmpty) return null
    for (;;) {
      const [step, ...later] = round.steps
      if (step === undefined) break
      if (step === 'plain') {
        round.steps = later
        if (!(round.isFullScan || round.isDue || this.#isPlainWanted)) continue
        if (limit > 0) return this.#plainScan(now, round)
        this.#postpone(round)
      } else if (this.#maySeekKeys(now) && limit > 0) {
        return this.#orderedScan(now, Math.min(limit, free))
      } else round.steps = later
    }
    const isLeft = this.#maySeekKeys(now)
    this.#isOrderedTurn = isLeft && !round.isOrderedFirst
    if (isLeft) round.isComplete = false
    return null
  }

  /**
   * Rows of a key that still runs here were released for `delayMs`. Without a head start for the other processes, this
   * process could claim them again and again.
   */
  yieldKeys(now: number, delayMs: number): void {
    // A pause is not prolonged, because it concerns all keys.
    if (now < this.#yield.until) return
    this.#yield = { from: now + delayMs, until: now + delayMs + HEAD_START_MS }
  }

  #maySeekKeys(now: number): boolean {
    return this.#ordered.isWanted && !(now >= this.#yield.from && now < this.#yield.until)
  }

  /** Whether the round has seen all rows that it could claim. */
  get isComplete(): boolean {
    return this.#round.isComplete
  }

  /** Leaves the plain scan of this round to the next round. */
  #postpone(round: Round): void {
    this.#isDue = round.isDue
    if (round.isFullScan) this.#fullScanAt = Number.NEGATIVE_INFINITY
    round.isComplete = false
  }

  #plainScan(now: number, { isFullScan, isDue }: Round): PlainScan {
    const { suspects } = this.#options
    const start = this.#floor.next(now, isFullScan)
    const looksForSuspects = suspects.wanted.plain
    this.#isPlainWanted = false
    return {
      kind: 'plain',
      isFullScan,
      askedAt: now,
      fromSeq: start.fromSeq,
      dueWithinMs: isFullScan || this.#allDueSeenAt < 0 ? null : now - this.#allDueSeenAt + DUE_MARGIN_MS,
      suspects: looksForSuspects ? suspects.capacity(now) : 0,
      // Delayed rows are read when a row is due, and by trailing scans.
      freshOnly: !start.isTrailing && !looksForSuspects && !isDue,
    }
  }

  #orderedScan(now: number, free: number): OrderedKeysScan {
    const { suspects } = this.#options
    return {
      kind: 'ordered',
      ...this.#ordered.next(free),
      suspects: suspects.wanted.ordered ? Math.min(1, suspects.capacity(now)) : 0,
    }
  }

  observePlain(scan: PlainScan, result: ClaimResult, now: number): void {
    const { suspects, pollIntervalMs } = this.#options
    const round = this.#round
    // A group found no row: the rows that are left have been in a group whose process died, or were tried alone.
    const isGroupEmpty = scan.suspects > 1 && !result.rows.some(({ suspect }) => suspect)
    suspects.wanted.plain = isGroupEmpty
    if (isGroupEmpty) suspects.isolate()
    if (scan.isFullScan && !result.complete) {
      const tookMs = (now - scan.askedAt) / FULL_SCANS.share
      const delayMs = Math.min(tookMs, pollIntervalMs * FULL_SCANS.mostIntervals)
      this.#fullScanAt = Math.max(this.#fullScanAt, scan.askedAt + delayMs)
    }
    this.#floor.observe(now, result)
    if (result.hasOrdered ?? (scan.isFullScan || round.isDue)) this.#ordered.want()
    if (!result.complete || isGroupEmpty) {
      this.#isPlainWanted = true
      round.isComplete = false
    }
    if (!scan.freshOnly) this.#observeDue(scan, result.dueComplete ?? result.complete)
  }

  /** Due rows that did not fit are left to the next scan. After a full scan, they may have been due for any time. */
  #observeDue({ isFullScan, askedAt }: PlainScan, isComplete: boolean): void {
    if (isComplete) this.#allDueSeenAt = askedAt
    else {
      this.#isDue = true
      if (isFullScan) this.#allDueSeenAt = Number.NEGATIVE_INFINITY
    }
  }

  observeOrdered(result: OrderedClaimResult): void {
    if (result.afterKey === null) this.#options.suspects.wanted.ordered = false
    this.#ordered.observe(result)
    if (result.rows.length > 0) this.#round.steps = this.#round.steps.slice(1)
  }

  /** A scan has failed. The next round reads all rows. */
  failed(): void {
    this.#ordered.failed()
    this.#isPlainWanted = true
    this.#fullScanAt = Number.NEGATIVE_INFINITY
  }

  /** Monotonic time of the next full scan. */
  get fullScanAt(): number {
    return this.#fullScanAt
  }

  /** Returns how long ordered rows are left to other processes; null if they are not. */
  waitForYieldedKeys(now: number): number | null {
    return this.#ordered.isWanted && now < this.#yield.until ? this.#yield.until - now : null
  }

  /** Returns when to look for rows that no doorbell announces; null with a doorbell. `claimedAt` is when rows last came. */
  waitForUnannounced(now: number, claimedAt: number): number | null {
    if (this.#options.hasDoorbell) return null
    return Math.max(MIN_WAIT_MS, (now - claimedAt) * PATIENCE)
  }
}

/** Returns how long to wait for the next due row; null if there is none. */
export function waitForDue({ nextDueMs }: Pick<ClaimResult, 'nextDueMs'>): number | null {
  return nextDueMs === null ? null : Math.max(MIN_WAIT_MS, nextDueMs)
}

const NO_ROUND: Round = {
  ...{ isEmpty: true, isFullScan: false, isDue: false, isOrderedFirst: false, isComplete: true },
  steps: [],
}
