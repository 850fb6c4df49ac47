import { BrokerBus } from '../../bus/broker-bus.js'
import {
  type BusOptions,
  type BusSettings,
  busSettingsOf,
  checkBrokerName,
  readBusOptions,
} from '../../bus/settings.js'
import type { ConsumeOptions, Consumption, OutgoingMessage, Transport } from '../../bus/transport.js'
import { InvalidSettingError } from '../../core/errors.js'
import { integerSetting } from '../../core/number-settings.js'
import { requireMethods } from '../../core/settings.js'
import { NatsConsumption } from './consumption.js'
import { JetStream } from './jetstream.js'
import { BROKER, type NatsConnection, NatsLine, NobodyAnswers } from './line.js'
import { headersOf, natsName, subjectOf } from './message.js'

export type { NatsConnection, NatsHeaders, NatsMessage, NatsSubscription } from './line.js'

export interface NatsBusOptions extends BusOptions {
  /** The stream, on the subjects `<stream>.>`. Made when it is missing. Default 'events'. */
  readonly stream?: string
  /** How many servers of a cluster keep the streams that the bus makes. Default 1. */
  readonly replicas?: number
  /** What the connection was given under this name. Default '_INBOX'. */
  readonly inboxPrefix?: string
}

/**
 * A bus on NATS JetStream. The connection is the user's, reconnects as it was told, and stays open.
 *
 * @example
 * const bus = natsBus(await connect({ servers: 'nats://127.0.0.1:4222', maxReconnectAttempts: -1 }), { group: 'billing' })
 */
export function natsBus(connection: NatsConnection, given: NatsBusOptions = {}): BrokerBus {
  const options = readBusOptions(given, ['stream', 'replicas', 'inboxPrefix'])
  const settings = busSettingsOf(options)
  if (connection === undefined)
    throw new InvalidSettingError('connection', 'give natsBus a connection of NATS')
  requireMethods('connection', connection, ['publish', 'subscribe', 'status', 'isClosed'])
  const stream = checkBrokerName('stream', options.stream ?? 'events')
  const replicas = integerSetting('replicas', options.replicas, { default: 1, min: 1 })
  const inboxPrefix = options.inboxPrefix ?? '_INBOX'
  if (typeof inboxPrefix !== 'string' || !/^[^\s*>.]+(\.[^\s*>.]+)*$/.test(inboxPrefix))
    throw new InvalidSettingError('inboxPrefix', 'must be a subject without wildcards')
  const line = new NatsLine(connection, settings.clock, inboxPrefix)
  const jetstream = new JetStream(line, { replicas, timeoutMs: settings.confirmTimeoutMs })
  return new BrokerBus(new NatsTransport(jetstream, stream, settings), settings)
}

class NatsTransport implements Transport {
  readonly broker = BROKER
  readonly #jetstream: JetStream
  readonly #destination: string
  readonly #stream: string
  readonly #settings: BusSettings
  #isReady = false

  constructor(jetstream: JetStream, destination: string, settings: BusSettings) {
    this.#jetstream = jetstream
    this.#destination = destination
    this.#stream = natsName(destination)
    this.#settings = settings
  }

  async send(messages: readonly OutgoingMessage[]): Promise<readonly (unknown | null)[]> {
    if (!this.#isReady) await this.check()
    const questions = messages.map(({ id, type, contentType, attributes, body }) => ({
      subject: subjectOf(this.#stream, type),
      payload: body,
      headers: headersOf(id, contentType, attributes),
    }))
    const answers = await this.#jetstream.line.askAll(questions, this.#settings.confirmTimeoutMs)
    // The stream may have been deleted.
    if (answers.some((answer) => answer instanceof NobodyAnswers)) this.#isReady = false
    return answers.map((answer) => this.#jetstream.verdict(this.#stream, answer))
  }

  async check(): Promise<void> {
    await this.#jetstream.ensureStream(this.#stream)
    this.#isReady = true
  }

  /** By name, since the library imports no package; all else that fails here has a class of ours. */
  isUnavailable(error: unknown): boolean {
    return error instanceof Error && /^(Closed|Draining)ConnectionError$/.test(error.name)
  }

  async consume(options: ConsumeOptions): Promise<Consumption> {
    const { group, takeoverMs } = options
    const dead = natsName(`${this.#destination}.${group}.dead`)
    await this.check()
    await this.#jetstream.ensureStream(dead)
    const consumer = natsName(group)
    const leaseMs = await this.#jetstream.ensureConsumer(this.#stream, consumer, takeoverMs)
    const names = { stream: this.#stream, consumer, dead }
    const consumption = new NatsConsumption(this.#jetstream, names, leaseMs, options, this.#settings.clock)
    consumption.start()
    return consumption
  }

  close(): Promise<void> {
    return this.#jetstream.line.close()
  }
}
