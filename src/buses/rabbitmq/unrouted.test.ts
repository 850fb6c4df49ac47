import { type Channel, type ChannelModel, connect } from 'amqplib'
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
import { EventEnvelope } from '../../core/envelope.js'
import { silentLogger } from '../../observe/logger.js'
import { rabbitmqBus } from './index.js'

const eventsOf = (eventType: string, count: number) =>
  Array.from({ length: count }, (_, n) => EventEnvelope.create({ eventType, payload: n }))

/** Calls a hook for each channel before the channel is used. */
const onChannels = (model: ChannelModel, hook: (channel: Channel) => void) => {
  const create = model.createChannel.bind(model)
  model.createChannel = async () => {
    const channel = await create()
    hook(channel)
    return channel
  }
}

const idsOf = (events: readonly EventEnvelope[]) => events.map(({ eventId }) => eventId)

describe.skipIf(!hasRabbitmq())('UnroutedRepublisher', () => {
  let server: RabbitmqServer
  let bench: RabbitmqBench
  let exchange: string
  let unrouted: string
  let problems: string[]

  beforeAll(async () => {
    server = await startRabbitmq()
  })

  afterAll(async () => {
    await server?.stop()
  })

  beforeEach(() => {
    bench = new RabbitmqBench(server.url)
    exchange = bench.exchange
    unrouted = `${exchange}.unrouted`
    problems = []
  })

  afterEach(() => bench.end())

  const busOf: RabbitmqBench['busOf'] = (...args) => bench.busOf(...args)
  const note = (fields: unknown) =>
    void problems.push(String((fields as { error_message?: unknown }).error_message))
  const logger = { ...silentLogger, warn: note, error: note }

  const consumerOf: RabbitmqBench['consumerOf'] = (options, ...rest) =>
    bench.consumerOf({ logger, ...options }, ...rest)

  const keptIds = async () => (await peek(server.url, unrouted)).map((one) => one.properties.messageId)

  /** Resolves when the republisher waits for its second run. */
  const locked = async () => {
    const connection = await connect(server.url)
    bench.ends.push(() => connection.close().catch(() => {}))
    const channel = await connection.createChannel()
    await channel.assertQueue(`${unrouted}.lock`, { exclusive: true })
    return () => connection.close()
  }

  /** Returns the number of messages in the queue, after no run is active that could return messages. */
  const keptAre = (count: number) =>
    withChannel(server.url, async (channel) => {
      await channel.assertQueue(`${unrouted}.lock`, { exclusive: true })
      return (await channel.checkQueue(unrouted)).messageCount === count
    }).catch(() => false)

  /** Connects to the server. Calls the hook with each connection and its number. */
  const hooked = async (hook: (model: ChannelModel, number: number) => void) => {
    let number = 0
    const got: EventEnvelope[] = []
    const hookedConnect = async () => {
      const model = await connect(server.url)
      hook(model, ++number)
      return model
    }
    const bus = rabbitmqBus(hookedConnect, { exchange, group: 'billing', logger })
    bus.subscribe('*', { name: 'note', handle: (one) => void got.push(one) })
    bench.ends.push(() => bus.stop())
    await bus.start()
    return got
  }

  it('republishes an event that a publisher was keeping while the queue was bound', async () => {
    const { got } = await consumerOf({ confirmTimeoutMs: 3_000 })
    const queue = `${exchange}.billing`
    const events = eventsOf('order.placed', 3)
    // RabbitMQ has returned this event before the queue was bound. It is kept after the first run.
    await withChannel(server.url, (channel) => channel.unbindQueue(queue, exchange, '#'))
    await busOf().publishAll(events)
    await withChannel(server.url, (channel) => channel.bindQueue(queue, exchange, '#'))
    await until('all have come', () => got.length === 3)
    expect(idsOf(got)).toEqual(idsOf(events))
    await until('none is kept', () => keptAre(0))
    expect(problems).toEqual([])
  })

  it('republishes events unchanged and in order when their queue is bound again', async () => {
    await (await consumerOf()).bus.stop()
    const events = eventsOf('order.placed', 8)
    const publisher = busOf({ source: '/shop' })
    await publisher.publishAll(events.slice(0, 3))
    const [before] = await peek(server.url, `${exchange}.billing`)
    await withChannel(server.url, (channel) => channel.unbindQueue(`${exchange}.billing`, exchange, '#'))
    await publisher.publishAll(events.slice(3))
    expect(await keptIds()).toEqual(idsOf(events.slice(3)))

    await withChannel(server.url, async (channel) => {
      await channel.assertQueue('witness', { durable: true })
      await channel.bindQueue('witness', exchange, 'order.placed')
    })
    const { got } = await consumerOf()
    await until('all have come', () => got.length === 8)
    expect(idsOf(got)).toEqual(idsOf(events))
    await until('none is kept', () => keptAre(0))
    const [after] = await peek(server.url, 'witness')
    const { 'x-delivery-count': _, ...headers } = before?.properties.headers ?? {}
    const id = events[3]?.eventId
    const own = { 'cloudEvents:id': id, 'cloudEvents:time': expect.any(String) }
    expect(after?.properties).toEqual({
      ...before?.properties,
      messageId: id,
      headers: { ...headers, ...own },
    })
    expect(after?.properties.deliveryMode).toBe(2)
    expect(after?.fields).toMatchObject({ exchange, routingKey: 'order.placed' })
    expect(problems).toEqual([])
  })

  it('keeps events in order when they still have no queue', async () => {
    const [orders, invoices] = [eventsOf('order.placed', 300), eventsOf('invoice.sent', 300)]
    await busOf().publishAll(orders.flatMap((one, at) => [one, invoices[at] as EventEnvelope]))
    const { bus, got } = await consumerOf({}, 'invoice.*')
    await until('all of them have come', () => got.length === 300)
    expect(idsOf(got)).toEqual(idsOf(invoices))
    await until('the others are back', () => keptAre(300))
    await bus.stop()
    const later = eventsOf('order.placed', 1)
    await busOf().publishAll(later)
    expect(await keptIds()).toEqual(idsOf([...orders, ...later]))
    expect(problems).toEqual([])
  })

  it('republishes to all groups that start at the same time', async () => {
    const types = ['order.placed', 'invoice.sent', 'parcel.lost']
    await busOf().publishAll(types.flatMap((type) => eventsOf(type, 20)))
    const consumers = await Promise.all(types.map((type, at) => consumerOf({ group: `group-${at}` }, type)))
    await until('each has its own', () => consumers.every(({ got }) => got.length >= 20))
    await until('none is kept', () => keptAre(0))
    expect(consumers.map(({ got }) => new Set(idsOf(got)).size)).toEqual([20, 20, 20])
    expect(problems).toEqual([])
  })

  it('waits for another republisher without delaying a start or a stop', async () => {
    const events = eventsOf('order.placed', 3)
    await busOf().publishAll(events)
    const unlock = await locked()
    const { bus } = await consumerOf()
    await bus.stop()
    let tries = 0
    const got = await hooked((model) => {
      onChannels(model, (channel) => {
        const assert = channel.assertQueue.bind(channel)
        channel.assertQueue = async (queue, options) => {
          if (queue === `${unrouted}.lock`) tries++
          return assert(queue, options)
        }
      })
    })
    await until('it has tried again', () => tries === 3)
    expect(got).toEqual([])
    expect(await keptIds()).toEqual(idsOf(events))
    await unlock()
    await until('they have come', () => got.length === 3)
    expect(problems).toEqual([])
  })

  it('republishes an event at least once when the connection breaks before its acknowledgement', async () => {
    const events = eventsOf('order.placed', 10)
    await busOf().publishAll(events)
    const got = await hooked((model, number) => {
      if (number > 1) return
      const { connection } = model as unknown as { connection: { stream: { destroy(e: Error): void } } }
      onChannels(model, (channel) => {
        channel.ack = () => connection.stream.destroy(new Error('crash'))
      })
    })
    await until('all have come', () => new Set(idsOf(got)).size === 10)
    await until('none is kept', () => keptAre(0))
  })

  it('republishes later when publishing fails at first, and reports the failure once', async () => {
    await busOf().publishAll(eventsOf('order.placed', 3))
    const got = await hooked((_, number) => {
      // The first connection belongs to the consumer.
      if (number === 2 || number === 3) throw new Error('not now')
    })
    await until('all have come', () => got.length === 3)
    expect(problems).toEqual([expect.stringMatching(/cannot be reached/)])
  })

  it('keeps an event without a type, and starts no run with another setting', async () => {
    const events = eventsOf('order.placed', 2)
    await busOf().publishAll(events)
    const refusing = await consumerOf({ unrouted: 'refuse' })
    await refusing.bus.publishAll(eventsOf('order.placed', 1))
    await until('it consumes', () => refusing.got.length === 1)
    await withChannel(server.url, async (channel) => {
      channel.sendToQueue(unrouted, Buffer.from('{}'), { messageId: 'foreign' })
      await channel.checkQueue(unrouted)
    })
    expect(await keptIds()).toEqual([...idsOf(events), 'foreign'])
    const { got } = await consumerOf({ group: 'other' })
    await until('those with a type have come', () => got.length === 2)
    await until('the other stays', () => keptAre(1))
    expect(await keptIds()).toEqual(['foreign'])
  })

  describe('leaves events in the queue', () => {
    beforeAll(async () => {
      const make = async (user: string, ...permissions: string[]) => {
        await server.control('add_user', user, 'secret')
        await server.control('set_permissions', user, ...permissions)
      }
      await Promise.all([make('blind', '.*', '.*', '^(?!.*unrouted)'), make('mute', '.*', '\\.', '.*')])
    })

    it.each([
      ['may not read it: that is no error', 'blind', []],
      ['may not publish, and reports that once', 'mute', [/does not let this user publish/]],
    ])('when this user %s', async (_, user, expected) => {
      const [last, ...kept] = eventsOf('order.placed', 3)
      await busOf().publishAll(kept)
      const { got } = await consumerOf({}, '*', server.url.replace('guest:guest', `${user}:secret`))
      await busOf().publish(last as EventEnvelope)
      await until('it consumes', () => got.length === 1)
      await until('the failure was reported', () => problems.length === expected.length)
      await until('they stay', () => keptAre(2))
      expect(problems).toEqual(expected.map((pattern) => expect.stringMatching(pattern)))
    })
  })
})
