import type { Burial, ConsumeOptions, Consumption, IncomingMessage } from '../../bus/transport.js'
import { atMost, type Clock, type Timer } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import type { Feed, FeedEvents, FeedPlan, FetchedRecord, KafkaDriver } from './driver.js'
import { isUnavailableError } from './errors.js'

export interface ConsumptionOptions extends ConsumeOptions {
  readonly driver: KafkaDriver
  readonly clock: Clock
  readonly plan: FeedPlan
  /** Resolves when the dead-letter topic has it. */
  sendDead(record: FetchedRecord, burial: Burial): Promise<void>
}

interface Partition {
  /** Offsets that are fetched and not answered, in their order. What is before the first of them may be committed. */
  readonly open: Set<bigint>
  next: bigint
  committed: bigint
}

const COMMIT_EVERY_MS = 100
const FIRST_WAIT_MS = 200
const LONGEST_WAIT_MS = 3_000
/** A broker that is gone does not hold up a stop for longer. */
const GOODBYE_MS = 2_000

/**
 * Hands out what a feed brings, and commits up to the first message of each partition that has no answer yet. Whenever
 * the partitions are dealt out anew, or the feed breaks, all that is unanswered is lost here and comes again from there.
 */
export class KafkaConsumption implements Consumption {
  readonly #options: ConsumptionOptions
  readonly #partitions = new Map<number, Partition>()
  readonly #handedOut = new Map<IncomingMessage, FetchedRecord>()
  #queue: FetchedRecord[] = []
  #feed: Feed | null = null
  #feedNumber = 0
  #isPaused = false
  #isClosed = false
  #waitingForRoom: (() => void)[] = []
  #committing: Promise<void> | null = null
  #commitTimer: Timer | null = null
  #watch: Timer | null = null
  #restart: Timer | null = null
  #aliveAt = 0

  constructor(options: ConsumptionOptions) {
    this.#options = options
  }

  /** A coordinator that is being loaded, or a broker that has just come back, is waited for. */
  async open(patienceMs: number): Promise<this> {
    const { clock } = this.#options
    const giveUpAt = clock.monotonic() + patienceMs
    for (;;) {
      try {
        await this.#connect()
        this.#watchLater()
        return this
      } catch (error) {
        if (!isUnavailableError(error) || clock.monotonic() > giveUpAt) throw error
        await new Promise<void>((resolve) => clock.setTimer(resolve, FIRST_WAIT_MS))
      }
    }
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    for (const message of messages) {
      const record = this.#handedOut.get(message)
      if (!record) continue
      this.#handedOut.delete(message)
      this.#partitions.get(record.partition)?.open.delete(record.offset)
    }
    this.#commitSoon()
    this.#handOut()
  }

  /** They stay open, so that nobody commits beyond them: whoever has the partition next gets them. */
  async release(messages: readonly IncomingMessage[]): Promise<void> {
    const again: FetchedRecord[] = []
    for (const message of messages) {
      const record = this.#handedOut.get(message)
      if (!record) continue
      this.#handedOut.delete(message)
      again.push({ ...record, message: { ...message } })
    }
    this.#queue.unshift(...again)
    this.#handOut()
  }

  async bury(message: IncomingMessage, burial: Burial): Promise<void> {
    const record = this.#handedOut.get(message)
    // Whoever has the partition now gets it, and buries it.
    if (!record) return
    await this.#options.sendDead(record, burial)
    await this.ack([message])
  }

  async pause(): Promise<void> {
    this.#isPaused = true
    await atMost(this.#options.clock, GOODBYE_MS, this.#commit())
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#isPaused = true
    for (const timer of [this.#commitTimer, this.#watch, this.#restart]) timer?.cancel()
    this.#letIn()
    const feed = this.#feed
    const goodbye = this.#commit().then(() => {
      this.#feedNumber++
      return feed?.close()
    })
    await atMost(this.#options.clock, GOODBYE_MS, goodbye)
  }

  // ── the feed ───────────────────────────────────────────────────────────────────────────────────────────────

  async #connect(): Promise<void> {
    const { driver, plan, clock } = this.#options
    const number = ++this.#feedNumber
    this.#aliveAt = clock.monotonic()
    const feed = await driver.openFeed(plan, this.#eventsOf(number))
    if (number === this.#feedNumber && !this.#isClosed) this.#feed = feed
    else await feed.close()
  }

  /** A feed that was replaced has nothing more to say. */
  #eventsOf(number: number): FeedEvents {
    const isPresent = () => number === this.#feedNumber
    return {
      onRecords: (records) => isPresent() && this.#take(records),
      room: async () => {
        if (isPresent()) await this.#room()
      },
      onRebalance: () => {
        if (!isPresent()) return
        // Joining may take as long as the slowest member of the group.
        this.#aliveAt = this.#options.clock.monotonic() + this.#options.plan.sessionMs
        void this.#commit()
        this.#loseAll()
      },
      onAssigned: () => {
        if (!isPresent()) return
        this.#aliveAt = this.#options.clock.monotonic()
        this.#loseAll()
      },
      onAlive: () => {
        if (isPresent()) this.#aliveAt = this.#options.clock.monotonic()
      },
      onEnd: (error) => isPresent() && this.#reconnect(error, FIRST_WAIT_MS),
    }
  }

  #reconnect(error: unknown, waitMs: number): void {
    const { clock, onProblem } = this.#options
    this.#feedNumber++
    void this.#feed?.close()
    this.#feed = null
    this.#loseAll()
    this.#letIn()
    if (this.#isClosed) return
    onProblem(error)
    this.#restart = clock.setTimer(() => {
      if (this.#isClosed) return
      this.#connect().catch((again) => this.#reconnect(again, Math.min(LONGEST_WAIT_MS, waitMs * 2)))
    }, waitMs)
  }

  /** The group gives the partitions of a member that it has not heard of to others: then nothing more may begin here. */
  #watchLater(): void {
    const { clock, plan } = this.#options
    this.#watch = clock.setTimer(() => {
      if (this.#isClosed) return
      if (this.#feed && clock.monotonic() - this.#aliveAt > plan.sessionMs) {
        const silent = new BrokerUnavailableError('Kafka', 'has not answered the group in time')
        this.#reconnect(silent, FIRST_WAIT_MS)
      }
      this.#watchLater()
    }, plan.sessionMs / 6)
    this.#watch.unref?.()
  }

  // ── handing out ────────────────────────────────────────────────────────────────────────────────────────────

  #take(records: readonly FetchedRecord[]): void {
    for (const record of records) {
      const partition = this.#partitionOf(record)
      partition.open.add(record.offset)
      partition.next = record.offset + 1n
      this.#queue.push(record)
    }
    this.#handOut()
  }

  #partitionOf({ partition: number, offset }: FetchedRecord): Partition {
    let partition = this.#partitions.get(number)
    if (!partition) {
      partition = { open: new Set(), next: offset, committed: offset }
      this.#partitions.set(number, partition)
    }
    return partition
  }

  #handOut(): void {
    const { maxUnanswered, onMessage } = this.#options
    if (this.#isPaused) return
    const batch = this.#queue.splice(0, Math.max(0, maxUnanswered - this.#handedOut.size))
    for (const record of batch) this.#handedOut.set(record.message, record)
    for (const { message } of batch) onMessage(message)
    if (this.#queue.length < maxUnanswered) this.#letIn()
  }

  #room(): Promise<void> {
    if (this.#isClosed || (!this.#isPaused && this.#queue.length < this.#options.maxUnanswered))
      return Promise.resolve()
    return new Promise((resolve) => this.#waitingForRoom.push(resolve))
  }

  #letIn(): void {
    for (const enter of this.#waitingForRoom.splice(0)) enter()
  }

  #loseAll(): void {
    const lost = [...this.#handedOut.keys()]
    this.#handedOut.clear()
    this.#queue = []
    this.#partitions.clear()
    if (lost.length > 0) this.#options.onLost(lost)
    if (!this.#isPaused) this.#letIn()
  }

  // ── committing ─────────────────────────────────────────────────────────────────────────────────────────────

  #commitSoon(): void {
    if (this.#commitTimer || this.#isClosed) return
    this.#commitTimer = this.#options.clock.setTimer(() => {
      this.#commitTimer = null
      void this.#commit()
    }, COMMIT_EVERY_MS)
  }

  /** Never rejects: what is not committed comes again. One at a time, so that none overtakes a later one. */
  async #commit(): Promise<void> {
    while (this.#committing) await this.#committing
    const offsets = new Map<number, bigint>()
    for (const [number, partition] of this.#partitions) {
      const [first = partition.next] = partition.open
      if (first > partition.committed) offsets.set(number, first)
    }
    if (offsets.size === 0 || !this.#feed) return
    this.#committing = this.#commitAll(this.#feed, offsets)
    await this.#committing
  }

  async #commitAll(feed: Feed, offsets: ReadonlyMap<number, bigint>): Promise<void> {
    const partitions = [...offsets].map(([number]) => this.#partitions.get(number))
    try {
      await feed.commit(offsets)
      for (const [at, offset] of [...offsets.values()].entries()) {
        const partition = partitions[at]
        if (partition && offset > partition.committed) partition.committed = offset
      }
    } catch (error) {
      this.#options.onProblem(error)
      this.#commitSoon()
    } finally {
      this.#committing = null
    }
  }
}
