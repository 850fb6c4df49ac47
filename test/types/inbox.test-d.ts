import type { PGlite, Transaction as PGliteTransaction } from '@electric-sql/pglite'
import type pg from 'pg'
import type postgres from 'postgres'
import { describe, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import {
  exactlyOnce,
  idempotent,
  memoryProcessedEvents,
  type ProcessedEvent,
  type ProcessedEventStore,
  processedEvents,
} from '../../src/inbox/index.js'
import {
  createOutbox,
  defineEvent,
  type EventEnvelope,
  type EventHandler,
  type HandlerContext,
  type Logger,
  type Outbox,
  silentLogger,
  type Transaction,
} from '../../src/index.js'
import type { MemoryClient } from '../../src/stores/memory/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { createTestOutbox, type InMemoryEventBus } from '../../src/testing/index.js'

interface Order {
  orderId: string
  total: number
}

const Zod = defineEvent('order.placed', {
  schema: z.object({ orderId: z.string(), placedAt: z.coerce.date() }),
})
const Plain = defineEvent<Order>('plain')

declare const outbox: Outbox<pg.PoolClient>
declare const bus: InMemoryEventBus
declare const marks: ProcessedEventStore

describe('exactlyOnce', () => {
  it('sees the payload of the definition and the client of the outbox, with no annotation', () => {
    outbox.on(
      Zod,
      'book',
      exactlyOnce(async (event, { tx, attempt, signal, log, handler }) => {
        expectTypeOf(event).toEqualTypeOf<EventEnvelope<{ orderId: string; placedAt: Date }>>()
        expectTypeOf(tx).toEqualTypeOf<Transaction<pg.PoolClient>>()
        expectTypeOf(tx.client).toEqualTypeOf<pg.PoolClient>()
        expectTypeOf(attempt).toEqualTypeOf<number>()
        expectTypeOf(signal).toEqualTypeOf<AbortSignal>()
        expectTypeOf(log).toEqualTypeOf<Logger>()
        expectTypeOf(handler).toEqualTypeOf<string>()
        await tx.client.query('select 1')
        await tx.publish(Plain({ orderId: event.payload.orderId, total: 1 }))
      }, outbox),
    )
    outbox.on(
      { aggregateType: 'order', type: Plain },
      'book',
      exactlyOnce((event) => expectTypeOf(event.payload).toEqualTypeOf<Order>(), outbox),
      { timeoutMs: 5 },
    )
  })

  it('sees nothing of the payload by name', () => {
    outbox.on(
      'order.*',
      'book',
      exactlyOnce((event) => expectTypeOf(event.payload).toEqualTypeOf<unknown>(), outbox),
    )
  })

  it('has the client of the outbox whose database holds the effects, which may be another one', () => {
    const onPostgresJs = createOutbox({ store: postgresStore({} as postgres.Sql) })
    const onPGlite = createOutbox({ store: postgresStore({} as PGlite) })
    outbox.on(
      Plain,
      'a',
      exactlyOnce(async (_event, { tx }) => {
        expectTypeOf(tx.client).toEqualTypeOf<postgres.TransactionSql>()
        await tx.client`select 1`
      }, onPostgresJs),
    )
    outbox.on(
      Plain,
      'b',
      exactlyOnce((_event, { tx }) => expectTypeOf(tx.client).toEqualTypeOf<PGliteTransaction>(), onPGlite),
    )
    outbox.on(
      Plain,
      'c',
      exactlyOnce(
        (_event, { tx }) => expectTypeOf(tx.client).toEqualTypeOf<MemoryClient>(),
        createTestOutbox(),
      ),
    )
  })

  it('makes a handler for a bus of an object', () => {
    bus.subscribe(
      Plain,
      exactlyOnce(
        {
          name: 'book',
          handle: async (event, { tx }) => {
            expectTypeOf(event).toEqualTypeOf<EventEnvelope<Order>>()
            expectTypeOf(tx).toEqualTypeOf<Transaction<pg.PoolClient>>()
          },
        },
        outbox,
      ),
    )
    class Book {
      readonly name = 'book'
      handle(event: EventEnvelope<Order>, { tx }: { tx: Transaction<pg.PoolClient> }) {
        return tx.publish(Plain(event.payload))
      }
    }
    expectTypeOf(exactlyOnce(new Book(), outbox)).toEqualTypeOf<EventHandler<Order>>()
    bus.subscribe(Plain, exactlyOnce(new Book(), outbox))
  })

  it('can be written apart from where it is registered', () => {
    const book = exactlyOnce(
      (event: EventEnvelope<Order>, { tx }) => tx.publish(Plain(event.payload)),
      outbox,
      {
        name: 'book',
      },
    )
    expectTypeOf(book).toEqualTypeOf<
      (event: EventEnvelope<Order>, context: HandlerContext) => Promise<void>
    >()
    outbox.on(Plain, 'book', book)
    // @ts-expect-error another payload
    outbox.on(Zod, 'book', book)
    // @ts-expect-error a bus gives no context; it takes an object
    bus.subscribe(Plain, { name: 'book', handle: book })
  })

  it('is checked', () => {
    // @ts-expect-error no outbox
    exactlyOnce(() => {})
    // @ts-expect-error marks alone have no transaction
    exactlyOnce(() => {}, marks)
    // @ts-expect-error not an option
    exactlyOnce(() => {}, outbox, { nam: 'book' })
    // @ts-expect-error no name
    exactlyOnce({ handle: () => {} }, outbox)
    // @ts-expect-error marks of an object are kept under its own name
    exactlyOnce({ name: 'book', handle: () => {} }, outbox, { name: 'old' })
    // @ts-expect-error there is no such attempt for a bus
    exactlyOnce({ name: 'book', handle: (_event, { attempt }) => attempt }, outbox)
  })
})

describe('idempotent', () => {
  it('sees the payload of the definition, with no annotation', () => {
    outbox.on(
      Zod,
      'send',
      idempotent((event, context) => {
        expectTypeOf(event.payload.placedAt).toEqualTypeOf<Date>()
        expectTypeOf(context).toEqualTypeOf<HandlerContext>()
      }, marks),
    )
    outbox.on(
      'legacy.thing',
      'send',
      idempotent(async (event) => expectTypeOf(event.payload).toEqualTypeOf<unknown>(), marks, {
        name: 'old',
      }),
    )
    bus.subscribe(Plain, idempotent({ name: 'send', handle: () => {} }, marks, { logger: silentLogger }))
    outbox.subscribe(Plain, idempotent({ name: 'send', handle: () => {} }, marks))
    bus.subscribe(
      Plain,
      idempotent(
        { name: 'send', handle: (event) => expectTypeOf(event.payload).toEqualTypeOf<Order>() },
        marks,
      ),
    )
  })

  it('is checked', () => {
    // @ts-expect-error no store
    idempotent(() => {})
    // @ts-expect-error an outbox is no such store; processedEvents(outbox) is
    idempotent(() => {}, outbox)
    // @ts-expect-error no name
    idempotent({ handle: () => {} }, marks)
  })
})

describe('processed events', () => {
  it('are kept by any outbox, or in memory', () => {
    expectTypeOf(processedEvents(outbox)).toEqualTypeOf<ProcessedEventStore>()
    expectTypeOf(processedEvents(createTestOutbox())).toEqualTypeOf<ProcessedEventStore>()
    expectTypeOf(memoryProcessedEvents()).toEqualTypeOf<ProcessedEventStore>()
    expectTypeOf(marks.contains({ handler: 'send', eventId: 'e' })).resolves.toEqualTypeOf<boolean>()
    expectTypeOf(marks.contains).parameters.toEqualTypeOf<[mark: ProcessedEvent]>()
    expectTypeOf(marks.markProcessed).parameters.toEqualTypeOf<[mark: ProcessedEvent]>()
    // @ts-expect-error two strings could be swapped
    void marks.contains('send', 'e')
    // @ts-expect-error two strings could be swapped
    void marks.markProcessed('send', 'e')
    // @ts-expect-error no handler
    void marks.markProcessed({ eventId: 'e' })
    expectTypeOf(marks.deleteBefore(new Date())).resolves.toEqualTypeOf<number>()
    // @ts-expect-error a Date
    void marks.deleteBefore('2030-01-01')
    // @ts-expect-error no outbox
    processedEvents({})
  })
})
