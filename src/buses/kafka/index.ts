import { BrokerBus } from '../../bus/broker-bus.js'
import { type BusOptions, checkBrokerName, readBusOptions } from '../../bus/settings.js'
import { InvalidSettingError } from '../../core/errors.js'
import { integerSetting } from '../../core/number-settings.js'
import type { KafkaDriver } from './client.js'
import { type KafkajsClient, kafkajsDriver } from './kafkajs.js'
import { type PlatformaticClient, platformaticDriver } from './platformatic.js'
import { KafkaTransport } from './transport.js'

export type { KafkajsClient, PlatformaticClient }

export interface KafkaBusOptions extends BusOptions {
  /** Name of the topic. The bus creates a missing topic. Default 'events'. */
  readonly topic?: string
  /** Number of partitions of a topic that the bus creates. It limits how many consumers of a group share the work. Default 6. */
  readonly partitions?: number
  /** Number of replicas of a topic that the bus creates. Default: the default of the broker. */
  readonly replicas?: number
}

/**
 * Creates a bus on Kafka. `client` is a `Kafka` of kafkajs, or the classes of @platformatic/kafka with the options of their
 * connections. The bus creates its own producers and consumers, and closes them in `stop`.
 *
 * @example
 * const bus = kafkaBus(new Kafka({ brokers: ['localhost:9092'] }), { group: 'billing' })
 * @example
 * import { Admin, Consumer, Producer } from '@platformatic/kafka'
 * const connection = { clientId: 'shop', bootstrapBrokers: ['localhost:9092'] }
 * const bus = kafkaBus({ Admin, Consumer, Producer, connection }, { group: 'billing' })
 */
export function kafkaBus(client: KafkajsClient | PlatformaticClient, given: KafkaBusOptions = {}): BrokerBus {
  const settings = readBusOptions(given, ['topic', 'partitions', 'replicas'])
  const topic = {
    name: checkBrokerName('topic', settings.topic ?? 'events'),
    partitions: integerSetting('partitions', settings.partitions, { default: 6, min: 1 }),
    replicas:
      settings.replicas === undefined
        ? -1
        : integerSetting('replicas', settings.replicas, { default: 1, min: 1 }),
  }
  return new BrokerBus(new KafkaTransport(driverOf(client), topic, settings), settings)
}

function driverOf(client: KafkajsClient | PlatformaticClient): KafkaDriver {
  const given: Partial<KafkajsClient & PlatformaticClient> = client ?? {}
  const isKafkajs = [given.producer, given.consumer, given.admin].every(
    (member) => typeof member === 'function',
  )
  if (isKafkajs) return kafkajsDriver(client as KafkajsClient)
  const { Producer, Consumer, Admin, connection } = given
  const isPlatformatic = [Producer, Consumer, Admin].every((member) => typeof member === 'function')
  if (isPlatformatic && typeof connection === 'object')
    return platformaticDriver(client as PlatformaticClient)
  throw new InvalidSettingError(
    'client',
    'must be a Kafka of kafkajs, or { Producer, Consumer, Admin, connection } of @platformatic/kafka',
  )
}
