import { BrokerBus } from '../../bus/broker-bus.js'
import { type BusOptions, checkBrokerName, readBusOptions } from '../../bus/settings.js'
import { integerSetting } from '../../core/number-settings.js'
import { connectionOf, type RedisClient } from './client.js'
import { RedisTransport } from './transport.js'

export type { IoRedisClient, NodeRedisClient, RedisClient } from './client.js'

export interface RedisBusOptions extends BusOptions {
  /** Name of the stream. The bus creates a missing stream. Default 'events'. */
  readonly stream?: string
  /**
   * Approximate number of messages that the stream keeps. Redis removes the oldest messages, whether or not a group has
   * read them. By default Redis keeps all messages.
   */
  readonly maxLength?: number
}

/**
 * Creates a bus on a stream of Redis 6.2 or later. `client` is a connected client of `redis` or `ioredis`. The bus does not
 * close it. To consume, the bus opens one connection of its own with the same settings.
 *
 * @example
 * const bus = redisBus(client, { group: 'billing' })
 */
export function redisBus(client: RedisClient, given: RedisBusOptions = {}): BrokerBus {
  const settings = readBusOptions(given, ['stream', 'maxLength'])
  const stream = checkBrokerName('stream', settings.stream ?? 'events')
  const maxLength =
    settings.maxLength === undefined ? '' : integerSetting('maxLength', settings.maxLength, { min: 1 })
  const transport = new RedisTransport(connectionOf(client), {
    ...settings,
    stream,
    maxLength: `${maxLength}`,
  })
  return new BrokerBus(transport, settings)
}
