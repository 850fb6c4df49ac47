import { EntitySchema, IsolationLevel, MikroORM as Libsql } from '@mikro-orm/libsql'
import { MikroORM as Mariadb } from '@mikro-orm/mariadb'
import { MikroORM as Postgres, type SqlEntityManager } from '@mikro-orm/postgresql'
import { afterAll, afterEach, beforeAll, beforeEach, describe, inject, it } from 'vitest'
import { transactionConformance } from '../../src/testing/index.js'
import { mikroOrmTransactions } from '../../src/transactions/mikro-orm.js'
import { describeOn } from '../support/databases.js'
import { flavor } from '../support/mysql-flavor.js'
import * as onMysql from './support/mysql.js'
import * as onPostgres from './support/postgres.js'
import * as onSqlite from './support/sqlite.js'

const runner = { describe, it, beforeEach, afterEach }

const Business = new EntitySchema<{ id: string }>({
  name: 'Business',
  tableName: 'business',
  properties: { id: { type: 'string', length: 64, primary: true } },
})

const SETTINGS = { entities: [Business], discovery: { warnWhenNoEntities: false }, debug: false }
const POOLED = { pool: { min: 0, max: onPostgres.POOL } }

/** The same on every database. */
const worldOf = (em: SqlEntityManager) => ({
  transactionsOf: (outbox: Parameters<typeof mikroOrmTransactions>[0]) => mikroOrmTransactions(outbox, em),
  insert: (tx: SqlEntityManager, id: string) => tx.persist(tx.create(Business, { id })).flush(),
  execute: (tx: SqlEntityManager, statement: string) => tx.execute(statement),
  savepoint: (tx: SqlEntityManager, body: (inner: SqlEntityManager) => Promise<void>) =>
    tx.transactional(body),
})

describeOn('postgres', 'MikroORM on PostgreSQL', () => {
  let database: onPostgres.Database
  let orm: Postgres
  beforeAll(async () => {
    database = await onPostgres.postgresDatabase()
    orm = await Postgres.init({ ...SETTINGS, ...POOLED, clientUrl: database.url })
  })
  afterAll(async () => {
    await orm?.close()
    await database?.drop()
  })

  transactionConformance({
    name: 'MikroORM, PostgreSQL',
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(orm.em),
      openAtOnce: onPostgres.POOL,
      fail: (tx: SqlEntityManager) => tx.execute(onPostgres.BROKEN),
      options: {
        value: { isolationLevel: IsolationLevel.SERIALIZABLE },
        expected: 'serializable',
        read: async (tx: SqlEntityManager) => (await tx.execute(onPostgres.READ_ISOLATION))[0]?.level,
      },
      loseCommit: async (tx: SqlEntityManager) => void (await tx.execute(onPostgres.LOSE_COMMIT)),
    }),
  })
})

const mysqlUrl = inject('mysqlUrl')
describeOn('mysql', `MikroORM on ${flavor}`, () => {
  let database: onMysql.Database
  let orm: Mariadb
  beforeAll(async () => {
    database = await onMysql.mysqlDatabase(mysqlUrl ?? '')
    // On a busy machine, the driver's own limit of one second is too short for 50 connections at once.
    const driverOptions = { connection: { connectTimeout: 20_000 } }
    orm = await Mariadb.init({ ...SETTINGS, ...POOLED, driverOptions, clientUrl: database.url })
  })
  afterAll(async () => {
    await orm?.close()
    await database?.drop()
  })

  transactionConformance({
    name: `MikroORM, ${flavor}`,
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(orm.em),
      openAtOnce: onPostgres.POOL,
      fail: (tx: SqlEntityManager) => tx.execute(onMysql.BROKEN),
      options: {
        value: { isolationLevel: IsolationLevel.SERIALIZABLE },
        expected: 'SERIALIZABLE',
        read: (tx: SqlEntityManager) => onMysql.readIsolation((statement) => tx.execute(statement)),
      },
    }),
  })
})

describeOn('sqlite', 'MikroORM on SQLite', () => {
  let database: onSqlite.Database
  let orm: Libsql
  beforeAll(async () => {
    database = onSqlite.sqliteDatabase()
    orm = await Libsql.init({ ...SETTINGS, dbName: database.file })
  })
  afterAll(async () => {
    await orm?.close()
    database?.drop()
  })

  transactionConformance({
    name: 'MikroORM with libsql, SQLite',
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(orm.em),
      fail: (tx: SqlEntityManager) => tx.execute(onSqlite.BROKEN),
    }),
  })
})
