import type { Clock, Timer } from '../core/clock.js'
import { SettlementRejectedError } from '../core/errors.js'
import { isA } from '../core/unknown.js'
import { eventIdField } from '../observe/event-fields.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { MetricsExporter } from '../observe/metrics.js'
import type { EventStore, Settlement } from '../store.js'
import type { Delivery } from './delivery.js'

const BATCH = 1_000
/** Outcomes wait this long for company. */
const WAIT_MS = 5
/** The same while many events come by the hot path: nothing waits for their rows, and each statement costs a commit. */
const BUSY_WAIT_MS = 20
const MANY = 20
/** Workers pause while this many outcomes wait to be written. */
const FULL = 2 * BATCH
const RETRY_MS = [50, 200, 1_000, 2_000]
/** Failures after which a batch is split. A rejection needs no outage to be over, so one further try is enough. */
const FAILURES_OF_A_BATCH = 4
const REJECTIONS_OF_A_BATCH = 2
/** An outcome that failed alone is tried again after this time. Each further failure doubles the time. */
const ASIDE_MS = 2_000
const LONGEST_ASIDE_MS = 60_000

interface Entry {
  readonly settlement: Settlement
  /** Null for a lease that is given back without ever having been queued. */
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
  readonly store: Pick<EventStore, 'settleIfLeased' | 'list'>
  readonly clock: Clock
  readonly keepDone: boolean
  readonly logger: Logger
  readonly metrics: MetricsExporter | undefined
  /** How many deliveries this process holds, those whose outcome waits here included. */
  held(): number
  /** Called for each outcome once it is written (`settled`) or its lease turned out to be lost. */
  onSettled(delivery: Delivery | null, settlement: Settlement, settled: boolean): void
}

/**
 * Writes outcomes in batches, one statement at a time. While the database cannot be reached they are kept and
 * tried again; the lease decides in the end whether they still count.
 *
 * A batch that keeps failing is halved until the outcome that fails is alone. That one is set aside, and tried again
 * alone, so that it holds up no other.
 */
export class Settler {
  readonly #options: SettlerOptions
  #entries: Entry[] = []
  /** Batches to be tried again, the next one last. They come before `#entries`. */
  #again: Batch[] = []
  /** Outcomes that failed alone, each with the timer that brings it back. */
  readonly #aside = new Map<Entry, Timer>()
  #writing: Promise<void> | null = null
  #timer: Timer | null = null
  /** It was set for what nothing waits for. */
  #isPatient = false
  /** How many outcomes the last statement had. */
  #wrote = 0
  /** Statements that failed since the last one that did not, without those that the database rejected. */
  #failures = 0
  /** The last statement failed. */
  #failed = false
  #closed = false
  #eager = 0
  #waiting: (() => void)[] = []
  #wakeRetry: (() => void) | null = null
  #wakeFlush: (() => void) | null = null

  constructor(options: SettlerOptions) {
    this.#options = options
  }

  get full(): boolean {
    let count = this.#entries.length
    for (const { entries } of this.#again) count += entries.length
    return count >= FULL
  }

  add(settlement: Settlement, delivery: Delivery | null): void {
    this.#entries.push({ settlement, delivery, failures: 0 })
    this.#schedule()
  }

  #schedule(): void {
    if (this.#writing || !this.#hasWork()) return
    if (this.#again.length > 0 || this.#entries.length >= BATCH || this.#eager > 0 || this.#isAwaited())
      this.#write()
    else this.#wait(this.#entries.at(-1)?.delivery?.source === 'hot' && this.#wrote >= MANY)
  }

  #hasWork(): boolean {
    return this.#entries.length > 0 || this.#again.length > 0
  }

  #wait(patiently: boolean): void {
    if (this.#timer && (patiently || !this.#isPatient)) return
    this.#timer?.cancel()
    this.#isPatient = patiently
    this.#timer = this.#options.clock.setTimer(() => this.#write(), patiently ? BUSY_WAIT_MS : WAIT_MS)
  }

  /** The next events of their keys wait for these, and nothing is under way that could keep them company. */
  #isAwaited(): boolean {
    const last = this.#entries.at(-1)?.delivery
    return last?.isOrdered === true && this.#options.held() <= this.#entries.length
  }

  /** While `work` runs outcomes do not wait for company. */
  async eagerly<T>(work: () => Promise<T>): Promise<T> {
    this.#eager++
    this.#schedule()
    try {
      return await work()
    } finally {
      this.#eager--
    }
  }

  /** Resolves when there is room for more outcomes. */
  whenRoom(): Promise<void> {
    return this.full ? new Promise((resolve) => this.#waiting.push(resolve)) : Promise.resolve()
  }

  /** Writes now what is waiting. Resolves when nothing waits any more, or after `giveUp`. */
  async flush(): Promise<void> {
    for (const entry of this.#aside.keys()) this.#bringBack(entry)
    while (this.#hasWork() || this.#writing || this.#aside.size > 0) {
      if (!this.#writing && this.#hasWork()) this.#write()
      if (this.#writing) await this.#writing
      else await new Promise<void>((resolve) => (this.#wakeFlush = resolve))
    }
  }

  /** What cannot be written now is dropped: its lease runs out and somebody takes over. */
  giveUp(): void {
    this.#closed = true
    this.#wakeRetry?.()
    const dropped = [...this.#aside.keys()]
    for (const timer of this.#aside.values()) timer.cancel()
    this.#aside.clear()
    this.#report(dropped, NONE)
    this.#wakeFlush?.()
  }

  reopen(): void {
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
      const batch = this.#again.pop() ?? this.#nextBatch()
      this.#wrote = batch.entries.length
      const started = this.#options.clock.monotonic()
      let settled: ReadonlySet<string>
      try {
        const settlements = batch.entries.map((entry) => entry.settlement)
        settled = await this.#settle(settlements, batch.failures > 0)
        if (batch.failures > 0) settled = await this.#withEarlier(settlements, settled)
      } catch (error) {
        if (await this.#hasGivenUp(error, batch)) return
        continue
      }
      this.#failed = false
      this.#failures = 0
      this.#options.metrics?.duration('settle_ms', this.#options.clock.monotonic() - started)
      this.#report(batch.entries, settled)
      // A small rest waits for company instead of costing a statement of its own.
      if (this.#again.length === 0 && this.#entries.length < BATCH && this.#eager === 0) return
    }
  }

  #nextBatch(): Batch {
    const entries = this.#entries.splice(0, this.#distinct(BATCH))
    return { entries, failures: 0, isPart: false }
  }

  /** An outcome that is rejected again although it is alone may have an error text that the database cannot store. */
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

  /** The answer names events, not claims: two outcomes of one event never go together. */
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
      this.#again.push(batch)
      return true
    }
    const [only] = entries
    const half = Math.ceil(entries.length / 2)
    if (only && half === entries.length) this.#setAside(only, error)
    else this.#again.push(partOf(entries.slice(half)), partOf(entries.slice(0, half)))
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
    // During an outage the failure says nothing about this outcome.
    if (isRejected || this.#failures === 0) entry.failures++
    const bringBack = () => {
      this.#bringBack(entry)
      this.#write()
      this.#wakeFlush?.()
    }
    this.#aside.set(entry, clock.setTimer(bringBack, delay))
  }

  /** The outcome is tried alone, and set aside again if it fails. */
  #bringBack(entry: Entry): void {
    this.#aside.get(entry)?.cancel()
    this.#aside.delete(entry)
    this.#again.unshift(partOf([entry]))
  }

  /** The statement before failed, perhaps after it was carried out: then the rows say what we were going to write. */
  async #withEarlier(
    settlements: readonly Settlement[],
    settled: ReadonlySet<string>,
  ): Promise<ReadonlySet<string>> {
    const missing = settlements.filter((one) => !settled.has(one.eventId))
    if (missing.length === 0) return settled
    const eventIds = missing.map((one) => one.eventId)
    const rows = await this.#options.store.list({ eventIds, limit: eventIds.length })
    const status = new Map(rows.map((row) => [row.eventId as string, row.status]))
    const earlier = missing.filter(({ eventId, outcome }) => {
      if (outcome === 'done') return (status.get(eventId) ?? 'DONE') === 'DONE'
      return outcome === 'dead' && status.get(eventId) === 'DEAD'
    })
    return new Set([...settled, ...earlier.map((one) => one.eventId)])
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
    if (!this.full) {
      const waiting = this.#waiting
      this.#waiting = []
      for (const resolve of waiting) resolve()
    }
  }

  /** Waits before the next try. Returns true when there will be none. */
  async #hasGivenUp(error: unknown, batch: Batch): Promise<boolean> {
    const { logger } = this.#options
    const isNews = !this.#failed && batch.entries.some((entry) => entry.failures === 0)
    if (isNews) logger.warn(errorFields(error), 'outcomes could not be written; trying again')
    this.#failed = true
    const isSame = this.#tryAgain(batch, error)
    if (isA(error, SettlementRejectedError)) {
      // The database works. What it rejected by chance, it takes a moment later.
      if (isSame) await this.#pause(RETRY_MS[0])
      return false
    }
    await this.#pause(RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)])
    if (!this.#closed) return false
    const dropped = this.#again.flatMap(({ entries }) => entries).concat(this.#entries)
    this.#again = []
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

/** The same outcome with a text that every database can store; undefined when the outcome has no text. */
function withoutTexts(settlement: Settlement, reason: string): Settlement | undefined {
  if (settlement.outcome !== 'retry' && settlement.outcome !== 'dead') return undefined
  const error = `error text could not be stored: ${reason}`
  const failures = settlement.failures.map(({ handler, instance }) => ({ handler, instance, message: error }))
  return { ...settlement, error, failures }
}
