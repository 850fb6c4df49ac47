import type { ConsumeOptions, Consumption, OutgoingMessage, Transport } from '../../bus.js'
import type { Clock } from '../../core/clock.js'
import { NatsConsumption } from './consumption.js'
import { BROKER, isUnavailable } from './errors.js'
import type { JetStream } from './jetstream.js'
import { natsName } from './message.js'
import { NatsSender } from './sender.js'

/** Publishes to one stream of JetStream, and consumes from it with durable pull consumers. */
export class NatsTransport implements Transport {
  readonly broker = BROKER
  readonly #jetstream: JetStream
  readonly #destination: string
  readonly #clock: Clock
  readonly #stream: string
  readonly #sender: NatsSender

  constructor(jetstream: JetStream, destination: string, clock: Clock) {
    this.#jetstream = jetstream
    this.#destination = destination
    this.#clock = clock
    this.#stream = natsName(destination)
    this.#sender = new NatsSender(jetstream, this.#stream)
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
    const { group, takeoverMs } = options
    const dead = natsName(`${this.#destination}.${group}.dead`)
    await this.check()
    await this.#jetstream.ensureStream(dead)
    const consumer = natsName(group)
    const leaseMs = await this.#jetstream.ensureConsumer(this.#stream, consumer, takeoverMs)
    const names = { stream: this.#stream, consumer, dead }
    const consumption = new NatsConsumption(this.#jetstream, names, leaseMs, options, this.#clock)
    consumption.start()
    return consumption
  }

  close(): Promise<void> {
    return this.#jetstream.client.close()
  }
}
