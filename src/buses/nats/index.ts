import { BrokerBus } from '../../bus/broker-bus.js'
import { type BusOptions, checkBrokerName, readBusOptions } from '../../bus/settings.js'
import { InvalidSettingError } from '../../core/errors.js'
import { integerSetting } from '../../core/number-settings.js'
import { requireMethods } from '../../core/settings.js'
import { NatsClient, type NatsConnection } from './client.js'
import { JetStream } from './jetstream.js'
import { NatsTransport } from './transport.js'

export type { NatsConnection, NatsHeaders, NatsMessage, NatsSubscription } from './client.js'

export interface NatsBusOptions extends BusOptions {
  /** Name of the stream, which has the subjects `<stream>.>`. The bus creates a missing stream. Default 'events'. */
  readonly stream?: string
  /** Number of servers in a cluster that store the streams that the bus creates. Default 1. */
  readonly replicas?: number
  /** Inbox prefix of the connection, if it has one. Default '_INBOX'. */
  readonly inboxPrefix?: string
}

/**
 * Creates a bus on NATS JetStream. The bus uses the connection of the application and does not close it. The connection
 * reconnects according to its own settings.
 *
 * @example
 * const bus = natsBus(await connect({ servers: 'nats://127.0.0.1:4222', maxReconnectAttempts: -1 }), { group: 'billing' })
 */
export function natsBus(connection: NatsConnection, given: NatsBusOptions = {}): BrokerBus {
  const settings = readBusOptions(given, ['stream', 'replicas', 'inboxPrefix'])
  if (connection === undefined)
    throw new InvalidSettingError('connection', 'give natsBus a connection of NATS')
  requireMethods('connection', connection, ['publish', 'subscribe', 'status', 'isClosed'])
  const stream = checkBrokerName('stream', settings.stream ?? 'events')
  const replicas = integerSetting('replicas', settings.replicas, { default: 1, min: 1 })
  const inboxPrefix = settings.inboxPrefix ?? '_INBOX'
  if (typeof inboxPrefix !== 'string' || !/^[^\s*>.]+(\.[^\s*>.]+)*$/.test(inboxPrefix))
    throw new InvalidSettingError('inboxPrefix', 'must be a subject without wildcards')
  const client = new NatsClient(connection, settings.clock, inboxPrefix)
  const jetstream = new JetStream(client, { replicas, timeoutMs: settings.confirmTimeoutMs })
  return new BrokerBus(new NatsTransport(jetstream, stream, settings.clock), settings)
}
