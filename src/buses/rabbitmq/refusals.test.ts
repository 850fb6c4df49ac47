import { connect } from 'amqplib'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  hasRabbitmq,
  RabbitmqBench,
  type RabbitmqServer,
  startRabbitmq,
} from '../../../test/support/rabbitmq.js'
import { until } from '../../../test/support/waiting.js'
import { EventEnvelope } from '../../core/envelope.js'
import { silentLogger } from '../../observe/logger.js'
import { rabbitmqBus } from './index.js'

const MAX_MESSAGE = 100_000

const event = (init: Partial<Parameters<typeof EventEnvelope.create>[0]> = {}) =>
  EventEnvelope.create({ eventType: 'order.placed', payload: { total: 42 }, ...init })

const large = { payload: 'x'.repeat(MAX_MESSAGE + 1) }
const forbidden = { eventType: 'secret.told' }

const codesOf = (answers: readonly unknown[]) =>
  answers.map((answer) => (answer === null ? null : ((answer as { code?: unknown }).code ?? String(answer))))

// These tests change settings of the broker, so they start their own broker and ignore AMQP_URL.
describe.skipIf(!hasRabbitmq())('RabbitmqSender after a refusal', () => {
  let server: RabbitmqServer
  let bench: RabbitmqBench
  let exchange: string

  beforeAll(async () => {
    server = await startRabbitmq({ settings: { max_message_size: MAX_MESSAGE } })
    await server.control('add_user', 'limited', 'secret')
    await server.control('set_permissions', 'limited', '.*', '.*', '.*')
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

  /** Returns the URL of a user who may only publish types that begin with `order`. */
  const limitedUser = async () => {
    await server.control('set_topic_permissions', 'limited', exchange, '^order', '.*')
    return server.url.replace('guest:guest', 'limited:secret')
  }

  /** Creates a bus with an open connection and the given latency. */
  const distant = async (ms: number, confirmTimeoutMs: number, url: string) => {
    const proxy = await bench.proxied(url)
    const bus = busOf({ confirmTimeoutMs }, proxy.url)
    await bus.check()
    proxy.delay(ms)
    return { proxy, bus }
  }

  /** Uses the order of amqplib 0.10: registers the callback first, then encodes the message, which may fail. */
  const countingFirst = (unwritable?: string) => {
    const connectOld = async () => {
      const model = await connect(server.url)
      const create = model.createConfirmChannel.bind(model)
      model.createConfirmChannel = async () => {
        const channel = await create()
        const old = channel as unknown as { pushConfirmCallback(callback: unknown): void }
        const note = old.pushConfirmCallback.bind(channel)
        const publish = channel.publish.bind(channel)
        channel.publish = (exchange, routingKey, content, options, callback) => {
          note(callback)
          old.pushConfirmCallback = () => {}
          if (options?.messageId === unwritable) throw new RangeError('out of range')
          return publish(exchange, routingKey, content, options)
        }
        return channel
      }
      return model
    }
    const bus = rabbitmqBus(connectOld, { exchange, logger: silentLogger })
    bench.ends.push(() => bus.stop())
    return bus
  }

  it('fails only a message that is too large, and delivers its neighbors', async () => {
    const { got } = await consumerOf()
    const bus = busOf()
    const tooLarge = event(large)
    const events = [event(), event(), tooLarge, event(), event()]
    const [answers, others] = await Promise.all([bus.send(events), bus.send([event(), event()])])
    expect(codesOf(answers)).toEqual([null, null, 406, null, null])
    expect(others).toEqual([null, null])
    expect((answers[2] as Error).message).toMatch(/larger than configured max size/)
    await until('the other events have arrived', () => new Set(got.map(({ eventId }) => eventId)).size === 6)
    expect(got.map(({ eventId }) => eventId)).not.toContain(tooLarge.eventId)
  })

  it.each([
    ['a forbidden one before all the others', 403, forbidden, (at: number) => at === 0],
    ['a forbidden one after all the others', 403, forbidden, (at: number) => at === 999],
    ['one of twenty is too large', 406, large, (at: number) => at % 20 === 5],
  ])('is found without a round trip for each of the others: %s', async (_, code, what, isRefused) => {
    const { got } = await consumerOf()
    const { proxy, bus } = await distant(10, 15_000, what === forbidden ? await limitedUser() : server.url)
    const events = Array.from({ length: 1_000 }, (_, at) => event(isRefused(at) ? what : {}))
    const answers = await bus.send(events)
    expect(codesOf(answers)).toEqual(events.map((_, at) => (isRefused(at) ? code : null)))
    const wanted = events.filter((_, at) => !isRefused(at)).map(({ eventId }) => eventId)
    await until(
      'the other events have arrived',
      () => new Set(got.map(({ eventId }) => eventId)).size === wanted.length,
    )
    // Repeated messages are in order, too.
    expect([...new Set(got.map(({ eventId }) => eventId))]).toEqual(wanted)
    expect(proxy.accepted).toBe(1)
  })

  // On a busy machine, each call takes a second and may return only one answer.
  it('makes progress over several calls when the time of one call is too short', {
    timeout: 90_000,
  }, async () => {
    await (await consumerOf()).bus.stop()
    const { bus } = await distant(10, 1_000, await limitedUser())
    const isForbidden = (at: number) => at < 15
    const events = Array.from({ length: 18 }, (_, at) => event(isForbidden(at) ? forbidden : {}))
    const settled = new Map<string, unknown>()
    let calls = 0
    let left = events
    // Like a relay, sends events without a final answer again.
    while (left.length > 0 && calls++ < 60) {
      const answers = codesOf(await bus.send(left))
      const isOver = (at: number) => answers[at] !== 'BROKER_UNAVAILABLE'
      for (const [at, { eventId }] of left.entries()) if (isOver(at)) settled.set(eventId, answers[at])
      left = left.filter((_, at) => !isOver(at))
    }
    expect(events.map(({ eventId }) => settled.get(eventId))).toEqual(
      events.map((_, at) => (isForbidden(at) ? 403 : null)),
    )
    expect(calls).toBeGreaterThan(1)
  })

  it('fails only a message whose headers are too large, with an amqplib that registers before it encodes', async () => {
    const { got } = await consumerOf()
    const long = event({ headers: { long: 'x'.repeat(65_500) } })
    const answers = await countingFirst().send([event(), long, event()])
    expect(codesOf(answers)).toEqual([null, 'EVENT_TOO_LARGE', null])
    await until('the other events have arrived', () => got.length === 2)
  })

  it('does not confirm messages that amqplib could not write', async () => {
    const { got } = await consumerOf()
    const bad = event()
    const bus = countingFirst(bad.eventId)
    const events = [event(), bad, event(), event()]
    const [answers, others] = await Promise.all([bus.send(events), bus.send([event()])])
    expect(codesOf(answers)).toEqual([null, 'EVENT_TOO_LARGE', null, null])
    expect(others).toEqual([null])
    await until('the other events have arrived', () => new Set(got.map(({ eventId }) => eventId)).size === 4)
  })

  it.each([
    ['', 65_500],
    ['?frameMax=8192', 10_000],
  ])('fails only a message whose headers are too large (%s)', async (query, length) => {
    const { got } = await consumerOf()
    const long = event({ headers: { long: 'x'.repeat(length) } })
    const answers = await busOf({}, server.url + query).send([event(), long, event()])
    expect(codesOf(answers)).toEqual([null, 'EVENT_TOO_LARGE', null])
    await until('the other events have arrived', () => got.length === 2)
  })

  it('reports an outage when the user may not publish at all', async () => {
    await server.control('add_user', 'reader', 'secret')
    await server.control('set_permissions', 'reader', '', '', '.*')
    await (await consumerOf()).bus.stop()
    const url = server.url.replace('guest:guest', 'reader:secret')
    const answers = await busOf({}, url).send([event(), event()])
    expect(codesOf(answers)).toEqual(['BROKER_UNAVAILABLE', 'BROKER_UNAVAILABLE'])
  })
})
