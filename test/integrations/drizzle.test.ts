import { PGlite } from '@electric-sql/pglite'
import { createClient } from '@libsql/client'
import { sql } from 'drizzle-orm'
import type { BetterSQLite3Database } from 'drizzle-orm/better-sqlite3'
import { drizzle as onLibsql } from 'drizzle-orm/libsql'
import { mysqlTable, varchar } from 'drizzle-orm/mysql-core'
import { drizzle as onMysql2 } from 'drizzle-orm/mysql2'
import { drizzle as onPg } from 'drizzle-orm/node-postgres'
import { type PgDatabase, type PgQueryResultHKT, pgTable, text } from 'drizzle-orm/pg-core'
import { drizzle as onPglite } from 'drizzle-orm/pglite'
import { drizzle as onPostgresJs } from 'drizzle-orm/postgres-js'
import { sqliteTable, text as sqliteText } from 'drizzle-orm/sqlite-core'
import { createPool, type Pool, type RowDataPacket } from 'mysql2/promise'
import type pg from 'pg'
import postgres from 'postgres'
import { afterAll, afterEach, beforeAll, beforeEach, describe, inject, it } from 'vitest'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { type TransactionWorld, transactionConformance } from '../../src/testing/index.js'
import {
  type DrizzleOptions,
  type DrizzleTransaction,
  drizzleTransactions,
} from '../../src/transactions/drizzle.js'
import { describeOn } from '../support/databases.js'
import { flavor } from '../support/mysql-flavor.js'
import { sqliteDrivers } from '../support/sqlite-drivers.js'
import { synchronous } from './support/drizzle.js'
import * as mysql from './support/mysql.js'
import * as pgKit from './support/postgres.js'
import * as sqliteKit from './support/sqlite.js'

const runner = { describe, it, beforeEach, afterEach }

describeOn('postgres', 'Drizzle on PostgreSQL', () => {
  const business = pgTable('business', { id: text('id').primaryKey() })
  type Db = PgDatabase<PgQueryResultHKT, Record<string, never>>
  type Tx = DrizzleTransaction<Db>

  /** What the drivers have in common. */
  function worldOf(db: Db, levelIn: (result: never) => string) {
    return {
      transactionsOf: (outbox) => drizzleTransactions(outbox, db),
      insert: (tx, id) => tx.insert(business).values({ id }),
      fail: async (tx) => tx.execute(pgKit.BROKEN),
      execute: async (tx, statement) => tx.execute(statement),
      savepoint: (tx, body) => tx.transaction(body),
      options: {
        value: { isolationLevel: 'serializable' },
        expected: 'serializable',
        read: async (tx) => levelIn((await tx.execute(pgKit.READ_ISOLATION)) as never),
      },
    } satisfies Partial<TransactionWorld<Tx, DrizzleOptions<Db>>>
  }

  describe('on a server', () => {
    let database: pgKit.Database
    let pool: pg.Pool
    let client: postgres.Sql
    beforeAll(async () => {
      database = await pgKit.postgresDatabase()
      pool = pgKit.poolOn(database.url)
      client = postgres(database.url, { max: pgKit.POOL, onnotice: () => {} })
    })
    afterAll(async () => {
      await pool?.end()
      await client?.end({ timeout: 1 })
      await database?.drop()
    })
    const common = () => ({
      ...database.world,
      openAtOnce: pgKit.POOL,
      loseCommit: async (tx: Tx) => void (await tx.execute(pgKit.LOSE_COMMIT)),
    })

    transactionConformance<Tx, DrizzleOptions<Db>>({
      name: 'Drizzle with pg, PostgreSQL',
      runner,
      createWorld: async () => ({
        ...common(),
        ...worldOf(onPg(pool) as unknown as Db, (result: pg.QueryResult) => result.rows[0].level),
      }),
    })

    transactionConformance<Tx, DrizzleOptions<Db>>({
      name: 'Drizzle with postgres.js, PostgreSQL',
      runner,
      createWorld: async () => ({
        ...common(),
        ...worldOf(onPostgresJs(client) as unknown as Db, (rows: postgres.Row[]) => rows[0]?.level),
      }),
    })
  })

  describe('in the process', () => {
    let database: PGlite
    beforeAll(async () => {
      database = await PGlite.create()
      await database.exec('create table business (id text primary key)')
    })
    afterAll(() => database?.close())

    transactionConformance<Tx, DrizzleOptions<Db>>({
      name: 'Drizzle with PGlite, PostgreSQL',
      runner,
      createWorld: async () => ({
        ...worldOf(onPglite(database) as unknown as Db, ({ rows }: { rows: { level: string }[] }) =>
          String(rows[0]?.level),
        ),
        createStore: (table) => postgresStore(database, { table }),
        openAtOnce: 1,
        afterFailure: 'refuses the commit',
        committed: async (ids) => {
          const found = 'select id from business where id = any($1)'
          return (await database.query<{ id: string }>(found, [ids])).rows.map((row) => row.id)
        },
        dispose: async () => {},
      }),
    })
  })
})

const server = inject('mysqlUrl')

describeOn('mysql', `Drizzle on ${flavor}`, () => {
  const business = mysqlTable('business', { id: varchar('id', { length: 64 }).primaryKey() })
  type Db = ReturnType<typeof onMysql2>
  let database: mysql.Database
  let pool: Pool
  beforeAll(async () => {
    database = await mysql.mysqlDatabase(server ?? '')
    pool = createPool({ uri: database.url, connectionLimit: pgKit.POOL })
  })
  afterAll(async () => {
    await pool?.end()
    await database?.drop()
  })

  transactionConformance<DrizzleTransaction<Db>, DrizzleOptions<Db>>({
    name: `Drizzle with mysql2, ${flavor}`,
    runner,
    createWorld: async () => {
      const db = onMysql2(pool)
      return {
        ...database.world,
        transactionsOf: (outbox) => drizzleTransactions(outbox, db),
        openAtOnce: pgKit.POOL,
        insert: (tx, id) => tx.insert(business).values({ id }),
        fail: (tx) => tx.execute(mysql.BROKEN),
        execute: (tx, statement) => tx.execute(statement),
        savepoint: (tx, body) => tx.transaction(body),
        options: {
          value: { isolationLevel: 'serializable' },
          expected: 'SERIALIZABLE',
          read: (tx) =>
            mysql.readIsolation(async (statement) => {
              const [rows] = (await tx.execute(statement)) as unknown as [RowDataPacket[]]
              return rows
            }),
        },
      }
    },
  })
})

describeOn('sqlite', 'Drizzle on SQLite', () => {
  const business = sqliteTable('business', { id: sqliteText('id').primaryKey() })

  describe('asynchronous', () => {
    type Db = ReturnType<typeof onLibsql>
    let database: sqliteKit.Database
    let client: ReturnType<typeof createClient>
    beforeAll(() => {
      database = sqliteKit.sqliteDatabase()
      client = createClient({ url: `file:${database.file}` })
    })
    afterAll(() => {
      client?.close()
      database?.drop()
    })

    transactionConformance<DrizzleTransaction<Db>, DrizzleOptions<Db>>({
      name: 'Drizzle with @libsql/client, SQLite',
      runner,
      createWorld: async () => {
        const db = onLibsql(client)
        return {
          ...database.world,
          transactionsOf: (outbox) => drizzleTransactions(outbox, db),
          insert: (tx, id) => tx.insert(business).values({ id }),
          fail: (tx) => tx.run(sql.raw(sqliteKit.BROKEN)),
          execute: (tx, statement) => tx.run(sql.raw(statement)),
          savepoint: (tx, body) => tx.transaction(body),
        }
      },
    })
  })

  // Drizzle's driver for better-sqlite3 serves all that have its interface.
  for (const { name, open } of sqliteDrivers().filter((driver) => driver.name !== 'node:sqlite')) {
    describe(`synchronous, ${name}`, () => {
      type Db = BetterSQLite3Database
      let database: sqliteKit.Database
      let connection: ReturnType<typeof open>
      beforeAll(() => {
        database = sqliteKit.sqliteDatabase(open)
        connection = open(database.file)
      })
      afterAll(() => {
        connection?.close()
        database?.drop()
      })

      transactionConformance<DrizzleTransaction<Db>, DrizzleOptions<Db>>({
        name: `Drizzle with ${name}, SQLite`,
        runner,
        createWorld: async () => {
          const db = synchronous(connection)
          return {
            ...database.world,
            transactionsOf: (outbox) => drizzleTransactions(outbox, db),
            insert: async (tx, id) => tx.insert(business).values({ id }).run(),
            fail: async (tx) => tx.run(sql.raw(sqliteKit.BROKEN)),
            execute: async (tx, statement) => tx.run(sql.raw(statement)),
          }
        },
      })
    })
  }
})
