import { createRequire } from 'node:module'
import knex, { type Knex } from 'knex'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { CommitUnknownError, createOutbox, silentLogger, type TransactionHost } from '../../src/index.js'
import { type TransactionWorld, transactionConformance } from '../../src/testing/index.js'
import { type KnexOptions, type KnexTransaction, knexTransactions } from '../../src/transactions/knex.js'
import { describeOn } from '../support/databases.js'
import { flavor } from '../support/mysql-flavor.js'
import { sqliteDrivers } from '../support/sqlite-drivers.js'
import * as mysql from './support/mysql.js'
import * as pgKit from './support/postgres.js'
import * as sqliteKit from './support/sqlite.js'

const pool = { min: 0, max: pgKit.POOL }
const runner = { describe, it, beforeEach, afterEach }

type Tx = KnexTransaction<Knex>

/** Renames what the application reads, and must not harm what the outbox does. */
function postProcessResponse(result: unknown): unknown {
  const camel = (name: string) => name.replace(/_./g, (found) => found.slice(1).toUpperCase())
  const renamed = (row: unknown) => {
    if (typeof row !== 'object' || row === null) return row
    return Object.fromEntries(Object.entries(row).map(([name, value]) => [camel(name), value]))
  }
  if (Array.isArray(result)) return Array.isArray(result[0]) ? [result[0].map(renamed)] : result.map(renamed)
  const { rows } = Object(result)
  return Array.isArray(rows) ? { ...(result as object), rows: rows.map(renamed) } : result
}

/** What the clients have in common. */
function worldOf(db: Knex) {
  return {
    transactionsOf: (outbox) => knexTransactions(outbox, db),
    insert: async (trx, id) => trx('business').insert({ id }),
    execute: async (trx, statement) => trx.raw(statement),
    savepoint: (trx, body) => trx.transaction(body),
  } satisfies Partial<TransactionWorld<Tx, KnexOptions<Knex>>>
}

describeOn('postgres', 'Knex on PostgreSQL', () => {
  let database: pgKit.Database
  let db: Knex
  beforeAll(async () => {
    database = await pgKit.postgresDatabase()
    db = knex({ client: 'pg', connection: database.url, pool, postProcessResponse })
  })
  afterAll(async () => {
    await db?.destroy()
    await database?.drop()
  })

  transactionConformance<Tx, KnexOptions<Knex>>({
    name: 'Knex with pg, PostgreSQL',
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(db),
      openAtOnce: pgKit.POOL,
      fail: async (trx) => trx.raw(pgKit.BROKEN),
      options: {
        value: { isolationLevel: 'serializable' },
        expected: 'serializable',
        read: async (trx) => (await trx.raw(pgKit.READ_ISOLATION)).rows[0].level,
      },
      loseCommit: async (trx) => void (await trx.raw(pgKit.LOSE_COMMIT)),
    }),
  })

  it('binds parameters that come twice, or in another order, and leaves question marks alone', async () => {
    const hosts: TransactionHost<Tx, KnexOptions<Knex>>[] = []
    const keep = (host: unknown) => hosts.push(host as (typeof hosts)[0]) as never
    knexTransactions({ transactionsOf: keep }, db)
    const [host] = hosts as [(typeof hosts)[0]]
    const sql = `select $2::text as b, $1::text as a, '{"k":1}'::jsonb ? 'k' as has, $2::text || $1::text as both`
    const rows = await host.transaction((trx) => host.query(trx, sql, ['1', '?2']))
    expect(rows).toEqual([{ b: '?2', a: '1', has: true, both: '?21' }])
  })

  describe('a transaction that is ended by hand', () => {
    async function setup() {
      const outbox = createOutbox({ store: database.world.createStore('by_hand'), logger: silentLogger })
      await outbox.migrate()
      const called: string[] = []
      const transaction = knexTransactions(outbox, db)
      const run = (body: (trx: Tx) => Promise<unknown>) =>
        transaction(async (trx, scope) => {
          scope.afterCommit(() => called.push('committed'))
          scope.afterRollback(() => called.push('rolled back'))
          await scope.publish({ type: 'thing.happened', payload: 1 })
          await body(trx)
        })
      return { outbox, called, run }
    }

    it.each(['commit', 'rollback'] as const)('by %s is of an unknown outcome: no hook runs', async (how) => {
      const { outbox, called, run } = await setup()
      const before = (await outbox.store.list({})).length
      await expect(run(async (trx) => void (await trx[how]()))).rejects.toThrow(CommitUnknownError)
      expect(called).toEqual([])
      expect(await outbox.store.list({})).toHaveLength(before + (how === 'commit' ? 1 : 0))
    })

    it('and goes on for a while is waited for', async () => {
      const { called, run } = await setup()
      const ended = run(async (trx) => {
        await trx.rollback()
        await new Promise((resolve) => setImmediate(resolve))
        throw new Error('behind the end')
      })
      await expect(ended).rejects.toMatchObject({
        code: 'COMMIT_UNKNOWN',
        cause: { message: 'behind the end' },
      })
      expect(called).toEqual([])
    })
  })
})

const server = inject('mysqlUrl')

describeOn('mysql', `Knex on ${flavor}`, () => {
  let database: mysql.Database
  let db: Knex
  beforeAll(async () => {
    database = await mysql.mysqlDatabase(server ?? '')
    db = knex({ client: 'mysql2', connection: database.url, pool, postProcessResponse })
  })
  afterAll(async () => {
    await db?.destroy()
    await database?.drop()
  })

  transactionConformance<Tx, KnexOptions<Knex>>({
    name: `Knex with mysql2, ${flavor}`,
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(db),
      openAtOnce: pgKit.POOL,
      fail: async (trx) => trx.raw(mysql.BROKEN),
      options: {
        value: { isolationLevel: 'serializable' },
        expected: 'SERIALIZABLE',
        read: (trx) => mysql.readIsolation(async (statement) => (await trx.raw(statement))[0]),
      },
    }),
  })
})

const require = createRequire(import.meta.url)
const BetterSqlite3 = require('knex/lib/dialects/better-sqlite3')

describeOn('sqlite', 'Knex on SQLite', () => {
  for (const { name, open } of sqliteDrivers().filter((driver) => driver.name !== 'node:sqlite')) {
    describe(name, () => {
      let database: sqliteKit.Database
      let db: Knex
      beforeAll(() => {
        database = sqliteKit.sqliteDatabase(open)
        /** Knex's own client, whose driver lies where Knex does not look for it. */
        class Client extends BetterSqlite3 {
          _driver() {
            return function connect(file: string) {
              return open(file)
            }
          }
        }
        const client = Client as unknown as typeof Knex.Client
        db = knex({
          client,
          connection: { filename: database.file },
          useNullAsDefault: true,
          postProcessResponse,
        })
      })
      afterAll(async () => {
        await db?.destroy()
        database?.drop()
      })

      transactionConformance<Tx, KnexOptions<Knex>>({
        name: `Knex with ${name}, SQLite`,
        runner,
        createWorld: async () => ({
          ...database.world,
          ...worldOf(db),
          fail: async (trx) => trx.raw(sqliteKit.BROKEN),
        }),
      })
    })
  }
})
