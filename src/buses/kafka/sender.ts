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

/** Of one call of `send`: its records may go with several batches, and with those of others. */
interface Call {
  readonly topic: string
  readonly deadline: number
  readonly answers: (unknown | null)[]
  /** So many have no answer yet. */
  left: number
  resolve(answers: readonly (unknown | null)[]): void
}

interface Waiting {
  readonly call: Call
  /** Its place among the answers. */
  readonly at: number
  readonly record: KafkaRecord
}

/** Half of what a broker takes in one batch by its defaults; a message that is bigger goes alone. */
const BATCH_BYTES = 512 * 1024
const BATCH_MESSAGES = 5_000
/** A broker that is gone does not hold up a stop for longer. */
const GOODBYE_MS = 2_000

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
    if (records.length === 0) return Promise.resolve([])
    return new Promise((resolve) => {
      const call = { topic, deadline, answers: records.map(() => null), left: records.length, resolve }
      records.forEach((record, at) => {
        this.#queue.push({ call, at, record })
      })
      if (!this.#isRunning) void this.#run()
    })
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
        for (const one of batch) answer(one, null)
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
    for (const { call, record } of this.#queue) {
      bytes += record.bytes
      const isOver = count >= this.#limit || (count > 0 && bytes > BATCH_BYTES)
      if (isOver || call.topic !== first.call.topic) break
      count++
    }
    return this.#queue.splice(0, count)
  }

  async #produce(batch: readonly Waiting[]): Promise<void> {
    const [{ call }] = batch as [Waiting]
    const { topic, deadline } = call
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
    if (isRefusal(error) && isAlone) answer(batch[0] as Waiting, error)
    else if (isRefusal(error)) {
      this.#limit = Math.ceil(batch.length / 2)
      this.#queue.unshift(...batch)
    } else {
      for (const one of [...batch, ...this.#queue.splice(0)]) answer(one, error)
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

function answer({ call, at }: Waiting, error: unknown | null): void {
  call.answers[at] = error
  if (--call.left === 0) call.resolve(call.answers)
}
