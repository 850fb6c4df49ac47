import { type ChannelModel, connect } from 'amqplib'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  hasRabbitmq,
  peek,
  RabbitmqBench,
  type RabbitmqServer,
  startRabbitmq,
  withChannel,
} from '../../../test/support/rabbitmq.js'
import { until } from '../../../test/support/waiting.js'
import { systemClock } from '../../core/clock.js'
import { EventEnvelope } from '../../core/envelope.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import { silentLogger } from '../../observe/logger.js'
import { rabbitmqBus } from './index.js'

const event = (init: Partial<Parameters<typeof EventEnvelope.create>[0]> = {}) =>
  EventEnvelope.create({ eventType: 'order.placed', payload: { total: 42 }, ...init })

const codesOf = (answers: readonly unknown[]) =>
  answers.map((answer) => (answer === null ? null : ((answer as { code?: unknown }).code ?? String(answer))))

// These tests change settings of the broker, so they start their own broker and ignore AMQP_URL.
describe.skipIf(!hasRabbitmq())('rabbitmqBus', () => {
  let server: RabbitmqServer
  let bench: RabbitmqBench
  let exchange: string

  beforeAll(async () => {
    server = await startRabbitmq()
  })

  afterAll(async () => {
    await server?.stop()
  })

  beforeEach(() => {
    bench = new RabbitmqBench(server.url)
    exchange = bench.exchange
  })

  afterEach(() => bench.end())

  const busOf: RabbitmqBench['busOf'] = (...args) => bench.busOf(...args)
  const consumerOf: RabbitmqBench['consumerOf'] = (...args) => bench.consumerOf(...args)
  const proxied = () => bench.proxied()

  it('writes persistent messages in the AMQP binding of CloudEvents, with the type as the routing key', async () => {
    await (await consumerOf()).bus.stop()
    const sent = event({ eventId: 'e-1', aggregateId: 'ö "1" 50%', payload: new Uint8Array([0, 255]) })
    await busOf({ source: '/shop' }).publish(sent)
    const [message] = await peek(server.url, `${exchange}.billing`)
    expect(message?.fields).toMatchObject({ exchange, routingKey: 'order.placed' })
    expect(message?.properties).toMatchObject({
      contentType: 'application/octet-stream',
      messageId: 'e-1',
      deliveryMode: 2,
    })
    expect(message?.properties.headers).toMatchObject({
      'cloudEvents:specversion': '1.0',
      'cloudEvents:id': 'e-1',
      'cloudEvents:source': '/shop',
      'cloudEvents:type': 'order.placed',
      'cloudEvents:subject': 'ö "1" 50%',
    })
    expect(message?.content).toEqual(Buffer.from([0, 255]))
  })

  describe('events without a queue', () => {
    it('are kept in a separate queue and logged once', async () => {
      const lines: string[] = []
      const bus = busOf({ logger: { ...silentLogger, warn: (_: unknown, line: string) => lines.push(line) } })
      const { bus: other } = await consumerOf({}, 'invoice.*')
      const events = [event(), event({ eventType: 'invoice.sent' }), event()]
      expect(await bus.send(events)).toEqual([null, null, null])
      await other.stop()
      const kept = await peek(server.url, `${exchange}.unrouted`)
      expect(kept.map(({ properties }) => properties.messageId)).toEqual([
        events[0]?.eventId,
        events[2]?.eventId,
      ])
      expect(kept[0]?.content.toString()).toBe('{"total":42}')
      expect(lines).toEqual([`RabbitMQ has no queue for these events: kept in ${exchange}.unrouted`])
    })

    it('are refused with the setting refuse, while other events are published', async () => {
      const { got } = await consumerOf({}, 'invoice.*')
      const sent = event({ eventType: 'invoice.sent' })
      const answers = await busOf({ unrouted: 'refuse' }).send([event(), sent, event()])
      expect(codesOf(answers)).toEqual(['UNROUTED', null, 'UNROUTED'])
      await until('the other has come', () => got.length === 1)
    })

    it('are dropped with the setting drop', async () => {
      expect(await busOf({ unrouted: 'drop' }).send([event()])).toEqual([null])
      expect(await peek(server.url, `${exchange}.unrouted`)).toEqual([])
    })
  })

  it('delivers types that are too long for a routing key, also by pattern', async () => {
    const eventType = `注文.${'日本'.repeat(60)}.届いた.${'語'.repeat(100)}`
    const byName = await consumerOf({ group: 'name' }, eventType)
    const byPattern = await consumerOf({ group: 'pattern' }, '注文.*')
    const byLong = await consumerOf({ group: 'long' }, `${eventType.slice(0, 150)}.*`)
    const bus = busOf()
    await bus.publishAll([event({ eventType }), event({ eventType: `${eventType.slice(0, 150)}.x` })])
    await until('all have come', () => byName.got.length === 1 && byPattern.got.length === 2)
    await until('the other event has arrived', () => byLong.got.length === 1)
    expect(byName.got[0]?.eventType).toBe(eventType)
  })

  describe('existing exchanges and queues', () => {
    it('are used without changes, even if their kind is different', async () => {
      await withChannel(server.url, async (channel) => {
        await channel.assertExchange(exchange, 'fanout', { durable: false })
        await channel.assertQueue(`${exchange}.billing`, { durable: false, arguments: { 'x-max-length': 5 } })
      })
      const { bus, got } = await consumerOf()
      await bus.publish(event())
      await until('the event has arrived', () => got.length === 1)
    })

    it('are sufficient for a user who may not create any', async () => {
      await (await consumerOf()).bus.stop()
      await server.control('add_user', 'worker', 'secret')
      await server.control('set_permissions', 'worker', '', '.*', '.*')
      const { bus, got } = await consumerOf({}, '*', server.url.replace('guest:guest', 'worker:secret'))
      await bus.publish(event())
      await until('the event has arrived', () => got.length === 1)
    })

    it('are created again after they were deleted', async () => {
      const { bus, got } = await consumerOf()
      await bus.publish(event())
      await until('the first has come', () => got.length === 1)
      await withChannel(server.url, async (channel) => {
        await channel.deleteExchange(exchange)
        await channel.deleteQueue(`${exchange}.billing`)
      })
      const isBack = () =>
        withChannel(server.url, (channel) => channel.checkQueue(`${exchange}.billing`)).then(
          ({ consumerCount }) => consumerCount === 1,
          () => false,
        )
      await until('the consumer is back', isBack)
      await bus.publish(event())
      await until('the second has come', () => got.length === 2)
    })
  })

  describe('connections', () => {
    it('are opened again after an operator has closed them', async () => {
      const { bus, got } = await consumerOf()
      await bus.publish(event())
      await server.control('close_all_connections', 'maintenance')
      const last = event()
      await until('it can be published', () =>
        bus.publish(last).then(
          () => true,
          () => false,
        ),
      )
      await until('the event has arrived', () => got.some(({ eventId }) => eventId === last.eventId))
    })

    it('are replaced by publishers when they are silent, without heartbeats', async () => {
      const { got } = await consumerOf()
      const proxy = await proxied()
      const bus = busOf({ confirmTimeoutMs: 500 }, `${proxy.url}?heartbeat=0`)
      await bus.publish(event())
      proxy.halfOpen()
      await expect(bus.publish(event())).rejects.toThrow()
      const last = event()
      await until(
        'another connection is open',
        () =>
          bus.publish(last).then(
            () => true,
            () => false,
          ),
        3_000,
      )
      await until('the event has arrived', () => got.some(({ eventId }) => eventId === last.eventId))
      expect(proxy.accepted).toBeGreaterThan(1)
    })

    it('do not delay a start when they are silent after the handshake', async () => {
      const proxy = await proxied()
      const model = await connect(`${proxy.url}?heartbeat=0`)
      proxy.halfOpen()
      // The clock runs twenty times as fast.
      const clock = {
        ...systemClock,
        setTimer: (callback: () => void, ms: number) => systemClock.setTimer(callback, ms / 20),
      }
      const connectSilent = async () => model
      const bus = rabbitmqBus(connectSilent, { exchange, group: 'billing', logger: silentLogger, clock })
      bench.ends.push(() => bus.stop())
      bus.subscribe('*', { name: 'note', handle: () => {} })
      await expect(bus.start()).rejects.toThrow(BrokerUnavailableError)
      const { stream } = (model as unknown as { connection: { stream: { destroyed: boolean } } }).connection
      expect(stream.destroyed).toBe(true)
    })

    it('are replaced when they become silent while a channel is opened', async () => {
      const { got } = await consumerOf()
      const proxy = await proxied()
      let isFirst = true
      const connectOnce = async () => {
        const model = await connect(`${proxy.url}?heartbeat=0`)
        if (isFirst) proxy.halfOpen()
        isFirst = false
        return model
      }
      const bus = rabbitmqBus(connectOnce, { exchange, logger: silentLogger, confirmTimeoutMs: 500 })
      bench.ends.push(() => bus.stop())
      await expect(bus.publish(event())).rejects.toThrow()
      const isPublished = () =>
        bus.publish(event()).then(
          () => true,
          () => false,
        )
      await until('it publishes again', isPublished)
      await until('the event has arrived', () => got.length > 0)
    })

    it('are closed by a stop, even if the broker does not answer', async () => {
      const proxy = await proxied()
      const { bus } = await consumerOf({ drainTimeoutMs: 0 }, '*', `${proxy.url}?heartbeat=0`)
      const models: ChannelModel[] = []
      const silent = rabbitmqBus(
        async () => {
          const model = await connect(`${proxy.url}?heartbeat=0`)
          models.push(model)
          return model
        },
        { exchange, logger: silentLogger },
      )
      await silent.publish(event())
      proxy.freeze()
      await Promise.all([bus.stop(), silent.stop()])
      const [model] = models as unknown as { connection: { stream: { destroyed: boolean } } }[]
      expect(model?.connection.stream.destroyed).toBe(true)
      proxy.thaw()
      expect(proxy.open).toBe(0)
    })

    it('report an outage when they cannot be opened in time', async () => {
      const bus = rabbitmqBus(() => Promise.reject(new Error('no way')), { exchange })
      const [answer] = await bus.send([event()])
      expect(answer).toBeInstanceOf(BrokerUnavailableError)
      await expect(bus.check()).rejects.toThrow(BrokerUnavailableError)
    })
  })

  it('fails with BrokerUnavailableError while the broker is short of memory, and works again afterwards', async () => {
    const bus = busOf({ confirmTimeoutMs: 1_000 })
    await bus.publish(event())
    await server.control('set_vm_memory_high_watermark', 'absolute', '1')
    try {
      expect(codesOf(await bus.send([event()]))).toEqual(['BROKER_UNAVAILABLE'])
      // The bus knows that the broker has blocked it, and sends no request.
      await expect(bus.check()).rejects.toThrow(/takes nothing now/)
      expect(codesOf(await bus.send([event()]))).toEqual(['BROKER_UNAVAILABLE'])
    } finally {
      await server.control('set_vm_memory_high_watermark', '0.8')
    }
    await until('it takes messages', () =>
      bus.publish(event()).then(
        () => true,
        () => false,
      ),
    )
  })

  it('dead-letters a message whose headers leave no space for the reason', async () => {
    const bus = busOf({ group: 'billing', retry: { maxAttempts: 1 } })
    bus.subscribe('*', {
      name: 'work',
      handle: () => {
        throw new Error('€'.repeat(5_000))
      },
    })
    await bus.start()
    const id = await bus.publish(event({ headers: { long: 'x'.repeat(64_000) } }))
    await until(
      'the message is dead-lettered',
      async () => (await peek(server.url, `${exchange}.billing.dead`)).length === 1,
    )
    const [dead] = await peek(server.url, `${exchange}.billing.dead`)
    expect(dead?.properties.headers).toMatchObject({
      'cloudEvents:id': id,
      'cloudEvents:deadgroup': 'billing',
    })
    expect(dead?.content.toString()).toBe('{"total":42}')
  })

  it('keeps the order when a single active consumer stops', async () => {
    const order: string[] = []
    let finish = () => {}
    const finished = new Promise<void>((resolve) => {
      finish = resolve
    })
    const start = async (name: string, work: () => Promise<void>) => {
      const bus = busOf({ group: 'billing', singleActive: true, concurrency: 1, drainTimeoutMs: 30_000 })
      bus.subscribe('*', {
        name: 'work',
        handle: async ({ payload }) => {
          order.push(`${name} ${payload} begins`)
          await work()
          order.push(`${name} ${payload} ends`)
        },
      })
      await bus.start()
      return bus
    }
    const first = await start('first', () => finished)
    await start('second', async () => {})
    await first.publishAll(Array.from({ length: 8 }, (_, n) => event({ payload: n, orderingKey: 'k' })))
    await until('it has begun', () => order.length === 1)
    const stopped = first.stop()
    // The broker has had time to deliver a message to the second consumer.
    await server.control('list_consumers')
    expect(order).toEqual(['first 0 begins'])
    finish()
    await stopped
    await until('all have been handled', () => order.length === 16)
    const expected = Array.from({ length: 8 }, (_, n) => (n === 0 ? 'first 0' : `second ${n}`))
    expect(order).toEqual(expected.flatMap((id) => [`${id} begins`, `${id} ends`]))
  })
})
