import { atMost, type Clock, type Timer } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import type { KafkaDriver, KafkaProducer, KafkaRecord } from './client.js'
import { BROKER, isRefusal } from './errors.js'

export interface KafkaSenderOptions {
  readonly driver: KafkaDriver
  readonly clock: Clock
  readonly confirmTimeoutMs: number
  /** Prepares a topic. Called once per producer and topic, before the first send. */
  prepare(topic: string): Promise<void>
}

/** A call of `send`. Its records may be sent in several batches, and together with records of other calls. */
interface SendCall {
  readonly topic: string
  readonly deadline: number
  readonly answers: (unknown | null)[]
  /** Number of records without an answer. */
  left: number
  resolve(answers: readonly (unknown | null)[]): void
}

interface QueuedRecord {
  readonly call: SendCall
  /** Position of the answer in the call. */
  readonly at: number
  readonly record: KafkaRecord
}

/** Half of the default batch limit of a broker. A larger record is sent alone. */
const BATCH_BYTES = 512 * 1024
const BATCH_MESSAGES = 5_000
/** Maximum time in milliseconds that a stop waits for the producer. */
const CLOSE_MS = 2_000

/**
 * Sends one batch at a time. Records that arrive during a send are sent in the next batch, so the order is kept. After a failed
 * batch, the producer is replaced and the queued records fail, too. Otherwise they would overtake the failed records.
 */
export class KafkaSender {
  readonly #options: KafkaSenderOptions
  readonly #queue: QueuedRecord[] = []
  readonly #prepared = new Set<string>()
  #producer: Promise<KafkaProducer> | null = null
  /** Increases when the producer is discarded. */
  #generation = 0
  #isRunning = false
  #limit = BATCH_MESSAGES

  constructor(options: KafkaSenderOptions) {
    this.#options = options
  }

  send(topic: string, records: readonly KafkaRecord[]): Promise<readonly (unknown | null)[]> {
    const { clock, confirmTimeoutMs } = this.#options
    const deadline = clock.monotonic() + confirmTimeoutMs
    if (records.length === 0) return Promise.resolve([])
    return new Promise((resolve) => {
      const call = { topic, deadline, answers: records.map(() => null), left: records.length, resolve }
      records.forEach((record, at) => {
        this.#queue.push({ call, at, record })
      })
      if (!this.#isRunning) void this.#run()
    })
  }

  /** Fails the queued records, because no later call would close a producer that they open. */
  async close(): Promise<void> {
    this.#fail([], new BrokerUnavailableError(BROKER, 'was not asked, because the bus was closed'))
    await atMost(this.#options.clock, CLOSE_MS, this.#discard())
  }

  async #run(): Promise<void> {
    this.#isRunning = true
    // Records that are published in the same turn of the event loop are sent together.
    await undefined
    while (this.#queue.length > 0) {
      const batch = this.#take()
      try {
        await this.#produce(batch)
        this.#limit = Math.min(BATCH_MESSAGES, this.#limit * 2)
        for (const queued of batch) answer(queued, null)
      } catch (error) {
        void this.#discard()
        this.#fail(batch, error)
      }
    }
    this.#isRunning = false
  }

  #take(): QueuedRecord[] {
    const [first] = this.#queue as [QueuedRecord]
    let bytes = 0
    let count = 0
    for (const { call, record } of this.#queue) {
      bytes += record.bytes
      const isOver = count >= this.#limit || (count > 0 && bytes > BATCH_BYTES)
      if (isOver || call.topic !== first.call.topic) break
      count++
    }
    return this.#queue.splice(0, count)
  }

  async #produce(batch: readonly QueuedRecord[]): Promise<void> {
    const [{ call }] = batch as [QueuedRecord]
    const { topic, deadline } = call
    await this.#until(deadline, async (isLate) => {
      const producer = await this.#ready(topic)
      // The batch has its answers already, and another batch may be in progress.
      if (isLate()) return
      await producer.send(
        topic,
        batch.map(({ record }) => record),
      )
    })
  }

  async #ready(topic: string): Promise<KafkaProducer> {
    const { driver, prepare, confirmTimeoutMs } = this.#options
    if (!this.#prepared.has(topic)) {
      const generation = this.#generation
      await prepare(topic)
      // The sender was closed in the meantime, so no later call would close a producer that is opened now.
      if (generation !== this.#generation)
        throw new BrokerUnavailableError(BROKER, 'was not asked, because the bus was closed')
      this.#prepared.add(topic)
    }
    this.#producer ??= driver.openProducer(confirmTimeoutMs)
    return this.#producer
  }

  /** Sends a refused batch again in halves, because the broker refuses a batch for one of its records. */
  #fail(batch: readonly QueuedRecord[], error: unknown): void {
    const isAlone = batch.length === 1
    if (isRefusal(error) && isAlone) answer(batch[0] as QueuedRecord, error)
    else if (isRefusal(error)) {
      this.#limit = Math.ceil(batch.length / 2)
      this.#queue.unshift(...batch)
    } else {
      for (const queued of [...batch, ...this.#queue.splice(0)]) answer(queued, error)
    }
  }

  async #discard(): Promise<void> {
    const producer = this.#producer
    this.#generation++
    this.#producer = null
    this.#prepared.clear()
    await producer?.then(
      (opened) => opened.close(),
      () => {},
    )
  }

  async #until(deadline: number, work: (isLate: () => boolean) => Promise<void>): Promise<void> {
    const { clock } = this.#options
    const late = new BrokerUnavailableError(BROKER, 'has not confirmed in time')
    const leftMs = deadline - clock.monotonic()
    if (leftMs <= 0) throw late
    let timer: Timer | undefined
    let isLate = false
    const over = new Promise<never>((_, reject) => {
      timer = clock.setTimer(() => {
        isLate = true
        reject(late)
      }, leftMs)
    })
    try {
      await Promise.race([work(() => isLate), over])
    } finally {
      timer?.cancel()
    }
  }
}

function answer({ call, at }: QueuedRecord, error: unknown | null): void {
  call.answers[at] = error
  if (--call.left === 0) call.resolve(call.answers)
}
