import { describe, expect, it } from 'vitest'
import type { EventBus, EventHandler } from '../bus.js'
import { InMemoryEventBus } from '../buses/memory/index.js'
import { defineEvent, type EventDefinition } from '../core/define-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import { AftercommitError, HandlerExistsError, InvalidSettingError } from '../core/errors.js'
import { createTestOutbox } from '../testing/test-outbox.js'

interface Order {
  readonly orderId: string
}
const OrderPlaced = defineEvent<Order>('order.placed')
const OrderPaid = defineEvent<Order>('order.paid')

/** A module of an application that knows the port only. */
class Billing {
  readonly seen: string[] = []

  register(bus: EventBus): void {
    bus.subscribe(OrderPlaced, new Booking(this.seen))
    bus.subscribe('legacy.thing', { name: 'audit', handle: (event) => this.#note('audit', event) })
    bus.subscribeAll([OrderPlaced, OrderPaid, 'order.sent'], {
      name: 'index',
      handle: async (event) => this.#note('index', event),
    })
    bus.subscribe('*', { name: 'count', handle: (event) => this.#note('count', event) })
  }

  async work(bus: EventBus): Promise<void> {
    await bus.publish(OrderPlaced({ orderId: 'o-1' }))
    await bus.publishAll([OrderPaid({ orderId: 'o-1' }), { type: 'order.sent' }, { type: 'legacy.thing' }])
  }

  #note(handler: string, { eventType }: EventEnvelope): void {
    this.seen.push(`${handler} ${eventType}`)
  }
}

class Booking implements EventHandler<Order> {
  readonly name = 'book'
  readonly #seen: string[]

  constructor(seen: string[]) {
    this.#seen = seen
  }

  handle({ payload }: EventEnvelope<Order>): void {
    this.#seen.push(`book ${payload.orderId}`)
  }
}

const EXPECTED = [
  ...['audit legacy.thing', 'book o-1', 'index order.paid', 'index order.placed', 'index order.sent'],
  ...['count legacy.thing', 'count order.paid', 'count order.placed', 'count order.sent'],
].sort()

describe('a module that registers through EventSubscriber', () => {
  it('runs on the in-memory bus', async () => {
    const [billing, bus] = [new Billing(), new InMemoryEventBus()]
    billing.register(bus)
    await billing.work(bus)
    expect(billing.seen.sort()).toEqual(EXPECTED)
  })

  it('runs unchanged on the outbox', async () => {
    const [billing, outbox] = [new Billing(), createTestOutbox()]
    billing.register(outbox)
    await outbox.transaction(() => billing.work(outbox))
    await outbox.drain()
    expect(billing.seen.sort()).toEqual(EXPECTED)
    expect(outbox.handledTypes).toEqual(['order.placed', 'legacy.thing', 'order.paid', 'order.sent', '*'])
  })
})

describe('outbox.subscribe', () => {
  it('retries a handler that fails, under its name', async () => {
    const outbox = createTestOutbox()
    let calls = 0
    outbox.subscribe(OrderPlaced, {
      name: 'book',
      handle: () => {
        if (calls++ === 0) throw new Error('not yet')
      },
    })
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    await outbox.drain()
    expect((await outbox.records())[0]).toMatchObject({ status: 'RETRY', lastError: 'book: Error: not yet' })
    await outbox.clock.advance(1_000)
    await outbox.drain()
    expect((await outbox.records())[0]).toMatchObject({ status: 'DONE' })
  })

  it('refuses a second handler with the same name for an event, because the outbox keeps progress by name', () => {
    const outbox = createTestOutbox()
    const handler = { name: 'book', handle: () => {} }
    outbox.subscribe(OrderPlaced, handler)
    expect(() => outbox.subscribe(OrderPlaced, { ...handler })).toThrow(HandlerExistsError)
    expect(() => outbox.subscribeAll([OrderPaid, 'order.*'], handler)).toThrow(HandlerExistsError)
  })

  it.each<[string, unknown]>([
    ['nothing', undefined],
    ['a function', () => {}],
    ['no name', { handle: () => {} }],
    ['an empty name', { name: '', handle: () => {} }],
    ['no function', { name: 'book', handle: 5 }],
  ])('refuses a handler that is or has %s', (_, handler) => {
    for (const bus of [createTestOutbox(), new InMemoryEventBus()]) {
      expect(() => bus.subscribe('a', handler as EventHandler)).toThrow(InvalidSettingError)
    }
  })

  it('subscribes to none of several types if one of them is refused', async () => {
    const handler = { name: 'book', handle: () => {} }
    const OtherPlaced = defineEvent('order.placed')
    const refused: readonly (readonly (string | EventDefinition)[])[] = [
      ['a', OrderPaid, '*.b'],
      ['a', OrderPaid, 5 as never],
      ['a', OrderPaid, 'order.*'],
      ['a', OrderPaid, OrderPlaced, OtherPlaced],
      ['a', OrderPaid, 'taken'],
    ]
    for (const types of refused) {
      const outbox = createTestOutbox()
      outbox.subscribe('taken', handler)
      expect(() => outbox.subscribeAll(types, handler)).toThrow(AftercommitError)
      expect(outbox.handledTypes).toEqual(['taken'])
      expect(outbox.catalog.types()).toEqual([])
      outbox.subscribeAll(['a', OrderPaid], handler)
    }
  })

  it('subscribes a bus to none of several types if one of them is refused', async () => {
    const bus = new InMemoryEventBus()
    const seen: string[] = []
    const handler = { name: 'book', handle: ({ eventType }: EventEnvelope) => void seen.push(eventType) }
    expect(() => bus.subscribeAll(['a', '*.b'], handler)).toThrow(InvalidSettingError)
    bus.subscribe('b', handler)
    await bus.publishAll([{ type: 'a' }, { type: 'b' }])
    expect(seen).toEqual(['b'])
  })

  it('refuses types that are no array', () => {
    const handler = { name: 'book', handle: () => {} }
    for (const bus of [createTestOutbox(), new InMemoryEventBus()]) {
      expect(() => bus.subscribeAll('order.placed' as never, handler)).toThrow(InvalidSettingError)
    }
  })
})
