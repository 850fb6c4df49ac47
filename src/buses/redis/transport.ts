import type { BusSettings } from '../../bus/settings.js'
import type { ConsumeOptions, Consumption, OutgoingMessage, Transport } from '../../bus.js'
import { AftercommitError } from '../../core/errors.js'
import { BROKER, Calls, type Connection } from './client.js'
import { RedisConsumption } from './consumption.js'
import { codeOf, isUnavailable } from './errors.js'
import { RedisSender } from './sender.js'

interface RedisSettings extends BusSettings {
  readonly stream: string
  /** Empty if the stream is not trimmed. */
  readonly maxLength: string
}

/** Sends to one stream of Redis, and consumes from it with consumer groups. */
export class RedisTransport implements Transport {
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

  /** Sends an XADD with an id that Redis always refuses. Redis checks its ability to write before it checks the id. */
  async check(): Promise<void> {
    const { stream } = this.#settings
    const type = String(await this.#calls.call(['TYPE', stream]))
    if (type !== 'stream' && type !== 'none') {
      throw new AftercommitError(
        'BROKER_REFUSED',
        `WRONGTYPE The key '${stream}' holds a ${type} instead of a stream. Choose another stream, or delete the key.`,
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
      commandTimeoutMs: confirmTimeoutMs,
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
