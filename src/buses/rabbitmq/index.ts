import { BrokerBus } from '../../bus/broker-bus.js'
import { type BusOptions, busSettingsOf, checkBrokerName, readBusOptions } from '../../bus/settings.js'
import { InvalidSettingError } from '../../core/errors.js'
import type { Connect } from './link.js'
import { RabbitmqTransport } from './transport.js'

export type { BrokerBus } from '../../bus/broker-bus.js'
export type { BusOptions } from '../../bus/settings.js'
export type {
  AmqpChannel,
  AmqpConfirmChannel,
  AmqpConnection,
  AmqpDelivery,
  AmqpMessage,
  Connect,
} from './link.js'

export interface RabbitmqBusOptions extends BusOptions {
  /** A durable topic exchange; made when it is missing. Default 'events'. The queues are named after it. */
  readonly exchange?: string
  /**
   * One consumer of the group gets everything and the others stand by, so that the order within a key holds over all of
   * them. For queues that are made by it; an existing queue stays what it is. Default false.
   */
  readonly singleActive?: boolean
  /**
   * Events that no queue takes: `keep` them in the queue `<exchange>.unrouted`, `refuse` them with an error, or `drop`
   * them, as RabbitMQ itself would. Default 'keep'.
   */
  readonly unrouted?: 'keep' | 'refuse' | 'drop'
}

const UNROUTED = ['keep', 'refuse', 'drop'] as const

/**
 * A bus on RabbitMQ. `connect` makes a new connection each time that it is called; the bus calls it when it needs one,
 * again after it has lost it, and closes what it got from it when it stops.
 *
 * @example
 * import amqp from 'amqplib'
 * const bus = rabbitmqBus(() => amqp.connect('amqp://localhost'), { group: 'billing' })
 */
export function rabbitmqBus(connect: Connect, given: RabbitmqBusOptions = {}): BrokerBus {
  if (typeof connect !== 'function') {
    throw new InvalidSettingError('connect', 'must be a function that connects: () => amqp.connect(url)')
  }
  const options = readBusOptions(given, ['exchange', 'singleActive', 'unrouted'])
  const settings = busSettingsOf(options)
  const { exchange = 'events', singleActive = false, unrouted = 'keep' } = options
  checkBrokerName('exchange', exchange)
  if (typeof singleActive !== 'boolean')
    throw new InvalidSettingError('singleActive', 'must be true or false')
  if (!UNROUTED.includes(unrouted))
    throw new InvalidSettingError('unrouted', `must be one of: ${UNROUTED.join(', ')}`)
  return new BrokerBus(
    new RabbitmqTransport(connect, { settings, exchange, singleActive, unrouted }),
    settings,
  )
}
