import { captureContext } from '../ambient.js'
import type { EventCatalog } from '../core/catalog.js'
import type { Clock } from '../core/clock.js'
import { EventEnvelope } from '../core/envelope.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { Service } from '../service.js'
import {
  acceptsNothing,
  type ClaimedRow,
  type EventStore,
  type StoreRegistry,
  type TypeFilter,
} from '../store.js'
import type { BoundedQueue } from './bounded-queue.js'
import type { CrashSuspects } from './crash-suspects.js'
import { Delivery } from './delivery.js'
import type { Dispatcher } from './dispatcher.js'
import { linkRuns, RUN_LENGTH } from './ordered-scan.js'
import type { Routes } from './routes.js'
import { type OrderedKeysScan, type PlainScan, ScanPlan, waitForDue } from './scan-plan.js'
import type { ScanWakeups } from './wakeups.js'

/** Waiting times after failed claims in a row. The last one repeats. */
const RETRY_MS = [100, 500, 2_000, 5_000]

export interface ClaimerOptions {
  readonly store: Pick<EventStore, 'claim' | 'claimOrdered' | 'capabilities'> &
    Pick<StoreRegistry, 'claimUnroutable'>
  readonly clock: Clock
  readonly catalog: EventCatalog
  readonly routes: Pick<Routes, 'filter' | 'hasSaturatedTypes'>
  readonly cold: BoundedQueue<Delivery>
  readonly dispatcher: Pick<Dispatcher, 'addCold' | 'release'>
  readonly wakeups: ScanWakeups
  readonly suspects: CrashSuspects
  readonly pollIntervalMs: number
  readonly batchSize: number
  readonly leaseMs: number
  readonly skipRecentMs: number
  readonly logger: Logger
  /** Returns a token that no other claim ever had. */
  newToken(): string
}

interface RoundResult {
  /** Number of claimed rows. */
  readonly claimed: number
  /** Whether no further row could be claimed. */
  readonly isComplete: boolean
}

/** Claims due rows and hands them to the dispatcher, as far as the cold queue has capacity. */
export class Claimer implements Service {
  readonly #options: ClaimerOptions
  readonly #plan: ScanPlan
  readonly #inOwnContext = captureContext()
  /** Identifies the loop of this start; null while stopped. A loop of an earlier start ends after its claim. */
  #generation: object | null = null
  #loop: Promise<void> = Promise.resolve()
  /** Last round, of the loop or by hand: rounds follow each other. */
  #rounds: Promise<unknown> = Promise.resolve()
  #isWaitingForSpace = false
  #failures = 0
  /** Monotonic time of the last round that claimed rows. */
  #claimedAt: number
  #lastLoopAt: number
  /** Monotonic time of the last round that worked. */
  lastClaimAt: number

  constructor(options: ClaimerOptions) {
    this.#options = options
    const { store, pollIntervalMs, suspects, clock } = options
    this.#plan = new ScanPlan({ hasDoorbell: store.capabilities.doorbell, pollIntervalMs, suspects })
    this.lastClaimAt = clock.monotonic()
    this.#claimedAt = this.lastClaimAt
    this.#lastLoopAt = this.lastClaimAt
  }

  /** Monotonic time at which the loop last began a round. Null while it waits for handlers to free the cold queue. */
  get lastLoopAt(): number | null {
    return this.#isWaitingForSpace ? null : this.#lastLoopAt
  }

  start(): void {
    if (this.#generation !== null) return
    const generation = {}
    this.#generation = generation
    this.#plan.failed()
    this.#loop = this.#inOwnContext(() => this.#run(() => this.#generation === generation))
  }

  /** Resolves when no claim is under way. */
  async stop(): Promise<void> {
    this.#generation = null
    this.#options.wakeups.interrupt()
    await this.#loop
    await this.#rounds
  }

  /** Runs one round by hand, over all due rows. Returns the number of claimed rows. */
  async claimOnce(limit = this.#options.batchSize): Promise<number> {
    return (await this.#round(limit, true)).claimed
  }

  /** Claims events that no consumer can handle. Returns their number. */
  async claimUnroutable(known: TypeFilter, olderThanMs: number): Promise<number> {
    const { store, clock, dispatcher, batchSize, leaseMs, newToken } = this.#options
    const askedAt = clock.monotonic()
    const request = { token: newToken(), leaseMs, limit: batchSize, known, olderThanMs }
    const rows = await store.claimUnroutable(request)
    dispatcher.addCold(rows.map((row) => this.#delivery(row, askedAt + leaseMs, true)))
    return rows.length
  }

  async #run(isRunning: () => boolean): Promise<void> {
    const { batchSize, logger, clock, wakeups } = this.#options
    while (isRunning()) {
      this.#lastLoopAt = clock.monotonic()
      try {
        const { claimed, isComplete } = await this.#round(batchSize, false)
        if (claimed > 0) this.#claimedAt = this.lastClaimAt
        if (this.#failures > 0) logger.info({}, 'the database answers again')
        this.#failures = 0
        if (!isRunning()) return
        if (!this.#hasSpace()) await this.#untilSpace()
        else if (isComplete && !wakeups.isPending) {
          this.#wakeIn(this.#plan.waitForUnannounced(clock.monotonic(), this.#claimedAt))
          this.#wakeIn(this.#plan.waitForYieldedKeys(clock.monotonic()))
          await wakeups.sleep(this.#plan.fullScanAt)
        }
      } catch (error) {
        if (this.#failures === 0) logger.warn(errorFields(error), 'events could not be claimed; trying again')
        if (!isRunning()) return
        await wakeups.pause(RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)] as number)
      }
    }
  }

  /** Whether the cold queue can take a batch. */
  #hasSpace(): boolean {
    const { cold, batchSize } = this.#options
    return cold.length === 0 || (cold.free >= batchSize && cold.freeBytes >= cold.maxBytes / 4)
  }

  async #untilSpace(): Promise<void> {
    this.#isWaitingForSpace = true
    await this.#options.wakeups.untilSpace(() => this.#hasSpace())
    this.#isWaitingForSpace = false
  }

  #round(limit: number, isByHand: boolean): Promise<RoundResult> {
    const round = this.#rounds.then(() => this.#scanAll(limit, isByHand))
    this.#rounds = round.catch(() => {})
    return round
  }

  async #scanAll(limit: number, isByHand: boolean): Promise<RoundResult> {
    const { clock, routes, wakeups, suspects, cold } = this.#options
    const pending = wakeups.take()
    if (isByHand) {
      pending.everything = true
      // No further round comes if a group finds nothing.
      suspects.isolate()
      this.#plan.claimAllKeys()
    }
    const accept = routes.filter()
    const types = { none: acceptsNothing(accept), areSaturated: routes.hasSaturatedTypes }
    this.#plan.begin(pending, clock.monotonic(), types)
    let claimed = 0
    try {
      const next = () => this.#plan.next(clock.monotonic(), limit - claimed, cold.free)
      for (let scan = next(); scan; scan = next()) {
        claimed +=
          scan.kind === 'plain'
            ? await this.#claimPlain(scan, limit - claimed, accept)
            : await this.#claimOrdered(scan, limit - claimed, accept)
      }
    } catch (error) {
      this.#plan.failed()
      throw error
    }
    this.lastClaimAt = clock.monotonic()
    return { claimed, isComplete: this.#plan.isComplete }
  }

  async #claimPlain(scan: PlainScan, limit: number, accept: TypeFilter): Promise<number> {
    const { store, clock, cold, dispatcher, leaseMs, skipRecentMs, newToken } = this.#options
    const { askedAt, fromSeq, dueWithinMs, suspects, freshOnly } = scan
    const result = await store.claim({
      ...{ token: newToken(), leaseMs, accept, fromSeq, dueWithinMs, suspects, skipRecentMs, freshOnly },
      limit: Math.min(limit, Math.max(1, cold.free)),
      maxBytes: Math.max(1, cold.freeBytes),
    })
    this.lastClaimAt = clock.monotonic()
    this.#plan.observePlain(scan, result, this.lastClaimAt)
    this.#wakeIn(waitForDue(result))
    dispatcher.addCold(result.rows.map((row) => this.#delivery(row, askedAt + leaseMs, false)))
    return result.rows.length
  }

  async #claimOrdered(scan: OrderedKeysScan, limit: number, accept: TypeFilter): Promise<number> {
    const { store, clock, cold, dispatcher, leaseMs, skipRecentMs, newToken } = this.#options
    const askedAt = clock.monotonic()
    const { afterKey, keys, suspects } = scan
    const result = await store.claimOrdered({
      ...{ token: newToken(), leaseMs, accept, afterKey, keys, limit: scan.limit, suspects, skipRecentMs },
      runLength: RUN_LENGTH,
      maxBytes: Math.max(1, cold.freeBytes),
    })
    this.lastClaimAt = clock.monotonic()
    this.#plan.observeOrdered(result)
    this.#wakeIn(waitForDue(result))
    if (result.rows.length === 0) return 0
    const runs = linkRuns(result.rows.map((row) => this.#delivery(row, askedAt + leaseMs, false)))
    // consumeOne() handles one event, but a key is claimed as a run.
    const rest = limit === 1 ? (runs[0] as Delivery).cut() : []
    const deferredMs = dispatcher.addCold(runs)
    if (deferredMs > 0) this.#plan.yieldKeys(askedAt, deferredMs)
    dispatcher.release(rest)
    return result.rows.length - rest.length
  }

  #wakeIn(inMs: number | null): void {
    if (inMs !== null) this.#options.wakeups.request({ reason: 'due', inMs })
  }

  #delivery(row: ClaimedRow, leasedUntil: number, unroutable: boolean): Delivery {
    const delivery = new Delivery({
      event: EventEnvelope.fromStored(row, this.#options.catalog.decoderFor(row.eventType)),
      token: row.token,
      seq: row.seq,
      leasedUntil,
      attempts: row.attempts,
      handledBy: row.handledBy,
      source: 'cold',
      suspect: row.suspect,
      unroutable,
      bytes: row.bytes,
      invalid: row.invalid,
    })
    if (row.suspect) this.#options.suspects.begin(delivery)
    return delivery
  }
}
