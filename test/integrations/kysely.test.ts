import { CamelCasePlugin, Kysely, MysqlDialect, PostgresDialect, SqliteDialect, sql } from 'kysely'
import { createPool } from 'mysql2'
import { afterAll, afterEach, beforeAll, beforeEach, describe, inject, it } from 'vitest'
import { type TransactionWorld, transactionConformance } from '../../src/testing/index.js'
import {
  type KyselyOptions,
  type KyselyTransaction,
  kyselyTransactions,
} from '../../src/transactions/kysely.js'
import { describeOn } from '../support/databases.js'
import { flavor } from '../support/mysql-flavor.js'
import { sqliteDrivers } from '../support/sqlite-drivers.js'
import * as mysql from './support/mysql.js'
import * as pgKit from './support/postgres.js'
import * as sqliteKit from './support/sqlite.js'

const runner = { describe, it, beforeEach, afterEach }

type Db = Kysely<{ business: { id: string } }>
type Tx = KyselyTransaction<Db>

/** Renames what the application reads, and must not rename what the outbox does. */
const plugins = [new CamelCasePlugin()]

/** What the dialects have in common. */
function worldOf(db: Db) {
  return {
    transactionsOf: (outbox) => kyselyTransactions(outbox, db),
    insert: (tx, id) => tx.insertInto('business').values({ id }).execute(),
    execute: (tx, statement) => sql.raw(statement).execute(tx),
  } satisfies Partial<TransactionWorld<Tx, KyselyOptions<Db>>>
}

describeOn('postgres', 'Kysely on PostgreSQL', () => {
  let database: pgKit.Database
  let db: Db
  beforeAll(async () => {
    database = await pgKit.postgresDatabase()
    db = new Kysely({ dialect: new PostgresDialect({ pool: pgKit.poolOn(database.url) }), plugins })
  })
  afterAll(async () => {
    await db?.destroy()
    await database?.drop()
  })

  transactionConformance<Tx, KyselyOptions<Db>>({
    name: 'Kysely with pg, PostgreSQL',
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(db),
      openAtOnce: pgKit.POOL,
      fail: (tx) => sql.raw(pgKit.BROKEN).execute(tx),
      options: {
        value: { isolationLevel: 'serializable' },
        expected: 'serializable',
        read: async (tx) =>
          String((await sql.raw<{ level: string }>(pgKit.READ_ISOLATION).execute(tx)).rows[0]?.level),
      },
      loseCommit: async (tx) => void (await sql.raw(pgKit.LOSE_COMMIT).execute(tx)),
    }),
  })
})

const server = inject('mysqlUrl')

describeOn('mysql', `Kysely on ${flavor}`, () => {
  let database: mysql.Database
  let db: Db
  beforeAll(async () => {
    database = await mysql.mysqlDatabase(server ?? '')
    const pool = createPool({ uri: database.url, connectionLimit: pgKit.POOL })
    db = new Kysely({ dialect: new MysqlDialect({ pool }), plugins })
  })
  afterAll(async () => {
    await db?.destroy()
    await database?.drop()
  })

  transactionConformance<Tx, KyselyOptions<Db>>({
    name: `Kysely with mysql2, ${flavor}`,
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(db),
      openAtOnce: pgKit.POOL,
      fail: (tx) => sql.raw(mysql.BROKEN).execute(tx),
      options: {
        value: { isolationLevel: 'serializable' },
        expected: 'SERIALIZABLE',
        read: (tx) =>
          mysql.readIsolation(
            async (statement) => (await sql.raw<{ level: string }>(statement).execute(tx)).rows,
          ),
      },
    }),
  })
})

describeOn('sqlite', 'Kysely on SQLite', () => {
  for (const { name, open } of sqliteDrivers().filter((driver) => driver.name !== 'node:sqlite')) {
    describe(name, () => {
      let database: sqliteKit.Database
      let db: Db
      beforeAll(() => {
        database = sqliteKit.sqliteDatabase(open)
        db = new Kysely({ dialect: new SqliteDialect({ database: open(database.file) as never }), plugins })
      })
      afterAll(async () => {
        await db?.destroy()
        database?.drop()
      })

      transactionConformance<Tx, KyselyOptions<Db>>({
        name: `Kysely with ${name}, SQLite`,
        runner,
        createWorld: async () => ({
          ...database.world,
          ...worldOf(db),
          fail: (tx) => sql.raw(sqliteKit.BROKEN).execute(tx),
        }),
      })
    })
  }
})
