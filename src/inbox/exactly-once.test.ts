import { describe, expect, it } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { gate } from '../../test/support/until.js'
import { InMemoryEventBus } from '../buses/memory/index.js'
import { EventCatalog } from '../core/catalog.js'
import { defineEvent } from '../core/define-event.js'
import { toEnvelope } from '../core/domain-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import { CommitUnknownError, TransactionEndedError, Unrecoverable } from '../core/errors.js'
import type { HandlerContext } from '../handler.js'
import { type MemoryClient, memoryStore } from '../stores/memory/index.js'
import { createTestOutbox, type TestOutbox } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import type { Transaction } from '../transaction.js'
import { exactlyOnce } from './exactly-once.js'
import { processedEvents } from './processed-events.js'

interface Order {
  readonly orderId: string
}
const OrderPlaced = defineEvent<Order>('order.placed')
const Followup = defineEvent<Order>('order.booked')
const order = (eventId: string) => OrderPlaced({ orderId: eventId }, { eventId })
const envelopeOf = (eventId: string) => toEnvelope(order(eventId), new EventCatalog()) as EventEnvelope<Order>

function context(handler: string, more: Partial<HandlerContext> = {}): HandlerContext {
  const signal = new AbortController().signal
  return { handler, attempt: 1, signal, log: recordingLogger(), scope: null, ...more }
}

/** The effect of these tests is an event, since that is what a memory store can write. */
const book = async (event: EventEnvelope<Order>, { tx }: { tx: Transaction<MemoryClient> }) => {
  await tx.publish(Followup(event.payload))
}

async function booked(outbox: TestOutbox): Promise<string[]> {
  return (await outbox.published(Followup)).map((event) => event.payload.orderId)
}

/** Delivers until everything is settled, whatever the backoff. */
async function settle(outbox: TestOutbox): Promise<void> {
  outbox.on(Followup, 'sink', () => {})
  for (let i = 0; i < 5; i++) {
    await outbox.drain()
    await outbox.clock.advance(60_000)
  }
}

describe('exactlyOnce: what it is given', () => {
  it.each([
    ['no handler', undefined, createTestOutbox(), /handler: must be a function/],
    ['a handler without handle', { name: 'x' }, createTestOutbox(), /handler: must be a function/],
    ['no outbox', book, undefined, /must be an outbox/],
    ['something else for an outbox', book, { store: {} }, /must be an outbox/],
  ])('refuses %s at once', (_, handler, outbox, message) => {
    expect(() => exactlyOnce(handler as never, outbox as never)).toThrow(message)
  })
})

describe('exactlyOnce: a function for outbox.on()', () => {
  it('gets the transaction beside the rest of the context', async () => {
    const outbox = createTestOutbox({ dispatcher: { createScope: () => 'scope' } })
    const seen: unknown[] = []
    outbox.on(
      OrderPlaced,
      'book',
      exactlyOnce(async (event, { tx, attempt, handler, scope, signal, log }) => {
        expect(signal).toBeInstanceOf(AbortSignal)
        log.info({}, 'usable')
        expect(tx.client.isInTransaction).toBe(true)
        seen.push(event.payload.orderId, attempt, handler, scope)
      }, outbox),
    )
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(seen).toEqual(['o-1', 1, 'book', 'scope'])
  })

  it('has its effect once although the handler is called for every delivery', async () => {
    const outbox = createTestOutbox()
    const handle = exactlyOnce(book, outbox)
    let deliveries = 0
    outbox.on(OrderPlaced, 'book', async (event, given) => {
      await handle(event, given)
      if (++deliveries < 3) throw new Error('the process dies before the outcome is written')
    })
    await outbox.enqueue(order('o-1'))
    await settle(outbox)
    expect(deliveries).toBe(3)
    expect(await booked(outbox)).toEqual(['o-1'])
  })

  it('leaves neither effect nor mark when the handler throws, and rethrows its error', async () => {
    const outbox = createTestOutbox()
    const failing = exactlyOnce(async (event: EventEnvelope<Order>, given) => {
      await book(event, given)
      throw new Unrecoverable('never')
    }, outbox)
    await expect(failing(envelopeOf('o-1'), context('book'))).rejects.toBeInstanceOf(Unrecoverable)
    expect(await booked(outbox)).toEqual([])
    expect(await outbox.store.isProcessed('book', 'o-1')).toBe(false)
    await exactlyOnce(book, outbox)(envelopeOf('o-1'), context('book'))
    expect(await booked(outbox)).toEqual(['o-1'])
  })

  it('keeps two handlers of one event apart', async () => {
    const outbox = createTestOutbox()
    const handle = exactlyOnce(book, outbox)
    await handle(envelopeOf('o-1'), context('book'))
    await handle(envelopeOf('o-1'), context('bill'))
    await handle(envelopeOf('o-1'), context('bill'))
    expect(await booked(outbox)).toEqual(['o-1', 'o-1'])
  })

  it('keeps the mark where the effects are, which may be another outbox', async () => {
    const [source, target] = [createTestOutbox(), createTestOutbox()]
    source.on(OrderPlaced, 'book', exactlyOnce(book, target))
    await source.enqueue(order('o-1'))
    await source.drain()
    expect(await booked(target)).toEqual(['o-1'])
    expect(await target.store.isProcessed('book', 'o-1')).toBe(true)
    expect(await source.store.isProcessed('book', 'o-1')).toBe(false)
  })

  it('lets a duplicate wait for the first; it does nothing when that one commits', async () => {
    const outbox = createTestOutbox()
    const held = gate()
    const slow = exactlyOnce(async (event: EventEnvelope<Order>, given) => {
      await held.opened
      await book(event, given)
    }, outbox)
    const first = slow(envelopeOf('o-1'), context('book'))
    const log = recordingLogger()
    const second = exactlyOnce(book, outbox)(envelopeOf('o-1'), context('book', { log }))
    held.open()
    await Promise.all([first, second])
    expect(await booked(outbox)).toEqual(['o-1'])
    expect(log.lines).toMatchObject([{ level: 'debug', message: 'processed before; skipped' }])
  })

  it('runs the duplicate when the first rolls back', async () => {
    const outbox = createTestOutbox()
    const held = gate()
    const failing = exactlyOnce(async (event: EventEnvelope<Order>, given) => {
      await book(event, given)
      await held.opened
      throw new Error('no')
    }, outbox)
    const first = failing(envelopeOf('o-1'), context('book'))
    const second = exactlyOnce(book, outbox)(envelopeOf('o-1'), context('book'))
    held.open()
    await expect(first).rejects.toThrow('no')
    await second
    expect(await booked(outbox)).toEqual(['o-1'])
  })

  it('learns from the mark what became of a commit whose reply was lost', async () => {
    const clock = new VirtualClock()
    let lost = 0
    const store = memoryStore({
      clock,
      onCall: (method) => {
        if (method === 'committed' && lost === 1) {
          lost++
          throw new Error('connection reset')
        }
      },
    })
    const outbox = createTestOutbox({ store, clock })
    const handle = exactlyOnce(async (event: EventEnvelope<Order>, given) => {
      await book(event, given)
      lost++
    }, outbox)
    await expect(handle(envelopeOf('o-1'), context('book'))).rejects.toBeInstanceOf(CommitUnknownError)
    await handle(envelopeOf('o-1'), context('book'))
    expect(lost).toBe(2)
    expect(await booked(outbox)).toEqual(['o-1'])
  })

  it('fails when the mark cannot be written, before the handler runs', async () => {
    const store = memoryStore({
      onCall: (method) => {
        if (method === 'markProcessed') throw new Error('no connection')
      },
    })
    const outbox = createTestOutbox({ store })
    let runs = 0
    const handle = exactlyOnce(() => ++runs, outbox)
    await expect(handle(envelopeOf('o-1'), context('book'))).rejects.toThrow('no connection')
    expect(runs).toBe(0)
  })

  it('refuses what is published after it has returned', async () => {
    const outbox = createTestOutbox()
    let late: Promise<unknown> = Promise.resolve()
    const handle = exactlyOnce((event: EventEnvelope<Order>, { tx }) => {
      late = new Promise((resolve) => setImmediate(resolve)).then(() => tx.publish(Followup(event.payload)))
    }, outbox)
    await handle(envelopeOf('o-1'), context('book'))
    await expect(late).rejects.toBeInstanceOf(TransactionEndedError)
  })

  it('is forgotten by the outbox once the marks have been kept long enough', async () => {
    const outbox = createTestOutbox({ retention: { processedMs: 100_000 } })
    await exactlyOnce(book, outbox)(envelopeOf('o-1'), context('book'))
    await outbox.start()
    await outbox.clock.advance(90_000)
    expect(await outbox.store.isProcessed('book', 'o-1')).toBe(true)
    await outbox.clock.advance(90_000)
    expect(await outbox.store.isProcessed('book', 'o-1')).toBe(false)
    await outbox.stop()
  })
})

describe('exactlyOnce: an object for bus.subscribe()', () => {
  it('has its effect once however often the broker delivers', async () => {
    const outbox = createTestOutbox()
    const bus = new InMemoryEventBus()
    bus.subscribe(OrderPlaced, exactlyOnce({ name: 'book', handle: book }, outbox))
    bus.subscribe(OrderPlaced, exactlyOnce({ name: 'bill', handle: book }, outbox))
    await bus.publish(order('o-1'))
    await bus.publish(order('o-1'))
    expect(await booked(outbox)).toEqual(['o-1', 'o-1'])
  })

  it('logs a skipped duplicate to the logger that it is given', async () => {
    const outbox = createTestOutbox()
    const logger = recordingLogger()
    const handler = exactlyOnce({ name: 'book', handle: book }, outbox, { logger })
    await handler.handle(envelopeOf('o-1'))
    expect(logger.lines).toEqual([])
    await handler.handle(envelopeOf('o-1'))
    const fields = { event_id: 'o-1', event_type: 'order.placed', handler: 'book' }
    expect(logger.lines).toEqual([{ level: 'debug', message: 'processed before; skipped', fields }])
  })

  it('logs a skipped duplicate to the logger of the outbox that calls it', async () => {
    const logger = recordingLogger()
    const outbox = createTestOutbox({ logger })
    outbox.subscribe(OrderPlaced, exactlyOnce({ name: 'book', handle: book }, outbox))
    await processedEvents(outbox).markProcessed({ handler: 'book', eventId: 'o-1' })
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(logger.lines.filter(({ level }) => level === 'debug')).toMatchObject([
      { message: 'processed before; skipped', fields: { event_id: 'o-1', handler: 'book', attempt: 1 } },
    ])
  })

  it('logs a skipped duplicate with its own ids when a handler of another event publishes it to a bus', async () => {
    const logger = recordingLogger()
    const outbox = createTestOutbox({ logger })
    const bus = new InMemoryEventBus()
    bus.subscribe(OrderPlaced, exactlyOnce({ name: 'book', handle: book }, outbox))
    await processedEvents(outbox).markProcessed({ handler: 'book', eventId: 'o-1' })
    outbox.on('outer', 'forward', () => bus.publish(order('o-1')))
    await outbox.enqueue({ type: 'outer', payload: 1, metadata: { correlationId: 'of-outer' } })
    await outbox.drain()
    const [line] = logger.lines.filter(({ message }) => message === 'processed before; skipped')
    expect(line?.fields).toEqual({ event_id: 'o-1', event_type: 'order.placed', handler: 'book' })
  })

  it('resolves after the commit and not before, also inside somebody else’s transaction', async () => {
    const outbox = createTestOutbox()
    const { handle } = exactlyOnce({ name: 'book', handle: book }, outbox)
    await expect(
      outbox.transaction(async () => {
        await handle(envelopeOf('o-1'))
        expect(await booked(outbox)).toEqual(['o-1'])
        throw new Error('of the surrounding transaction')
      }),
    ).rejects.toThrow('of the surrounding transaction')
    expect(await booked(outbox)).toEqual(['o-1'])
  })

  it('rejects when the handler throws, so that the broker is told', async () => {
    const outbox = createTestOutbox()
    const handler = exactlyOnce({ name: 'book', handle: () => Promise.reject(new Error('no')) }, outbox)
    await expect(handler.handle(envelopeOf('o-1'))).rejects.toThrow('no')
    expect(await outbox.store.isProcessed('book', 'o-1')).toBe(false)
  })

  it('publishes follow-ups as caused by the message', async () => {
    const outbox = createTestOutbox()
    const { handle } = exactlyOnce({ name: 'book', handle: book }, outbox)
    await handle(envelopeOf('o-1').withCorrelationId('c-1'))
    const [followup] = await outbox.published(Followup)
    expect(followup?.metadata).toMatchObject({ causationId: 'o-1', correlationId: 'c-1' })
  })

  it('calls the handler as a method of its own object', async () => {
    const outbox = createTestOutbox()
    class Book {
      readonly name = 'book'
      readonly seen: string[] = []
      handle(event: EventEnvelope<Order>) {
        this.seen.push(event.eventId)
      }
    }
    const own = new Book()
    await exactlyOnce(own, outbox).handle(envelopeOf('o-1'))
    expect(own.seen).toEqual(['o-1'])
  })
})

describe('exactlyOnce: names', () => {
  const outbox = createTestOutbox()

  it.each(['', 'a\nb', 'x'.repeat(256), 5])('refuses %j', (name) => {
    expect(() => exactlyOnce({ name: name as string, handle: () => {} }, outbox)).toThrow('handler name')
    expect(() => exactlyOnce(() => {}, outbox, { name: name as string })).toThrow('handler name')
  })

  it('keeps the marks under a name of its own when it is given one', async () => {
    await exactlyOnce(() => {}, outbox, { name: 'old' })(envelopeOf('o-1'), context('new'))
    expect(await outbox.store.isProcessed('old', 'o-1')).toBe(true)
    expect(await outbox.store.isProcessed('new', 'o-1')).toBe(false)
  })

  it('refuses a function where there is no context, since its name would be unknown', async () => {
    const handle = exactlyOnce(() => {}, outbox) as (event: EventEnvelope) => Promise<void>
    await expect(handle(envelopeOf('o-2'))).rejects.toThrow('an object { name, handle }')
  })
})
