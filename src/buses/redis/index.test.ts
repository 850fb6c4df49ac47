import { randomBytes } from 'node:crypto'
import { Cluster, Redis } from 'ioredis'
import { createClientPool, createCluster } from 'redis'
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest'
import { startProxy, type TcpProxy } from '../../../test/support/proxy.js'
import { givenRedis, type OpenClient, REDIS_CLIENTS } from '../../../test/support/redis.js'
import { gate, turns, until } from '../../../test/support/until.js'
import type { BrokerBus } from '../../bus/broker-bus.js'
import { EventEnvelope } from '../../core/envelope.js'
import { InvalidSettingError } from '../../core/errors.js'
import { silentLogger } from '../../observe/logger.js'
import { isUnavailable } from './errors.js'
import { type RedisBusOptions, type RedisClient, redisBus } from './index.js'
import { CREATE_GROUP, RELEASED } from './scripts.js'

const given = await givenRedis()
afterAll(() => given?.stop())

/** Number of messages that a consumer with a concurrency of 1 receives. */
const HOLDS = 16
const yes = () => true
const no = () => false
const event = (payload: unknown = { total: 42 }) =>
  EventEnvelope.create({ eventType: 'order.placed', payload })

describe('redisBus without a server', () => {
  const client = { isOpen: true, isReady: true, sendCommand: () => {} } as unknown as RedisClient

  it.each<[string, object]>([
    ['a stream that is no name', { stream: 'a b' }],
    ['a length of nothing', { maxLength: 0 }],
    ['a name that it does not know', { maxLen: 5 }],
  ])('refuses %s', (_what, options) => {
    expect(() => redisBus(client, options)).toThrow(InvalidSettingError)
  })

  it('rejects clusters, pools and other values that are not a client', () => {
    const cluster = new Cluster([], { lazyConnect: true })
    const others = [cluster, createCluster({ rootNodes: [] }), createClientPool(), {}, null, undefined]
    for (const other of others) {
      expect(() => redisBus(other as unknown as RedisClient)).toThrow(/redis or ioredis/)
    }
  })

  it.each([
    'LOADING Redis is loading the dataset in memory',
    "READONLY You can't write against a read only replica.",
    'MISCONF Errors writing to the AOF file',
    "OOM command not allowed when used memory > 'maxmemory'.",
    '-OOM command not allowed',
    'CLUSTERDOWN The cluster is down',
    'WRONGTYPE Operation against a key',
    'NOAUTH Authentication required.',
    'Socket closed unexpectedly',
    'The client is closed',
    'Connection is closed.',
    'connect ECONNREFUSED 127.0.0.1:6379',
    '',
  ])('takes "%s" for trouble of the broker', (message) => {
    expect(isUnavailable(new Error(message))).toBe(true)
  })

  it('does not recognize other errors as an outage', () => {
    for (const other of [new Error('ERR unknown command'), new TypeError('bad argument'), 'closed', null]) {
      expect(isUnavailable(other)).toBe(false)
    }
  })
})

describe.skipIf(!given).each(Object.entries(REDIS_CLIENTS))('Redis Streams with %s', (_library, open) => {
  const url = given?.url ?? ''
  let redis: Redis
  let stream: string
  let opened: { readonly client: OpenClient; readonly proxy: TcpProxy; readonly bus: BrokerBus }[]

  beforeEach(() => {
    redis = new Redis(url)
    stream = `test.${randomBytes(6).toString('hex')}`
    opened = []
  })
  afterEach(async () => {
    await Promise.all(opened.map(({ bus }) => bus.stop()))
    for (const { client } of opened) client.close()
    await Promise.all(opened.map(({ proxy }) => proxy.close()))
    const keys = await redis.keys(`*${stream}*`)
    if (keys.length > 0) await redis.del(...keys)
    redis.disconnect()
  })

  async function busOf(options: RedisBusOptions = {}) {
    const proxy = await startProxy(url)
    const client = await open(proxy.url)
    const bus = redisBus(client.client, { stream, logger: silentLogger, ...options })
    opened.push({ client, proxy, bus })
    return { bus, proxy, client }
  }

  async function consumerOf(handle: (event: EventEnvelope) => unknown, options: RedisBusOptions = {}) {
    const made = await busOf({ group: 'g', ...options })
    made.bus.subscribe('*', { name: 'h', handle })
    await made.bus.start()
    return made
  }

  const sentIds = async () =>
    (await redis.xrange(stream, '-', '+')).map(([, fields]) => fields[fields.indexOf('ce-id') + 1])
  const pending = async () =>
    (await redis.xpending(stream, 'g', '-', '+', 100)) as [
      id: string,
      consumer: string,
      idle: number,
      count: number,
    ][]
  const consumers = async () =>
    ((await redis.xinfo('CONSUMERS', stream, 'g')) as string[][]).map(([, n]) => n)

  it('writes CloudEvents attributes unchanged as fields, and the payload as the field data', async () => {
    const { bus } = await busOf({ source: '/shop' })
    const odd = 'ä "quoted" 100% 🎉'
    const sent = EventEnvelope.create({ eventType: 'a.b', aggregateId: odd, payload: [odd] })
    const bytes = EventEnvelope.create({ eventType: 'a.c', payload: new Uint8Array([0, 255, 13, 10]) })
    await bus.publishAll([sent, bytes])
    const [first, second] = await redis.xrangeBuffer(stream, '-', '+')
    const fields = (entry: typeof first) => {
      const list = (entry as [Buffer, Buffer[]])[1]
      return new Map(
        list.flatMap((one, at) => (at % 2 ? [] : [[String(one), list[at + 1] as Buffer] as const])),
      )
    }
    const text = (name: string) => String(fields(first).get(name))
    expect(text('ce-id')).toBe(sent.eventId)
    expect(text('ce-type')).toBe('a.b')
    expect(text('ce-source')).toBe('/shop')
    expect(text('ce-subject')).toBe(odd)
    expect(text('content-type')).toBe('application/json')
    expect(text('data')).toBe(JSON.stringify([odd]))
    expect(fields(second).get('data')).toEqual(Buffer.from([0, 255, 13, 10]))
  })

  it('trims the stream to approximately maxLength', async () => {
    const { bus } = await busOf({ maxLength: 100 })
    for (let n = 0; n < 5; n++) await bus.publishAll(Array.from({ length: 200 }, () => event()))
    expect(await redis.xlen(stream)).toBeLessThan(400)
  })

  it('splits messages that are too large for one command, and keeps the order', async () => {
    const { bus } = await busOf()
    const events = Array.from({ length: 8 }, (_, n) => event({ n, text: 'x'.repeat(400_000) }))
    await bus.publishAll(events)
    expect(await sentIds()).toEqual(events.map(({ eventId }) => eventId))
  })

  it('reports an outage when the server has no memory or the key holds another type', async () => {
    const { bus } = await busOf()
    const refused = { code: 'NOT_CONFIRMED', errors: [{ code: 'BROKER_UNAVAILABLE' }] }
    await redis.set(stream, 'x')
    await expect(bus.publish(event())).rejects.toMatchObject(refused)
    await expect(bus.check()).rejects.toThrow(/WRONGTYPE/)
    await redis.del(stream)
    await bus.check()
    expect(await redis.exists(stream)).toBe(0)
    await redis.config('SET', 'maxmemory', '1')
    try {
      await expect(bus.publish(event())).rejects.toMatchObject(refused)
      await expect(bus.check()).rejects.toThrow(/OOM/)
    } finally {
      await redis.config('SET', 'maxmemory', '0')
    }
    await bus.publish(event())
    await bus.check()
    expect(await redis.xlen(stream)).toBe(1)
  })

  it('does not queue messages in the client while the client is not connected', async () => {
    const { bus, proxy, client } = await busOf({ confirmTimeoutMs: 1_000 })
    await bus.publish(event())
    proxy.refuse()
    await until(() => !isConnected(client.client))
    for (let n = 0; n < 5; n++) await expect(bus.publish(event())).rejects.toThrow()
    proxy.accept()
    await until(() => bus.check().then(yes, no))
    expect(await redis.xlen(stream)).toBe(1)
  })

  it('continues after the stream was deleted', async () => {
    const got: string[] = []
    const { bus } = await consumerOf((one) => got.push(one.eventId))
    await until(async () => (await bus.publish(event())) && got.length > 0)
    await redis.del(stream)
    const id = await bus.publish(event())
    await until(() => got.includes(id))
  })

  it('receives a message that a broken connection has lost, and counts one delivery', async () => {
    const got: string[] = []
    const running = gate()
    const { bus, proxy } = await consumerOf((one) => got.push(one.eventId) && running.opened)
    await until(async () => /flags=b .*cmd=xreadgroup/.test(String(await redis.client('LIST'))))
    proxy.halfOpen('to-client')
    await redis.xadd(stream, '*', ...foreign('e-1'))
    await until(async () => (await pending()).length === 1)
    expect(got).toEqual([])
    proxy.cut()
    await until(() => got.length === 1)
    expect((await pending()).map(([, , , count]) => count)).toEqual([1])
    running.open()
    await bus.stop()
  })

  it('repeats a lost acknowledgement without calling the handler again', async () => {
    let calls = 0
    const running = gate()
    let warnings = 0
    const logger = { ...silentLogger, warn: () => void warnings++ }
    const { bus, proxy } = await consumerOf(() => ++calls && running.opened, {
      logger,
      confirmTimeoutMs: 200,
    })
    await bus.publish(event())
    await until(() => calls === 1)
    proxy.halfOpen('to-server')
    running.open()
    await until(() => warnings > 0)
    expect(await pending()).toHaveLength(1)
    proxy.cut()
    await until(async () => (await pending()).length === 0)
    expect(calls).toBe(1)
  })

  it('neither takes back nor starts messages that another consumer has taken', async () => {
    const got: string[] = []
    const running = gate()
    const handle = (one: EventEnvelope) => got.push(one.eventId) && running.opened
    // Long enough that no consumer takes the messages from the second consumer during the test.
    const { bus } = await consumerOf(handle, { concurrency: 1, takeoverMs: 6_000 })
    const ids = await bus.publishAll(Array.from({ length: HOLDS + 1 }, () => event()))
    await until(async () => (await pending()).length === HOLDS && got.length === 1)
    for (const [id] of await pending()) await redis.xclaim(stream, 'g', 'thief', 0, id, 'JUSTID')
    // The consumer has capacity for this message only after it has noticed the lost leases.
    await until(async () => (await pending()).length === HOLDS + 1)
    running.open()
    await until(() => got.length > 1)
    await bus.stop()
    expect(got).toEqual([ids.at(0), ids.at(-1)])
    expect((await pending()).map(([, consumer]) => consumer)).toEqual(Array(HOLDS).fill('thief'))
  })

  it('handles leased messages that were trimmed from the stream', async () => {
    const got: string[] = []
    const running = gate()
    const handle = (one: EventEnvelope) => got.push(one.eventId) && running.opened
    const { bus } = await consumerOf(handle, { concurrency: 1, takeoverMs: 1_500 })
    // As many as it takes: from now on its only scripts are those that ask whether they are still its own.
    const ids = await bus.publishAll(Array.from({ length: HOLDS }, () => event()))
    await until(async () => (await pending()).length === HOLDS)
    await redis.xtrim(stream, 'MAXLEN', 0)
    await until(async () => (await pending()).length === 0)
    const scripts = async () => Number(/cmdstat_eval:calls=(\d+)/.exec(await redis.info('commandstats'))?.[1])
    const before = await scripts()
    await until(async () => (await scripts()) >= before + 2)
    running.open()
    await until(() => got.length === HOLDS)
    expect(got).toEqual(ids)
  })

  it('releases messages at a stop without counting a delivery, and leaves no consumer and no connection', async () => {
    const running = gate()
    let calls = 0
    const { bus, proxy } = await consumerOf(() => ++calls && running.opened, {
      drainTimeoutMs: 0,
      concurrency: 1,
    })
    await bus.publishAll([event(), event(), event()])
    await until(async () => (await pending()).length === 3 && calls === 1)
    await bus.stop()
    expect((await pending()).map(([, consumer, , count]) => [consumer, count])).toEqual(
      Array(3).fill([RELEASED, 0]),
    )
    expect(await consumers()).toEqual([RELEASED])
    await until(() => proxy.open === 1)
    await bus.check()
    running.open()
  })

  it('does not start messages that other consumers may have received while it was cut off', async () => {
    const got: string[] = []
    const running = gate()
    const handle = (one: EventEnvelope) => got.push(one.eventId) && running.opened
    const options = { takeoverMs: 500, confirmTimeoutMs: 500 }
    const { bus, proxy } = await consumerOf(handle, { ...options, concurrency: 1 })
    await bus.publishAll([event(), event()])
    await until(async () => (await pending()).length === 2 && got.length === 1)
    proxy.freeze()
    const others = new Set<string>()
    await consumerOf((one) => others.add(one.eventId), options)
    await until(() => others.size === 2)
    running.open()
    await turns(50)
    await bus.stop()
    expect(got).toHaveLength(1)
  })

  it('deletes only dead consumers without messages', async () => {
    await redis.xgroup('CREATE', stream, 'g', '0', 'MKSTREAM')
    for (const name of ['aftercommit-dead', 'aftercommit-busy', 'somebody']) {
      await redis.xgroup('CREATECONSUMER', stream, 'g', name)
    }
    const { bus } = await consumerOf(() => {})
    await bus.stop()
    // Redis has just seen all of these consumers.
    expect((await consumers()).sort()).toEqual(['aftercommit-busy', 'aftercommit-dead', 'somebody'])
    await bus.publish(event())
    await redis.xreadgroup('GROUP', 'g', 'aftercommit-busy', 'STREAMS', stream, '>')
    await redis.eval(CREATE_GROUP, 1, stream, 'g', 0)
    expect((await consumers()).sort()).toEqual(['aftercommit-busy', 'somebody'])
  })

  it('consumes the dead-letter stream like any other stream', async () => {
    const { bus } = await consumerOf(
      () => {
        throw new Error('no')
      },
      { retry: { maxAttempts: 1 } },
    )
    const sent = event({ text: 'ä' })
    await bus.publish(sent)
    const dead = `${stream}.g.dead`
    await until(async () => (await redis.xlen(dead)) === 1)
    const got: EventEnvelope[] = []
    await consumerOf((one) => got.push(one), { stream: dead })
    await until(() => got.length === 1)
    expect(got[0]?.toJSON()).toEqual(sent.toJSON())
  })
})

describe.skipIf(!given)('ioredis with a keyPrefix', () => {
  it('uses the prefix for all keys', async () => {
    const redis = new Redis(given?.url ?? '', { keyPrefix: 'app:' })
    const stream = `test.${randomBytes(6).toString('hex')}`
    const bus = redisBus(redis, { stream, group: 'g', logger: silentLogger, retry: { maxAttempts: 1 } })
    const got: string[] = []
    bus.subscribe('a', { name: 'good', handle: (one) => void got.push(one.eventId) })
    bus.subscribe('b', { name: 'bad', handle: () => Promise.reject(new Error('no')) })
    await bus.start()
    await bus.publishAll(['a', 'b'].map((eventType) => EventEnvelope.create({ eventType, payload: null })))
    await bus.check()
    await until(async () => got.length === 1 && (await redis.xlen(`${stream}.g.dead`)) === 1)
    await bus.stop()
    await redis.del(stream, `${stream}.g.dead`)
    redis.disconnect()
  })
})

function isConnected(client: RedisClient): boolean {
  return 'isReady' in client ? client.isReady : client.status === 'ready'
}

function foreign(id: string): string[] {
  const attributes = { specversion: '1.0', id, source: '/other', type: 'order.placed' }
  return Object.entries(attributes).flatMap(([name, value]) => [`ce-${name}`, value])
}
