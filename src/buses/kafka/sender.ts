import { atMost, type Clock, type Timer } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import type { KafkaDriver, KafkaProducer, KafkaRecord } from './driver.js'
import { isRefusal } from './errors.js'

export interface SenderOptions {
  readonly driver: KafkaDriver
  readonly clock: Clock
  readonly confirmTimeoutMs: number
  /** Once per producer and topic, before something is sent to it. */
  prepare(topic: string): Promise<void>
}

interface Waiting {
  readonly topic: string
  readonly record: KafkaRecord
  readonly bytes: number
  readonly deadline: number
  answer(error: unknown | null): void
}

/** Half of what a broker takes in one batch by its defaults; a message that is bigger goes alone. */
const BATCH_BYTES = 512 * 1024
const BATCH_MESSAGES = 5_000
/** A broker that is gone does not hold up a stop for longer. */
const GOODBYE_MS = 2_000
/** What a record takes beside its key, value and headers, generously. */
const OVERHEAD_BYTES = 64

/**
 * Sends one batch after the other: what comes meanwhile goes with the next one, so that order holds and no batch can be
 * taken for another. After a failure the producer is replaced, and what waits fails too instead of overtaking.
 */
export class Sender {
  readonly #options: SenderOptions
  readonly #queue: Waiting[] = []
  readonly #prepared = new Set<string>()
  #producer: Promise<KafkaProducer> | null = null
  /** Changes whenever the producer is given up. */
  #era = 0
  #isRunning = false
  #limit = BATCH_MESSAGES

  constructor(options: SenderOptions) {
    this.#options = options
  }

  send(topic: string, records: readonly KafkaRecord[]): Promise<readonly (unknown | null)[]> {
    const { clock, confirmTimeoutMs } = this.#options
    const deadline = clock.monotonic() + confirmTimeoutMs
    const answers = records.map(
      (record) =>
        new Promise<unknown | null>((answer) => {
          this.#queue.push({ topic, record, bytes: bytesOf(record), deadline, answer })
        }),
    )
    if (!this.#isRunning) void this.#run()
    return Promise.all(answers)
  }

  /** What waits fails: nobody would close the producer that it needs. */
  async close(): Promise<void> {
    this.#fail([], new BrokerUnavailableError('Kafka', 'was left before it was asked'))
    await atMost(this.#options.clock, GOODBYE_MS, this.#discard())
  }

  async #run(): Promise<void> {
    this.#isRunning = true
    // What is published in the same turn goes together.
    await undefined
    while (this.#queue.length > 0) {
      const batch = this.#take()
      try {
        await this.#produce(batch)
        this.#limit = Math.min(BATCH_MESSAGES, this.#limit * 2)
        for (const one of batch) one.answer(null)
      } catch (error) {
        void this.#discard()
        this.#fail(batch, error)
      }
    }
    this.#isRunning = false
  }

  #take(): Waiting[] {
    const [first] = this.#queue as [Waiting]
    let bytes = 0
    let count = 0
    for (const { topic, bytes: more } of this.#queue) {
      bytes += more
      if (topic !== first.topic || count >= this.#limit || (count > 0 && bytes > BATCH_BYTES)) break
      count++
    }
    return this.#queue.splice(0, count)
  }

  async #produce(batch: readonly Waiting[]): Promise<void> {
    const [{ topic, deadline }] = batch as [Waiting]
    await this.#until(deadline, async (isLate) => {
      const producer = await this.#ready(topic)
      // It was answered already, and another batch may be under way.
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
      const era = this.#era
      await prepare(topic)
      // Too late: nobody would close a producer that is opened now.
      if (era !== this.#era) throw new BrokerUnavailableError('Kafka', 'was left before it was asked')
      this.#prepared.add(topic)
    }
    this.#producer ??= driver.openProducer(confirmTimeoutMs)
    return this.#producer
  }

  /** A refusal is for one message alone: the others of its batch are sent again, in halves. */
  #fail(batch: readonly Waiting[], error: unknown): void {
    const isAlone = batch.length === 1
    if (isRefusal(error) && isAlone) batch[0]?.answer(error)
    else if (isRefusal(error)) {
      this.#limit = Math.ceil(batch.length / 2)
      this.#queue.unshift(...batch)
    } else {
      for (const one of [...batch, ...this.#queue.splice(0)]) one.answer(error)
    }
  }

  async #discard(): Promise<void> {
    const producer = this.#producer
    this.#era++
    this.#producer = null
    this.#prepared.clear()
    await producer?.then(
      (one) => one.close(),
      () => {},
    )
  }

  async #until(deadline: number, work: (isLate: () => boolean) => Promise<void>): Promise<void> {
    const { clock } = this.#options
    const late = new BrokerUnavailableError('Kafka', 'has not confirmed in time')
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

function bytesOf({ key, value, headers }: KafkaRecord): number {
  let bytes = OVERHEAD_BYTES + key.length + value.length
  for (const [name, text] of Object.entries(headers)) bytes += name.length + text.length + 4
  return bytes
}
