import { randomBytes } from 'node:crypto'
import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect, headers, type NatsConnection, type NodeConnectionOptions } from '@nats-io/transport-node'
import { findNats, type NatsOptions, type NatsServer, startNats } from '../../scripts/nats-server.mjs'
import type { BrokerBus } from '../../src/bus/broker-bus.js'
import { type NatsBusOptions, natsBus } from '../../src/buses/nats/index.js'
import { silentLogger } from '../../src/observe/logger.js'
import type { BusWorld, DeadLetteredMessage, TestedBus } from '../../src/testing/bus-conformance/index.js'
import { startProxy, type TcpProxy } from './proxy.js'

export { findNats, type NatsOptions, type NatsServer, startNats }

/** Null, with a line that says why, where a server cannot be had; in CI that is an error. */
export async function startNatsOrSkip(options?: NatsOptions): Promise<NatsServer | null> {
  if (process.env.NATS_URL)
    console.error('[services] NATS_URL is not used: the suites for NATS kill and configure their servers')
  try {
    return await startNats(options)
  } catch (error) {
    if (process.env.CI) throw error
    console.error(`[services] SKIPPED: suites for NATS. ${String(error)}.`)
    return null
  }
}

/** A connection that never gives up, and looks for the server ten times a second. */
export function connectNats(url: string, options: NodeConnectionOptions = {}): Promise<NatsConnection> {
  const reconnectDelayHandler = () => 100
  return connect({ servers: url, maxReconnectAttempts: -1, reconnectDelayHandler, ...options })
}

export function freshStream(): string {
  return `s-${randomBytes(6).toString('hex')}`
}

/** A stream of its own on the server. Every bus has a connection of its own, through a proxy of its own. */
export async function createNatsWorld(server: NatsServer): Promise<BusWorld> {
  const stream = freshStream()
  const admin = await connectNats(server.url)
  const connections: NatsConnection[] = []
  const proxies = new Map<TestedBus, TcpProxy>()
  const everyProxy = (act: (proxy: TcpProxy) => void) => {
    for (const proxy of proxies.values()) act(proxy)
  }

  return {
    groups: true,
    shares: true,
    deduplicates: true,
    countsDeliveries: true,
    createBus: async (options: NatsBusOptions) => {
      const proxy = await startProxy(server.url)
      const connection = await connectNats(proxy.url)
      connections.push(connection)
      const bus = natsBus(connection, { stream, ...options })
      proxies.set(bus, proxy)
      return bus
    },
    deadLetters: (group) => readDeadLetters(admin, `${stream}~${group}~dead`),
    publishForeign: async (body, attributes) => {
      const own = headers()
      for (const [name, value] of Object.entries(attributes)) own.set(`ce-${name}`, value)
      await jetstream(admin).publish(`${stream}.foreign`, body, { headers: own })
    },
    kill: () => server.kill(),
    restart: () => server.start(),
    cut: async () => everyProxy((proxy) => proxy.cut()),
    freeze: async () => {
      everyProxy((proxy) => proxy.freeze())
      return async () => everyProxy((proxy) => proxy.thaw())
    },
    vanish: async (bus) => proxies.get(bus)?.refuse(),
    dispose: async () => {
      await server.start()
      await Promise.all(connections.map((one) => one.close()))
      await Promise.all([...proxies.values()].map((one) => one.close()))
      await deleteStreams(admin, stream)
      await admin.close()
    },
  }
}

async function deleteStreams(admin: NatsConnection, prefix: string): Promise<void> {
  // A server that has just started may take long to answer.
  const manager = await jetstreamManager(admin, { timeout: 20_000 })
  for await (const { config } of manager.streams.list())
    if (config.name.startsWith(prefix)) await manager.streams.delete(config.name)
}

async function readDeadLetters(admin: NatsConnection, stream: string): Promise<DeadLetteredMessage[]> {
  const manager = await jetstreamManager(admin)
  const { state } = await manager.streams.info(stream)
  const found: DeadLetteredMessage[] = []
  for (let seq = state.first_seq; seq <= state.last_seq && state.messages > 0; seq++) {
    const message = await manager.streams.getMessage(stream, { seq })
    const attribute = (name: string) => {
      const text = message?.header.get(`ce-${name}`)
      return text ? decodeURIComponent(text) : undefined
    }
    found.push({
      eventId: attribute('id'),
      eventType: attribute('type'),
      payload: message?.string() ?? '',
      group: attribute('deadgroup') ?? '',
      handlers: attribute('deadhandlers') ?? '',
      attempts: Number(attribute('deadattempts')),
      error: attribute('deaderror') ?? '',
    })
  }
  return found
}

/** Shared by the tests of one file: connections, proxies and buses on a new stream. `end` closes them. */
export class NatsBench {
  readonly stream = freshStream()
  readonly ends: (() => unknown)[] = []
  readonly #url: string

  constructor(url: string) {
    this.#url = url
  }

  async connected(url = this.#url): Promise<NatsConnection> {
    const connection = await connectNats(url)
    this.ends.push(() => connection.close())
    return connection
  }

  async proxied(): Promise<TcpProxy> {
    const proxy = await startProxy(this.#url)
    this.ends.push(() => proxy.close())
    return proxy
  }

  busOn(connection: NatsConnection, options: NatsBusOptions = {}): BrokerBus {
    const { stream } = this
    const bus = natsBus(connection, { stream, logger: silentLogger, confirmTimeoutMs: 2_000, ...options })
    this.ends.push(() => bus.stop())
    return bus
  }

  async end(): Promise<void> {
    for (const end of this.ends.reverse()) await end()
  }
}
