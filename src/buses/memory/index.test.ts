import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import type { EventHandler } from '../../bus.js'
import { defineEvent } from '../../core/define-event.js'
import type { EventEnvelope } from '../../core/envelope.js'
import {
  AggregateHandlerError,
  DuplicateEventError,
  EventValidationError,
  InvalidPayloadError,
} from '../../core/errors.js'
import { HOSTILE_VALUES } from '../../testing/hostile-values.js'
import { createTestOutbox } from '../../testing/test-outbox.js'
import { InMemoryEventBus } from './index.js'

const OrderPlaced = defineEvent('order.placed', {
  aggregateType: 'order',
  aggregateId: (payload) => payload.orderId,
  schema: z.object({ orderId: z.string(), placedAt: z.coerce.date() }),
})

const order = (orderId: string) => OrderPlaced({ orderId, placedAt: new Date('2030-01-01T00:00:00Z') })

function recorder(name: string, log: string[], fail?: unknown): EventHandler {
  return {
    name,
    handle: (event) => {
      log.push(`${name} ${event.eventType}`)
      if (fail !== undefined) throw fail
    },
  }
}

describe('InMemoryEventBus: failures', () => {
  it('runs every handler, then throws one error for all failed handlers', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    const [first, second] = [new Error('first'), new Error('second')]
    bus.subscribe('a', recorder('one', log, first))
    bus.subscribe('a', recorder('two', log))
    bus.subscribe('a', { name: 'three', handle: async () => Promise.reject(second) })
    bus.subscribe('a', recorder('four', log))
    const failure = await bus.publish({ type: 'a' }).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(AggregateHandlerError)
    expect((failure as AggregateHandlerError).errors).toEqual([first, second])
    expect(log).toEqual(['one a', 'two a', 'four a'])
    expect(bus.eventCount()).toBe(1)
  })

  it('collects thrown values that are not errors', async () => {
    const bus = new InMemoryEventBus()
    bus.subscribe('a', recorder('text', [], 'just text'))
    await expect(bus.publish({ type: 'a' })).rejects.toMatchObject({ errors: ['just text'] })
  })

  it('collects the errors of all events of one publishAll', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    bus.subscribe('a', recorder('one', log, new Error('a failed')))
    bus.subscribe('b', recorder('two', log, new Error('b failed')))
    await expect(bus.publishAll([{ type: 'a' }, { type: 'b' }])).rejects.toMatchObject({
      errors: [new Error('a failed'), new Error('b failed')],
    })
    expect(log).toEqual(['one a', 'two b'])
  })

  it('publishes no event when one event of a list is invalid', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    bus.subscribe('a', recorder('one', log))
    const bad = { type: 'a', payload: { amount: 1n } }
    await expect(bus.publishAll([{ type: 'a' }, bad])).rejects.toThrow(InvalidPayloadError)
    expect([bus.eventCount(), log]).toEqual([0, []])
  })

  it('rejects a payload that does not match the schema of a known definition, also when published by name', async () => {
    const bus = new InMemoryEventBus([OrderPlaced])
    await expect(bus.publish({ type: 'order.placed', payload: { orderId: 7 } })).rejects.toThrow(
      EventValidationError,
    )
    expect(bus.eventCount()).toBe(0)
  })

  it('names each failed handler with its error in the message', async () => {
    const bus = new InMemoryEventBus()
    const fails = (name: string, thrown: unknown) =>
      bus.subscribe('a', { name, handle: () => Promise.reject(thrown) })
    fails('mail', new Error('no connection'))
    bus.subscribe('a', { name: 'audit', handle: () => {} })
    fails('bill', new TypeError('total is missing'))
    fails('bill', 'a text')
    for (const [name, make] of Object.entries(HOSTILE_VALUES)) fails(name, make())
    const error = await bus.publish({ type: 'a' }).catch((thrown: unknown) => thrown)
    const count = 3 + Object.keys(HOSTILE_VALUES).length
    expect((error as Error).message).toMatch(
      new RegExp(
        `^${count} handlers of "a" failed. mail: Error: no connection; bill: TypeError: total is missing; ` +
          'bill: NonError: a text; a revoked proxy: NonError: .*; a revoked proxy of an error: ',
      ),
    )
    expect((error as AggregateHandlerError).errors).toHaveLength(count)
  })

  it.each([
    [2, 10_000],
    [9, 500],
    [60, 75],
    [120, 10_000],
  ])('names all of %i failed handlers with messages of %i characters', async (count, length) => {
    const { message } = await failureOf(count, 'h', length)
    expect(message.length).toBeLessThanOrEqual(3_700)
    for (let n = 1; n <= count; n++) expect(message).toMatch(new RegExp(`[.;] h${n}: Error: x+`))
    expect(message).not.toContain('more')
  })

  it('shortens only the long messages of failed handlers, and marks them with an ellipsis', async () => {
    const bus = new InMemoryEventBus()
    const short = 'connection refused by mail.example.org:587'
    for (let n = 1; n <= 30; n++) {
      const message = n % 2 === 0 ? short : 'x'.repeat(500)
      bus.subscribe('a', { name: `h${n}`, handle: () => Promise.reject(new Error(message)) })
    }
    const { message } = (await bus.publish({ type: 'a' }).catch((thrown: unknown) => thrown)) as Error
    expect(message.split(`Error: ${short}`)).toHaveLength(16)
    expect(message.match(/Error: x+…/g)).toHaveLength(15)
    expect(message.length).toBeGreaterThan(3_500)
  })

  it('lists the names of failed handlers without messages when the messages do not fit', async () => {
    const { message } = await failureOf(40, 'h'.repeat(80), 100)
    expect(message).not.toContain('Error')
    for (let n = 1; n <= 40; n++) expect(message).toMatch(new RegExp(`h${n}(;|$)`))
  })

  it('states the number of failed handlers that it does not name', async () => {
    const { message } = await failureOf(1_000, 'handler', 10_000)
    const [, last = '', more = ''] = /; handler(\d+); and (\d+) more$/.exec(message) ?? []
    expect(Number(last) + Number(more)).toBe(1_000)
    expect(Number(last)).toBeGreaterThan(200)
    expect(message.length).toBeLessThanOrEqual(3_700)
  })

  it('names all failed handlers in the last error of a relay with the longest name', async () => {
    const outbox = createTestOutbox({ retry: { maxAttempts: 1 } })
    const bus = new InMemoryEventBus()
    for (let n = 1; n <= 30; n++) {
      const handle = () => Promise.reject(new Error('x'.repeat(480)))
      bus.subscribe('a', { name: `handler-${n}`, handle })
    }
    outbox.relay(bus, { name: 'r'.repeat(255) })
    await outbox.enqueue({ type: 'a' })
    await outbox.drain()
    const [dead] = await outbox.deadLetters.list()
    for (let n = 1; n <= 30; n++) expect(dead?.lastError).toContain(`handler-${n}: Error: x`)
    expect(dead?.lastError).toMatch(/x…$/)
  })

  it('names the failed handlers of an event in the last error of a relay, and fails no other event', async () => {
    const outbox = createTestOutbox({ retry: { maxAttempts: 1 } })
    const bus = new InMemoryEventBus()
    const handle = (event: EventEnvelope) => {
      if (event.payload === 2) throw new Error('no connection')
    }
    bus.subscribe('a', { name: 'mail', handle })
    bus.subscribe('a', { name: 'bill', handle })
    outbox.relay(bus)
    const events = [1, 2, 3].map((payload) => ({ type: 'a', payload }))
    await outbox.transaction((tx) => tx.publishAll(events))
    await outbox.drain()
    const rows = await outbox.records()
    expect(rows.map(({ status }) => status)).toEqual(['DONE', 'DEAD', 'DONE'])
    expect(rows[1]?.lastError).toBe(
      'relay: AggregateHandlerError: 2 handlers of "a" failed. mail: Error: no connection; bill: Error: no connection',
    )
  })

  it('accepts several handlers with the same name, and calls each of them', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    bus.subscribe('a', recorder('one', log))
    bus.subscribe('a', recorder('one', log))
    bus.subscribe('*', recorder('one', log))
    await bus.publish({ type: 'a' })
    expect(log).toEqual(['one a', 'one a', 'one a'])
  })
})

describe('InMemoryEventBus: delivery', () => {
  it('calls plain handlers before publish returns, in the order of registration', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    for (const name of ['one', 'two', 'three']) bus.subscribe('a', recorder(name, log))
    const published = bus.publish({ type: 'a' })
    expect(log).toEqual(['one a', 'two a', 'three a'])
    await published
  })

  it('waits for each asynchronous handler before it calls the next', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    bus.subscribe('a', {
      name: 'slow',
      handle: async () => {
        await new Promise((resolve) => setImmediate(resolve))
        log.push('slow')
      },
    })
    bus.subscribe('a', { name: 'quick', handle: () => void log.push('quick') })
    await bus.publish({ type: 'a' })
    expect(log).toEqual(['slow', 'quick'])
  })

  it('delivers only to the handlers of the type', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    bus.subscribe('a', recorder('one', log))
    bus.subscribeAll(['a', 'b', OrderPlaced], recorder('all', log))
    await bus.publishAll([{ type: 'b' }, { type: 'a' }, { type: 'c' }, order('o-1')])
    expect(log).toEqual(['all b', 'one a', 'all a', 'all order.placed'])
  })

  it('does not deliver an event to a handler that subscribes while it is being delivered', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    bus.subscribe('a', {
      name: 'first',
      handle: () => bus.subscribe('a', recorder(`late ${log.length}`, log)),
    })
    await bus.publish({ type: 'a' })
    expect(log).toEqual([])
  })

  it('delivers an event that a handler publishes before the handler continues', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    bus.subscribe('outer', { name: 'chain', handle: () => bus.publish({ type: 'inner' }) })
    bus.subscribe('outer', recorder('after', log))
    bus.subscribe('inner', recorder('inner', log))
    await bus.publish({ type: 'outer' })
    expect(log).toEqual(['inner inner', 'after outer'])
    expect(bus.publishedEvents().map((event) => event.eventType)).toEqual(['outer', 'inner'])
  })

  it('gives a handler of a definition its decoded payload, however the event was published', async () => {
    const bus = new InMemoryEventBus()
    const years: number[] = []
    bus.subscribe(OrderPlaced, {
      name: 'typed',
      handle: (event) => void years.push(event.payload.placedAt.getUTCFullYear()),
    })
    await bus.publish(order('o-1'))
    await bus.publish({
      type: 'order.placed',
      payload: { orderId: 'o-2', placedAt: '2031-01-01T00:00:00.000Z' },
    })
    expect(years).toEqual([2030, 2031])
  })

  it('returns the ids, and accepts a repeated id as brokers do', async () => {
    const bus = new InMemoryEventBus()
    const event = order('o-1')
    expect(await bus.publish(event)).toBe(event.eventId)
    expect(await bus.publishAll([event, { type: 'a', eventId: 'given' }])).toEqual([event.eventId, 'given'])
    expect(bus.eventCount()).toBe(3)
  })

  it('applies onDuplicate', async () => {
    const bus = new InMemoryEventBus()
    const event = { type: 'a', eventId: 'one' }
    await bus.publish(event)
    await expect(bus.publishAll([{ type: 'b' }, event], { onDuplicate: 'error' })).rejects.toThrow(
      DuplicateEventError,
    )
    expect(bus.eventCount()).toBe(1)
    await bus.publishAll([{ type: 'b' }, event, event], { onDuplicate: 'ignore' })
    expect(bus.publishedEvents().map(({ eventType }) => eventType)).toEqual(['a', 'b'])
  })
})

describe('InMemoryEventBus: published events', () => {
  it('keeps published events in order, and finds them by type and aggregate', async () => {
    const bus = new InMemoryEventBus()
    const invoice = { type: 'invoice.sent', aggregateType: 'invoice', aggregateId: 'o-1' }
    await bus.publishAll([order('o-1'), invoice, order('o-2')])
    const ids = (events: readonly EventEnvelope[]) =>
      events.map((event) => `${event.eventType} ${event.aggregateId}`)
    expect(ids(bus.publishedEvents())).toEqual(['order.placed o-1', 'invoice.sent o-1', 'order.placed o-2'])
    expect(ids(bus.eventsOfType('order.placed'))).toEqual(['order.placed o-1', 'order.placed o-2'])
    expect(bus.eventsOfType(OrderPlaced)[0]?.payload.placedAt).toBeInstanceOf(Date)
    expect(ids(bus.eventsForAggregate('o-1'))).toEqual(['order.placed o-1', 'invoice.sent o-1'])
    expect(ids(bus.eventsForAggregate('o-1', 'order'))).toEqual(['order.placed o-1'])
    expect([bus.hasEvent(OrderPlaced), bus.hasEvent('invoice.sent'), bus.hasEvent('x')]).toEqual([
      true,
      true,
      false,
    ])
  })

  it('returns a copy that later events do not change', async () => {
    const bus = new InMemoryEventBus()
    const before = bus.publishedEvents()
    await bus.publish({ type: 'a' })
    expect(before).toEqual([])
  })

  it('removes events but not handlers with clear', async () => {
    const bus = new InMemoryEventBus()
    const log: string[] = []
    bus.subscribe('a', recorder('one', log))
    await bus.publish({ type: 'a' })
    bus.clear()
    expect([bus.eventCount(), bus.hasEvent('a')]).toEqual([0, false])
    await bus.publish({ type: 'a' })
    expect(log).toHaveLength(2)
  })
})

describe('InMemoryEventBus: speed', () => {
  it('delivers 100 events in less than a millisecond after a warm-up', async () => {
    const bus = new InMemoryEventBus()
    let handled = 0
    bus.subscribe('a', { name: 'count', handle: () => void handled++ })
    const events = Array.from({ length: 100 }, (_, index) => ({ type: 'a', payload: { index } }))
    const times: number[] = []
    for (let round = 0; round < 200; round++) {
      const begun = performance.now()
      await bus.publishAll(events)
      times.push(performance.now() - begun)
      bus.clear()
    }
    expect(handled).toBe(20_000)
    expect(Math.min(...times)).toBeLessThan(1)
  })
})

/** The error of a publish call to `count` handlers that all fail. */
async function failureOf(count: number, name: string, length: number): Promise<Error> {
  const bus = new InMemoryEventBus()
  for (let n = 1; n <= count; n++) {
    bus.subscribe('a', { name: name + n, handle: () => Promise.reject(new Error('x'.repeat(length))) })
  }
  return bus.publish({ type: 'a' }).then(
    () => expect.fail('no handler failed'),
    (thrown: Error) => thrown,
  )
}
