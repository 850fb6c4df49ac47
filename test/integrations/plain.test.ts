import type pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { TransactionHost } from '../../src/index.js'
import { transactionConformance } from '../../src/testing/index.js'
import {
  BROKEN,
  type Database,
  LOSE_COMMIT,
  POOL,
  poolOn,
  postgresDatabase,
  READ_ISOLATION,
} from './support/postgres.js'
import { started } from './support/started.js'

const runner = { describe, it, beforeEach, afterEach }

type Host = TransactionHost<pg.PoolClient, { isolation: string }>

const busy = new WeakSet<pg.PoolClient>()

/** The least that an ORM does: what the suite asks for, with nothing around it. */
function hostOf(pool: pg.Pool): Host {
  return {
    source: pool,
    async transaction(body, options) {
      const client = await pool.connect()
      try {
        await client.query(`begin isolation level ${options?.isolation ?? 'read committed'}`)
        const result = await body(client)
        await client.query('commit')
        return result
      } catch (error) {
        await client.query('rollback').catch(() => {})
        throw error
      } finally {
        client.release()
      }
    },
    async query(client, sql, params) {
      if (busy.has(client)) throw new Error('the outbox sent a statement while another one was under way')
      busy.add(client)
      try {
        return (await client.query(sql, [...params])).rows
      } finally {
        busy.delete(client)
      }
    },
  }
}

describe('a plain host', () => {
  let database: Database
  let pool: pg.Pool
  beforeAll(async () => {
    database = await postgresDatabase()
    pool = poolOn(database.url)
  })
  afterAll(async () => {
    await pool?.end()
    await database?.drop()
  })

  transactionConformance<pg.PoolClient, { isolation: string }>({
    name: 'a plain host on pg',
    runner,
    createWorld: async () => ({
      ...database.world,
      transactionsOf: (outbox) => outbox.transactionsOf(hostOf(pool)),
      openAtOnce: POOL,
      insert: (tx, id) => tx.query('insert into business values ($1)', [id]),
      fail: (tx) => tx.query(BROKEN),
      execute: (tx, sql) => tx.query(sql),
      async savepoint(tx, body) {
        await tx.query('savepoint mine')
        try {
          await body(tx)
          await tx.query('release savepoint mine')
        } catch (error) {
          await tx.query('rollback to savepoint mine')
          throw error
        }
      },
      options: {
        value: { isolation: 'serializable' },
        expected: 'serializable',
        read: async (tx) => (await tx.query(READ_ISOLATION)).rows[0].level,
      },
      loseCommit: async (tx) => void (await tx.query(LOSE_COMMIT)),
    }),
  })

  it('fails each attempt of a host that runs the body again', async () => {
    const { outbox, handled, publish, handledAll } = await started(database.world.createStore, {
      hotQueueSize: 2,
    })
    const right = hostOf(pool)
    const transaction = outbox.transactionsOf<pg.PoolClient, { isolation: string }>({
      ...right,
      source: {},
      async transaction(body, options) {
        for (let attempt = 1; ; attempt++) {
          try {
            return await right.transaction(body, options)
          } catch (error) {
            if (attempt === 3) throw error
          }
        }
      },
    })
    const called: string[] = []
    let attempts = 0
    await transaction(async (_tx, scope) => {
      const attempt = ++attempts
      scope.afterRollback(() => called.push(`rolled back ${attempt}`))
      scope.afterCommit(() => called.push(`committed ${attempt}`))
      await publish(`one of ${attempt}`)
      await publish(`two of ${attempt}`)
      if (attempt < 3) throw new Error('again')
    })
    expect(called).toEqual(['rolled back 1', 'rolled back 2', 'committed 3'])
    // Both went hot: no poller comes by, and the places of the other attempts were given back.
    await handledAll('one of 3', 'two of 3')
    expect(handled).toHaveLength(2)
  })

  describe.each([
    { code: 'COMMIT_UNKNOWN', fate: (tx: pg.PoolClient) => tx.query(LOSE_COMMIT) },
    { code: 'TRANSACTION_ROLLED_BACK', fate: (tx: pg.PoolClient) => tx.query(BROKEN).catch(() => {}) },
  ])('beside a transaction of another outbox that ends with $code', ({ code, fate }) => {
    /** A transaction that tells what it learns of its end, by a host that is not quite the right one. */
    async function world(
      around: (begin: Host['transaction'], fails: () => Promise<void>) => Host['transaction'],
    ) {
      const [mine, other] = [
        await started(database.world.createStore),
        await started(database.world.createStore),
      ]
      const right = hostOf(pool)
      const ofOther = other.outbox.transactionsOf(right)
      const fails = () =>
        ofOther(async (tx) => {
          await other.publish('never')
          await fate(tx)
        })
      const transaction = mine.outbox.transactionsOf<pg.PoolClient, { isolation: string }>({
        ...right,
        source: {},
        transaction: around(right.transaction, fails),
      })
      const called: string[] = []
      const run = (body: () => Promise<unknown>) =>
        transaction(async (_tx, scope) => {
          scope.afterCommit(() => called.push('committed'))
          scope.afterRollback(() => called.push('rolled back'))
          await mine.publish('one')
          await body()
        })
      return { ...mine, fails, run, called }
    }

    it('knows that it was rolled back when that error ends its own body', async () => {
      const { run, fails, called, names } = await world((begin) => begin)
      await expect(run(fails)).rejects.toMatchObject({ code })
      expect(called).toEqual(['rolled back'])
      expect(await names()).toEqual([])
    })

    it('passes on what the ORM made of it', async () => {
      const { run, fails, called } = await world(
        (begin) => (body, options) =>
          begin(body, options).catch((cause) => {
            throw new Error('the ORM says no', { cause })
          }),
      )
      await expect(run(fails)).rejects.toMatchObject({ message: 'the ORM says no', cause: { code } })
      expect(called).toEqual(['rolled back'])
    })

    it('does not claim to be rolled back when it comes from the ORM behind the commit', async () => {
      const { run, called, names } = await world((begin, fails) => async (body, options) => {
        const result = await begin(body, options)
        await fails()
        return result
      })
      await expect(run(async () => {})).rejects.toMatchObject({ code: 'COMMIT_UNKNOWN', cause: { code } })
      expect(called).toEqual([])
      expect(await names()).toEqual(['one'])
    })
  })

  it('says what is wrong with a tx that it does not know, and with a body that is missing', async () => {
    const { outbox } = await started(database.world.createStore)
    const isUnknown = expect.objectContaining({ code: 'UNKNOWN_TRANSACTION' })
    const foreign = { insert() {}, execute() {} } as never
    await expect(outbox.publish({ type: 'noted' }, { tx: foreign })).rejects.toEqual(isUnknown)
    await expect(outbox.publish({ type: 'noted' })).rejects.toThrow(/drizzleTransactions/)
    const transaction = outbox.transactionsOf(hostOf(pool))
    await expect(transaction(undefined as never)).rejects.toThrow(/takes a function/)
    await expect(transaction.transaction(undefined as never)).rejects.toThrow(/takes a function/)
  })
})
