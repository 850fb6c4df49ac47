import { AsyncLocalStorage } from 'node:async_hooks'
import type pg from 'pg'
import { expect, it } from 'vitest'
import { type EventMetadata, NoActiveTransactionError, TransactionEndedError } from '../../../src/index.js'
import { doesAsItsClass } from '../../support/trap-kit.js'
import { until } from '../../support/until.js'
import { OrderPlaced, onEveryPostgres } from '../../support/world.js'

onEveryPostgres('transactions do not mix', (newWorld) => {
  it('does not let one outbox publish into the transaction of another', async () => {
    const [here, there] = [await newWorld(), await newWorld()]
    const [a, b] = [here.outbox(), there.outbox()]
    await a.transaction(async () => {
      await expect(b.publish(OrderPlaced({ orderId: 'b' }))).rejects.toThrow(NoActiveTransactionError)
      await a.publish(OrderPlaced({ orderId: 'a' }))
    })
    expect(await here.rows()).toHaveLength(1)
    expect(await there.rows()).toHaveLength(0)
  })

  it('keeps two outboxes apart when their transactions are nested in each other', async () => {
    const [here, there] = [await newWorld(), await newWorld()]
    const [a, b] = [here.outbox(), there.outbox()]
    const both = a.transaction(async () => {
      await b.transaction(async () => {
        await a.publish(OrderPlaced({ orderId: 'a' }))
        await b.publish(OrderPlaced({ orderId: 'b' }))
      })
      throw new Error('only a')
    })
    await expect(both).rejects.toThrow('only a')
    expect(await here.rows()).toHaveLength(0)
    expect(await there.rows()).toHaveLength(1)
  })

  it('refuses the transaction of another outbox when it is passed on purpose', async () => {
    const [here, there] = [await newWorld(), await newWorld()]
    const [a, b] = [here.outbox(), there.outbox()]
    await b.transaction(async (tx) => {
      await expect(a.publish(OrderPlaced({ orderId: 'a' }), { tx })).rejects.toThrow()
    })
    expect(await here.rows()).toHaveLength(0)
    expect(await there.rows()).toHaveLength(0)
  })

  it('keeps 50 concurrent transactions apart, every third of which rolls back', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    await world.pool.query(`create table ${world.table}_order (id text)`)
    const insert = `insert into ${world.table}_order values ($1)`
    const turn = () => new Promise((resolve) => setImmediate(resolve))

    const place = (i: number) =>
      outbox.transaction(async (tx) => {
        for (let turns = i % 5; turns > 0; turns--) await turn()
        await tx.client.query(insert, [`o-${i}`])
        await outbox.publish(OrderPlaced({ orderId: `o-${i}` }))
        await turn()
        await outbox.transaction(async () => {
          await turn()
          await outbox.publish(OrderPlaced({ orderId: `o-${i}, again` }))
        })
        if (i % 3 === 0) throw new Error(`rolled back ${i}`)
      })
    const outcomes = await Promise.allSettled(Array.from({ length: 50 }, (_, i) => place(i)))
    await outbox.drain()

    const committed = Array.from({ length: 50 }, (_, i) => i).filter((i) => i % 3 !== 0)
    expect(outcomes.map((one) => one.status === 'fulfilled')).toEqual(outcomes.map((_, i) => i % 3 !== 0))
    expect(handled.sort()).toEqual(committed.flatMap((i) => [`o-${i}`, `o-${i}, again`]).sort())
    expect(await world.rows()).toHaveLength(committed.length * 2)
    const { rows } = await world.pool.query<{ id: string }>(`select id from ${world.table}_order`)
    expect(rows.map((row) => row.id).sort()).toEqual(committed.map((i) => `o-${i}`).sort())
  })
})

onEveryPostgres("the caller's own client", (newWorld) => {
  it('runs a transaction on it, hot path included, and leaves it idle and unchanged', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    const client = await world.pool.connect()
    const listeners = client.listenerCount('error')
    try {
      await outbox.transaction(client, async (tx) => {
        expect(tx.client).toBe(client)
        await outbox.publish(OrderPlaced({ orderId: 'kept' }))
      })
      const failing = outbox.transaction(client, async (tx) => {
        await tx.publish(OrderPlaced({ orderId: 'lost' }))
        throw new Error('no')
      })
      await expect(failing).rejects.toThrow('no')
      await until(() => handled.length > 0)
      const { rows } = await client.query('select pg_current_xact_id_if_assigned() as xid')
      expect(rows).toEqual([{ xid: null }])
      expect(doesAsItsClass(client)).toBe(true)
      expect(client.listenerCount('error')).toBe(listeners)
    } finally {
      client.release()
    }
    await outbox.drain()
    expect(handled).toEqual(['kept'])
  })

  it('refuses to begin on a client that is inside a transaction, and does not end that', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const client = await world.pool.connect()
    try {
      await client.query('BEGIN')
      await expect(outbox.transaction(client, async () => {})).rejects.toMatchObject({
        code: 'CLIENT_IN_TRANSACTION',
      })
      await client.query('SAVEPOINT still_inside')
    } finally {
      await client.query('ROLLBACK')
      client.release()
    }
  })

  async function inOwnTransaction(
    pool: pg.Pool,
    end: 'COMMIT' | 'ROLLBACK',
    body: (client: pg.PoolClient) => Promise<unknown>,
  ): Promise<void> {
    const client = await pool.connect()
    try {
      await client.query('BEGIN')
      await body(client)
      await client.query(end)
    } finally {
      client.release()
    }
  }

  it("publishes in the caller's transaction and delivers soon after its commit, not before", async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    await inOwnTransaction(world.pool, 'COMMIT', async (tx) => {
      await outbox.publish(OrderPlaced({ orderId: 'kept' }), { tx })
      expect(await outbox.poll()).toBe(0)
    })
    await until(() => handled.length > 0)
    await inOwnTransaction(world.pool, 'ROLLBACK', (tx) =>
      outbox.publish(OrderPlaced({ orderId: 'lost' }), { tx }),
    )
    await outbox.drain()
    expect(handled).toEqual(['kept'])
    expect(await world.rows()).toHaveLength(1)
  })

  it('refuses a client that is not inside a transaction, and writes nothing in autocommit', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const client = await world.pool.connect()
    try {
      const publishing = outbox.publish(OrderPlaced({ orderId: 'o-1' }), { tx: client })
      await expect(publishing).rejects.toThrow(TransactionEndedError)
    } finally {
      client.release()
    }
    expect(await world.rows()).toEqual([])
  })
})

onEveryPostgres('the context of a handler', (newWorld) => {
  it("does not see the publisher's transaction, nor its async context", async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const request = new AsyncLocalStorage<string>()
    const seen: { request: string | undefined; publish: unknown }[] = []
    outbox.on(OrderPlaced, 'look', async () => {
      const publish = await outbox.publish({ type: 'follow.up' }).catch((error: unknown) => error)
      seen.push({ request: request.getStore(), publish })
    })
    await outbox.start()
    await request.run('of the publisher', () =>
      outbox.transaction((tx) =>
        tx.publishAll([OrderPlaced({ orderId: 'a' }), OrderPlaced({ orderId: 'b' })]),
      ),
    )
    await until(() => seen.length === 2)
    for (const one of seen) {
      expect(one.request).toBeUndefined()
      expect(one.publish).toBeInstanceOf(NoActiveTransactionError)
    }
  })

  it('makes what a handler publishes its effect: correlation goes on, the cause is its event', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const effects = new Map<string, EventMetadata>()
    outbox.on(OrderPlaced, 'react', async (event) => {
      await outbox.transaction((tx) => tx.publish({ type: 'by.transaction', payload: event.payload.orderId }))
      await outbox.enqueue({ type: 'by.enqueue', payload: event.payload.orderId })
    })
    outbox.on(
      'by.*',
      'note',
      (event) => void effects.set(`${event.eventType} ${event.payload}`, event.metadata),
    )
    await outbox.start()
    await outbox.enqueue(OrderPlaced({ orderId: 'plain' }, { eventId: 'cause-1' }))
    await outbox.enqueue(
      OrderPlaced({ orderId: 'correlated' }, { eventId: 'cause-2', correlationId: 'story-7' }),
    )
    await until(() => effects.size === 4)
    expect(effects.get('by.transaction plain')).toEqual({ correlationId: 'cause-1', causationId: 'cause-1' })
    expect(effects.get('by.enqueue plain')).toEqual({ correlationId: 'cause-1', causationId: 'cause-1' })
    expect(effects.get('by.transaction correlated')).toEqual({
      correlationId: 'story-7',
      causationId: 'cause-2',
    })
    expect(effects.get('by.enqueue correlated')).toEqual({ correlationId: 'story-7', causationId: 'cause-2' })
  })

  it('sets no cause outside of handlers', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    const { rows } = await world.pool.query(`select metadata from ${world.table}`)
    expect(rows).toEqual([{ metadata: null }])
  })
})
