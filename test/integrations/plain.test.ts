import type pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, it } from 'vitest'
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

const runner = { describe, it, beforeEach, afterEach }

const busy = new WeakSet<pg.PoolClient>()

/** The least that an ORM does: what the suite asks for, with nothing around it. */
function hostOf(pool: pg.Pool): TransactionHost<pg.PoolClient, { isolation: string }> {
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
})
