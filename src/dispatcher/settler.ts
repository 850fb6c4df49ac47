import type { Clock, Timer } from '../core/clock.js'
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
const FAILURES_OF_A_BATCH = 4

interface Entry {
  /** It failed alone: it is not taken into a batch with others any more. */
  bad: boolean
  readonly settlement: Settlement
  /** Null for a lease that is given back without ever having been queued. */
  readonly delivery: Delivery | null
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
 */
export class Settler {
  readonly #options: SettlerOptions
  #entries: Entry[] = []
  #writing: Promise<void> | null = null
  #timer: Timer | null = null
  /** It was set for what nothing waits for. */
  #isPatient = false
  /** How many outcomes the last statement had. */
  #wrote = 0
  #failures = 0
  /** How many of the next outcomes are written one at a time. */
  #alone = 0
  /** The last statement failed. */
  #failed = false
  #closed = false
  #eager = 0
  #waiting: (() => void)[] = []
  #wakeRetry: (() => void) | null = null

  constructor(options: SettlerOptions) {
    this.#options = options
  }

  get full(): boolean {
    return this.#entries.length >= FULL
  }

  add(settlement: Settlement, delivery: Delivery | null): void {
    this.#entries.push({ bad: false, settlement, delivery })
    this.#schedule()
  }

  #schedule(): void {
    if (this.#writing || this.#entries.length === 0) return
    if (this.#entries.length >= BATCH || this.#eager > 0 || this.#isAwaited()) this.#write()
    else this.#wait(this.#entries.at(-1)?.delivery?.source === 'hot' && this.#wrote >= MANY)
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
    while (this.#entries.length > 0 || this.#writing) {
      if (!this.#writing) this.#write()
      await this.#writing
    }
  }

  /** What cannot be written now is dropped: its lease runs out and somebody takes over. */
  giveUp(): void {
    this.#closed = true
    this.#wakeRetry?.()
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
    while (this.#entries.length > 0) {
      const batch = this.#nextBatch()
      this.#wrote = batch.length
      const started = this.#options.clock.monotonic()
      const { store } = this.#options
      let settled: ReadonlySet<string>
      try {
        const settlements = batch.map((entry) => entry.settlement)
        settled = await store.settleIfLeased(settlements, this.#options.keepDone)
        if (this.#failed) settled = await this.#withEarlier(settlements, settled)
        this.#failed = false
      } catch (error) {
        this.#putBack(batch)
        if (await this.#giveUpAfter(error)) return
        continue
      }
      // While they go one by one a single failure is enough to know the bad one.
      this.#failures = this.#alone > 0 || this.#entries.some((entry) => entry.bad) ? FAILURES_OF_A_BATCH : 0
      this.#options.metrics?.duration('settle_ms', this.#options.clock.monotonic() - started)
      this.#report(batch, settled)
      // A small rest waits for company instead of costing a statement of its own.
      if (this.#alone === 0 && this.#entries.length < BATCH && this.#eager === 0) return
    }
  }

  /** A batch that keeps failing is tried one by one, so that one bad outcome cannot hold up the others. */
  #nextBatch(): Entry[] {
    const bad = this.#entries.findIndex((entry) => entry.bad)
    const most = this.#alone > 0 || bad === 0 ? 1 : bad > 0 ? Math.min(bad, BATCH) : BATCH
    if (this.#alone > 0) this.#alone--
    return this.#entries.splice(0, this.#distinct(most))
  }

  /** The answer names events, not claims: two outcomes of one event never go together. */
  #distinct(most: number): number {
    const ids = new Set<string>()
    for (const { settlement } of this.#entries) {
      if (ids.size === most || ids.size === ids.add(settlement.eventId).size) break
    }
    return ids.size
  }

  #putBack(batch: Entry[]): void {
    const [first] = batch
    if (batch.length > 1 || !first || this.#failures < FAILURES_OF_A_BATCH) {
      this.#entries = batch.concat(this.#entries)
      if (this.#failures >= FAILURES_OF_A_BATCH) this.#alone = batch.length
      return
    }
    first.bad = true
    this.#entries.push(first)
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
      this.#options.onSettled(delivery, settlement, settled.has(settlement.eventId))
    }
    if (!this.full) {
      const waiting = this.#waiting
      this.#waiting = []
      for (const resolve of waiting) resolve()
    }
  }

  /** Waits before the next try; true when there will be none. */
  async #giveUpAfter(error: unknown): Promise<boolean> {
    const first = !this.#failed
    this.#failed = true
    const delay = RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)] as number
    if (first) this.#options.logger.warn(errorFields(error), 'outcomes could not be written; trying again')
    if (!this.#closed) {
      await new Promise<void>((resolve) => {
        const timer = this.#options.clock.setTimer(resolve, delay)
        this.#wakeRetry = () => {
          timer.cancel()
          resolve()
        }
      })
      this.#wakeRetry = null
    }
    if (!this.#closed) return false
    const dropped = this.#entries
    this.#entries = []
    this.#failures = 0
    this.#report(dropped, new Set())
    return true
  }
}
