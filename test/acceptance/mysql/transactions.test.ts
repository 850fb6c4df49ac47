import mysql from 'mysql2'
import { createConnection, type RowDataPacket } from 'mysql2/promise'
import { expect, it } from 'vitest'
import {
  CommitUnknownError,
  createOutbox,
  NoActiveTransactionError,
  silentLogger,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { gate, until } from '../../support/until.js'
import { cleanUp, freshUrl, newWorld, OrderPlaced, onMysql, poolOn, rowsOf } from './kit.js'

/** So rarely that what is handled soon came from memory. */
const HOT_ONLY = { poller: { pollIntervalMs: 3_600_000 } }

async function startedWorld(options = {}) {
  const world = await newWorld(options)
  const handled: string[] = []
  world.outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
  await world.outbox.start()
  return { ...world, handled }
}

onMysql('transactions', () => {
  it('a committed event is handled from memory, and its row is done', async () => {
    const { outbox, pool, handled } = await startedWorld(HOT_ONLY)
    await pool.query('create table orders (id varchar(20) primary key)')
    await outbox.transaction(async (tx) => {
      await tx.client.query('insert into orders (id) values (?)', ['o-1'])
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
    })
    await until(() => handled.length > 0)
    expect(handled).toEqual(['o-1'])
    expect(await rowsOf(pool, 'select id from orders')).toEqual([{ id: 'o-1' }])
    await until(async () => (await rowsOf(pool))[0]?.status === 1)
  })

  it('a rollback leaves no row, no order and no call', async () => {
    const { outbox, pool, handled } = await startedWorld()
    await pool.query('create table orders (id varchar(20) primary key)')
    const failure = new Error('business rule')
    const transaction = outbox.transaction(async (tx) => {
      await tx.client.query(`insert into orders (id) values ('o-1')`)
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      throw failure
    })
    await expect(transaction).rejects.toBe(failure)
    await outbox.drain()
    expect([await rowsOf(pool), await rowsOf(pool, 'select * from orders'), handled]).toEqual([[], [], []])
  })

  it("publishes in the caller's own transaction, on a promise connection of its own", async () => {
    const { outbox, url, pool, handled } = await startedWorld()
    const connection = await createConnection({ uri: url })
    cleanUp(() => connection.end())
    await connection.beginTransaction()
    await outbox.publish(OrderPlaced({ orderId: 'kept' }), { tx: connection })
    expect(await rowsOf(pool)).toEqual([])
    await connection.commit()
    await connection.beginTransaction()
    await outbox.publish(OrderPlaced({ orderId: 'dropped' }), { tx: connection })
    await connection.rollback()
    await until(() => handled.length > 0)
    await outbox.drain()
    expect(handled).toEqual(['kept'])
  })

  it("publishes in the caller's own transaction with callbacks", async () => {
    const url = await freshUrl()
    const pool = mysql.createPool({ uri: url, connectionLimit: 5 })
    cleanUp(() => pool.promise().end())
    const outbox = createOutbox({ store: mysqlStore(pool), logger: silentLogger })
    cleanUp(() => outbox.stop())
    await outbox.migrate()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    const client = await new Promise<mysql.PoolConnection>((resolve, reject) => {
      pool.getConnection((error, connection) => (error ? reject(error) : resolve(connection)))
    })
    await client.promise().beginTransaction()
    await outbox.publish(OrderPlaced({ orderId: 'o-1' }), { tx: client })
    await client.promise().commit()
    client.release()
    await outbox.transaction((tx) => tx.publish(OrderPlaced({ orderId: 'o-2' })))
    await until(() => handled.length === 2)
    expect(handled.sort()).toEqual(['o-1', 'o-2'])
  })

  it('writes nothing outside of a transaction', async () => {
    const { outbox, pool } = await newWorld()
    await expect(outbox.publish(OrderPlaced({ orderId: 'o-1' }))).rejects.toThrow(NoActiveTransactionError)
    const client = await pool.getConnection()
    const outside = outbox.publish(OrderPlaced({ orderId: 'o-1' }), { tx: client })
    await expect(outside).rejects.toThrow(TransactionEndedError)
    await client.query('set autocommit = 0')
    await outbox.publish(OrderPlaced({ orderId: 'o-2' }), { tx: client })
    await client.rollback()
    client.destroy()
    expect(await rowsOf(pool)).toEqual([])
  })

  it('refuses to publish where the application has ended the managed transaction', async () => {
    const { outbox, pool } = await newWorld()
    for (const end of ['rollback', 'commit', 'create table x (a int)', 'drop table x']) {
      const transaction = outbox.transaction(async (tx) => {
        await tx.client.query(end)
        await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      })
      await expect(transaction, end).rejects.toThrow(TransactionEndedError)
    }
    expect(await rowsOf(pool)).toEqual([])
  })

  it('says that it does not know what became of a transaction that the application ended', async () => {
    const { outbox, handled } = await startedWorld(HOT_ONLY)
    const transaction = outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      await tx.client.query('create table x (a int)')
    })
    await expect(transaction).rejects.toThrow(CommitUnknownError)
    expect(handled).toEqual([])
  })

  it('takes a swallowed deadlock for the rollback that it is', async () => {
    const { outbox, pool, handled } = await startedWorld()
    await pool.query('create table t (id int primary key, n int)')
    await pool.query('insert into t values (1, 0), (2, 0)')
    const [bothHold, otherAsks] = [gate(), gate()]
    const other = await pool.getConnection()
    await other.beginTransaction()
    await other.query('update t set n = 1 where id = 2')
    // The heavier transaction survives.
    await other.query('insert into t values ?', [Array.from({ length: 300 }, (_, n) => [n + 10, 0])])
    const transaction = outbox.transaction(async (tx) => {
      await tx.client.query('update t set n = 2 where id = 1')
      await tx.publish(OrderPlaced({ orderId: 'victim' }))
      bothHold.open()
      await otherAsks.opened
      await tx.client.query('update t set n = 2 where id = 2').catch(() => {})
      return 'swallowed'
    })
    await bothHold.opened
    const asked = other.query('update t set n = 1 where id = 1')
    otherAsks.open()
    await expect(transaction).rejects.toThrow(TransactionRolledBackError)
    await asked
    await other.rollback()
    other.release()
    await outbox.drain()
    expect([await rowsOf(pool), handled]).toEqual([[], []])
  })

  it('does not announce what a ROLLBACK TO of the application took away', async () => {
    const { outbox, handled } = await startedWorld(HOT_ONLY)
    await outbox.transaction(async (tx) => {
      await tx.client.query('savepoint mine')
      await tx.publish(OrderPlaced({ orderId: 'gone' }))
      await tx.client.query('rollback to mine')
      await tx.publish(OrderPlaced({ orderId: 'kept' }))
    })
    await until(() => handled.length > 0)
    expect(handled).toEqual(['kept'])
  })

  it('answers a connection that was killed before the COMMIT by CommitUnknownError, and goes on', async () => {
    const { outbox, pool, handled } = await startedWorld()
    const transaction = outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'lost' }))
      const [[row]] = await tx.client.query<RowDataPacket[]>('select connection_id() as id')
      await pool.query(`kill ${row?.id}`)
    })
    await expect(transaction).rejects.toThrow(CommitUnknownError)
    await outbox.transaction((tx) => tx.publish(OrderPlaced({ orderId: 'next' })))
    await until(() => handled.includes('next'))
    await outbox.drain()
    expect(handled).toEqual(['next'])
  })

  it("runs on the caller's idle connection, and refuses one that is in a transaction already", async () => {
    const { url, pool } = await newWorld()
    const store = mysqlStore(pool)
    const connection = await createConnection({ uri: url })
    cleanUp(() => connection.end())
    const inside = async () => {
      const [[row]] = await connection.query<RowDataPacket[]>('select count(*) as n from outbox_event')
      return Number(row?.n)
    }
    expect(await store.transaction(inside, connection)).toBe(0)
    await connection.beginTransaction()
    await expect(store.transaction(inside, connection)).rejects.toMatchObject({
      code: 'CLIENT_IN_TRANSACTION',
    })
    await connection.rollback()
    expect(Object.keys((connection as unknown as { connection: object }).connection)).not.toContain('query')
  })

  it('waits for nobody: a pool too small for its worker is refused', async () => {
    const { outbox } = await newWorld({}, { connectionLimit: 2 })
    await expect(outbox.start()).rejects.toMatchObject({ code: 'POOL_TOO_SMALL' })
  })

  it('keeps a batch with large payloads whole, or leaves none of it', async () => {
    const { url } = await newWorld()
    const pool = poolOn(url)
    const outbox = createOutbox({ store: mysqlStore(pool), logger: silentLogger })
    const large = (id: string) => ({
      type: 'large',
      eventId: id,
      payload: id.repeat(200_000).slice(0, 400_000),
    })
    await outbox.transaction((tx) => tx.publishAll(['a', 'b', 'c'].map(large)))
    const again = outbox.transaction(async (tx) => {
      await tx
        .publishAll(['d', 'e', 'b'].map(large))
        .catch((error) => expect(error.code).toBe('DUPLICATE_EVENT'))
      await tx.publish(large('f'))
    })
    await again
    expect((await rowsOf(pool)).map((row) => row.event_id)).toEqual(['a', 'b', 'c', 'f'])
  })

  it('of two batches at once in one transaction the one that fails takes no row of the other along', async () => {
    const { outbox, pool } = await newWorld()
    await outbox.transaction((tx) => tx.publish({ type: 'taken', eventId: 'failing-2499' }))
    // More than two statements each: the failing one has written two when it finds the id that is taken.
    const batch = (name: string) =>
      Array.from({ length: 2_500 }, (_, n) => ({ type: 'many', eventId: `${name}-${n}`, payload: n }))
    const idsOf = (name: string) => batch(name).map((event) => event.eventId)
    for (const names of [
      ['failing', 'whole'],
      ['more', 'failing'],
    ]) {
      await outbox.transaction(async (tx) => {
        const results = await Promise.allSettled(names.map((name) => tx.publishAll(batch(name))))
        const isDuplicate = expect.objectContaining({ code: 'DUPLICATE_EVENT' })
        expect(results).toEqual(
          names.map((name) =>
            name === 'failing'
              ? { status: 'rejected', reason: isDuplicate }
              : { status: 'fulfilled', value: idsOf(name) },
          ),
        )
        await tx.publish({ type: 'after', eventId: `after-${names.join('-')}` })
      })
    }
    const written = (await rowsOf(pool)).map((row) => row.event_id)
    const single = ['failing-2499', 'after-failing-whole', 'after-more-failing']
    const expected = [...single, ...idsOf('whole'), ...idsOf('more')]
    expect(written.toSorted()).toEqual(expected.toSorted())
  })
})
