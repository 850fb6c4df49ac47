import { randomBytes } from 'node:crypto'
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest'
import { startProxy, type TcpProxy } from '../../../test/support/proxy.js'
import { givenRedis, type OpenClient, REDIS_CLIENTS } from '../../../test/support/redis.js'
import { EventEnvelope } from '../../core/envelope.js'
import { silentLogger } from '../../observe/logger.js'
import { type RedisBusOptions, type RedisClient, redisBus } from './index.js'

const given = await givenRedis()
afterAll(() => given?.stop())

const event = (payload: unknown = { total: 42 }) =>
  EventEnvelope.create({ eventType: 'order.placed', payload })

describe.skipIf(!given).each(Object.entries(REDIS_CLIENTS))('RedisSender with %s', (_library, open) => {
  const url = given?.url ?? ''
  let redis: Redis
  let stream: string
  let client: OpenClient
  let proxy: TcpProxy

  beforeEach(async () => {
    redis = new Redis(url)
    stream = `test.${randomBytes(6).toString('hex')}`
    proxy = await startProxy(url)
    client = await open(proxy.url)
  })
  afterEach(async () => {
    client.close()
    await proxy.close()
    await redis.del(stream)
    redis.disconnect()
  })

  const busOf = (options: RedisBusOptions = {}, on = client.client) =>
    redisBus(on, { stream, logger: silentLogger, ...options })
  const sentIds = async () =>
    (await redis.xrange(stream, '-', '+')).map(([, fields]) => fields[fields.indexOf('ce-id') + 1])

  /** Runs the work with the lowest size limit that Redis accepts. */
  async function withLowestLimit(work: () => Promise<void>): Promise<void> {
    await redis.config('SET', 'proto-max-bulk-len', 1_048_576)
    try {
      await work()
    } finally {
      await redis.config('SET', 'proto-max-bulk-len', 536_870_912)
    }
  }

  it.each<[string, object]>([
    ['payloads', { payload: 'x'.repeat(150_000) }],
    ['headers', { payload: 1, headers: { note: 'x'.repeat(60_000) } }],
  ])('takes large %s that exceed a limit of the server only together', async (_what, init) => {
    const bus = busOf()
    const events = Array.from({ length: 40 }, () =>
      EventEnvelope.create({ eventType: 'a', payload: null, ...init }),
    )
    await withLowestLimit(async () => {
      expect(await bus.send(events)).toEqual(events.map(() => null))
    })
    expect(await sentIds()).toEqual(events.map(({ eventId }) => eventId))
  })

  it('fails only a message that is too large for the server, and keeps the connection', async () => {
    const bus = busOf()
    const bulky = () => event(new Uint8Array(1_048_576))
    const events = [event(), bulky(), event(), event(), bulky()]
    await withLowestLimit(async () => {
      const answers = await bus.send(events)
      expect(answers.map((answer) => answer === null)).toEqual([true, false, true, true, false])
      for (const refused of [answers[1], answers[4]]) {
        expect(refused).toMatchObject({ code: 'BROKER_REFUSED' })
        expect(String(refused)).toMatch(/proto-max-bulk-len of Redis is 1048576/)
      }
    })
    expect(await sentIds()).toEqual([0, 2, 3].map((at) => events[at]?.eventId))
  })

  it('sends a refused command in smaller parts, and fails only messages that are refused separately', async () => {
    // Hosted versions of Redis may refuse commands like this.
    const limit = (bytes: number) => {
      if (bytes > 5_000) throw new Error('ERR max request size exceeded')
    }
    const bus = busOf({}, tapped(client.client, limit))
    const events = Array.from({ length: 50 }, (_, n) => event(n === 20 || n === 21 ? 'x'.repeat(9_000) : n))
    const answers = await bus.send(events)
    const refused = answers.flatMap((answer, at) => (answer === null ? [] : [at]))
    expect(refused).toEqual([20, 21])
    expect(await sentIds()).toEqual(events.filter((_, at) => !refused.includes(at)).map((e) => e.eventId))
  })

  it('sends every message separately when each message is refused', async () => {
    const bus = busOf()
    const last = '18446744073709551615'
    await redis.xadd(stream, `${last}-${last}`, 'x', '')
    const answers = await bus.send([event(), event(), event()])
    expect(answers).toMatchObject(Array(3).fill({ code: 'BROKER_REFUSED' }))
    expect(new Set(answers).size).toBe(3)
  })

  it('returns the confirmations so far when the remaining messages take too long', async () => {
    let commands = 0
    const freezeSecond = () => {
      if (++commands === 2) proxy.freeze()
    }
    const bus = busOf({ confirmTimeoutMs: 1_000 }, tapped(client.client, freezeSecond))
    const events = Array.from({ length: 4 }, () => event('x'.repeat(400_000)))
    const answers = await bus.send(events)
    proxy.thaw()
    expect(answers).toMatchObject([null, null, ...Array(2).fill({ code: 'BROKER_UNAVAILABLE' })])
  })
})

/** Calls a hook before every command with messages. An error of the hook replaces the reply. */
function tapped(client: RedisClient, look: (bytes: number) => void): RedisClient {
  const tap =
    (send: (...args: unknown[]) => Promise<unknown>) =>
    async (...args: unknown[]) => {
      const packed = args.flat().find(Buffer.isBuffer)
      if (packed) look(packed.length)
      return send.apply(client, args)
    }
  return new Proxy(client, {
    get: (target, name) => {
      const value = Reflect.get(target, name, target)
      if (typeof value !== 'function') return value
      return name === 'sendCommand' || name === 'callBuffer' ? tap(value) : value.bind(target)
    },
  })
}
