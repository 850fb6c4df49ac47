import type { ConsumeOptions, Consumption, OutgoingMessage, Transport } from '../../bus.js'
import { type Connect, ManagedConnection } from './client.js'
import { RabbitmqConsumption } from './consumption.js'
import { BROKER, isUnavailable } from './errors.js'
import { RabbitmqSender, type RabbitmqSettings } from './sender.js'

export interface RabbitmqTransportSettings extends RabbitmqSettings {
  readonly singleActive: boolean
}

/** Publishes to one topic exchange, and consumes from one queue per group. */
export class RabbitmqTransport implements Transport {
  readonly broker = BROKER
  readonly #connect: Connect
  readonly #settings: RabbitmqTransportSettings
  readonly #sender: RabbitmqSender

  constructor(connect: Connect, settings: RabbitmqTransportSettings) {
    this.#connect = connect
    this.#settings = settings
    this.#sender = new RabbitmqSender(connect, settings)
  }

  send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    return this.#sender.send(messages)
  }

  check(): Promise<void> {
    return this.#sender.check()
  }

  isUnavailable(error: unknown): boolean {
    return isUnavailable(error)
  }

  async consume(options: ConsumeOptions): Promise<Consumption> {
    const { clock, exchange, singleActive } = this.#settings
    const queue = `${exchange}.${options.group}`
    const deadQueue = `${queue}.dead`
    const managed = new ManagedConnection(this.#connect, clock)
    const consumption = new RabbitmqConsumption({
      ...options,
      managed,
      exchange,
      queue,
      deadQueue,
      singleActive,
      clock,
      republisher: this.#sender.createRepublisher(managed, options.onError),
      sendDeadLetter: (delivery, reason) => this.#sender.sendDeadLetter(deadQueue, delivery, reason),
    })
    try {
      await consumption.start()
      return consumption
    } catch (error) {
      await consumption.close()
      throw error
    }
  }

  close(): Promise<void> {
    return this.#sender.close()
  }
}
