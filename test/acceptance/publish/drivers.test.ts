import { PGlite } from '@electric-sql/pglite'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import {
  createOutbox,
  fixedDelay,
  type Outbox,
  type OutboxStore,
  silentLogger,
  TransactionEndedError,
} from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { freshDatabase } from '../../support/database.js'
import { gate, until } from '../../support/until.js'
import { HOUR_MS, OrderPlaced } from '../../support/world.js'

/** One driver, as far as these tests need it. `Client` is its own handle of a transaction. */
interface Driver<Client> {
  readonly store: OutboxStore<Client>
  /** A statement on the handle that the application gets. */
  run(client: Client, sql: string): Promise<unknown>
  /** A statement outside of everything. */
  select(sql: string): Promise<readonly object[]>
  close(): Promise<void>
}

async function pgDriver(url: string): Promise<Driver<pg.PoolClient>> {
  const pool = new pg.Pool({ connectionString: url, max: 8 })
  pool.on('error', () => {}) // its database is dropped under it at the end
  return {
    store: postgresStore(pool),
    run: (client, sql) => client.query(sql),
    select: async (sql) => (await pool.query<object>(sql)).rows,
    close: () => pool.end(),
  }
}

async function postgresJsDriver(url: string): Promise<Driver<postgres.TransactionSql>> {
  const sql = postgres(url, { max: 8, onnotice: () => {} })
  return {
    store: postgresStore(sql) as OutboxStore<postgres.TransactionSql>,
    run: async (client, text) => client.unsafe(text),
    select: async (text) => [...(await sql.unsafe(text))],
    close: () => sql.end({ timeout: 2 }),
  }
}

async function pgliteDriver(): Promise<Driver<Parameters<Parameters<PGlite['transaction']>[0]>[0]>> {
  const database = await PGlite.create()
  return {
    store: postgresStore(database),
    run: (client, sql) => client.exec(sql),
    select: async (sql) => (await database.query<object>(sql)).rows,
    close: () => database.close(),
  }
}

matrix('pg', pgDriver)
matrix('postgres.js', postgresJsDriver)
matrix('PGlite', pgliteDriver)

function matrix<Client>(name: string, connect: (url: string) => Promise<Driver<Client>>): void {
  describe(`the transactions of ${name}`, () => {
    let driver: Driver<Client>
    let closeAll = async () => {}
    beforeAll(async () => {
      const database = await freshDatabase(inject('postgresUrl'))
      driver = await connect(database.url)
      await driver.store.migrate()
      closeAll = async () => {
        await driver.close()
        await database.drop()
      }
    })
    afterAll(() => closeAll())

    /** A started outbox on an empty table, and what its handler has seen. */
    async function started(): Promise<{
      outbox: Outbox<Client>
      handled: string[]
      rows(): Promise<string[]>
    }> {
      await driver.select('truncate outbox_event')
      const handled: string[] = []
      const outbox = createOutbox<Client>({
        store: driver.store,
        logger: silentLogger,
        retry: { policy: fixedDelay(0) },
        poller: { pollIntervalMs: HOUR_MS },
      })
      onTestFinished(() => outbox.stop())
      outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
      await outbox.start()
      const rows = async () =>
        (await driver.select('select event_id as id from outbox_event order by seq')).map(
          (row) => Object.values(row)[0],
        )
      return { outbox, handled, rows }
    }
    const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })

    it('delivers after the commit, and marks the row done', async () => {
      const { outbox, handled } = await started()
      const result = await outbox.transaction(async (tx) => {
        await tx.publish(order('a'))
        await tx.publishAll([order('b'), order('c')])
        return 'result'
      })
      expect(result).toBe('result')
      await until(() => handled.length === 3)
      await outbox.drain()
      expect(handled.sort()).toEqual(['a', 'b', 'c'])
      expect(await driver.select('select distinct status from outbox_event')).toEqual([{ status: 1 }])
    })

    it('leaves nothing after a rollback and rethrows the very error', async () => {
      const { outbox, handled, rows } = await started()
      const failure = new Error('no')
      const transaction = outbox.transaction(async (tx) => {
        await tx.publish(order('a'))
        throw failure
      })
      await expect(transaction).rejects.toBe(failure)
      await outbox.drain()
      expect(handled).toEqual([])
      expect(await rows()).toEqual([])
    })

    it('forgets what a rolled-back inner transaction published', async () => {
      const { outbox, handled, rows } = await started()
      await outbox.transaction(async (tx) => {
        await tx.publish(order('outer'))
        const inner = tx.transaction(async (nested) => {
          await nested.publish(order('inner'))
          throw new Error('inner')
        })
        await expect(inner).rejects.toThrow('inner')
      })
      await outbox.drain()
      expect(handled).toEqual(['outer'])
      expect(await rows()).toEqual(['outer'])
    })

    it('commits the outer transaction after a statement failed in an inner one', async () => {
      const { outbox, handled, rows } = await started()
      await outbox.transaction(async (tx) => {
        await tx.publish(order('outer'))
        const inner = tx.transaction(async (nested) => {
          await nested.publish(order('inner'))
          await driver.run(nested.client, 'select 1/0')
        })
        await expect(inner).rejects.toThrow('division by zero')
        await tx.publish(order('after'))
      })
      await outbox.drain()
      expect(handled.sort()).toEqual(['after', 'outer'])
      expect(await rows()).toEqual(['outer', 'after'])
    })

    it('notices a ROLLBACK TO that the application sent by hand', async () => {
      const { outbox, handled, rows } = await started()
      await outbox.transaction(async (tx) => {
        await tx.publish(order('kept'))
        await driver.run(tx.client, 'SAVEPOINT by_hand')
        await tx.publish(order('gone'))
        await driver.run(tx.client, 'ROLLBACK TO by_hand')
      })
      await outbox.drain()
      expect(handled).toEqual(['kept'])
      expect(await rows()).toEqual(['kept'])
    })

    it('rejects, and hands nothing over, when the error of a failed statement was swallowed', async () => {
      const { outbox, handled, rows } = await started()
      const called: string[] = []
      const transaction = outbox.transaction(async (tx) => {
        tx.afterCommit(() => called.push('commit'))
        tx.afterRollback(() => called.push('rollback'))
        await tx.publish(order('a'))
        await driver.run(tx.client, 'select 1/0').catch(() => {})
      })
      await expect(transaction).rejects.toThrow()
      await outbox.drain()
      expect(called).toEqual(['rollback'])
      expect(handled).toEqual([])
      expect(await rows()).toEqual([])
    })

    it('rejects also when nothing was published: the work of the application is lost all the same', async () => {
      const { outbox } = await started()
      await driver.select('create table if not exists business (id int)')
      const transaction = outbox.transaction(async (tx) => {
        await driver.run(tx.client, 'insert into business values (1)')
        await driver.run(tx.client, 'select 1/0').catch(() => {})
      })
      await expect(transaction).rejects.toThrow()
      expect(await driver.select('select * from business')).toEqual([])
    })

    it('rejects, and hands nothing over, when the commit itself is refused', async () => {
      const { outbox, handled, rows } = await started()
      await driver.select('create table if not exists pair (id int unique deferrable initially deferred); ')
      const called: string[] = []
      const transaction = outbox.transaction(async (tx) => {
        tx.afterCommit(() => called.push('commit'))
        tx.afterRollback(() => called.push('rollback'))
        await tx.publish(order('a'))
        await driver.run(tx.client, 'insert into pair values (1)')
        await driver.run(tx.client, 'insert into pair values (1)')
      })
      await expect(transaction).rejects.toMatchObject({ code: '23505' })
      await outbox.drain()
      expect(called).toEqual(['rollback'])
      expect(handled).toEqual([])
      expect(await rows()).toEqual([])
    })

    it('reports a duplicate and goes on in the same transaction', async () => {
      const { outbox, handled } = await started()
      await outbox.enqueue(order('a'))
      await outbox.transaction(async (tx) => {
        await expect(tx.publish(order('a'))).rejects.toMatchObject({ code: 'DUPLICATE_EVENT' })
        await tx.publish(order('b'))
      })
      await outbox.drain()
      expect(handled.sort()).toEqual(['a', 'b'])
    })

    it('refuses a publish after the end, and writes nothing', async () => {
      const { outbox, rows } = await started()
      const ended = gate()
      let late: Promise<unknown> | undefined
      await outbox.transaction(async (tx) => {
        late = ended.opened.then(() => tx.publish(order('late')))
      })
      ended.open()
      await expect(late).rejects.toThrow(TransactionEndedError)
      expect(await rows()).toEqual([])
    })

    it('brings every kind of value back as it was', async () => {
      const { outbox } = await started()
      const payload = { text: 'q\'"\\ €😀 \u2028', deep: [[{ n: 1e21 }], null, true, -0.5], __proto__x: {} }
      const seen: unknown[] = []
      const bytes = new Uint8Array([0, 255, 30, 31])
      outbox.on(
        'any.thing',
        'note',
        (event) => void seen.push([event.payload, event.headers, event.metadata.userId]),
      )
      await outbox.transaction((tx) =>
        tx.publish({ type: 'any.thing', payload, headers: { h: 'ä' }, metadata: { userId: 'u' } }),
      )
      await outbox.enqueue(
        { type: 'any.thing', payload, headers: { h: 'ä' }, metadata: { userId: 'u' } },
        { delayMs: 1 },
      )
      await outbox.enqueue({ type: 'any.thing', payload: bytes }, { delayMs: 1 })
      await until(() => seen.length === 3)
      expect(seen).toContainEqual([payload, { h: 'ä' }, 'u'])
      expect(seen).toContainEqual([bytes, {}, undefined])
      expect(
        seen.filter((one) => JSON.stringify(one) === JSON.stringify([payload, { h: 'ä' }, 'u'])),
      ).toHaveLength(2)
    })
  })
}
