import { BrokerBus } from '../../bus/broker-bus.js'
import {
  type BusOptions,
  type BusSettings,
  busSettingsOf,
  checkBrokerName,
  readBusOptions,
} from '../../bus/settings.js'
import type { Burial, ConsumeOptions, Consumption, OutgoingMessage, Transport } from '../../bus/transport.js'
import { AftercommitError, BrokerUnavailableError, InvalidSettingError } from '../../core/errors.js'
import { integerSetting } from '../../core/number-settings.js'
import { KafkaConsumption } from './consumption.js'
import { deadLetters } from './dead-letter.js'
import type { FetchedRecord, KafkaDriver } from './driver.js'
import { isTooLarge, isUnavailableError } from './errors.js'
import { type KafkajsClient, kafkajsDriver } from './kafkajs.js'
import { type PlatformaticClient, platformaticDriver } from './platformatic.js'
import { recordOf } from './record.js'
import { Sender } from './sender.js'

export type { BrokerBus, BusOptions, KafkajsClient, PlatformaticClient }

export interface KafkaBusOptions extends BusOptions {
  /** Created when it is missing. Default 'events'. */
  readonly topic?: string
  /** Of a topic that is created; as many consumers of a group can share the work. Default 6. */
  readonly partitions?: number
  /** Of a topic that is created. Default: what the broker has as its default. */
  readonly replicas?: number
}

/**
 * A bus on Kafka, by a `Kafka` of kafkajs, or by the classes of @platformatic/kafka with the connection that they are to
 * be made with. The bus opens producers and consumers of its own, and closes them in `stop`.
 *
 * @example
 * const bus = kafkaBus(new Kafka({ brokers: ['localhost:9092'] }), { group: 'billing' })
 * @example
 * import { Admin, Consumer, Producer } from '@platformatic/kafka'
 * const connection = { clientId: 'shop', bootstrapBrokers: ['localhost:9092'] }
 * const bus = kafkaBus({ Admin, Consumer, Producer, connection }, { group: 'billing' })
 */
export function kafkaBus(client: KafkajsClient | PlatformaticClient, given: KafkaBusOptions = {}): BrokerBus {
  const options = readBusOptions(given, ['topic', 'partitions', 'replicas'])
  const settings = busSettingsOf(options)
  const topic = {
    name: checkBrokerName('topic', options.topic ?? 'events'),
    partitions: integerSetting('partitions', options.partitions, { default: 6, min: 1 }),
    replicas: options.replicas === undefined ? -1 : integerSetting('replicas', options.replicas, { min: 1 }),
  }
  return new BrokerBus(new KafkaTransport(driverOf(client), topic, settings), settings)
}

function driverOf(client: KafkajsClient | PlatformaticClient): KafkaDriver {
  const given: Partial<KafkajsClient & PlatformaticClient> = client ?? {}
  const isKafkajs = [given.producer, given.consumer, given.admin].every((one) => typeof one === 'function')
  if (isKafkajs) return kafkajsDriver(client as KafkajsClient)
  const { Producer, Consumer, Admin, connection } = given
  const isPlatformatic = [Producer, Consumer, Admin].every((one) => typeof one === 'function')
  if (isPlatformatic && typeof connection === 'object')
    return platformaticDriver(client as PlatformaticClient)
  throw new InvalidSettingError(
    'client',
    'must be a Kafka of kafkajs, or { Producer, Consumer, Admin, connection } of @platformatic/kafka',
  )
}

interface Topic {
  readonly name: string
  readonly partitions: number
  readonly replicas: number
}

/** Of the time that a confirm may take: who asks is told by the one who was asked, and can ask anew. */
const CHECK_SHARE = 0.8
/** A start is for a broker, too, that has just come back and takes its time to create a topic. */
const START_MS = 10_000

/** A broker refuses shorter sessions unless it is told otherwise. */
const SHORTEST_SESSION_MS = 6_000

class KafkaTransport implements Transport {
  readonly broker = 'Kafka'
  readonly #driver: KafkaDriver
  readonly #topic: Topic
  readonly #settings: BusSettings
  readonly #sender: Sender
  #checking: Promise<void> | null = null

  constructor(driver: KafkaDriver, topic: Topic, settings: BusSettings) {
    this.#driver = driver
    this.#topic = topic
    this.#settings = settings
    const { clock, confirmTimeoutMs } = settings
    this.#sender = new Sender({ driver, clock, confirmTimeoutMs, prepare: (name) => this.#prepare(name) })
  }

  send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    return this.#sender.send(this.#topic.name, messages.map(recordOf))
  }

  /** Those who ask while one is under way share its answer. */
  check(): Promise<void> {
    this.#checking ??= this.#prepare(this.#topic.name).finally(() => {
      this.#checking = null
    })
    return this.#checking
  }

  isUnavailable(error: unknown): boolean {
    return isUnavailableError(error)
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
        // A group of Kafka spans topics, and one of ours does not.
        groupId: `${topic}.${options.group}`,
        sessionMs: Math.max(SHORTEST_SESSION_MS, options.takeoverMs),
      },
      sendDead: (record, burial) => this.#sendDead(record, burial, options.onProblem),
    })
    return consumption.open(this.#settings.confirmTimeoutMs)
  }

  close(): Promise<void> {
    return this.#sender.close()
  }

  /** Dead letters are few: one partition keeps them in the order in which they died. */
  #prepare(name: string, timeoutMs = this.#settings.confirmTimeoutMs * CHECK_SHARE): Promise<void> {
    const { partitions, replicas } = this.#topic
    const isDead = name !== this.#topic.name
    const plan = { name, partitions: isDead ? 1 : partitions, replicas }
    return this.#driver.prepareTopic(plan, timeoutMs)
  }

  /** With less and less of it while it is too large: a message that cannot be buried would hold its partition for ever. */
  async #sendDead(record: FetchedRecord, burial: Burial, onProblem: (error: unknown) => void): Promise<void> {
    const topic = `${this.#topic.name}.${burial.group}.dead`
    let answer: unknown = null
    for (const letter of deadLetters(this.#topic.name, record, burial)) {
      ;[answer] = await this.#sender.send(topic, [letter])
      if (answer === null) return
      if (!isTooLarge(answer)) break
      onProblem(tooLargeError(topic, answer))
    }
    throw answer instanceof Error
      ? answer
      : new BrokerUnavailableError('Kafka', 'took no dead letter', answer)
  }
}

function tooLargeError(topic: string, cause: unknown): AftercommitError {
  const what = `The topic ${topic} does not take a dead letter of this size, so that less of it is kept`
  return new AftercommitError('EVENT_TOO_LARGE', `${what}. Raise its max.message.bytes.`, { cause })
}
