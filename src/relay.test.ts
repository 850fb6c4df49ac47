import { describe, expect, it } from 'vitest'
import type { ConfirmingPublisher, EventPublisher } from './bus.js'
import { InMemoryEventBus } from './buses/memory/index.js'
import { systemClock } from './core/clock.js'
import { EventEnvelope } from './core/envelope.js'
import { AftercommitError, BrokerUnavailableError, NotConfirmedError } from './core/errors.js'
import { silentLogger } from './observe/logger.js'
import type { Tracer } from './observe/tracing.js'
import { Relay } from './relay.js'
import { createTestOutbox, type TestOutbox } from './testing/test-outbox.js'

/** A bus whose outages and refusals the test controls. */
class Broker extends InMemoryEventBus implements ConfirmingPublisher {
  isDown = false
  checks = 0
  readonly batches: string[][] = []
  refuses: (event: EventEnvelope) => boolean = () => false

  override async send(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]> {
    this.batches.push(events.map((event) => event.eventId))
    if (this.isDown) return events.map(() => new BrokerUnavailableError('The broker', 'is down'))
    const taken = events.filter((event) => !this.refuses(event))
    await this.publishAll(taken)
    return events.map((event) => (this.refuses(event) ? new Error('too large') : null))
  }

  override async check(): Promise<void> {
    this.checks++
    if (this.isDown) throw new Error('down')
  }

  get ids(): string[] {
    return this.publishedEvents().map((event) => event.eventId)
  }
}

const upTo = (count: number) => Array.from({ length: count }, (_, n) => n)

function publish(outbox: TestOutbox, numbers: readonly number[], more: { orderingKey?: string } = {}) {
  return outbox.transaction((tx) =>
    tx.publishAll(numbers.map((n) => ({ type: 'order.placed', eventId: `e${n}`, payload: n, ...more }))),
  )
}

async function stopped(outbox: TestOutbox): Promise<void> {
  const stopping = outbox.stop()
  await outbox.clock.advance(60_000)
  await stopping
}

describe('relay', () => {
  it('registers none of its events if one of them is refused', async () => {
    const outbox = createTestOutbox()
    const [refused, used] = [new Broker(), new Broker()]
    for (const last of ['*.b', 'order.*', 5 as never]) {
      expect(() => outbox.relay(refused, { events: ['a', 'order.placed', last] })).toThrow(AftercommitError)
    }
    expect(outbox.handledTypes).toEqual([])
    outbox.relay(used, { events: ['a', 'order.placed'] })
    await publish(outbox, [0])
    await outbox.drain()
    expect([refused.ids, used.ids]).toEqual([[], ['e0']])
  })

  it('publishes the selected events in batches, and settles them', async () => {
    const outbox = createTestOutbox()
    const broker = new Broker()
    outbox.relay(broker, { events: ['order.*'], batchSize: 4 })
    await publish(outbox, upTo(10))
    await outbox.drain()
    expect(broker.ids.sort()).toEqual(upTo(10).map((n) => `e${n}`))
    expect(broker.batches.map((batch) => batch.length)).toEqual([4, 4, 2])
    expect(await outbox.stats()).toMatchObject({ pending: 0, dead: 0, done: 10 })
  })

  it('publishes to any EventPublisher', async () => {
    const outbox = createTestOutbox()
    const bus = new InMemoryEventBus()
    outbox.relay(bus)
    await publish(outbox, [1])
    await outbox.drain()
    expect(bus.eventCount()).toBe(1)
  })

  it('fails only the event that a publisher refuses, and publishes its neighbors', async () => {
    const outbox = createTestOutbox({ retry: { maxAttempts: 1 } })
    const taken: string[] = []
    const publisher: EventPublisher = {
      publish: () => Promise.reject(new Error('not called')),
      // This publisher is atomic, like another outbox.
      publishAll: async (events) => {
        const envelopes = events as readonly EventEnvelope[]
        if (envelopes.some(({ payload }) => payload === 3)) throw new Error('total is missing')
        taken.push(...envelopes.map(({ eventId }) => eventId))
        return []
      },
    }
    outbox.relay(publisher)
    await publish(outbox, upTo(10))
    await outbox.drain()
    expect(taken.sort()).toEqual(
      upTo(10)
        .filter((n) => n !== 3)
        .map((n) => `e${n}`),
    )
    const rows = await outbox.records()
    expect(rows.filter(({ status }) => status !== 'DONE')).toMatchObject([
      { eventId: 'e3', status: 'DEAD', lastError: 'relay: Error: total is missing' },
    ])
  })

  it('fails only the events that a publisher names in a NotConfirmedError', async () => {
    const outbox = createTestOutbox({ retry: { maxAttempts: 1 } })
    const batches: number[] = []
    const publisher: EventPublisher = {
      publish: () => Promise.reject(new Error('not called')),
      publishAll: async (events) => {
        batches.push(events.length)
        throw new NotConfirmedError('The broker', [{ eventId: 'e3', error: new Error('too large') }])
      },
    }
    outbox.relay(publisher)
    await publish(outbox, upTo(10))
    await outbox.drain()
    expect(batches).toEqual([10])
    const rows = await outbox.records()
    expect(rows.filter(({ status }) => status !== 'DONE')).toMatchObject([
      { eventId: 'e3', status: 'DEAD', lastError: 'relay: Error: too large' },
    ])
  })

  it('does not take a missing answer of a bus for a confirmation', async () => {
    const outbox = createTestOutbox({ retry: { maxAttempts: 1 } })
    const broker = new Broker()
    broker.send = async () => [null, undefined]
    outbox.relay(broker)
    await publish(outbox, upTo(3))
    await outbox.drain()
    const rows = await outbox.records()
    expect(rows.map(({ status }) => status)).toEqual(['DONE', 'DEAD', 'DEAD'])
    expect(rows[2]?.lastError).toMatch(/^relay: AftercommitError: The bus gave no answer for the event\./)
  })

  it('fails only the event whose stored metadata cannot carry the trace of the relay', async () => {
    const tracer: Tracer = {
      start: () => ({
        context: { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' },
        run: (work) => work(),
        end: () => {},
      }),
    }
    const relay = new Relay(new InMemoryEventBus(), systemClock, silentLogger, {
      ...{ name: 'relay', tracer, redact: undefined },
    })
    const good = EventEnvelope.create({ eventType: 'order.placed' })
    const { eventType, aggregateType, version, occurredAtMs, payloadText, payloadSize } = good
    const bad = EventEnvelope.fromStored({
      ...{ eventId: 'bad', eventType, aggregateType, version, occurredAtMs, payloadText, payloadSize },
      ...{ aggregateId: null, tenantId: null, orderingKey: null, payloadBytes: null, headers: null },
      metadata: { userId: 5 } as never,
    })
    const context = { signal: new AbortController().signal, attempts: [1, 1, 1] }
    expect(await relay.handle([good, bad, good.withUserId('u-1')], context)).toEqual([null, null, null])
  })

  it('keeps a bounded number of events and counts no attempts while the broker is down', async () => {
    const outbox = createTestOutbox()
    const broker = new Broker()
    broker.isDown = true
    outbox.relay(broker, { batchSize: 10 })
    await outbox.start()
    for (let round = 0; round < 60; round++) {
      await publish(
        outbox,
        upTo(20).map((n) => round * 20 + n),
      )
      await outbox.clock.advance(1_000)
    }
    expect(broker.ids).toEqual([])
    const tried = new Set(broker.batches.flat())
    expect(tried.size).toBeLessThan(300)
    expect(await outbox.stats()).toMatchObject({ pending: 1_200, dead: 0 })
    for (const { attempts } of await outbox.store.list({ limit: 1_000 })) expect(attempts).toBe(0)

    broker.isDown = false
    // The relay probes the broker at least every five seconds.
    await outbox.clock.advance(6_000)
    expect(new Set(broker.ids).size).toBe(1_200)
    expect(await outbox.stats()).toMatchObject({ pending: 0, dead: 0, done: 1_200 })
    await stopped(outbox)
  })

  it('probes the broker with one timer for all batches', async () => {
    const outbox = createTestOutbox()
    const broker = new Broker()
    broker.isDown = true
    outbox.relay(broker, { batchSize: 10 })
    await outbox.start()
    await publish(outbox, upTo(100))
    await outbox.clock.advance(25_000)
    expect(broker.checks).toBeGreaterThan(5)
    expect(broker.checks).toBeLessThan(12)
    // One per batch that may be sent at the same time.
    expect(broker.batches.length).toBe(4)
    await stopped(outbox)
  })

  it('keeps the probe delay growing when the broker answers the probe but refuses all events', async () => {
    const outbox = createTestOutbox()
    const broker = new Broker()
    broker.isDown = true
    broker.check = async () => {}
    outbox.relay(broker)
    await outbox.start()
    await publish(outbox, upTo(10))
    await outbox.clock.advance(60_000)
    expect(broker.batches.length).toBeGreaterThan(5)
    expect(broker.batches.length).toBeLessThan(25)
    broker.isDown = false
    await outbox.clock.advance(10_000)
    expect(new Set(broker.ids).size).toBe(10)
    await stopped(outbox)
  })

  it('keeps the order of a key across an outage', async () => {
    const outbox = createTestOutbox()
    const broker = new Broker()
    outbox.relay(broker)
    await outbox.start()
    await publish(outbox, upTo(5), { orderingKey: 'a' })
    await outbox.clock.advance(100)
    broker.isDown = true
    await publish(outbox, [5, 6, 7, 8, 9], { orderingKey: 'a' })
    await outbox.clock.advance(90_000)
    broker.isDown = false
    await publish(outbox, [10, 11], { orderingKey: 'a' })
    await outbox.clock.advance(90_000)
    expect(broker.ids).toEqual(upTo(12).map((n) => `e${n}`))
    await stopped(outbox)
  })

  it('releases its events after 30 seconds of an outage, so that another process can relay them', async () => {
    const outbox = createTestOutbox()
    const broker = new Broker()
    broker.isDown = true
    outbox.relay(broker)
    const reaches = new Broker()
    await outbox.start()
    await publish(outbox, [1])
    const other = createTestOutbox({ store: outbox.store, clock: outbox.clock })
    other.relay(reaches)
    await outbox.clock.advance(25_000)
    await other.start()
    await outbox.clock.advance(60_000)
    expect(reaches.ids).toEqual(['e1'])
    await stopped(outbox)
    await stopped(other)
  })

  it('fails only the event that the broker refuses', async () => {
    const outbox = createTestOutbox({ retry: { maxAttempts: 2 } })
    const broker = new Broker()
    broker.refuses = (event) => event.payload === 3
    outbox.relay(broker)
    await outbox.start()
    await publish(outbox, upTo(6))
    await outbox.clock.advance(120_000)
    expect(broker.ids.sort()).toEqual(['e0', 'e1', 'e2', 'e4', 'e5'])
    expect(await outbox.stats()).toMatchObject({ pending: 0, dead: 1, done: 5 })
    const [dead] = await outbox.deadLetters.list()
    expect(dead).toMatchObject({ eventId: 'e3', attempts: 2 })
    await stopped(outbox)
  })

  it('relays the same events to two brokers with two names', async () => {
    const outbox = createTestOutbox()
    const [one, two] = [new Broker(), new Broker()]
    outbox.relay(one, { name: 'one' }).relay(two, { name: 'two' })
    expect(() => outbox.relay(two, { name: 'two' })).toThrow(/two/)
    await publish(outbox, upTo(3))
    await outbox.drain()
    expect(one.ids.sort()).toEqual(['e0', 'e1', 'e2'])
    expect(two.ids.sort()).toEqual(['e0', 'e1', 'e2'])
  })

  it('stops while the broker is down, and leaves all events pending', async () => {
    const outbox = createTestOutbox()
    const broker = new Broker()
    broker.isDown = true
    outbox.relay(broker)
    await outbox.start()
    await publish(outbox, upTo(3))
    await outbox.clock.advance(1_000)
    await stopped(outbox)
    expect(outbox.clock.timerCount).toBe(0)
    expect(await outbox.stats()).toMatchObject({ pending: 3, dead: 0, failed: 0 })
    for (const { attempts } of await outbox.store.list({ limit: 10 })) expect(attempts).toBe(0)
  })

  it('does not wait for missing confirmations at a stop', async () => {
    const outbox = createTestOutbox()
    const broker = new Broker()
    let sends = 0
    broker.send = () => {
      sends++
      return new Promise(() => {})
    }
    outbox.relay(broker)
    await outbox.start()
    await publish(outbox, upTo(3))
    await outbox.clock.advance(100)
    expect(sends).toBe(1)
    let isStopped = false
    const stopping = outbox.stop().then(() => {
      isStopped = true
    })
    await outbox.clock.advance(1_000)
    expect(isStopped).toBe(true)
    await stopping
    expect(await outbox.stats()).toMatchObject({ pending: 3, dead: 0, failed: 0 })
  })

  it('rejects invalid settings', () => {
    const outbox = createTestOutbox()
    const bus = new InMemoryEventBus()
    const bad: [unknown, unknown, RegExp][] = [
      [{}, {}, /must be a bus/],
      [undefined, {}, /must be a bus/],
      [bus, null, /relay\(\): must be an object of settings/],
      [bus, { event: 'a' }, /relay\(\) has no such setting\. Did you mean events\?/],
      [bus, { events: [] }, /array of event types/],
      [bus, { events: 'order.*' }, /array of event types/],
      [bus, { batchSize: 0 }, /batchSize/],
      [bus, { batchSize: 1_001 }, /from 1 to 1000/],
      [bus, { events: ['*.placed'] }, /pattern/],
    ]
    for (const [target, options, message] of bad) {
      expect(() => outbox.relay(target as never, options as never), String(message)).toThrow(message)
    }
  })
})
