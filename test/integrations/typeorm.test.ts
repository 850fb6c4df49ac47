import { createRequire } from 'node:module'
import { DataSource, type DataSourceOptions, type EntityManager, EntitySchema } from 'typeorm'
import { afterAll, afterEach, beforeAll, beforeEach, describe, inject, it } from 'vitest'
import { transactionConformance } from '../../src/testing/index.js'
import { typeormTransactions } from '../../src/transactions/typeorm.js'
import { describeOn, isOn } from '../support/databases.js'
import { flavor } from '../support/mysql-flavor.js'
import { sqliteDrivers } from '../support/sqlite-drivers.js'
import * as onMysql from './support/mysql.js'
import * as onPostgres from './support/postgres.js'
import * as onSqlite from './support/sqlite.js'

const runner = { describe, it, beforeEach, afterEach }

const Business = new EntitySchema<{ id: string }>({
  name: 'business',
  columns: { id: { type: 'varchar', length: 64, primary: true } },
})

async function opened(options: DataSourceOptions): Promise<DataSource> {
  return new DataSource({ ...options, entities: [Business] } as DataSourceOptions).initialize()
}

/** The same on every database. */
const worldOf = (source: DataSource) => ({
  transactionsOf: (outbox: Parameters<typeof typeormTransactions>[0]) => typeormTransactions(outbox, source),
  insert: (tx: EntityManager, id: string) => tx.insert(Business, { id }),
  execute: (tx: EntityManager, statement: string) => tx.query(statement),
  savepoint: (tx: EntityManager, body: (inner: EntityManager) => Promise<void>) => tx.transaction(body),
})

describeOn('postgres', 'TypeORM on PostgreSQL', () => {
  let database: onPostgres.Database
  let source: DataSource
  beforeAll(async () => {
    database = await onPostgres.postgresDatabase()
    source = await opened({ type: 'postgres', url: database.url, poolSize: onPostgres.POOL })
  })
  afterAll(async () => {
    await source?.destroy()
    await database?.drop()
  })

  transactionConformance({
    name: 'TypeORM, PostgreSQL',
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(source),
      openAtOnce: onPostgres.POOL,
      fail: (tx: EntityManager) => tx.query(onPostgres.BROKEN),
      options: {
        value: 'SERIALIZABLE' as const,
        expected: 'serializable',
        read: async (tx: EntityManager) => (await tx.query(onPostgres.READ_ISOLATION))[0].level,
      },
      loseCommit: async (tx: EntityManager) => void (await tx.query(onPostgres.LOSE_COMMIT)),
    }),
  })
})

const mysqlUrl = inject('mysqlUrl')
describeOn('mysql', `TypeORM on ${flavor}`, () => {
  let database: onMysql.Database
  let source: DataSource
  beforeAll(async () => {
    database = await onMysql.mysqlDatabase(mysqlUrl ?? '')
    source = await opened({ type: 'mariadb', url: database.url, poolSize: onPostgres.POOL })
  })
  afterAll(async () => {
    await source?.destroy()
    await database?.drop()
  })

  transactionConformance({
    name: `TypeORM, ${flavor}`,
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(source),
      openAtOnce: onPostgres.POOL,
      fail: (tx: EntityManager) => tx.query(onMysql.BROKEN),
      options: {
        value: 'SERIALIZABLE' as const,
        expected: 'SERIALIZABLE',
        read: (tx: EntityManager) => onMysql.readIsolation((statement) => tx.query(statement)),
      },
    }),
  })
})

const drivers = isOn('sqlite') ? sqliteDrivers().filter((driver) => driver.name !== 'node:sqlite') : []
describe.each(drivers)('TypeORM on SQLite by $name', ({ name, open: openFile }) => {
  let database: onSqlite.Database
  let source: DataSource
  const open = () => opened({ type: 'better-sqlite3', database: database.file, driver: driverOf(name) })
  beforeAll(async () => {
    database = onSqlite.sqliteDatabase(openFile)
    source = await open()
  })
  afterAll(async () => {
    await source?.destroy()
    database?.drop()
  })

  transactionConformance({
    name: `TypeORM with ${name}, SQLite`,
    runner,
    createWorld: async () => ({
      ...database.world,
      ...worldOf(source),
      fail: (tx: EntityManager) => tx.query(onSqlite.BROKEN),
    }),
  })
})

function driverOf(name: string): unknown {
  const beside = new URL('../../scripts/binaries/package.json', import.meta.url)
  return createRequire(name === 'libsql' ? import.meta.url : beside)(name)
}
