import { BrokerBus } from '../../bus/broker-bus.js'
import {
  type BusOptions,
  type BusSettings,
  busSettingsOf,
  checkBrokerName,
  readBusOptions,
} from '../../bus/settings.js'
import type { ConsumeOptions, Consumption, OutgoingMessage, Transport } from '../../bus/transport.js'
import { AftercommitError } from '../../core/errors.js'
import { integerSetting } from '../../core/number-settings.js'
import {
  BROKER,
  Calls,
  type Connection,
  codeOf,
  connectionOf,
  isUnavailable,
  type RedisClient,
} from './client.js'
import { RedisConsumption } from './consumption.js'
import { RedisSender } from './sender.js'

export type { IoRedisClient, NodeRedisClient, RedisClient } from './client.js'

export interface RedisBusOptions extends BusOptions {
  /** Default 'events'. Made when it is missing. */
  readonly stream?: string
  /** About so many messages are kept, read or not: older ones go when new ones come. Default: all are kept. */
  readonly maxLength?: number
}

/**
 * A bus on a stream of Redis 6.2 or newer. `client` is a connected client of `redis` or `ioredis`; it stays yours to
 * close. For consuming a connection of the bus's own is opened, with the same settings.
 *
 * @example
 * const bus = redisBus(client, { group: 'billing' })
 */
export function redisBus(client: RedisClient, given: RedisBusOptions = {}): BrokerBus {
  const options = readBusOptions(given, ['stream', 'maxLength'])
  const settings = busSettingsOf(options)
  const stream = checkBrokerName('stream', options.stream ?? 'events')
  const maxLength =
    options.maxLength === undefined ? '' : integerSetting('maxLength', options.maxLength, { min: 1 })
  return new BrokerBus(
    new RedisTransport(connectionOf(client), { ...settings, stream, maxLength: `${maxLength}` }),
    settings,
  )
}

interface RedisSettings extends BusSettings {
  readonly stream: string
  /** '' for none. */
  readonly maxLength: string
}

class RedisTransport implements Transport {
  readonly broker = BROKER
  readonly #connection: Connection
  readonly #settings: RedisSettings
  readonly #calls: Calls
  readonly #sender: RedisSender
  readonly #consumptions = new Set<RedisConsumption>()

  constructor(connection: Connection, settings: RedisSettings) {
    this.#connection = connection
    this.#settings = settings
    this.#calls = new Calls(connection, settings.clock, settings.confirmTimeoutMs)
    this.#sender = new RedisSender({ ...settings, calls: this.#calls })
  }

  send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    return this.#sender.send(messages)
  }

  /** A write that Redis refuses as such, after all that could make it refuse other writes. */
  async check(): Promise<void> {
    const { stream } = this.#settings
    const type = String(await this.#calls.call(['TYPE', stream]))
    if (type !== 'stream' && type !== 'none') {
      throw new AftercommitError(
        'BROKER_REFUSED',
        `WRONGTYPE The key '${stream}' holds no stream but: ${type}`,
      )
    }
    try {
      await this.#calls.call(['XADD', stream, 'NOMKSTREAM', '0-0', 'check', ''])
    } catch (error) {
      if (codeOf(error) !== 'ERR') throw error
    }
  }

  isUnavailable(error: unknown): boolean {
    return isUnavailable(error)
  }

  async consume(options: ConsumeOptions): Promise<Consumption> {
    const { stream, clock, confirmTimeoutMs } = this.#settings
    const consumption = new RedisConsumption({
      ...options,
      stream,
      clock,
      calls: this.#calls,
      patienceMs: confirmTimeoutMs,
      duplicate: () => this.#connection.duplicate(),
      onClose: () => this.#consumptions.delete(consumption),
    })
    await consumption.start()
    this.#consumptions.add(consumption)
    return consumption
  }

  async close(): Promise<void> {
    await Promise.all([...this.#consumptions].map((consumption) => consumption.close()))
  }
}
