import type { BusSettings } from '../../bus/settings.js'
import type { ConsumeOptions, Consumption, DeadLetterReason, OutgoingMessage, Transport } from '../../bus.js'
import { AftercommitError, BrokerUnavailableError } from '../../core/errors.js'
import type { FetchedRecord, KafkaDriver } from './client.js'
import { KafkaConsumption } from './consumption.js'
import { BROKER, isTooLarge, isUnavailable } from './errors.js'
import { deadLetters, recordOf } from './message.js'
import { KafkaSender } from './sender.js'

interface TopicSettings {
  readonly name: string
  readonly partitions: number
  readonly replicas: number
}

/** Share of the confirm timeout that a check uses, so that the client is replaced before the bus stops waiting. */
const TIMEOUT_SHARE = 0.8
/** Minimum time in milliseconds for the topic to become ready at a start. A restarted broker creates topics slowly. */
const START_MS = 10_000
/** By default, a broker refuses shorter sessions. */
const MIN_SESSION_MS = 6_000

/** Publishes to one topic, and consumes from it with consumer groups. */
export class KafkaTransport implements Transport {
  readonly broker = BROKER
  readonly #driver: KafkaDriver
  readonly #topic: TopicSettings
  readonly #settings: BusSettings
  readonly #sender: KafkaSender
  #checking: Promise<void> | null = null

  constructor(driver: KafkaDriver, topic: TopicSettings, settings: BusSettings) {
    this.#driver = driver
    this.#topic = topic
    this.#settings = settings
    const { clock, confirmTimeoutMs } = settings
    const prepare = (name: string) => this.#prepare(name)
    this.#sender = new KafkaSender({ driver, clock, confirmTimeoutMs, prepare })
  }

  send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    return this.#sender.send(this.#topic.name, messages.map(recordOf))
  }

  /** Concurrent calls share one check. */
  check(): Promise<void> {
    this.#checking ??= this.#prepare(this.#topic.name).finally(() => {
      this.#checking = null
    })
    return this.#checking
  }

  isUnavailable(error: unknown): boolean {
    return isUnavailable(error)
  }

  async consume(options: ConsumeOptions): Promise<Consumption> {
    const { name: topic } = this.#topic
    await this.#prepare(topic, Math.max(START_MS, this.#settings.confirmTimeoutMs))
    const consumption = new KafkaConsumption({
      ...options,
      driver: this.#driver,
      clock: this.#settings.clock,
      plan: {
        topic,
        // A group of Kafka spans topics, while a group of the bus belongs to one topic.
        groupId: `${topic}.${options.group}`,
        sessionMs: Math.max(MIN_SESSION_MS, options.takeoverMs),
      },
      sendDeadLetter: (record, reason) => this.#sendDeadLetter(record, reason, options.onError),
    })
    return consumption.open(this.#settings.confirmTimeoutMs)
  }

  close(): Promise<void> {
    return this.#sender.close()
  }

  /** Dead-letter topics get one partition, which keeps the dead letters in order. Their number is small. */
  #prepare(name: string, timeoutMs = this.#settings.confirmTimeoutMs * TIMEOUT_SHARE): Promise<void> {
    const { partitions, replicas } = this.#topic
    const isDead = name !== this.#topic.name
    const plan = { name, partitions: isDead ? 1 : partitions, replicas }
    return this.#driver.prepareTopic(plan, timeoutMs)
  }

  /** Sends shorter and shorter copies until the topic accepts one. A message that fails here would block its partition. */
  async #sendDeadLetter(
    record: FetchedRecord,
    reason: DeadLetterReason,
    onError: (error: unknown) => void,
  ): Promise<void> {
    const topic = `${this.#topic.name}.${reason.group}.dead`
    let answer: unknown = null
    for (const letter of deadLetters(this.#topic.name, record, reason)) {
      ;[answer] = await this.#sender.send(topic, [letter])
      if (answer === null) return
      if (!isTooLarge(answer)) break
      onError(tooLargeError(topic, answer))
    }
    throw answer instanceof Error ? answer : new BrokerUnavailableError(BROKER, 'took no dead letter', answer)
  }
}

function tooLargeError(topic: string, cause: unknown): AftercommitError {
  const what = `A dead letter was too large for the topic ${topic} and will be shortened`
  return new AftercommitError('EVENT_TOO_LARGE', `${what}. Raise max.message.bytes of the topic.`, { cause })
}
