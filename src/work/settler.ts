import type { Clock, Timer } from '../core/clock.js'
import { SettlementRejectedError } from '../core/errors.js'
import { isA } from '../core/unknown.js'
import { eventIdField } from '../observe/event-fields.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { MetricsExporter } from '../observe/metrics.js'
import type { EventStore, Settlement, StoreAdmin } from '../store.js'
import type { Delivery } from './delivery.js'

/** Most outcomes per statement. */
const BATCH = 1_000
/** How long outcomes wait for further outcomes. */
const WAIT_MS = 5
/** How long outcomes of hot events wait while many come: nothing waits for their rows, and each statement costs a commit. */
const BUSY_WAIT_MS = 20
const MANY = 20
/** No delivery starts while this many outcomes wait to be written. */
const FULL = 2 * BATCH
/** Waiting times after failed statements in a row. The last one repeats. */
const RETRY_MS = [50, 200, 1_000, 2_000]
/** Failures after which a batch is split. A rejection needs no outage to be over, so one further try is enough. */
const FAILURES_OF_A_BATCH = 4
const REJECTIONS_OF_A_BATCH = 2
/** An outcome that failed alone is tried again after this time. Each further failure doubles the time. */
const ASIDE_MS = 2_000
const LONGEST_ASIDE_MS = 60_000

interface Entry {
  readonly settlement: Settlement
  /** Null for a lease that is released without a delivery. */
  readonly delivery: Delivery | null
  /** How often the outcome failed alone while the database worked. */
  failures: number
}

/** Outcomes that are written with one statement. */
interface Batch {
  readonly entries: readonly Entry[]
  failures: number
  /** Whether the outcomes are the rest of a batch that was split. Such a batch is split at its next failure. */
  readonly isPart: boolean
}

export interface SettlerOptions {
  readonly store: Pick<EventStore, 'settleIfLeased'> & Pick<StoreAdmin, 'list'>
  readonly clock: Clock
  readonly keepDone: boolean
  readonly logger: Logger
  readonly metrics: MetricsExporter | undefined
  /** Number of deliveries in flight, including those whose outcome waits here. */
  inFlightCount(): number
  /** Called for each outcome once it is written, or once its lease turned out to be lost (`isSettled` is false). */
  onSettled(delivery: Delivery | null, settlement: Settlement, isSettled: boolean): void
}

/**
 * Writes outcomes in batches, one statement at a time. While the database cannot be reached, the outcomes are kept and
 * retried; the lease decides in the end whether they still count.
 *
 * A batch that keeps failing is halved until the failing outcome is alone. That outcome is set aside and retried alone, so
 * that it does not delay other outcomes.
 */
export class Settler {
  readonly #options: SettlerOptions
  #entries: Entry[] = []
  /** Batches to retry, the next batch last. They are written before `#entries`. */
  #retries: Batch[] = []
  /** Outcomes that failed alone, each with the timer of its retry. */
  readonly #aside = new Map<Entry, Timer>()
  #writing: Promise<void> | null = null
  #timer: Timer | null = null
  /** Whether the timer was set for outcomes of hot events. */
  #isPatient = false
  /** Number of outcomes in the last statement. */
  #wrote = 0
  /** Failed statements in a row, without those that the database rejected. */
  #failures = 0
  /** Whether the last statement failed. */
  #failed = false
  #closed = false
  #eager = 0
  /** Called once there is capacity for more outcomes. */
  #waiting: (() => void)[] = []
  #wakeRetry: (() => void) | null = null
  #wakeFlush: (() => void) | null = null

  constructor(options: SettlerOptions) {
    this.#options = options
  }

  get isFull(): boolean {
    let count = this.#entries.length
    for (const { entries } of this.#retries) count += entries.length
    return count >= FULL
  }

  add(settlement: Settlement, delivery: Delivery | null): void {
    this.#entries.push({ settlement, delivery, failures: 0 })
    this.#schedule()
  }

  #schedule(): void {
    if (this.#writing || !this.#hasWork()) return
    if (this.#retries.length > 0 || this.#entries.length >= BATCH || this.#eager > 0 || this.#isAwaited())
      this.#write()
    else this.#wait(this.#entries.at(-1)?.delivery?.source === 'hot' && this.#wrote >= MANY)
  }

  #hasWork(): boolean {
    return this.#entries.length > 0 || this.#retries.length > 0
  }

  #wait(patiently: boolean): void {
    if (this.#timer && (patiently || !this.#isPatient)) return
    this.#timer?.cancel()
    this.#isPatient = patiently
    this.#timer = this.#options.clock.setTimer(() => this.#write(), patiently ? BUSY_WAIT_MS : WAIT_MS)
  }

  /** Whether events of ordering keys wait for these outcomes, and no other outcome is about to come. */
  #isAwaited(): boolean {
    const last = this.#entries.at(-1)?.delivery
    return last?.isOrdered === true && this.#options.inFlightCount() <= this.#entries.length
  }

  /** While `work` runs, outcomes do not wait for further outcomes. */
  async eagerly<T>(work: () => Promise<T>): Promise<T> {
    this.#eager++
    this.#schedule()
    try {
      return await work()
    } finally {
      this.#eager--
    }
  }

  /** Resolves when there is capacity for more outcomes. */
  whenCapacity(): Promise<void> {
    return this.isFull ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve()
  }

  /** Writes the waiting outcomes now. Resolves when none is left, or after `close()`. */
  async flush(): Promise<void> {
    for (const entry of this.#aside.keys()) this.#bringBack(entry)
    while (this.#hasWork() || this.#writing || this.#aside.size > 0) {
      if (!this.#writing && this.#hasWork()) this.#write()
      if (this.#writing) await this.#writing
      else await new Promise<void>((resolve) => (this.#wakeFlush = resolve))
    }
  }

  /** Drops outcomes that cannot be written now: their leases expire, and another claim takes the events. */
  close(): void {
    this.#closed = true
    this.#wakeRetry?.()
    const dropped = [...this.#aside.keys()]
    for (const timer of this.#aside.values()) timer.cancel()
    this.#aside.clear()
    this.#report(dropped, NONE)
    this.#wakeFlush?.()
  }

  open(): void {
    this.#closed = false
  }

  #write(): void {
    this.#timer?.cancel()
    this.#timer = null
    if (this.#writing) return
    this.#writing = this.#writeAll().finally(() => {
      this.#writing = null
      this.#schedule()
    })
  }

  async #writeAll(): Promise<void> {
    while (this.#hasWork()) {
      const batch = this.#retries.pop() ?? this.#nextBatch()
      this.#wrote = batch.entries.length
      const started = this.#options.clock.monotonic()
      let settled: ReadonlySet<string>
      try {
        const settlements = batch.entries.map((entry) => entry.settlement)
        settled = await this.#settle(settlements, batch.failures > 0)
        if (batch.failures > 0) settled = await this.#withAlreadyWritten(settlements, settled)
      } catch (error) {
        if (await this.#isGivenUp(error, batch)) return
        continue
      }
      this.#failed = false
      this.#failures = 0
      this.#options.metrics?.duration('settle_ms', this.#options.clock.monotonic() - started)
      this.#report(batch.entries, settled)
      // A few remaining outcomes wait for others instead of costing a statement of their own.
      if (this.#retries.length === 0 && this.#entries.length < BATCH && this.#eager === 0) return
    }
  }

  #nextBatch(): Batch {
    const entries = this.#entries.splice(0, this.#distinct(BATCH))
    return { entries, failures: 0, isPart: false }
  }

  /** An outcome that is rejected again although it is alone may contain an error text that the database cannot store. */
  async #settle(settlements: readonly Settlement[], again: boolean): Promise<ReadonlySet<string>> {
    const { store, keepDone, logger } = this.#options
    try {
      return await store.settleIfLeased(settlements, keepDone)
    } catch (error) {
      const [only] = settlements
      const isAlone = again && settlements.length === 1
      if (!only || !isAlone || !isA(error, SettlementRejectedError)) throw error
      const replaced = withoutTexts(only, error.reason)
      if (!replaced) throw error
      const settled = await store.settleIfLeased([replaced], keepDone)
      const fields = { ...eventIdField(only.eventId), reason: error.reason }
      logger.warn(fields, 'the database rejected the error text of an event; the error text was replaced')
      return settled
    }
  }

  /** The store returns event ids, so two outcomes of one event must not be in one statement. */
  #distinct(most: number): number {
    const ids = new Set<string>()
    for (const { settlement } of this.#entries) {
      if (ids.size === most || ids.size === ids.add(settlement.eventId).size) break
    }
    return ids.size
  }

  /** Returns false when the batch was split, or its only outcome was set aside. */
  #tryAgain(batch: Batch, error: unknown): boolean {
    const { entries } = batch
    const limit = isA(error, SettlementRejectedError) ? REJECTIONS_OF_A_BATCH : FAILURES_OF_A_BATCH
    if (++batch.failures < limit && !batch.isPart) {
      this.#retries.push(batch)
      return true
    }
    const [only] = entries
    const half = Math.ceil(entries.length / 2)
    if (only && half === entries.length) this.#setAside(only, error)
    else this.#retries.push(partOf(entries.slice(half)), partOf(entries.slice(0, half)))
    return false
  }

  #setAside(entry: Entry, error: unknown): void {
    const { clock, logger } = this.#options
    const isRejected = isA(error, SettlementRejectedError)
    if (isRejected && entry.failures === 0) {
      const fields = { ...eventIdField(entry.settlement.eventId), reason: error.reason }
      logger.warn(fields, 'the database rejected an outcome, will retry')
    }
    if (this.#closed) {
      this.#report([entry], NONE)
      return
    }
    const delay = Math.min(ASIDE_MS * 2 ** entry.failures, LONGEST_ASIDE_MS)
    // During an outage, the failure says nothing about this outcome.
    if (isRejected || this.#failures === 0) entry.failures++
    const bringBack = () => {
      this.#bringBack(entry)
      this.#write()
      this.#wakeFlush?.()
    }
    this.#aside.set(entry, clock.setTimer(bringBack, delay))
  }

  /** Retries the outcome alone. It is set aside again if it fails. */
  #bringBack(entry: Entry): void {
    this.#aside.get(entry)?.cancel()
    this.#aside.delete(entry)
    this.#retries.unshift(partOf([entry]))
  }

  /** The failed statement may have been executed: its rows then already have the outcomes. */
  async #withAlreadyWritten(
    settlements: readonly Settlement[],
    settled: ReadonlySet<string>,
  ): Promise<ReadonlySet<string>> {
    const missing = settlements.filter(({ eventId }) => !settled.has(eventId))
    if (missing.length === 0) return settled
    const eventIds = missing.map(({ eventId }) => eventId)
    const rows = await this.#options.store.list({ eventIds, limit: eventIds.length })
    const status = new Map(rows.map((row) => [row.eventId as string, row.status]))
    const earlier = missing.filter(({ eventId, outcome }) => {
      if (outcome === 'done') return (status.get(eventId) ?? 'DONE') === 'DONE'
      return outcome === 'dead' && status.get(eventId) === 'DEAD'
    })
    return new Set([...settled, ...earlier.map(({ eventId }) => eventId)])
  }

  #report(batch: readonly Entry[], settled: ReadonlySet<string>): void {
    for (const { settlement, delivery } of batch) {
      try {
        this.#options.onSettled(delivery, settlement, settled.has(settlement.eventId))
      } catch (error) {
        const fields = { ...eventIdField(settlement.eventId), ...errorFields(error) }
        this.#options.logger.error(fields, 'unexpected error after an outcome was written')
      }
    }
    if (!this.isFull) {
      const waiting = this.#waiting
      this.#waiting = []
      for (const resolve of waiting) resolve()
    }
  }

  /** Waits before the next retry. Returns true if there is none, because the settler was closed. */
  async #isGivenUp(error: unknown, batch: Batch): Promise<boolean> {
    const { logger } = this.#options
    const isNews = !this.#failed && batch.entries.some((entry) => entry.failures === 0)
    if (isNews) logger.warn(errorFields(error), 'outcomes could not be written; trying again')
    this.#failed = true
    const isSame = this.#tryAgain(batch, error)
    if (isA(error, SettlementRejectedError)) {
      // The database works, and may accept the same statement a moment later.
      if (isSame) await this.#pause(RETRY_MS[0])
      return false
    }
    await this.#pause(RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)])
    if (!this.#closed) return false
    const dropped = this.#retries.flatMap(({ entries }) => entries).concat(this.#entries)
    this.#retries = []
    this.#entries = []
    this.#failures = 0
    this.#report(dropped, NONE)
    return true
  }

  async #pause(delayMs: number | undefined): Promise<void> {
    if (this.#closed) return
    await new Promise<void>((resolve) => {
      const timer = this.#options.clock.setTimer(resolve, delayMs ?? 0)
      this.#wakeRetry = () => {
        timer.cancel()
        resolve()
      }
    })
    this.#wakeRetry = null
  }
}

const NONE: ReadonlySet<string> = new Set()

function partOf(entries: readonly Entry[]): Batch {
  return { entries, failures: 1, isPart: true }
}

/** Returns the outcome with a text that every database can store; undefined if the outcome has no text. */
function withoutTexts(settlement: Settlement, reason: string): Settlement | undefined {
  if (settlement.outcome !== 'retry' && settlement.outcome !== 'dead') return undefined
  const error = `error text could not be stored: ${reason}`
  const failures = settlement.failures.map(({ handler, instance }) => ({ handler, instance, message: error }))
  return { ...settlement, error, failures }
}
