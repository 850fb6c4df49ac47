import { randomBytes } from 'node:crypto'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { type RedisServer, startRedis } from '../../scripts/redis-server.mjs'
import type { BusOptions } from '../../src/bus/settings.js'
import { type RedisClient, redisBus } from '../../src/buses/redis/index.js'
import type { BusWorld, DeadLetteredMessage, TestedBus } from '../../src/testing/bus-conformance/index.js'
import { startProxy, type TcpProxy } from './proxy.js'

export { type RedisServer, startRedis }

/** A server of the tests' own, or the one of REDIS_URL, which cannot be killed. */
export interface GivenRedis {
  readonly url: string
  readonly server: RedisServer | null
  stop(): Promise<void>
}

/** Null, with a line that says why, where it cannot be had. With CI it must be there. */
export async function givenRedis(): Promise<GivenRedis | null> {
  const url = process.env.REDIS_URL
  if (url) {
    console.error('[services] Redis of REDIS_URL; what needs a kill is skipped (unset it to run that)')
    return { url, server: null, stop: async () => {} }
  }
  try {
    const server = await startRedis()
    return { url: server.url, server, stop: () => server.stop() }
  } catch (error) {
    if (process.env.CI) throw error
    console.error(`[services] SKIPPED: suites for Redis. ${String(error)}.`)
    return null
  }
}

export interface OpenClient {
  readonly client: RedisClient
  close(): void
}

export type OpenRedis = (url: string) => Promise<OpenClient>

/** The libraries that the bus is tested with. */
export const REDIS_CLIENTS: Readonly<Record<string, OpenRedis>> = {
  'node-redis': async (url) => {
    const client = createClient({ url })
    client.on('error', () => {})
    await client.connect()
    return { client, close: () => client.destroy() }
  },
  ioredis: async (url) => {
    const client = new Redis(url, { retryStrategy: (times) => Math.min(50 * times, 500) })
    client.on('error', () => {})
    return { client, close: () => client.disconnect() }
  },
}

/** Every bus has a client and a proxy of its own, so that it can vanish alone. */
export async function redisWorld(given: GivenRedis, open: OpenRedis): Promise<BusWorld> {
  const stream = `test.${randomBytes(6).toString('hex')}`
  const direct = new Redis(given.url)
  direct.on('error', () => {})
  const proxies: TcpProxy[] = []
  const clients: OpenClient[] = []
  const proxyOf = new WeakMap<TestedBus, TcpProxy>()

  const world: BusWorld = {
    groups: true,
    shares: true,
    countsDeliveries: true,
    createBus: async (options: BusOptions) => {
      const proxy = await startProxy(given.url)
      proxies.push(proxy)
      const opened = await open(proxy.url)
      clients.push(opened)
      const bus = redisBus(opened.client, { ...options, stream })
      proxyOf.set(bus, proxy)
      return bus
    },
    dispose: async () => {
      for (const client of clients) client.close()
      await Promise.all(proxies.map((proxy) => proxy.close()))
      const keys = await direct.keys(`${stream}*`)
      if (keys.length > 0) await direct.del(...keys)
      direct.disconnect()
    },
    deadLetters: async (group) => deadLettersOf(await direct.xrange(`${stream}.${group}.dead`, '-', '+')),
    publishForeign: async (body, attributes) => {
      const fields = Object.entries(attributes).flatMap(([name, value]) => [`ce-${name}`, value])
      await direct.xadd(stream, '*', ...fields, 'data', body, 'somebody', 'else')
    },
    cut: async () => {
      for (const proxy of proxies) proxy.cut()
    },
    freeze: async () => {
      for (const proxy of proxies) proxy.freeze()
      return async () => {
        for (const proxy of proxies) proxy.thaw()
      }
    },
    vanish: async (bus) => proxyOf.get(bus)?.refuse(),
  }
  const { server } = given
  if (!server) return world
  return { ...world, kill: () => server.kill(), restart: () => server.start() }
}

function deadLettersOf(entries: readonly [id: string, fields: string[]][]): DeadLetteredMessage[] {
  return entries.map(([, fields]) => {
    const of = (name: string) => {
      const at = fields.indexOf(name)
      return at < 0 ? undefined : fields[at + 1]
    }
    return {
      eventId: of('ce-id'),
      eventType: of('ce-type'),
      payload: of('data') ?? '',
      group: of('ce-deadgroup') ?? '',
      handlers: of('ce-deadhandlers') ?? '',
      attempts: Number(of('ce-deadattempts')),
      error: of('ce-deaderror') ?? '',
    }
  })
}
