import { PrismaLibSql } from '@prisma/adapter-libsql'
import { PrismaMariaDb } from '@prisma/adapter-mariadb'
import { PrismaPg } from '@prisma/adapter-pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, inject, it } from 'vitest'
import type { PrismaClient as Mysql, Prisma as MysqlPrisma } from '../../.tmp/prisma/mysql/index.js'
import type { PrismaClient as Postgres, Prisma as PostgresPrisma } from '../../.tmp/prisma/postgres/index.js'
import type { PrismaClient as Sqlite, Prisma as SqlitePrisma } from '../../.tmp/prisma/sqlite/index.js'
import { makePrismaClients } from '../../scripts/prisma-clients.mjs'
import { transactionConformance } from '../../src/testing/index.js'
import { prismaTransactions } from '../../src/transactions/prisma.js'
import * as onMysql from './support/mysql.js'
import * as onPostgres from './support/postgres.js'
import * as onSqlite from './support/sqlite.js'

const runner = { describe, it, beforeEach, afterEach }
/** Fifty at the same time on a slow machine take longer than Prisma waits by itself. */
const transactionOptions = { maxWait: 20_000, timeout: 20_000 }

beforeAll(makePrismaClients)

describe('Prisma on PostgreSQL', () => {
  type Tx = PostgresPrisma.TransactionClient
  let database: onPostgres.Database
  let prisma: Postgres
  beforeAll(async () => {
    const { PrismaClient } = await import('../../.tmp/prisma/postgres/index.js')
    database = await onPostgres.postgresDatabase()
    const adapter = new PrismaPg({ connectionString: database.url, max: onPostgres.POOL })
    prisma = new PrismaClient({ adapter, transactionOptions })
  })
  afterAll(async () => {
    await prisma?.$disconnect()
    await database?.drop()
  })

  transactionConformance({
    name: 'Prisma with adapter-pg, PostgreSQL',
    runner,
    createWorld: async () => ({
      ...database.world,
      transactionsOf: (outbox) => prismaTransactions(outbox, prisma),
      openAtOnce: onPostgres.POOL,
      insert: (tx: Tx, id: string) => tx.business.create({ data: { id } }),
      execute: (tx: Tx, statement: string) => tx.$executeRawUnsafe(statement),
      fail: (tx: Tx) => tx.$queryRawUnsafe(onPostgres.BROKEN),
      savepoint: (tx: Tx, body: (inner: Tx) => Promise<void>) => tx.$transaction(body),
      options: {
        value: { isolationLevel: 'Serializable' as const },
        expected: 'serializable',
        read: async (tx: Tx) =>
          (await tx.$queryRawUnsafe<{ level: string }[]>(onPostgres.READ_ISOLATION))[0]?.level ?? '',
      },
      loseCommit: async (tx: Tx) => void (await tx.$executeRawUnsafe(onPostgres.LOSE_COMMIT)),
    }),
  })
})

const mysqlUrl = inject('mysqlUrl')
describe.skipIf(!mysqlUrl)('Prisma on MariaDB', () => {
  type Tx = MysqlPrisma.TransactionClient
  let database: onMysql.Database
  let prisma: Mysql
  beforeAll(async () => {
    const { PrismaClient } = await import('../../.tmp/prisma/mysql/index.js')
    database = await onMysql.mysqlDatabase(mysqlUrl ?? '')
    const { hostname: host, port, username: user, password, pathname } = new URL(database.url)
    const adapter = new PrismaMariaDb({
      host,
      port: Number(port),
      user,
      password,
      database: pathname.slice(1),
      connectionLimit: onPostgres.POOL,
    })
    prisma = new PrismaClient({ adapter, transactionOptions })
  })
  afterAll(async () => {
    await prisma?.$disconnect()
    await database?.drop()
  })

  transactionConformance({
    name: 'Prisma with adapter-mariadb, MariaDB',
    runner,
    createWorld: async () => ({
      ...database.world,
      transactionsOf: (outbox) => prismaTransactions(outbox, prisma),
      openAtOnce: onPostgres.POOL,
      insert: (tx: Tx, id: string) => tx.business.create({ data: { id } }),
      execute: (tx: Tx, statement: string) => tx.$executeRawUnsafe(statement),
      fail: (tx: Tx) => tx.$queryRawUnsafe(onMysql.BROKEN),
      savepoint: (tx: Tx, body: (inner: Tx) => Promise<void>) => tx.$transaction(body),
      options: {
        value: { isolationLevel: 'Serializable' as const },
        expected: 'SERIALIZABLE',
        async read(tx: Tx) {
          await tx.$queryRawUnsafe(onMysql.SETTLE)
          const [row] = await tx.$queryRawUnsafe<{ level: string }[]>(onMysql.READ_ISOLATION)
          return row?.level ?? 'none'
        },
      },
    }),
  })
})

describe('Prisma on SQLite', () => {
  type Tx = SqlitePrisma.TransactionClient
  let database: onSqlite.Database
  let prisma: Sqlite
  beforeAll(async () => {
    const { PrismaClient } = await import('../../.tmp/prisma/sqlite/index.js')
    database = onSqlite.sqliteDatabase()
    const adapter = new PrismaLibSql({ url: `file:${database.file}` })
    prisma = new PrismaClient({ adapter, transactionOptions })
  })
  afterAll(async () => {
    await prisma?.$disconnect()
    database?.drop()
  })

  transactionConformance({
    name: 'Prisma with adapter-libsql, SQLite',
    runner,
    createWorld: async () => ({
      ...database.world,
      transactionsOf: (outbox) => prismaTransactions(outbox, prisma),
      insert: (tx: Tx, id: string) => tx.business.create({ data: { id } }),
      execute: (tx: Tx, statement: string) => tx.$executeRawUnsafe(statement),
      fail: (tx: Tx) => tx.$queryRawUnsafe(onSqlite.BROKEN),
      savepoint: (tx: Tx, body: (inner: Tx) => Promise<void>) => tx.$transaction(body),
    }),
  })
})
