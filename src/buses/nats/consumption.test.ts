import { jetstreamManager } from '@nats-io/jetstream'
import type { NatsConnection } from '@nats-io/transport-node'
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest'
import { connectNats, NatsBench, startNatsOrSkip } from '../../../test/support/nats.js'
import { type Gate, gate, turns, until } from '../../../test/support/until.js'
import { EventEnvelope } from '../../core/envelope.js'
import { type Logger, silentLogger } from '../../observe/logger.js'

const event = () => EventEnvelope.create({ eventType: 'order.placed', payload: { total: 1 } })

/** Records the event, and resolves when the gate opens. */
const waitingHandler =
  (begun: string[], finish: Gate) =>
  ({ eventId }: EventEnvelope) => {
    begun.push(eventId)
    return finish.opened
  }

const server = await startNatsOrSkip()

describe.skipIf(!server)('NatsConsumption', () => {
  const url = server?.url ?? ''
  let stream: string
  let admin: NatsConnection
  let bench: NatsBench

  beforeEach(async () => {
    bench = new NatsBench(url)
    stream = bench.stream
    admin = await connectNats(url)
  })
  afterEach(async () => {
    await bench.end()
    await admin.close()
  })
  afterAll(() => server?.stop())

  const connected: NatsBench['connected'] = (...args) => bench.connected(...args)
  const proxied = () => bench.proxied()
  const busOn: NatsBench['busOn'] = (...args) => bench.busOn(...args)

  /** Returns the number of messages that the consumers of the group have not acknowledged. */
  async function waiting(group: string): Promise<number> {
    const manager = await jetstreamManager(admin)
    return (await manager.consumers.info(stream, group)).num_ack_pending
  }

  it('repeats an acknowledgement that was lost with its connection, without a redelivery', async () => {
    const proxy = await proxied()
    const finish = gate()
    let calls = 0
    const work = () => {
      calls++
      return finish.opened
    }
    const bus = busOn(await connected(proxy.url), { group: 'g' })
    bus.subscribe('*', { name: 'h', handle: work })
    await bus.start()
    await bus.publish(event())
    await until(() => calls === 1)
    proxy.freeze('to-server')
    finish.open()
    // The proxy drops the acknowledgement, so the server still waits for it after a round trip.
    expect(await waiting('g')).toBe(1)
    proxy.thaw()
    await until(async () => (await waiting('g')) === 0)
    expect(calls).toBe(1)
  })

  it('keeps its messages when the connection is lost for less than takeoverMs', async () => {
    const proxy = await proxied()
    const finish = gate()
    const got: string[] = []
    const bus = busOn(await connected(proxy.url), { group: 'g', concurrency: 1 })
    bus.subscribe('*', { name: 'h', handle: waitingHandler(got, finish) })
    await bus.start()
    const ids = await bus.publishAll([event(), event(), event()])
    await until(async () => got.length === 1 && (await waiting('g')) === 3)
    proxy.cut()
    await until(() => proxy.accepted === 2)
    finish.open()
    await until(async () => (await waiting('g')) === 0)
    expect(got).toEqual(ids)
  })

  it('does not start messages that another consumer may have received', async () => {
    const proxy = await proxied()
    const finish = gate()
    const options = { group: 'g', concurrency: 1, takeoverMs: 500, confirmTimeoutMs: 300 }
    const mine: string[] = []
    let problemAt = 0
    const warn = () => {
      problemAt = performance.now()
    }
    const logger: Logger = { ...silentLogger, warn }
    const first = busOn(await connected(proxy.url), { ...options, logger })
    first.subscribe('*', { name: 'h', handle: waitingHandler(mine, finish) })
    await first.start()
    const ids = await busOn(admin).publishAll([event(), event(), event()])
    await until(async () => mine.length === 1 && (await waiting('g')) === 3)
    proxy.freeze()
    const theirs: string[] = []
    const second = busOn(await connected(), options)
    second.subscribe('*', { name: 'h', handle: ({ eventId }) => void theirs.push(eventId) })
    await second.start()
    await until(() => theirs.length === 3)
    // The consumer has stopped to extend leases, because it has none.
    await until(() => performance.now() - problemAt > 700)
    finish.open()
    await turns(20)
    expect(mine).toEqual([ids[0]])
    expect([...theirs].sort()).toEqual([...ids].sort())
  })

  it('releases messages that were not started at a stop', async () => {
    const finish = gate()
    const mine: string[] = []
    const first = busOn(admin, { group: 'g', concurrency: 1 })
    first.subscribe('*', { name: 'h', handle: waitingHandler(mine, finish) })
    await first.start()
    const ids = await first.publishAll([event(), event(), event()])
    await until(async () => mine.length === 1 && (await waiting('g')) === 3)
    const stopped = first.stop()
    finish.open()
    await stopped
    const theirs: string[] = []
    const second = busOn(await connected(), { group: 'g', concurrency: 1 })
    second.subscribe('*', { name: 'h', handle: ({ eventId }) => void theirs.push(eventId) })
    await second.start()
    await until(() => theirs.length === 2)
    expect([...mine, ...theirs]).toEqual(ids)
  })

  it('leaves no subscriptions on the connection of the user', async () => {
    const connection = await connected()
    const bus = busOn(connection, { group: 'g' })
    bus.subscribe('*', { name: 'h', handle: () => {} })
    const before = subscriptionsOf(connection)
    await bus.start()
    await bus.publish(event())
    expect(subscriptionsOf(connection)).toBeGreaterThan(before)
    await bus.stop()
    expect(subscriptionsOf(connection)).toBe(before)
    expect(connection.isClosed()).toBe(false)
  })
})

/** Reads the number of subscriptions from a private field, because the client does not export it. */
function subscriptionsOf(connection: NatsConnection): number {
  const { protocol } = connection as unknown as {
    protocol: { subscriptions: { size(): number }; listeners: readonly unknown[] }
  }
  return protocol.subscriptions.size() + protocol.listeners.length
}
