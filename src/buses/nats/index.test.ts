import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { headers, type NatsConnection } from '@nats-io/transport-node'
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  connectNats,
  NatsBench,
  type NatsServer,
  startNats,
  startNatsOrSkip,
} from '../../../test/support/nats.js'
import { until } from '../../../test/support/until.js'
import { messageOf } from '../../bus/message.js'
import { fixedDelay } from '../../core/backoff.js'
import { EventEnvelope } from '../../core/envelope.js'
import { Unrecoverable } from '../../core/errors.js'
import { type Logger, silentLogger } from '../../observe/logger.js'
import { type NatsBusOptions, natsBus } from './index.js'
import { headersOf, natsName } from './message.js'

const event = (payload: unknown = { total: 1 }, eventType = 'order.placed') =>
  EventEnvelope.create({ eventType, payload })

const server = await startNatsOrSkip({ settings: { max_payload: 1_048_576 } })

describe.skipIf(!server)('NATS JetStream', () => {
  const url = server?.url ?? ''
  let stream: string
  let admin: NatsConnection
  let manager: Awaited<ReturnType<typeof jetstreamManager>>
  let bench: NatsBench

  beforeEach(async () => {
    bench = new NatsBench(url)
    stream = bench.stream
    admin = await connectNats(url)
    manager = await jetstreamManager(admin)
  })
  afterEach(async () => {
    await bench.end()
    await admin.close()
  })
  afterAll(() => server?.stop())

  const connected: NatsBench['connected'] = (...args) => bench.connected(...args)
  const proxied = () => bench.proxied()
  const busOn: NatsBench['busOn'] = (...args) => bench.busOn(...args)

  it('rejects unknown and invalid settings', () => {
    for (const options of [
      { stream: 'a b' },
      { stream: '' },
      { replicas: 0 },
      { inboxPrefix: 'a.*' },
      { strem: 'x' },
    ] as NatsBusOptions[])
      expect(() => natsBus(admin, options)).toThrow(/stream|replicas|inboxPrefix|strem/)
    expect(() => natsBus(undefined as unknown as NatsConnection)).toThrow(/connection/)
    expect(() => natsBus({} as NatsConnection)).toThrow(/connection/)
  })

  it('creates a durable stream, a dead-letter stream and a consumer', async () => {
    const bus = busOn(admin, { stream: `${stream}.eu`, group: 'billing.v2', takeoverMs: 7_000 })
    bus.subscribe('order.*', { name: 'h', handle: () => {} })
    await bus.start()
    const { config } = await manager.streams.info(`${stream}~eu`)
    expect(config).toMatchObject({
      subjects: [`${stream}~eu.>`],
      storage: 'file',
      retention: 'limits',
      max_msgs: -1,
      max_age: 0,
      duplicate_window: 120_000_000_000,
    })
    expect((await manager.streams.info(`${stream}~eu~billing~v2~dead`)).config.storage).toBe('file')
    const consumer = await manager.consumers.info(`${stream}~eu`, 'billing~v2')
    expect(consumer.config).toMatchObject({
      ack_policy: 'explicit',
      ack_wait: 7_000_000_000,
      deliver_policy: 'all',
      max_deliver: -1,
    })
  })

  it('writes CloudEvents in the binary mode of the NATS binding', async () => {
    const sent = EventEnvelope.create({
      eventId: 'é 1',
      eventType: 'order.placed',
      aggregateId: 'o 1%"€',
      payload: [1],
    })
    await busOn(admin, { source: '/shop' }).publish(sent)
    const stored = await manager.streams.getMessage(stream, { seq: 1 })
    expect(stored?.subject).toBe(`${stream}.order.placed`)
    expect(stored?.string()).toBe('[1]')
    expect(Object.fromEntries(stored?.header ?? [])).toEqual({
      'Nats-Msg-Id': ['%C3%A9%201'],
      'ce-specversion': ['1.0'],
      'ce-id': ['%C3%A9%201'],
      'ce-type': ['order.placed'],
      'ce-source': ['/shop'],
      'ce-time': [sent.occurredAt.toISOString()],
      'ce-datacontenttype': ['application/json'],
      'ce-schemaversion': ['1'],
      'ce-aggregatetype': ['__GLOBAL__'],
      'ce-aggregateid': ['o%201%25%22%E2%82%AC'],
      'ce-subject': ['o%201%25%22%E2%82%AC'],
    })
  })

  it('reads messages of other producers with other letter case, other headers and unencoded values', async () => {
    const got: EventEnvelope[] = []
    const bus = busOn(admin, { group: 'g' })
    bus.subscribe('*', { name: 'h', handle: (event) => void got.push(event) })
    await bus.start()
    const own = headers()
    for (const [name, value] of [
      ['CE-SpecVersion', '1.0'],
      ['Ce-Id', '100%'],
      ['ce-source', '/x'],
      ['ce-type', '"a \\"b\\""'],
      ['Content-Type', 'application/octet-stream'],
      ['x-other', 'none of our business'],
    ] as const)
      own.set(name, value)
    await jetstream(admin).publish(`${stream}.x`, new Uint8Array([0, 255]), { headers: own })
    await until(() => got.length === 1)
    expect(got[0]).toMatchObject({ eventId: '100%', eventType: 'a "b"', payload: new Uint8Array([0, 255]) })
  })

  it('uses an existing stream and an existing consumer without changes', async () => {
    await manager.streams.add({ name: stream, subjects: [`${stream}.>`], storage: 'memory', max_msgs: 10 })
    await manager.consumers.add(stream, { durable_name: 'g', ack_policy: 'explicit', ack_wait: 60e9 })
    const got: string[] = []
    const bus = busOn(admin, { group: 'g' })
    bus.subscribe('*', { name: 'h', handle: ({ eventId }) => void got.push(eventId) })
    await bus.start()
    const id = await bus.publish(event())
    await until(() => got.includes(id))
    expect((await manager.streams.info(stream)).config).toMatchObject({ storage: 'memory', max_msgs: 10 })
    expect((await manager.consumers.info(stream, 'g')).config.ack_wait).toBe(60e9)
  })

  it.each([
    ['would give messages away while they are worked on', { ack_wait: 1e9 }, /takeoverMs.*1000/],
    ['pushes', { deliver_subject: 'somewhere' }, /pull consumer/],
  ])('refuses a consumer that %s', async (_what, config, message) => {
    await manager.streams.add({ name: stream, subjects: [`${stream}.>`] })
    await manager.consumers.add(stream, { durable_name: 'g', ack_policy: 'explicit', ...config })
    const bus = busOn(admin, { group: 'g' })
    bus.subscribe('*', { name: 'h', handle: () => {} })
    await expect(bus.start()).rejects.toThrow(message)
  })

  it('fails only a message that is too large, and reports no outage', async () => {
    const tooLarge = event(new Uint8Array(1_048_576))
    const [first, refused, last] = await busOn(admin).send([event(), tooLarge, event()])
    expect([first, last]).toEqual([null, null])
    expect(String(refused)).toMatch(/max_payload/)
    expect(refused).not.toMatchObject({ code: 'BROKER_UNAVAILABLE' })
  })

  it('reports an outage when the stream is full', async () => {
    const subjects = [`${stream}.>`]
    await manager.streams.add({ name: stream, subjects, max_msgs: 1, discard: 'new' })
    const [taken, refused] = await busOn(admin).send([event(), event()])
    expect(taken).toBe(null)
    expect(refused).toMatchObject({ code: 'BROKER_UNAVAILABLE' })
  })

  it('fails only a message whose body or headers are too large for the stream', async () => {
    const subjects = [`${stream}.>`]
    await manager.streams.add({ name: stream, subjects, max_msg_size: 100_000 })
    const bulky = event(new Uint8Array(100_000))
    const wordy = EventEnvelope.create({
      eventType: 'a',
      payload: 1,
      headers: { note: '"'.repeat(20_000) },
    })
    const [first, tooLarge, tooMuch, last] = await busOn(admin).send([event(), bulky, wordy, event()])
    expect([first, last]).toEqual([null, null])
    for (const refused of [tooLarge, tooMuch]) expect(refused).toMatchObject({ code: 'BROKER_REFUSED' })
    expect(String(tooLarge)).toMatch(/10054/)
    expect(String(tooMuch)).toMatch(/10097/)
  })

  it('reports an outage when the stream is sealed', async () => {
    const { config } = await manager.streams.add({ name: stream, subjects: [`${stream}.>`] })
    await admin.request(`$JS.API.STREAM.UPDATE.${stream}`, JSON.stringify({ ...config, sealed: true }))
    const [refused] = await busOn(admin).send([event()])
    expect(refused).toMatchObject({ code: 'BROKER_UNAVAILABLE' })
    expect(String(refused)).toMatch(/10109/)
  })

  it('reports an outage when the account is full, and recovers when the account has space again', async () => {
    const users = [{ user: 'u', password: 'p' }]
    const accounts = { APP: { users, jetstream: { max_mem: 0, max_file: 100_000 } } }
    const small = await startNats({ settings: { accounts } })
    bench.ends.push(() => small.stop())
    const connection = await connectNats(small.url, { user: 'u', pass: 'p' })
    bench.ends.push(() => connection.close())
    const bus = busOn(connection)
    const answers = await bus.send(Array.from({ length: 4 }, () => event(new Uint8Array(40_000))))
    expect(answers).toMatchObject([null, null, ...Array(2).fill({ code: 'BROKER_UNAVAILABLE' })])
    expect(String(answers[2])).toMatch(/10002/)
    await (await jetstreamManager(connection)).streams.purge(stream)
    expect(await bus.send([event()])).toEqual([null])
  })

  it('refuses a confirmation of another stream that receives the subjects', async () => {
    await manager.streams.add({ name: stream, subjects: [`${stream}-else.>`] })
    await manager.streams.add({ name: `${stream}-other`, subjects: [`${stream}.>`] })
    const [refused] = await busOn(admin).send([event()])
    expect(refused).toMatchObject({ code: 'BROKER_REFUSED' })
    expect(String(refused)).toContain(`${stream}-other`)
  })

  it('creates a deleted stream again', async () => {
    const bus = busOn(admin)
    await bus.publish(event())
    await manager.streams.delete(stream)
    const [refused] = await bus.send([event()])
    expect(refused).toMatchObject({ code: 'BROKER_UNAVAILABLE' })
    expect(await bus.send([event()])).toEqual([null])
  })

  it('creates a deleted consumer again', async () => {
    const got: string[] = []
    const bus = busOn(admin, { group: 'g' })
    bus.subscribe('*', { name: 'h', handle: ({ eventId }) => void got.push(eventId) })
    await bus.start()
    await manager.consumers.delete(stream, 'g')
    const id = await bus.publish(event())
    await until(() => got.includes(id))
  })

  it('keeps confirmed messages when the server is killed', async () => {
    const bus = busOn(admin)
    const events = Array.from({ length: 300 }, (_, number) => event({ number }))
    const sent = bus.send(events.slice(0, 200))
    expect((await sent).every((answer) => answer === null)).toBe(true)
    const cutShort = bus.send(events.slice(200))
    await server?.kill()
    const confirmed = 200 + (await cutShort).filter((answer) => answer === null).length
    await server?.start()
    const isBack = () =>
      bus.check().then(
        () => true,
        () => false,
      )
    await until(isBack)
    expect((await manager.streams.info(stream)).state.messages).toBeGreaterThanOrEqual(confirmed)
  })

  it('reports a closed connection, and fails to publish at once', async () => {
    const told: string[] = []
    const logger: Logger = { ...silentLogger, warn: (fields) => void told.push(JSON.stringify(fields)) }
    const connection = await connected()
    const bus = busOn(connection, { group: 'g', logger, confirmTimeoutMs: 60_000 })
    bus.subscribe('*', { name: 'h', handle: () => {} })
    await bus.start()
    await connection.close()
    await until(() => told.some((line) => line.includes('closed for good')))
    expect(await bus.send([event()])).toMatchObject([{ code: 'BROKER_UNAVAILABLE' }])
    await expect(bus.check()).rejects.toMatchObject({ code: 'BROKER_UNAVAILABLE' })
  })

  it('fails pending and new publishes at once while the connection is lost', async () => {
    const proxy = await proxied()
    const bus = busOn(await connected(proxy.url), { confirmTimeoutMs: 60_000 })
    await bus.publish(event())
    proxy.freeze('to-client')
    const under = bus.send([event()])
    proxy.refuse()
    expect(await under).toMatchObject([{ code: 'BROKER_UNAVAILABLE' }])
    expect(await bus.send([event()])).toMatchObject([{ code: 'BROKER_UNAVAILABLE' }])
    proxy.thaw()
    proxy.accept()
    await until(async () => (await bus.send([event()]))[0] === null)
  })

  it.each([
    ['space for a part of the reason', 1_000, 'h'],
    ['no space for the reason', 0, ''],
  ])('dead-letters a message that leaves %s', async (_what, left, handlers) => {
    const bus = busOn(admin, { group: 'g' })
    bus.subscribe('*', {
      name: 'h',
      handle: () => {
        throw new Unrecoverable('ü'.repeat(3_000))
      },
    })
    await bus.start()
    const { id, contentType, attributes } = messageOf(event(new Uint8Array()), undefined)
    const space = 1_048_576 - headersOf(id, contentType, attributes).size - left
    await bus.publish(event(new Uint8Array(space)))
    const dead = `${stream}~g~dead`
    await until(async () => (await manager.streams.info(dead)).state.messages === 1)
    const letter = await manager.streams.getMessage(dead, { seq: 1 })
    expect(letter?.data.length).toBe(space)
    expect(letter?.header.get('ce-deadhandlers')).toBe(handlers)
  })

  it('consumes dead letters, and can publish them again', async () => {
    let isBroken = true
    const handled: string[] = []
    const bus = busOn(admin, { group: 'g', retry: { maxAttempts: 1, policy: fixedDelay(1) } })
    bus.subscribe('*', {
      name: 'h',
      handle: ({ eventId }) => {
        if (isBroken) throw new Error('no')
        handled.push(eventId)
      },
    })
    await bus.start()
    const id = await bus.publish(event())
    const dead = natsName(`${stream}.g.dead`)
    await until(async () => (await manager.streams.info(dead)).state.messages === 1)
    isBroken = false
    const inspector = busOn(admin, { stream: `${stream}.g.dead`, group: 'again' })
    const seen: EventEnvelope[] = []
    inspector.subscribe('*', { name: 'look', handle: (event) => void seen.push(event) })
    await inspector.start()
    await until(() => seen.length === 1)
    expect(seen[0]?.eventId).toBe(id)
    const stored = await manager.streams.getMessage(dead, { seq: 1 })
    const own = stored?.header as ReturnType<typeof headers>
    own.delete('Nats-Msg-Id')
    await jetstream(admin).publish(`${stream}.order.placed`, stored?.data as Uint8Array, { headers: own })
    await until(() => handled.includes(id))
  })

  describe('with permissions', () => {
    let guarded: NatsServer
    beforeEach(async () => {
      const publish = { deny: ['events.secret.>'] }
      const subscribe = { allow: ['mine.>'] }
      const users = [{ user: 'u', password: 'p', permissions: { publish, subscribe } }]
      guarded = await startNats({ settings: { authorization: { users } } })
      bench.ends.push(() => guarded.stop())
    })

    it('reports a missing permission to publish as an outage at once, and supports another inbox prefix', async () => {
      const login = { user: 'u', pass: 'p', inboxPrefix: 'mine' }
      const connection = await connectNats(guarded.url, login)
      bench.ends.push(() => connection.close())
      const options = { stream: 'events', inboxPrefix: 'mine', confirmTimeoutMs: 60_000 }
      const [taken, refused] = await busOn(connection, options).send([
        event(1, 'order.placed'),
        event(2, 'secret.plan'),
      ])
      expect(taken).toBe(null)
      expect(refused).toMatchObject({ code: 'BROKER_UNAVAILABLE' })
      expect(String(refused)).toContain('allow to publish to events.secret.plan')
    })
  })
})
