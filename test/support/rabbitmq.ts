import { randomBytes } from 'node:crypto'
import { type Channel, type ChannelModel, connect, type GetMessage } from 'amqplib'
import { findRabbitmq, type RabbitmqServer, startRabbitmq } from '../../scripts/rabbitmq-server.mjs'
import type { BrokerBus } from '../../src/bus/broker-bus.js'
import { type RabbitmqBusOptions, rabbitmqBus } from '../../src/buses/rabbitmq/index.js'
import type { EventEnvelope } from '../../src/core/envelope.js'
import { silentLogger } from '../../src/observe/logger.js'
import type { BusWorld, DeadLetteredMessage, TestedBus } from '../../src/testing/bus-conformance/index.js'
import { startProxy, type TcpProxy } from './proxy.js'

export { findRabbitmq, type RabbitmqServer, startRabbitmq }

/** The server of AMQP_URL, which tests must not kill, or a server that the test has started. */
export interface Broker {
  readonly url: string
  readonly server: RabbitmqServer | undefined
  stop(): Promise<void>
}

/** False, with a line that says why, where there is no server to be had. With CI it has to be had. */
export function hasRabbitmq(): boolean {
  const isRoot = process.getuid?.() === 0
  if (process.env.AMQP_URL || process.env.CI || isRoot || findRabbitmq()) return true
  console.error('[services] SKIPPED: suites for RabbitMQ. Install rabbitmq-server, or set AMQP_URL.')
  return false
}

export async function startBroker(): Promise<Broker> {
  const given = process.env.AMQP_URL
  if (given) {
    console.error(
      '[services] RabbitMQ of AMQP_URL; tests that kill the broker are skipped (unset it to run them)',
    )
    return { url: given, server: undefined, stop: async () => {} }
  }
  const server = await startRabbitmq()
  return { url: server.url, server, stop: () => server.stop() }
}

export interface RabbitmqWorld extends BusWorld {
  readonly exchange: string
  createBus(options: RabbitmqBusOptions): Promise<TestedBus>
}

/** An exchange of its own, and a proxy in front of the broker for each bus. */
export async function rabbitmqWorld(broker: Broker, own: RabbitmqBusOptions = {}): Promise<RabbitmqWorld> {
  const { server } = broker
  const exchange = `test-${randomBytes(6).toString('hex')}`
  const proxies = new Map<TestedBus, TcpProxy>()
  const groups = new Set<string>()
  const all = (act: (proxy: TcpProxy) => void) => {
    for (const proxy of proxies.values()) act(proxy)
  }
  return {
    exchange,
    groups: true,
    shares: own.singleActive ? undefined : true,
    countsDeliveries: true,
    orderAcrossConsumers: own.singleActive ? true : undefined,
    createBus: async (options) => {
      const proxy = await startProxy(broker.url)
      const bus = rabbitmqBus(() => connect(proxy.url), { exchange, ...own, ...options })
      proxies.set(bus, proxy)
      if (options.group) groups.add(options.group)
      return bus
    },
    dispose: async () => {
      await Promise.all([...proxies.values()].map((proxy) => proxy.close()))
      await withChannel(broker.url, async (channel) => {
        const queues = [...groups].flatMap((group) => [`${exchange}.${group}`, `${exchange}.${group}.dead`])
        for (const queue of [...queues, `${exchange}.unrouted`]) await channel.deleteQueue(queue)
        await channel.deleteExchange(exchange)
      })
    },
    deadLetters: (group) =>
      peek(broker.url, `${exchange}.${group}.dead`).then((found) => found.map(deadLettersOf)),
    publishForeign: (body, attributes) => publishForeign(broker.url, exchange, body, attributes),
    kill: server && (() => server.kill()),
    restart: server && (() => server.start()),
    cut: async () => all((proxy) => proxy.cut()),
    freeze: async () => {
      all((proxy) => proxy.freeze())
      return async () => all((proxy) => proxy.thaw())
    },
    vanish: async (bus) => proxies.get(bus)?.refuse(),
  }
}

/** Returns all messages of a queue in order, or an empty list if the queue does not exist. It stays there. */
export async function peek(url: string, queue: string): Promise<readonly GetMessage[]> {
  const found: GetMessage[] = []
  try {
    await withChannel(url, async (channel) => {
      for (;;) {
        const message = await channel.get(queue)
        if (!message) return
        found.push(message)
      }
    })
  } catch (error) {
    if ((error as { code?: unknown }).code !== 404) throw error
  }
  return found
}

/** Runs the work on a separate connection. RabbitMQ returns unacknowledged messages to their queues afterwards. */
export async function withChannel<T>(url: string, work: (channel: Channel) => Promise<T>): Promise<T> {
  const connection: ChannelModel = await connect(url)
  connection.on('error', () => {})
  try {
    const channel = await connection.createChannel()
    channel.on('error', () => {})
    return await work(channel)
  } finally {
    await connection.close()
  }
}

async function publishForeign(
  url: string,
  exchange: string,
  body: string,
  { datacontenttype, ...attributes }: Readonly<Record<string, string>>,
): Promise<void> {
  const headers = Object.fromEntries(
    Object.entries(attributes).map(([name, value]) => [`cloudEvents_${name}`, value]),
  )
  const connection = await connect(url)
  try {
    const channel = await connection.createConfirmChannel()
    const options = { headers, ...(datacontenttype ? { contentType: datacontenttype } : {}) }
    channel.publish(exchange, attributes.type ?? 'anything', Buffer.from(body), options)
    await channel.waitForConfirms()
  } finally {
    await connection.close()
  }
}

function deadLettersOf({ content, properties }: GetMessage): DeadLetteredMessage {
  const headers: Record<string, unknown> = properties.headers ?? {}
  const of = (name: string) => headers[`cloudEvents:${name}`] ?? headers[`cloudEvents_${name}`]
  return {
    eventId: of('id') as string | undefined,
    eventType: of('type') as string | undefined,
    payload: content.toString('utf8'),
    group: String(of('deadgroup')),
    handlers: String(of('deadhandlers')),
    attempts: Number(of('deadattempts')),
    error: String(of('deaderror')),
  }
}

/** Shared by the tests of one file: buses and proxies on a new exchange. `end` closes them. */
export class RabbitmqBench {
  readonly exchange = `shop-${randomBytes(4).toString('hex')}`
  readonly ends: (() => Promise<unknown>)[] = []
  readonly #url: string

  constructor(url: string) {
    this.#url = url
  }

  busOf(options: RabbitmqBusOptions = {}, url = this.#url): BrokerBus {
    const { exchange } = this
    const bus = rabbitmqBus(() => connect(url), { exchange, logger: silentLogger, ...options })
    this.ends.push(() => bus.stop())
    return bus
  }

  /** Started; what it gets is in the list. */
  async consumerOf(options: RabbitmqBusOptions = {}, type = '*', url = this.#url) {
    const got: EventEnvelope[] = []
    const bus = this.busOf({ group: 'billing', ...options }, url)
    bus.subscribe(type, { name: 'note', handle: (one) => void got.push(one) })
    await bus.start()
    return { bus, got }
  }

  async proxied(url = this.#url): Promise<TcpProxy> {
    const proxy = await startProxy(url)
    this.ends.push(() => proxy.close())
    return proxy
  }

  async end(): Promise<void> {
    for (const end of this.ends.reverse()) await end()
  }
}
