import { randomBytes } from 'node:crypto'
import diagnostics from 'node:diagnostics_channel'
import type { Socket } from 'node:net'
import {
  KafkaJSConnectionError,
  KafkaJSNonRetriableError,
  KafkaJSNumberOfRetriesExceeded,
  KafkaJSProtocolError,
  Partitioners,
} from 'kafkajs'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import {
  committedOf,
  createNarrow,
  KafkaPlace,
  kafkajsOf,
  kafkaOrSkip,
  platformaticOf,
  readTopic,
} from '../../../test/support/kafka.js'
import { recordingLogger } from '../../../test/support/recording.js'
import { gate, until } from '../../../test/support/until.js'
import type { BrokerBus } from '../../bus/broker-bus.js'
import { EventEnvelope } from '../../core/envelope.js'
import { silentLogger } from '../../observe/logger.js'
import { hashOf } from './client.js'
import { isRefusal, isUnavailable } from './errors.js'
import { type KafkaBusOptions, type KafkajsClient, kafkaBus } from './index.js'
import { messageOf } from './message.js'

describe('Kafka without a broker', () => {
  it('hashes keys like the default partitioner of the Java client and of kafkajs', () => {
    const partitioner = Partitioners.DefaultPartitioner()
    const partitionMetadata = Array.from({ length: 7 }, (_, partitionId) => ({ partitionId, leader: 1 }))
    for (let length = 0; length < 40; length++) {
      const key = randomBytes(length)
      const theirs = partitioner({
        topic: 't',
        message: { key, value: '' },
        partitionMetadata: partitionMetadata as never,
      })
      expect(hashOf(key) % 7, key.toString('hex')).toBe(theirs)
    }
  })

  it('recognizes a message that is too large as a refusal, and retriable errors as an outage', () => {
    const protocol = (type: string, retriable: boolean) =>
      new KafkaJSProtocolError({ type, code: 1, message: type, retriable } as never)
    const tooLarge = protocol('MESSAGE_TOO_LARGE', false)
    for (const refusal of [
      tooLarge,
      Object.assign(new KafkaJSNonRetriableError('wrapped'), { cause: tooLarge }),
    ]) {
      expect(isRefusal(refusal)).toBe(true)
      expect(isUnavailable(refusal)).toBe(false)
    }
    const notLeader = protocol('NOT_LEADER_FOR_PARTITION', true)
    const outages = [
      notLeader,
      new KafkaJSNumberOfRetriesExceeded(notLeader, {
        retryCount: 5,
        retryTime: 1,
        cause: notLeader,
      } as never),
      new KafkaJSConnectionError('Connection error: refused', { broker: 'x', code: 'ECONNREFUSED' } as never),
      protocol('TOPIC_AUTHORIZATION_FAILED', false),
      Object.assign(new AggregateError([Object.assign(new Error('no'), { code: 'PLT_KFK_NETWORK' })])),
      Object.assign(new Error('no'), { apiId: 'NOT_ENOUGH_REPLICAS', canRetry: true }),
    ]
    for (const outage of outages) {
      expect(isUnavailable(outage), String(outage)).toBe(true)
      expect(isRefusal(outage)).toBe(false)
    }
    for (const unknown of [new Error('who knows'), null, 'text']) expect(isUnavailable(unknown)).toBe(false)
  })

  it('reads headers of other producers, and ignores unknown headers', () => {
    const message = messageOf(
      [
        ['Content-Type', Buffer.from('text/plain')],
        ['CE_id', 'x'],
        ['ce_subject', Buffer.from('Grüße')],
        ['ce_subject', Buffer.from('again')],
        ['ce_absent', undefined],
        ['trace', Buffer.from([0xff])],
      ],
      null,
    )
    expect(message).toMatchObject({ contentType: 'text/plain', deliveryCount: 1 })
    expect({ ...message.attributes }).toEqual({ id: 'x', subject: 'Grüße' })
    expect(message.body).toHaveLength(0)
  })

  it('rejects unknown settings and unknown clients', () => {
    const client = kafkajsOf(['127.0.0.1:1'])
    const wrong: KafkaBusOptions[] = [
      { topic: 'with space' },
      { partitions: 0 },
      { replicas: 1.5 },
      { topics: 'x' } as never,
    ]
    for (const options of wrong)
      expect(() => kafkaBus(client, options), JSON.stringify(options)).toThrow(/topic|partitions|replicas/)
    for (const none of [null, {}, { producer: () => {} }, { Producer: class {} }])
      expect(() => kafkaBus(none as unknown as KafkajsClient)).toThrow(/kafkajs, or/)
  })
})

const given = process.env.KAFKA_BROKERS?.split(',')
const place = given ? undefined : await kafkaOrSkip(() => KafkaPlace.start(1))
const brokers = given ?? place?.server.brokers ?? []

describe.skipIf(brokers.length === 0)('Kafka with a broker', () => {
  const buses: BrokerBus[] = []
  const kafka = kafkajsOf(brokers)
  let topic: string

  beforeAll(async () => {
    // The first consumer of a new broker waits until the broker has created its internal topics.
    const first = make({ topic: 'warm-up', group: 'g' })
    first.subscribe('*', { name: 'none', handle: () => {} })
    await first.start()
    await first.stop()
  })
  afterEach(() => Promise.all(buses.splice(0).map((bus) => bus.stop())))
  afterAll(() => place?.stop())

  const clients = [
    ['kafkajs', (to = brokers) => kafkajsOf(to)],
    ['@platformatic/kafka', (to = brokers) => platformaticOf(to)],
  ] as const

  function make(options: KafkaBusOptions = {}, client = () => clients[0][1]() as never): BrokerBus {
    const bus = kafkaBus(client(), { topic, logger: silentLogger, ...options })
    buses.push(bus)
    return bus
  }

  function freshTopic(): string {
    topic = `t-${randomBytes(6).toString('hex')}`
    return topic
  }

  describe.each(clients)('by %s', (_name, client) => {
    const bus = (options: KafkaBusOptions = {}) => make(options, client as () => never)
    const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length

    it('writes attributes as ce_ headers and the payload as the value', async () => {
      freshTopic()
      const event = EventEnvelope.create({
        eventType: 'order.placed',
        aggregateId: 'Bestellung "5" 100%',
        orderingKey: 'Kündin',
        payload: { total: 42 },
      })
      await bus({ source: '/shop' }).publish(event)
      const [record] = await readTopic(kafka, topic)
      expect(record?.key).toBe('Kündin')
      expect(record?.value.toString()).toBe('{"total":42}')
      expect(record?.headers).toMatchObject({
        'content-type': 'application/json',
        ce_specversion: '1.0',
        ce_id: event.eventId,
        ce_type: 'order.placed',
        ce_source: '/shop',
        ce_subject: 'Bestellung "5" 100%',
        ce_orderingkey: 'Kündin',
      })
    })

    it('uses an existing topic without changes, and creates a topic that accepts events of 1 MiB', async () => {
      const admin = kafka.admin()
      await admin.connect()
      const partitionsOf = async () =>
        (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0]?.partitions.length
      await admin.createTopics({ topics: [{ topic: freshTopic(), numPartitions: 2 }], waitForLeaders: false })
      await bus({ partitions: 9 }).publish(event())
      expect(await partitionsOf()).toBe(2)
      freshTopic()
      await bus({ partitions: 3 }).publish(event({ text: 'x'.repeat(1_040_000) }))
      expect(await partitionsOf()).toBe(3)
      await admin.disconnect()
    })

    it('fails only a message that is too large', async () => {
      await createNarrow(kafka, freshTopic())
      const events = Array.from({ length: 9 }, (_, n) => event({ text: 'x'.repeat(n === 4 ? 30_000 : 10) }))
      const answers = await bus().send(events)
      expect(answers.map((answer) => answer === null)).toEqual(events.map((_, n) => n !== 4))
      expect(isRefusal(answers[4])).toBe(true)
      const stored = new Set((await readTopic(kafka, topic)).map(({ headers }) => headers.ce_id))
      expect(stored).toEqual(new Set(events.filter((_, n) => n !== 4).map(({ eventId }) => eventId)))
    })

    it('returns to each call the answers for its own messages when calls share a batch', async () => {
      await createNarrow(kafka, freshTopic())
      const tested = bus()
      const calls = [[10, 10], [10, 30_000, 10], [], [10]]
      const answers = await Promise.all(
        calls.map((sizes) => tested.send(sizes.map((size) => event({ text: 'x'.repeat(size) })))),
      )
      const isTaken = answers.map((own) => own.map((answer) => answer === null))
      expect(isTaken).toEqual(calls.map((sizes) => sizes.map((size) => size === 10)))
      expect(await readTopic(kafka, topic)).toHaveLength(5)
    })

    // A producer that is not replaced would reuse the sequence number, and Kafka would drop the second message as a duplicate.
    it.skipIf(!place)('what follows a confirm that was lost is not taken for it', async () => {
      freshTopic()
      const door = (place as KafkaPlace).take()
      const { proxy } = door
      const tested = make({ confirmTimeoutMs: 2_000 }, () => client([`127.0.0.1:${proxy.port}`]) as never)
      const events = Array.from({ length: 3 }, () =>
        EventEnvelope.create({ eventType: 'a', orderingKey: 'k' }),
      )
      const [before, unconfirmed, after] = events as [EventEnvelope, EventEnvelope, EventEnvelope]
      await tested.publish(before)
      proxy.freeze('answers')
      await expect(tested.publish(unconfirmed)).rejects.toThrow(/not confirmed/)
      proxy.thaw()
      await until(() => tested.publish(after).then(Boolean, () => false), { timeoutMs: 20_000 })
      await tested.stop()
      place?.giveBack(door)
      const ids = (await readTopic(kafka, topic)).map(({ headers }) => headers.ce_id)
      expect(ids).toEqual(expect.arrayContaining(events.map(({ eventId }) => eventId)))
    })

    it('loses no message while members join and leave', async () => {
      freshTopic()
      const events = Array.from({ length: 300 }, (_, n) => event({ n }))
      const done = new Set<string>()
      const member = async () => {
        const tested = bus({ group: 'g', concurrency: 2 })
        const handle = async ({ eventId }: EventEnvelope) => {
          await new Promise((resolve) => setTimeout(resolve, 10))
          done.add(eventId)
        }
        tested.subscribe('*', { name: 'work', handle })
        await tested.start()
        return tested
      }
      const first = await member()
      await bus().publishAll(events)
      for (const share of [20, 60, 100]) {
        await until(() => done.size >= share)
        await member()
      }
      await first.stop()
      await until(() => done.size === events.length, { timeoutMs: 20_000, what: 'all are done' })
    })

    it('receives unacknowledged messages of a partition without a commit again after a rebalance', async () => {
      freshTopic()
      const begun = new Set<string>()
      const done = new Set<string>()
      const { opened, open } = gate()
      const handle = async ({ eventId }: EventEnvelope) => {
        if (begun.has(eventId)) return void done.add(eventId)
        begun.add(eventId)
        await opened
        throw new Error('the first time')
      }
      const member = async (handler: (event: EventEnvelope) => unknown) => {
        const tested = bus({ group: 'g', drainTimeoutMs: 0 })
        tested.subscribe('*', { name: 'work', handle: handler })
        await tested.start()
        return tested
      }
      await member(handle)
      const events = Array.from({ length: 12 }, (_, n) => event({ n }))
      await bus().publishAll(events)
      await until(() => begun.size === events.length)
      const guest = await member(() => new Promise(() => {}))
      await guest.stop()
      open()
      await until(() => done.size === events.length, { timeoutMs: 20_000, what: 'all have come again' })
    })

    it('leaves no handles open after a stop, so that the process can end', async () => {
      freshTopic()
      const before = sockets()
      const tested = bus({ group: 'g' })
      let got = 0
      tested.subscribe('*', { name: 'count', handle: () => got++ })
      await tested.start()
      await tested.publish(event())
      await until(() => got === 1)
      expect(sockets()).toBeGreaterThan(before)
      await tested.stop()
      await until(() => sockets() <= before, { what: 'its connections are closed' })
    })

    it('opens no connection after a stop during its first publish', async () => {
      freshTopic()
      const before = sockets()
      const tested = bus()
      const answer = tested.publish(event()).then(
        () => 'confirmed',
        (error) => error.code,
      )
      await until(() => sockets() > before)
      await tested.stop()
      expect(await answer).toBe('NOT_CONFIRMED')
      await until(() => sockets() <= before, { what: 'its connections are closed' })
    })

    it('uses a new connection after a check without an answer', async () => {
      freshTopic()
      const silent: Socket[] = []
      const silence = (message: unknown) => {
        const { socket } = message as { socket: Socket }
        silent.push(socket.pause())
      }
      onTestFinished(() => {
        diagnostics.unsubscribe('net.client.socket', silence)
        for (const socket of silent) socket.destroy()
      })
      const tested = bus({ confirmTimeoutMs: 2_000 })
      diagnostics.subscribe('net.client.socket', silence)
      await expect(tested.check()).rejects.toMatchObject({ code: 'BROKER_UNAVAILABLE' })
      diagnostics.unsubscribe('net.client.socket', silence)
      expect(silent.length).toBeGreaterThan(0)
      await tested.check()
    })

    it('dead-letters as much as the dead-letter topic accepts, and names the missing parts', async () => {
      freshTopic()
      await createNarrow(kafka, `${topic}.g.dead`)
      const logger = recordingLogger()
      const tested = bus({ group: 'g', partitions: 1, retry: { maxAttempts: 1 }, logger })
      const fail = () => {
        throw new Error('no '.repeat(200))
      }
      for (let n = 0; n < 8; n++) tested.subscribe('*', { name: `h${n}`, handle: fail })
      const letters = () => readTopic(kafka, `${topic}.g.dead`)
      const long = event({ text: 'x'.repeat(17_500) })
      const longer = event({ text: 'x'.repeat(30_000) })
      await tested.publishAll([long, longer])
      await tested.start()
      await until(async () => (await letters()).length === 2, { timeoutMs: 20_000 })
      const byId = new Map((await letters()).map((letter) => [letter.headers.ce_id, letter]))
      const whole = byId.get(long.eventId)
      expect(whole?.value.toString()).toBe(long.payloadText)
      expect(whole?.headers.ce_deaderror).toMatch(/^h0: Error: no no/)
      const rest = byId.get(longer.eventId)
      expect(rest?.value).toHaveLength(0)
      expect(rest?.headers).toMatchObject({ ce_type: 'order.placed', ce_deadgroup: 'g' })
      expect(rest?.headers).not.toHaveProperty('ce_specversion')
      expect(rest?.headers.ce_deaderror).toContain(
        `payload of ${longer.payloadText?.length} bytes is too large for the dead-letter topic. The original is at offset 1 of`,
      )
      expect(JSON.stringify(logger.lines)).toContain(`topic ${topic}.g.dead and will be shortened`)
      await until(async () => (await committedOf(kafka, topic, `${topic}.g`)) === '2', {
        what: 'both are committed',
      })
    })

    it('dead-letters a message so that another bus can read it', async () => {
      freshTopic()
      const tested = bus({ group: 'g', retry: { maxAttempts: 1 } })
      tested.subscribe('*', {
        name: 'picky',
        handle: () => {
          throw new Error('no')
        },
      })
      await tested.start()
      const dead = event({ poison: true })
      await tested.publish(dead)
      const found: EventEnvelope[] = []
      const inspector = bus({ topic: `${topic}.g.dead`, group: 'inspector' })
      inspector.subscribe('*', { name: 'look', handle: (letter) => found.push(letter) })
      await inspector.start()
      await until(() => found.length === 1)
      expect(found[0]?.toJSON()).toEqual(dead.toJSON())
    })
  })

  it('chooses the same partition for a key with both clients', async () => {
    freshTopic()
    const keys = Array.from({ length: 20 }, (_, n) => `key-${n}-é`)
    for (const [, client] of clients) {
      const events = keys.map((orderingKey) => EventEnvelope.create({ eventType: 'a', orderingKey }))
      await make({}, client as () => never).publishAll(events)
    }
    const places = new Map<string, Set<number>>()
    for (const { key, partition } of await readTopic(kafka, topic))
      places.set(key, (places.get(key) ?? new Set()).add(partition))
    expect(places.size).toBe(keys.length)
    for (const [key, partitions] of places) expect(partitions.size, key).toBe(1)
    expect(new Set([...places.values()].flatMap((all) => [...all])).size).toBeGreaterThan(1)
  })
})

function event(payload: unknown = { total: 42 }): EventEnvelope {
  return EventEnvelope.create({ eventType: 'order.placed', payload })
}
