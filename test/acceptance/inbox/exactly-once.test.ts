import { expect, it } from 'vitest'
import { exactlyOnce } from '../../../src/inbox/index.js'
import { defineEvent, type EventEnvelope, TransactionRolledBackError } from '../../../src/index.js'
import { InMemoryEventBus } from '../../../src/testing/index.js'
import { deliverAgain, type Effect, effectsIn, unmarked } from '../../support/effects.js'
import { OrderPlaced, onEveryPostgres, type PgOutbox } from '../../support/world.js'

type Order = { orderId: string }
const Booked = defineEvent<Order>('order.booked')
const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })

/** One handler with the mark and one without: the second shows that the test could have failed. */
function both(outbox: PgOutbox, effect: Effect<Order>, afterwards: (handler: string) => unknown = () => {}) {
  const handlers = { once: exactlyOnce(effect, outbox), plain: unmarked(effect, outbox) }
  for (const [name, handle] of Object.entries(handlers)) {
    outbox.on(OrderPlaced, name, async (event, context) => {
      await handle(event, context)
      await afterwards(name)
    })
  }
}

onEveryPostgres('an exactly-once handler', (newWorld) => {
  it('that succeeds and is delivered again, because nobody wrote that down, has its effect once', async () => {
    const world = await newWorld()
    const effects = await effectsIn(world)
    const outbox = world.outbox()
    const failed = new Set<string>()
    both(outbox, effects.add, (handler) => {
      if (failed.has(handler)) return
      failed.add(handler)
      throw new Error('after the commit')
    })
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(await world.rows()).toMatchObject([{ status: 'DONE', attempts: 1 }])
    expect(await effects.counts()).toEqual({ once: 1, plain: 2 })
  })

  it('that throws after its effect leaves nothing, is retried, and has its effect once', async () => {
    const world = await newWorld()
    const effects = await effectsIn(world)
    const outbox = world.outbox()
    outbox.on(
      OrderPlaced,
      'once',
      exactlyOnce(async (event, context) => {
        await effects.add(event, context)
        // Past the transaction, as a handler without one would do it.
        await world.pool.query(`insert into ${effects.table} values ('', 'outside')`)
        if (context.attempt === 1) throw new Error('not yet')
      }, outbox),
    )
    await outbox.enqueue(order('o-1'))
    await outbox.consumeOne()
    expect(await effects.counts()).toEqual({ outside: 1 })
    expect(await outbox.store.isProcessed('once', 'o-1')).toBe(false)
    await outbox.drain()
    expect(await effects.counts()).toEqual({ once: 1, outside: 2 })
    expect(await world.rows()).toMatchObject([{ status: 'DONE', attempts: 1 }])
  })

  it('does not see the marks of another one for the same event', async () => {
    const world = await newWorld()
    const effects = await effectsIn(world)
    for (let delivery = 1; delivery <= 3; delivery++) {
      const outbox = world.outbox()
      const handle = exactlyOnce(effects.add, outbox)
      for (const name of ['first', 'second']) outbox.on(OrderPlaced, name, handle)
      if (delivery === 1) await outbox.enqueue(order('o-1'))
      else await deliverAgain(world)
      await outbox.drain()
    }
    expect(await effects.counts()).toEqual({ first: 1, second: 1 })
  })

  it('is remembered by the next process', async () => {
    const world = await newWorld()
    const effects = await effectsIn(world)
    for (let process = 1; process <= 3; process++) {
      const outbox = world.outbox()
      both(outbox, effects.add)
      await outbox.start()
      if (process === 1) await outbox.enqueue(order('o-1'))
      else await deliverAgain(world)
      await outbox.drain()
      await outbox.stop()
    }
    expect(await effects.counts()).toEqual({ once: 1, plain: 3 })
  })

  it('publishes follow-ups that are delivered once, and none in an attempt that failed', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const attempts = { once: 0, plain: 0 } as Record<string, number>
    const effect: Effect<Order> = async (_event, { tx, handler }) => {
      attempts[handler] = (attempts[handler] ?? 0) + 1
      await tx.publish(Booked({ orderId: `${handler} ${attempts[handler]}` }))
      if (attempts[handler] === 1) throw new Error('not yet')
    }
    const commits: Record<string, number> = {}
    both(outbox, effect, (handler) => {
      commits[handler] = (commits[handler] ?? 0) + 1
      if (commits[handler] === 1) throw new Error('after the commit')
    })
    const delivered: string[] = []
    outbox.on(Booked, 'note', (event) => void delivered.push(event.payload.orderId))
    await outbox.start()
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(delivered.sort()).toEqual(['once 2', 'plain 2', 'plain 3'])
    expect(commits).toEqual({ once: 2, plain: 2 })
  })

  it('keeps what it did outside of a savepoint that it rolled back, and the mark', async () => {
    const world = await newWorld()
    const effects = await effectsIn(world)
    const outbox = world.outbox()
    outbox.on(Booked, 'note', () => {})
    const handle = exactlyOnce(async (event: EventEnvelope<Order>, { tx }) => {
      await effects.add(event, { tx, handler: 'outer' })
      const inner = outbox.transaction(async (nested) => {
        await effects.add(event, { tx: nested, handler: 'inner' })
        await nested.publish(Booked(event.payload))
        await nested.client.query('select 1 / 0')
      })
      await expect(inner).rejects.toThrow('division by zero')
      await tx.transaction((nested) => effects.add(event, { tx: nested, handler: 'kept' }))
    }, outbox)
    outbox.on(OrderPlaced, 'once', handle)
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    await deliverAgain(world)
    await world.outbox().on(OrderPlaced, 'once', handle).drain()
    expect(await effects.counts()).toEqual({ outer: 1, kept: 1 })
    expect((await world.rows()).map((row) => row.id)).toEqual(['o-1'])
  })

  it('that swallows a failed statement has no effect, and fails', async () => {
    const world = await newWorld()
    const effects = await effectsIn(world)
    const outbox = world.outbox()
    const errors: unknown[] = []
    const handle = exactlyOnce(async (event: EventEnvelope<Order>, context) => {
      await effects.add(event, context)
      if (context.attempt === 1) await context.tx.client.query('select 1 / 0').catch(() => {})
    }, outbox)
    outbox.on(OrderPlaced, 'once', (event, context) =>
      handle(event, context).catch((error) => {
        errors.push(error)
        throw error
      }),
    )
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(errors).toEqual([expect.any(TransactionRolledBackError)])
    expect(await effects.counts()).toEqual({ once: 1 })
  })

  it('takes the messages of a bus, and resolves only when they are committed', async () => {
    const world = await newWorld()
    const effects = await effectsIn(world)
    const outbox = world.outbox()
    const bus = new InMemoryEventBus()
    const seen: unknown[] = []
    const consumer = exactlyOnce(
      {
        name: 'once',
        handle: (event: EventEnvelope<Order>, { tx }) => effects.add(event, { tx, handler: 'once' }),
      },
      outbox,
    )
    bus.subscribe(OrderPlaced, {
      name: 'broker',
      handle: async (event) => {
        await consumer.handle(event)
        seen.push(await effects.counts())
      },
    })
    await bus.publish(order('o-1'))
    await bus.publish(order('o-1'))
    await outbox.transaction(() => bus.publish(order('o-2')))
    expect(seen).toEqual([{ once: 1 }, { once: 1 }, { once: 2 }])
  })
})
