import { BrokerBus } from '../../bus/broker-bus.js'
import { type BusOptions, checkBrokerName, readBusOptions } from '../../bus/settings.js'
import { InvalidSettingError } from '../../core/errors.js'
import type { Connect } from './client.js'
import { RabbitmqTransport } from './transport.js'

export type {
  AmqpChannel,
  AmqpConfirmChannel,
  AmqpConnection,
  AmqpDelivery,
  AmqpMessage,
  Connect,
} from './client.js'

export interface RabbitmqBusOptions extends BusOptions {
  /** Name of a durable topic exchange. The bus creates a missing exchange. Its queues have the same prefix. Default 'events'. */
  readonly exchange?: string
  /**
   * Whether only one consumer of the group receives messages while the others wait, so that the order per key holds across
   * consumers. Applies to queues that the bus creates. An existing queue is not changed. Default false.
   */
  readonly singleActive?: boolean
  /**
   * Behavior for events that no queue receives. `keep` stores them in the queue `<exchange>.unrouted`, `refuse` fails the
   * publish with an error, and `drop` discards them, which is the default of RabbitMQ itself. Default 'keep'.
   */
  readonly unrouted?: 'keep' | 'refuse' | 'drop'
}

const UNROUTED = ['keep', 'refuse', 'drop'] as const

/**
 * Creates a bus on RabbitMQ. `connect` creates a new connection on each call. The bus calls it when it needs a connection and
 * after it has lost a connection, and closes its connections when it stops.
 *
 * @example
 * import amqp from 'amqplib'
 * const bus = rabbitmqBus(() => amqp.connect('amqp://localhost'), { group: 'billing' })
 */
export function rabbitmqBus(connect: Connect, given: RabbitmqBusOptions = {}): BrokerBus {
  if (typeof connect !== 'function') {
    throw new InvalidSettingError('connect', 'must be a function that connects: () => amqp.connect(url)')
  }
  const settings = readBusOptions(given, ['exchange', 'singleActive', 'unrouted'])
  const exchange = checkBrokerName('exchange', settings.exchange ?? 'events')
  const { singleActive = false, unrouted = 'keep' } = settings
  if (typeof singleActive !== 'boolean')
    throw new InvalidSettingError('singleActive', 'must be true or false')
  if (!UNROUTED.includes(unrouted))
    throw new InvalidSettingError('unrouted', `must be one of: ${UNROUTED.join(', ')}`)
  const transport = new RabbitmqTransport(connect, { ...settings, exchange, singleActive, unrouted })
  return new BrokerBus(transport, settings)
}
