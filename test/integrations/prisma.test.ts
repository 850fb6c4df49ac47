import { PrismaLibSql } from '@prisma/adapter-libsql'
import { PrismaMariaDb } from '@prisma/adapter-mariadb'
import { PrismaPg } from '@prisma/adapter-pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, inject, it } from 'vitest'
import type { Prisma, PrismaClient } from '../../.tmp/prisma/postgres/index.js'
import { makePrismaClients } from '../../scripts/prisma-clients.mjs'
import type { TransactionsOf } from '../../src/index.js'
import { transactionConformance } from '../../src/testing/index.js'
import { prismaTransactions } from '../../src/transactions/prisma.js'
import { describeOn } from '../support/databases.js'
import { flavor, isMariadb } from '../support/mysql-flavor.js'
import * as onMysql from './support/mysql.js'
import * as onPostgres from './support/postgres.js'
import * as onSqlite from './support/sqlite.js'

const runner = { describe, it, beforeEach, afterEach }
/** Fifty at the same time on a slow machine take longer than Prisma waits by itself. */
const transactionOptions = { maxWait: 20_000, timeout: 20_000 }

beforeAll(makePrismaClients)

type Tx = Prisma.TransactionClient

/** What is the same on every database; the clients that were generated for them differ in nothing that is used here. */
const sameFor = (prisma: PrismaClient, broken: string) => ({
  transactionsOf: (outbox: TransactionsOf) => prismaTransactions(outbox, prisma),
  insert: (tx: Tx, id: string) => tx.business.create({ data: { id } }),
  execute: (tx: Tx, statement: string) => tx.$executeRawUnsafe(statement),
  fail: (tx: Tx) => tx.$queryRawUnsafe(broken),
  savepoint: (tx: Tx, body: (inner: Tx) => Promise<void>) => tx.$transaction(body),
})

describeOn('postgres', 'Prisma on PostgreSQL', () => {
  let database: onPostgres.Database
  let prisma: PrismaClient
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
      ...sameFor(prisma, onPostgres.BROKEN),
      openAtOnce: onPostgres.POOL,
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
describeOn('mysql', `Prisma on ${flavor}`, () => {
  let database: onMysql.Database
  let prisma: PrismaClient
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
    prisma = new PrismaClient({ adapter, transactionOptions }) as unknown as typeof prisma
  })
  afterAll(async () => {
    await prisma?.$disconnect()
    await database?.drop()
  })

  transactionConformance({
    name: `Prisma with adapter-mariadb, ${flavor}`,
    runner,
    createWorld: async () => ({
      ...database.world,
      ...sameFor(prisma, onMysql.BROKEN),
      openAtOnce: onPostgres.POOL,
      // Prisma nests on the handle of the innermost transaction only, and MySQL prepares no SAVEPOINT.
      nestsInSavepoint: isMariadb,
      options: {
        value: { isolationLevel: 'Serializable' as const },
        expected: 'SERIALIZABLE',
        read: (tx: Tx) => onMysql.readIsolation((statement) => tx.$queryRawUnsafe(statement)),
      },
    }),
  })
})

describeOn('sqlite', 'Prisma on SQLite', () => {
  let database: onSqlite.Database
  let prisma: PrismaClient
  beforeAll(async () => {
    const { PrismaClient } = await import('../../.tmp/prisma/sqlite/index.js')
    database = onSqlite.sqliteDatabase()
    const adapter = new PrismaLibSql({ url: `file:${database.file}` })
    prisma = new PrismaClient({ adapter, transactionOptions }) as unknown as typeof prisma
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
      ...sameFor(prisma, onSqlite.BROKEN),
    }),
  })
})
