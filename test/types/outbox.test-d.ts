import type { PGlite, Transaction as PGliteTransaction } from '@electric-sql/pglite'
import { type } from 'arktype'
import type pg from 'pg'
import type postgres from 'postgres'
import * as v from 'valibot'
import { describe, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import {
  type BatchContext,
  createOutbox,
  defineEvent,
  type EventBus,
  type EventEnvelope,
  type EventHandler,
  type EventId,
  type EventPublisher,
  type EventRecord,
  type EventSubscriber,
  exponentialBackoff,
  type HandlerContext,
  type Outbox,
  type OutboxOptions,
  type OutboxStore,
  type Transaction,
} from '../../src/index.js'
import { type MemoryClient, memoryStore } from '../../src/stores/memory/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { createTestOutbox, InMemoryEventBus, type TestOutbox } from '../../src/testing/index.js'

interface Order {
  orderId: string
  total: number
}

enum Events {
  Placed = 'order.placed',
}

const Zod = defineEvent('order.placed', {
  aggregateType: 'order',
  aggregateId: (p) => p.orderId,
  schema: z.object({ orderId: z.string(), placedAt: z.coerce.date() }),
})
const Valibot = defineEvent('valibot', {
  schema: v.object({ id: v.string(), at: v.pipe(v.string(), v.isoTimestamp(), v.toDate()) }),
})
const Arktype = defineEvent('arktype', { schema: type({ id: 'string', at: 'string.date.parse' }) })
const Plain = defineEvent<Order>('plain')
const Annotated = defineEvent(Events.Placed, { aggregateId: (p: Order) => p.orderId })

declare const outbox: Outbox<MemoryClient>
const audit: EventHandler = { name: 'audit', handle: () => {} }
declare const pool: pg.Pool
declare const sql: postgres.Sql
declare const pglite: PGlite

describe('handlers', () => {
  it('see the payload of their definition, with no cast and no annotation', () => {
    outbox.on(Zod, 'n', (event, context) => {
      expectTypeOf(event).toEqualTypeOf<EventEnvelope<{ orderId: string; placedAt: Date }>>()
      expectTypeOf(event.payload.placedAt).toEqualTypeOf<Date>()
      expectTypeOf(context).toEqualTypeOf<HandlerContext>()
    })
    outbox.on(Valibot, 'n', async (event) => {
      expectTypeOf(event.payload).toEqualTypeOf<{ id: string; at: Date }>()
    })
    outbox.on(Arktype, 'n', async (event) => {
      expectTypeOf(event.payload).toEqualTypeOf<{ id: string; at: Date }>()
    })
    outbox.on(Plain, 'n', ({ payload }, { attempt, signal, log }) => {
      expectTypeOf(payload).toEqualTypeOf<Order>()
      expectTypeOf(attempt).toEqualTypeOf<number>()
      expectTypeOf(signal).toEqualTypeOf<AbortSignal>()
      log.info({ attempt }, 'typed')
    })
    outbox.on(Annotated, 'n', (event) => {
      expectTypeOf(event.payload).toEqualTypeOf<Order>()
    })
  })

  it('see it also when they are bound to an aggregate', () => {
    outbox.on({ aggregateType: 'order', type: Zod }, 'n', (event) => {
      expectTypeOf(event.payload.placedAt).toEqualTypeOf<Date>()
    })
    outbox.on({ aggregateType: 'order', type: 'order.*' }, 'n', (event) => {
      expectTypeOf(event.payload).toEqualTypeOf<unknown>()
    })
  })

  it('see nothing of the payload by name, by pattern and by an enum', () => {
    for (const name of ['legacy.thing', 'order.*', '*', Events.Placed]) {
      outbox.on(name, 'n', (event) => {
        expectTypeOf(event.payload).toEqualTypeOf<unknown>()
        // @ts-expect-error unknown has no fields
        event.payload.orderId
      })
    }
  })

  it('decode what came by name with a definition', () => {
    outbox.on('*', 'n', (event) => {
      expectTypeOf(event.payloadAs(Zod).placedAt).toEqualTypeOf<Date>()
    })
  })

  it('may return anything, at once or later, and be chained', () => {
    outbox
      .on(Plain, 'a', () => {})
      .on(Plain, 'b', async () => 5)
      .on('x', 'c', () => 'done')
    expectTypeOf(outbox.on('x', 'c', () => {})).toEqualTypeOf<Outbox<MemoryClient>>()
  })

  it('are checked', () => {
    // @ts-expect-error this handler wants another payload
    outbox.on(Plain, 'n', (event: EventEnvelope<{ name: string }>) => event)
    // @ts-expect-error a payload is not an envelope
    outbox.on(Plain, 'n', (payload: Order) => payload.orderId)
    // @ts-expect-error there is no third argument
    outbox.on(Plain, 'n', (_event, _context, _next: () => void) => {})
    // @ts-expect-error no name
    outbox.on(Plain, () => {})
    // @ts-expect-error no handler
    outbox.on(Plain, 'n')
    // @ts-expect-error neither a name nor a definition
    outbox.on(5, 'n', () => {})
    // @ts-expect-error an event is not its definition
    outbox.on(Plain({ orderId: '', total: 1 }), 'n', () => {})
    // @ts-expect-error no type
    outbox.on({ aggregateType: 'order' }, 'n', () => {})
    // @ts-expect-error not an option
    outbox.on(Plain, 'n', () => {}, { timeout: 5 })
    // @ts-expect-error a number of milliseconds
    outbox.on(Plain, 'n', () => {}, { timeoutMs: '5s' })
    outbox.on(Plain, 'n', () => {}, { timeoutMs: 5, exclusive: true })
  })
})

describe('batch handlers', () => {
  const size = { size: 10 }

  it('see the payloads of their definition, in a list that is not theirs to change', () => {
    outbox.onBatch(Zod, 'n', size, (events, context) => {
      expectTypeOf(events).toEqualTypeOf<readonly EventEnvelope<{ orderId: string; placedAt: Date }>[]>()
      expectTypeOf(context).toEqualTypeOf<BatchContext>()
      // @ts-expect-error the list is read only
      events.shift()
    })
    outbox.onBatch('any', 'n', size, (events) => {
      expectTypeOf(events).toEqualTypeOf<readonly EventEnvelope<unknown>[]>()
    })
  })

  it('return nothing, errors, or how their promises were settled', () => {
    outbox.onBatch(Plain, 'n', size, () => {})
    outbox.onBatch(Plain, 'n', size, async () => {})
    outbox.onBatch(Plain, 'n', size, (events) => events.map(() => null))
    outbox.onBatch(Plain, 'n', size, async (events) => {
      if (events.length === 1) return
      return events.map((one) => (one.payload.total > 5 ? new Error('too much') : undefined))
    })
    outbox.onBatch(Plain, 'n', size, (events) => Promise.allSettled(events.map(async () => 5)))
    outbox.onBatch(Plain, 'n', size, async (events) => await Promise.allSettled(events.map(async () => {})))
    outbox.onBatch('any', 'n', size, (events) => Promise.allSettled(events.map(async () => 'x')))
  })

  it('return nothing else', () => {
    // @ts-expect-error texts
    outbox.onBatch(Plain, 'n', size, (events) => events.map(() => 'failed'))
    // @ts-expect-error booleans
    outbox.onBatch(Plain, 'n', size, async (events) => events.map(() => true))
    // @ts-expect-error promises
    outbox.onBatch(Plain, 'n', size, (events) => events.map(async () => {}))
    // @ts-expect-error promises, by name
    outbox.onBatch('any', 'n', size, (events) => events.map(async () => null))
    // @ts-expect-error what Promise.all gives
    outbox.onBatch(Plain, 'n', size, (events) => Promise.all(events.map(async () => 5)))
    // @ts-expect-error no list
    outbox.onBatch(Plain, 'n', size, async () => 5)
  })
})

describe('createOutbox', () => {
  it('takes the type of the client from the store: the driver’s own', () => {
    const onPool = createOutbox({ store: postgresStore(pool) })
    expectTypeOf(onPool).toEqualTypeOf<Outbox<pg.PoolClient>>()
    void onPool.transaction(async (tx) => {
      expectTypeOf(tx.client).toEqualTypeOf<pg.PoolClient>()
      const { rows } = await tx.client.query<{ id: string }>('select id from orders')
      expectTypeOf(rows).toEqualTypeOf<{ id: string }[]>()
      await tx.transaction(async (inner) => expectTypeOf(inner.client).toEqualTypeOf<pg.PoolClient>())
    })

    const onPostgresJs = createOutbox({ store: postgresStore(sql) })
    void onPostgresJs.transaction(async (tx) => {
      expectTypeOf(tx.client).toEqualTypeOf<postgres.TransactionSql>()
      await tx.client`select ${1}::int`
    })

    const onPGlite = createOutbox({ store: postgresStore(pglite) })
    void onPGlite.transaction(async (tx) => {
      expectTypeOf(tx.client).toEqualTypeOf<PGliteTransaction>()
      const { rows } = await tx.client.query<{ n: number }>('select 1 as n')
      expectTypeOf(rows).toEqualTypeOf<{ n: number }[]>()
    })

    const inMemory = createOutbox({ store: memoryStore() })
    expectTypeOf(inMemory).toEqualTypeOf<Outbox<MemoryClient>>()
    expectTypeOf(createTestOutbox()).toExtend<Outbox<MemoryClient>>()
    // @ts-expect-error a memory client speaks no SQL
    void inMemory.transaction(async (tx) => tx.client.query('select 1'))
  })

  it('takes it from a store of one’s own', () => {
    const store = {} as OutboxStore<{ mine: true }>
    expectTypeOf(createOutbox({ store })).toEqualTypeOf<Outbox<{ mine: true }>>()
  })

  it('needs a store, and knows its settings', () => {
    const store = memoryStore()
    createOutbox({
      store,
      events: [Zod, Valibot, Arktype, Plain, Annotated],
      dispatcher: { concurrency: 8, onUnroutable: 'retry', interceptors: [{ beforeDispatch: () => {} }] },
      poller: { pollIntervalMs: 1, batchSize: 2, leaseMs: 3, skipRecentMs: 4 },
      retry: { maxAttempts: 3, policy: exponentialBackoff() },
      retention: { doneMs: 0 },
      onDead: ({ eventId, eventType }, error) => `${eventId} ${eventType} ${error}`,
    })
    // @ts-expect-error no store
    createOutbox({})
    // @ts-expect-error a pool is not a store
    createOutbox({ store: pool })
    // @ts-expect-error not a setting
    createOutbox({ store, concurrency: 8 })
    // @ts-expect-error misspelt
    createOutbox({ store, dispatcher: { concurency: 8 } })
    // @ts-expect-error misspelt
    createOutbox({ store, poller: { leaseMS: 8 } })
    // @ts-expect-error a number
    createOutbox({ store, poller: { leaseMs: '30s' } })
    // @ts-expect-error one of two
    createOutbox({ store, dispatcher: { onUnroutable: 'drop' } })
    // @ts-expect-error a policy is an object
    createOutbox({ store, retry: { policy: () => 5 } })
    // @ts-expect-error an event is not its definition
    createOutbox({ store, events: [Plain({ orderId: '', total: 1 })] })
    // @ts-expect-error not a setting
    createOutbox({ store, retention: { days: 7 } })
    expectTypeOf<OutboxOptions<pg.PoolClient>['store']>().toEqualTypeOf<OutboxStore<pg.PoolClient>>()
  })
})

describe('postgresStore', () => {
  it('has the client of what it is given', () => {
    expectTypeOf(postgresStore(pool)).toEqualTypeOf<OutboxStore<pg.PoolClient>>()
    expectTypeOf(postgresStore(sql)).toEqualTypeOf<OutboxStore<postgres.TransactionSql>>()
    expectTypeOf(postgresStore(pglite)).toEqualTypeOf<OutboxStore<PGliteTransaction>>()
    // @ts-expect-error a connection string is not a pool
    postgresStore('postgres://localhost/db')
    // @ts-expect-error not an option
    postgresStore(pool, { tabel: 'outbox' })
  })
})

describe('publishing', () => {
  it('takes the payload that handlers get, and nothing else', () => {
    void outbox.transaction(async (tx) => {
      await tx.publish(Zod({ orderId: '', placedAt: new Date() }))
      await tx.publish({ type: 'by.name', payload: { any: ['thing'] } })
      await tx.publishAll([Plain({ orderId: '', total: 1 }), { type: Events.Placed }])
      // @ts-expect-error a Date, as handlers see it
      await tx.publish(Zod({ orderId: '', placedAt: '2030-01-01' }))
      // @ts-expect-error a field is missing
      await tx.publish(Plain({ orderId: '' }))
      // @ts-expect-error a field too many
      await tx.publish(Plain({ orderId: '', total: 1, more: true }))
      // @ts-expect-error a definition is not an event
      await tx.publish(Plain)
      // @ts-expect-error one event
      await tx.publish([Plain({ orderId: '', total: 1 })])
      // @ts-expect-error a list of events
      await tx.publishAll(Plain({ orderId: '', total: 1 }))
    })
  })

  it('returns ids', () => {
    expectTypeOf(outbox.publish({ type: 'a' })).resolves.toEqualTypeOf<EventId>()
    expectTypeOf(outbox.publishAll([{ type: 'a' }])).resolves.toEqualTypeOf<EventId[]>()
    expectTypeOf(outbox.enqueue({ type: 'a' })).resolves.toEqualTypeOf<EventId>()
  })

  it('knows its options', () => {
    void outbox.enqueue({ type: 'a' }, { delayMs: 5, onDuplicate: 'ignore' })
    void outbox.publish({ type: 'a' }, { deliverAt: new Date() })
    // @ts-expect-error not an option
    void outbox.enqueue({ type: 'a' }, { delay: 5 })
    // @ts-expect-error a Date
    void outbox.enqueue({ type: 'a' }, { deliverAt: '2030-01-01' })
    // @ts-expect-error one of two
    void outbox.enqueue({ type: 'a' }, { onDuplicate: 'skip' })
    // @ts-expect-error enqueue writes in a transaction of its own
    void outbox.enqueue({ type: 'a' }, { tx: {} as MemoryClient })
  })

  it('takes a transaction of its own kind: ours, or the handle of the driver', () => {
    const onPool = createOutbox({ store: postgresStore(pool) })
    const client = {} as pg.PoolClient
    void onPool.publish({ type: 'a' }, { tx: client })
    void onPool.transaction(async (tx) => void (await onPool.publish({ type: 'a' }, { tx })))
    void onPool.transaction(client, async (tx) =>
      expectTypeOf(tx).toEqualTypeOf<Transaction<pg.PoolClient>>(),
    )
    // @ts-expect-error the handle of another driver
    void onPool.publish({ type: 'a' }, { tx: {} as MemoryClient })
    // @ts-expect-error a transaction of another kind of outbox
    void outbox.transaction(async (tx) => void (await onPool.publish({ type: 'a' }, { tx })))
    // @ts-expect-error the client of another driver
    void onPool.transaction({} as MemoryClient, async () => {})
  })
})

describe('an outbox', () => {
  it('is an EventBus: a module that registers through the port takes it', () => {
    expectTypeOf<Outbox<pg.PoolClient>>().toExtend<EventBus>()
    expectTypeOf<Outbox>().toExtend<EventSubscriber>()
    expectTypeOf<TestOutbox>().toExtend<EventBus>()
    expectTypeOf<InMemoryEventBus>().toExtend<EventBus>()
    const register = (bus: EventSubscriber) => bus.subscribeAll([Plain, 'legacy.thing'], audit)
    register(outbox)
    register(createTestOutbox())
    register(new InMemoryEventBus())
    class Booking implements EventHandler<Order> {
      readonly name = 'book'
      handle(event: EventEnvelope<Order>) {
        return event.payload.total
      }
    }
    outbox.subscribe(Plain, new Booking())
    outbox.subscribe(Zod, {
      name: 'note',
      handle: (event) => expectTypeOf(event.payload.placedAt).toEqualTypeOf<Date>(),
    })
    expectTypeOf(outbox.subscribe(Plain, audit)).toEqualTypeOf<void>()
    // @ts-expect-error another payload
    outbox.subscribe(Zod, new Booking())
    // @ts-expect-error a function has no name that could be kept
    outbox.subscribe(Plain, () => {})
    // @ts-expect-error no name
    outbox.subscribe(Plain, { handle: () => {} })
  })

  it('is an EventPublisher, and so is a transaction: use cases depend on the port', () => {
    expectTypeOf<Outbox<pg.PoolClient>>().toExtend<EventPublisher>()
    expectTypeOf<Outbox>().toExtend<EventPublisher>()
    expectTypeOf<Transaction<pg.PoolClient>>().toExtend<EventPublisher>()
    expectTypeOf<Outbox<pg.PoolClient>>().toExtend<AsyncDisposable>()
  })

  it('returns what the body returns', () => {
    expectTypeOf(outbox.transaction(async () => 5)).resolves.toEqualTypeOf<number>()
    expectTypeOf(
      outbox.transaction(async (tx) => tx.transaction(async () => 'x')),
    ).resolves.toEqualTypeOf<string>()
    // @ts-expect-error a body is asynchronous: what it starts must be awaited before the commit
    void outbox.transaction(() => 5)
  })

  it('shows numbers, dead letters and its health', async () => {
    const { pending, dead, done, failed, oldestLagMs } = await outbox.stats()
    expectTypeOf([pending, dead, done, failed, oldestLagMs]).toEqualTypeOf<number[]>()
    expectTypeOf(outbox.deadLetters.list()).resolves.toEqualTypeOf<readonly EventRecord[]>()
    expectTypeOf(outbox.deadLetters.retry({ all: true })).resolves.toEqualTypeOf<readonly string[]>()
    expectTypeOf(outbox.poll()).resolves.toEqualTypeOf<number>()
    expectTypeOf(outbox.consumeOne()).resolves.toEqualTypeOf<boolean>()
    // @ts-expect-error all of them must be said
    void outbox.deadLetters.retry({})
    // @ts-expect-error true or nothing
    void outbox.deadLetters.discard({ all: false })
    // @ts-expect-error an outbox is made by createOutbox()
    outbox.catalog = undefined
  })
})
