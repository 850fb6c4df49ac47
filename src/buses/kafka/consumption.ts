import type { ConsumeOptions, Consumption, DeadLetterReason, IncomingMessage } from '../../bus.js'
import { atMost, type Clock, type Timer } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import type { Feed, FeedEvents, FeedPlan, FetchedRecord, KafkaDriver } from './client.js'
import { BROKER, isUnavailable } from './errors.js'

export interface KafkaConsumptionOptions extends ConsumeOptions {
  readonly driver: KafkaDriver
  readonly clock: Clock
  readonly plan: FeedPlan
  /** Resolves when the dead-letter topic has stored the message. */
  sendDeadLetter(record: FetchedRecord, reason: DeadLetterReason): Promise<void>
}

interface Partition {
  /** Fetched offsets without an acknowledgement, in order. The first of them is the offset to commit. */
  readonly unacked: Set<bigint>
  next: bigint
  committed: bigint
}

const COMMIT_EVERY_MS = 100
const FIRST_DELAY_MS = 200
const MAX_DELAY_MS = 3_000
/** Maximum time in milliseconds that each step of a stop waits for Kafka. */
const STOP_MS = 2_000

/**
 * Delivers the records of a feed, and commits each partition up to its first unacknowledged message. When the group reassigns
 * its partitions or the feed fails, all leases are lost, and Kafka delivers again from the committed offsets.
 */
export class KafkaConsumption implements Consumption {
  readonly #options: KafkaConsumptionOptions
  readonly #partitions = new Map<number, Partition>()
  readonly #unacked = new Map<IncomingMessage, FetchedRecord>()
  #queue: FetchedRecord[] = []
  #feed: Feed | null = null
  #feedNumber = 0
  #isDeliveryStopped = false
  #isClosed = false
  #waitingForCapacity: (() => void)[] = []
  #committing: Promise<void> | null = null
  #commitTimer: Timer | null = null
  #silenceTimer: Timer | null = null
  #reconnectTimer: Timer | null = null
  #lastSeenAt = 0

  constructor(options: KafkaConsumptionOptions) {
    this.#options = options
  }

  /** Joins the group. Retries for `timeoutMs`, because a restarted broker needs time to load its group coordinator. */
  async open(timeoutMs: number): Promise<this> {
    const { clock } = this.#options
    const deadline = clock.monotonic() + timeoutMs
    for (;;) {
      try {
        await this.#connect()
        this.#checkSilenceLater()
        return this
      } catch (error) {
        if (!isUnavailable(error) || clock.monotonic() > deadline) throw error
        await new Promise<void>((resolve) => clock.setTimer(resolve, FIRST_DELAY_MS))
      }
    }
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    for (const message of messages) {
      const record = this.#unacked.get(message)
      if (!record) continue
      this.#unacked.delete(message)
      this.#partitions.get(record.partition)?.unacked.delete(record.offset)
    }
    this.#commitSoon()
    this.#deliver()
  }

  /** Delivers the messages again. Their offsets stay unacknowledged, so they go to the next owner of the partition. */
  async release(messages: readonly IncomingMessage[]): Promise<void> {
    const again: FetchedRecord[] = []
    for (const message of messages) {
      const record = this.#unacked.get(message)
      if (!record) continue
      this.#unacked.delete(message)
      again.push({ ...record, message: { ...message } })
    }
    this.#queue.unshift(...again)
    this.#deliver()
  }

  async deadLetter(message: IncomingMessage, reason: DeadLetterReason): Promise<void> {
    const record = this.#unacked.get(message)
    // The lease was lost. The new owner of the partition receives the message.
    if (!record) return
    await this.#options.sendDeadLetter(record, reason)
    await this.ack([message])
  }

  async stopDelivery(): Promise<void> {
    this.#isDeliveryStopped = true
    await atMost(this.#options.clock, STOP_MS, this.#commit())
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#isDeliveryStopped = true
    for (const timer of [this.#commitTimer, this.#silenceTimer, this.#reconnectTimer]) timer?.cancel()
    this.#onCapacityFreed()
    const feed = this.#feed
    const closed = this.#commit().then(() => {
      this.#feedNumber++
      return feed?.close()
    })
    await atMost(this.#options.clock, STOP_MS, closed)
  }

  // ── the feed ───────────────────────────────────────────────────────────────────────────────────────────────

  async #connect(): Promise<void> {
    const { driver, plan, clock } = this.#options
    const number = ++this.#feedNumber
    this.#lastSeenAt = clock.monotonic()
    const feed = await driver.openFeed(plan, this.#eventsOf(number))
    if (number === this.#feedNumber && !this.#isClosed) this.#feed = feed
    else await feed.close()
  }

  /** Returns callbacks that do nothing after the feed was replaced. */
  #eventsOf(number: number): FeedEvents {
    const isCurrent = () => number === this.#feedNumber
    return {
      onRecords: (records) => isCurrent() && this.#enqueue(records),
      capacity: async () => {
        if (isCurrent()) await this.#capacity()
      },
      onRebalance: () => {
        if (!isCurrent()) return
        // A rebalance lasts until the slowest member of the group has joined.
        this.#lastSeenAt = this.#options.clock.monotonic() + this.#options.plan.sessionMs
        void this.#commit()
        this.#loseAllLeases()
      },
      onAssigned: () => {
        if (!isCurrent()) return
        this.#lastSeenAt = this.#options.clock.monotonic()
        this.#loseAllLeases()
      },
      onAlive: () => {
        if (isCurrent()) this.#lastSeenAt = this.#options.clock.monotonic()
      },
      onEnd: (error) => isCurrent() && this.#reconnect(error, FIRST_DELAY_MS),
    }
  }

  #reconnect(error: unknown, delayMs: number): void {
    const { clock, onError } = this.#options
    this.#feedNumber++
    void this.#feed?.close()
    this.#feed = null
    this.#loseAllLeases()
    this.#onCapacityFreed()
    if (this.#isClosed) return
    onError(error)
    this.#reconnectTimer = clock.setTimer(() => {
      if (this.#isClosed) return
      this.#connect().catch((again) => this.#reconnect(again, Math.min(MAX_DELAY_MS, delayMs * 2)))
    }, delayMs)
  }

  /** Reconnects after a session without heartbeats, because the group assigns the partitions to other members. */
  #checkSilenceLater(): void {
    const { clock, plan } = this.#options
    this.#silenceTimer = clock.setTimer(() => {
      if (this.#isClosed) return
      if (this.#feed && clock.monotonic() - this.#lastSeenAt > plan.sessionMs) {
        const silent = new BrokerUnavailableError(BROKER, 'has not answered the group in time')
        this.#reconnect(silent, FIRST_DELAY_MS)
      }
      this.#checkSilenceLater()
    }, plan.sessionMs / 6)
    this.#silenceTimer.unref?.()
  }

  // ── delivering ────────────────────────────────────────────────────────────────────────────────────────────

  #enqueue(records: readonly FetchedRecord[]): void {
    for (const record of records) {
      const partition = this.#partitionOf(record)
      partition.unacked.add(record.offset)
      partition.next = record.offset + 1n
      this.#queue.push(record)
    }
    this.#deliver()
  }

  #partitionOf({ partition: number, offset }: FetchedRecord): Partition {
    let partition = this.#partitions.get(number)
    if (!partition) {
      partition = { unacked: new Set(), next: offset, committed: offset }
      this.#partitions.set(number, partition)
    }
    return partition
  }

  #deliver(): void {
    const { maxUnacked, onMessage } = this.#options
    if (this.#isDeliveryStopped) return
    const batch = this.#queue.splice(0, Math.max(0, maxUnacked - this.#unacked.size))
    for (const record of batch) this.#unacked.set(record.message, record)
    for (const { message } of batch) onMessage(message)
    if (this.#queue.length < maxUnacked) this.#onCapacityFreed()
  }

  #capacity(): Promise<void> {
    if (this.#isClosed || (!this.#isDeliveryStopped && this.#queue.length < this.#options.maxUnacked))
      return Promise.resolve()
    return new Promise((resolve) => this.#waitingForCapacity.push(resolve))
  }

  #onCapacityFreed(): void {
    for (const enter of this.#waitingForCapacity.splice(0)) enter()
  }

  #loseAllLeases(): void {
    const lost = [...this.#unacked.keys()]
    this.#unacked.clear()
    this.#queue = []
    this.#partitions.clear()
    if (lost.length > 0) this.#options.onLeaseLost(lost)
    if (!this.#isDeliveryStopped) this.#onCapacityFreed()
  }

  // ── committing ─────────────────────────────────────────────────────────────────────────────────────────────

  #commitSoon(): void {
    if (this.#commitTimer || this.#isClosed) return
    this.#commitTimer = this.#options.clock.setTimer(() => {
      this.#commitTimer = null
      void this.#commit()
    }, COMMIT_EVERY_MS)
  }

  /** Runs one commit at a time, so that an older commit cannot overwrite a newer one. Never rejects. */
  async #commit(): Promise<void> {
    while (this.#committing) await this.#committing
    const offsets = new Map<number, bigint>()
    for (const [number, partition] of this.#partitions) {
      const [first = partition.next] = partition.unacked
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
      this.#options.onError(error)
      this.#commitSoon()
    } finally {
      this.#committing = null
    }
  }
}
