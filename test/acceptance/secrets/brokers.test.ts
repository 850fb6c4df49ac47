import { inspect } from 'node:util'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import { redisBus } from '../../../src/buses/redis/index.js'
import { type BrokerBus, createOutbox, defineEvent, fixedDelay } from '../../../src/index.js'
import { memoryStore } from '../../../src/stores/memory/index.js'
import type { BusWorld } from '../../../src/testing/bus-conformance/index.js'
import { undocumentedIn } from '../../support/log-lines.js'
import { createNatsWorld, type NatsServer, startNatsOrSkip } from '../../support/nats.js'
import { type GivenRedis, givenRedis, REDIS_CLIENTS, redisWorld } from '../../support/redis.js'
import { until } from '../../support/until.js'
import { Evidence, Secrets } from './evidence.js'

const Strict = defineEvent('strict', { schema: z.object({ card: z.enum(['fine']) }) })

type World = { readonly [Key in keyof BusWorld]-?: NonNullable<BusWorld[Key]> }

/** Outbox, relay, broker, consumer, dead letters, and a broker that goes away. */
async function pass(world: World, secrets: Secrets, evidence: Evidence): Promise<void> {
  const inErrors = secrets.plant('a handler error that redact knows')
  const far = secrets.plant('a handler error behind 500 characters')
  const options = {
    group: 'g',
    logger: evidence.logger,
    redact: (message: string) => message.replaceAll(inErrors, '[cut]'),
    retry: { maxAttempts: 2, policy: fixedDelay(0) },
    confirmTimeoutMs: 500,
    drainTimeoutMs: 200,
  }
  const event = (type: string, more: object = {}) => ({
    type,
    payload: { card: secrets.plant(`payload of ${type}`) },
    headers: { authorization: secrets.plant(`header of ${type}`) },
    metadata: { userId: secrets.plant(`user id of ${type}`), correlationId: 'c-1' },
    ...more,
  })
  const [sender, receiver] = [await world.createBus(options), await world.createBus(options)] as BrokerBus[]
  if (!sender || !receiver) throw new Error('no bus')
  let handled = 0
  receiver.subscribe('works', { name: 'count', handle: () => void handled++ })
  receiver.subscribe('fails', {
    name: 'throw',
    handle: () => {
      throw Object.assign(new Error(`${inErrors} ${'x'.repeat(500)} ${far}`), { detail: far })
    },
  })
  receiver.subscribe(Strict, { name: 'decode', handle: () => {} })
  await receiver.start()
  onTestFinished(() => receiver.stop())

  const { logger, metrics } = evidence
  const outbox = createOutbox({ store: memoryStore(), logger, metrics, poller: { pollIntervalMs: 50 } })
  outbox.relay(sender)
  await outbox.migrate()
  await outbox.start()
  onTestFinished(() => outbox.stop())
  const bytes = Buffer.from(secrets.plant('bytes'))
  for (const one of [event('works'), event('works', { payload: bytes }), event('fails'), event('strict')]) {
    await outbox.enqueue(one)
  }
  const secret = secrets.plant('a message of somebody else')
  const attributes = { specversion: '1.0', id: 'x', source: 'somewhere', type: 'works' }
  await world.publishForeign(`{"card": "${secret}`, attributes)
  await world.publishForeign('{}', { ...attributes, id: 'y', headers: `{"a": "${secret}` })
  await until(async () => handled >= 2 && (await world.deadLetters('g')).length >= 4, {
    timeoutMs: 15_000,
    what: 'all messages are handled or dead-lettered',
  })
  const large = event('works', { payload: { secret, rest: 'x'.repeat(1_100_000) } })
  await evidence.failure('too large', sender.publish(large))
  await world.vanish(sender)
  await evidence.failure('the broker is away', sender.publish(event('works')))
  await outbox.enqueue(event('works'))
  await until(() => evidence.lines.some((line) => line.includes('the relay waits for it')))
  evidence.note('health', JSON.stringify(await outbox.health()))
}

function expectNothing(secrets: Secrets, evidence: Evidence): void {
  expect(evidence.leaks(secrets)).toEqual([])
  expect(undocumentedIn(evidence.lines)).toEqual([])
  expect(evidence.count('log')).toBeGreaterThan(15)
}

describe('nothing of an event gets out on its way through', () => {
  let redis: GivenRedis | null
  let nats: NatsServer | null
  beforeAll(async () => {
    ;[redis, nats] = await Promise.all([givenRedis(), startNatsOrSkip()])
  })
  afterAll(() => Promise.all([redis?.stop(), nats?.stop()]))

  for (const [name, open] of Object.entries(REDIS_CLIENTS)) {
    it(`Redis by ${name}`, async ({ skip }) => {
      if (!redis) return skip('no Redis')
      const [secrets, evidence] = [new Secrets(), new Evidence()]
      const world = await redisWorld(redis, open)
      onTestFinished(() => world.dispose())
      await pass(world as World, secrets, evidence)
      expectNothing(secrets, evidence)
    })

    it(`Redis by ${name}, which refuses the command`, async ({ skip }) => {
      if (!redis) return skip('no Redis')
      const [secrets, evidence] = [new Secrets(), new Evidence()]
      const direct = new Redis(redis.url)
      const url = new URL(redis.url)
      url.username = `limited-${name}`
      url.password = secrets.plant('password in a URL')
      await direct.call('ACL', 'SETUSER', url.username, 'on', `>${url.password}`, '~*', '+@all', '-eval')
      onTestFinished(() => void direct.call('ACL', 'DELUSER', url.username).then(() => direct.disconnect()))
      const { client, close } = await open(url.href)
      onTestFinished(close)
      const bus = redisBus(client, { stream: 'refused', logger: evidence.logger })
      const payload = { card: secrets.plant('payload') }
      const error = await evidence.failure(
        'refused',
        bus.publish({ type: 'a', payload, headers: { b: secrets.plant('header') } }),
      )
      expect(inspect(error, { depth: 5 })).toContain('NOPERM')
      expect(evidence.leaks(secrets)).toEqual([])
    })
  }

  it('NATS', async ({ skip }) => {
    if (!nats) return skip('no NATS')
    const [secrets, evidence] = [new Secrets(), new Evidence()]
    const world = await createNatsWorld(nats)
    onTestFinished(() => world.dispose())
    await pass(world as World, secrets, evidence)
    expectNothing(secrets, evidence)
  })
})
