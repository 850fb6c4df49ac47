import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { InMemoryEventBus } from '../buses/memory/index.js'
import { fixedDelay } from '../core/backoff.js'
import { defineEvent } from '../core/define-event.js'
import { matches } from './matches.js'
import { createTestOutbox, expectPublished } from './test-outbox.js'

const OrderPlaced = defineEvent('order.placed', {
  schema: z.object({ orderId: z.string(), lines: z.array(z.string()), placedAt: z.coerce.date() }),
})

const order = (orderId: string) =>
  OrderPlaced({ orderId, lines: ['tea'], placedAt: new Date('2030-01-01T00:00:00Z') })

describe('createTestOutbox', () => {
  it('shows what was committed, decoded, and nothing that was rolled back', async () => {
    const outbox = createTestOutbox({ events: [OrderPlaced] })
    await outbox.transaction((tx) => tx.publish(order('kept')))
    const rolledBack = outbox.transaction(async (tx) => {
      await tx.publish(order('gone'))
      throw new Error('roll back')
    })
    await expect(rolledBack).rejects.toThrow('roll back')
    await outbox.enqueue({ type: 'other' })
    expect((await outbox.published()).map((event) => event.eventType)).toEqual(['order.placed', 'other'])
    const [event] = await outbox.published(OrderPlaced)
    expect(event?.payload.placedAt.getUTCFullYear()).toBe(2030)
  })

  it('delivers by drain, without a start', async () => {
    const outbox = createTestOutbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'mail', async (event) => void handled.push(event.payload.orderId))
    await outbox.enqueue(order('o-1'))
    expect(handled).toEqual([])
    await outbox.drain()
    expect(handled).toEqual(['o-1'])
    expect((await outbox.records()).map((row) => row.status)).toEqual(['DONE'])
    expect(await outbox.published(OrderPlaced)).toHaveLength(1)
  })

  it('retries when the clock has been moved on, and not before', async () => {
    const outbox = createTestOutbox({ retry: { policy: fixedDelay(60_000) } })
    let attempts = 0
    outbox.on('flaky', 'mail', async () => {
      if (++attempts < 2) throw new Error('not yet')
    })
    await outbox.enqueue({ type: 'flaky' })
    await outbox.drain()
    await outbox.drain()
    expect(attempts).toBe(1)
    await outbox.clock.advance(60_000)
    await outbox.drain()
    expect(attempts).toBe(2)
    expect((await outbox.stats()).pending).toBe(0)
  })

  it('shares a store with another one', async () => {
    const writer = createTestOutbox()
    const worker = createTestOutbox({ store: writer.store, clock: writer.clock })
    const handled: string[] = []
    worker.on('a', 'mail', async (event) => void handled.push(event.eventType))
    await writer.enqueue({ type: 'a' })
    await worker.drain()
    expect(handled).toEqual(['a'])
  })

  it('leaves no timer after start and stop', async () => {
    const outbox = createTestOutbox()
    outbox.on('a', 'mail', async () => {})
    await outbox.start()
    await outbox.enqueue({ type: 'a' })
    const stopping = outbox.stop()
    await outbox.clock.advance(60_000)
    await stopping
    expect(outbox.clock.timerCount).toBe(0)
  })
})

describe('expectPublished', () => {
  it('says what was published when nothing is of that type', async () => {
    const outbox = createTestOutbox()
    await expect(expectPublished(outbox, OrderPlaced)).rejects.toThrow('Published: nothing')
    await outbox.enqueue({ type: 'other' })
    await expect(expectPublished(outbox, OrderPlaced)).rejects.toThrow('Published: other')
  })

  it('shows the payloads when none matches', async () => {
    const outbox = createTestOutbox()
    await outbox.enqueue(order('o-1'))
    await expect(expectPublished(outbox, OrderPlaced, { orderId: 'o-2' })).rejects.toThrow('"orderId":"o-1"')
    await expect(expectPublished(outbox, OrderPlaced, () => false)).rejects.toThrow('No order.placed matches')
  })

  it('finds an event by a part of its payload, or by a function', async () => {
    const outbox = createTestOutbox()
    await outbox.transaction((tx) => tx.publishAll([order('o-1'), order('o-2')]))
    const second = await expectPublished(outbox, OrderPlaced, { orderId: 'o-2' })
    expect(second.payload.orderId).toBe('o-2')
    expect((await expectPublished(outbox, OrderPlaced)).payload.orderId).toBe('o-1')
    const byDate = await expectPublished(outbox, OrderPlaced, { placedAt: new Date('2030-01-01T00:00:00Z') })
    expect(byDate.payload.lines).toEqual(['tea'])
    await expectPublished(outbox, OrderPlaced, (event) => event.payload.orderId.endsWith('2'))
    await expectPublished(outbox, 'order.placed')
  })

  it('works on an InMemoryEventBus too', async () => {
    const bus = new InMemoryEventBus()
    await bus.publish(order('o-1'))
    await expectPublished(bus, OrderPlaced, { orderId: 'o-1' })
    await expect(expectPublished(bus, 'other')).rejects.toThrow('Published: order.placed')
  })
})

describe('matches', () => {
  it.each([
    [{ a: 1, b: 2 }, { a: 1 }, true],
    [{ a: { b: { c: 1, d: 2 } } }, { a: { b: { c: 1 } } }, true],
    [{ a: 1 }, { b: undefined }, false],
    [{ a: [1, 2] }, { a: [1, 2] }, true],
    [{ a: [1, 2, 3] }, { a: [1, 2] }, false],
    [{ a: [{ b: 1, c: 2 }] }, { a: [{ b: 1 }] }, true],
    [['x'], { 0: 'x' }, false],
    [{ a: null }, { a: null }, true],
    [{ a: null }, { a: {} }, false],
    [{ a: 1 }, { toString: 1 }, false],
    [new Date(5), new Date(5), true],
    [new Date(5), new Date(6), false],
    [new Uint8Array([1, 2]), new Uint8Array([1, 2]), true],
    [new Uint8Array([1, 2]), [1, 2], false],
    ['a', 'a', true],
    [1, '1', false],
  ])('%j contains %j: %s', (actual, expected, answer) => {
    expect(matches(actual, expected)).toBe(answer)
  })
})
