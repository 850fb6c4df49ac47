import { PrismaLibSql } from '@prisma/adapter-libsql'
import { PrismaMariaDb } from '@prisma/adapter-mariadb'
import { PrismaPg } from '@prisma/adapter-pg'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import type { PrismaClient } from '../../.tmp/prisma/postgres/index.js'
import { makePrismaClients } from '../../scripts/prisma-clients.mjs'
import type { OutboxStore } from '../../src/index.js'
import { prismaTransactions } from '../../src/transactions/prisma.js'
import type { Database as DatabaseKind } from '../projects.js'
import { describeOn, isOn } from '../support/databases.js'
import { flavor } from '../support/mysql-flavor.js'
import { gate } from '../support/until.js'
import * as onMysql from './support/mysql.js'
import * as onPostgres from './support/postgres.js'
import * as onSqlite from './support/sqlite.js'
import { newId, started } from './support/started.js'

interface Statement {
  readonly sql: string
}
interface Adapter {
  queryRaw(statement: Statement): Promise<unknown>
  executeRaw(statement: Statement): Promise<unknown>
  rollback(): Promise<unknown>
  startTransaction(...args: never[]): Promise<Adapter>
}
interface Factory {
  connect(): Promise<Adapter>
}

/** Between Prisma and the driver: lets the statement that matches wait until its transaction was rolled back. */
function delaying<F>(factory: F, isLate: RegExp): F {
  const { connect } = factory as Factory
  ;(factory as Factory).connect = async function () {
    const adapter = await connect.call(this)
    const { startTransaction } = adapter
    adapter.startTransaction = async function (...args) {
      return late(await startTransaction.apply(this, args), isLate)
    }
    return adapter
  }
  return factory
}

function late(tx: Adapter, isLate: RegExp): Adapter {
  const ended = gate()
  for (const name of ['queryRaw', 'executeRaw'] as const) {
    const method = tx[name]
    tx[name] = async function (statement) {
      if (isLate.test(statement.sql)) await ended.opened
      const answer = await method.call(this, statement)
      if (/^rollback$/i.test(statement.sql)) ended.open()
      return answer
    }
  }
  const { rollback } = tx
  tx.rollback = async function () {
    const answer = await rollback.call(this)
    ended.open()
    return answer
  }
  return tx
}

interface Kind {
  readonly name: string
  readonly database: DatabaseKind
  /** Returns null if there is no such server. */
  open(): Promise<Opened> | null
}
interface Opened {
  createStore(table: string): OutboxStore<unknown>
  committed(ids: readonly string[]): Promise<readonly string[]>
  client(isLate: RegExp): Promise<PrismaClient>
  drop(): unknown
}

const KINDS: readonly Kind[] = [
  {
    name: 'PostgreSQL',
    database: 'postgres',
    async open() {
      const { world, url, drop } = await onPostgres.postgresDatabase()
      return {
        ...world,
        drop,
        async client(isLate) {
          const { PrismaClient } = await import('../../.tmp/prisma/postgres/index.js')
          return new PrismaClient({ adapter: delaying(new PrismaPg({ connectionString: url }), isLate) })
        },
      }
    },
  },
  {
    name: flavor,
    database: 'mysql',
    open: () => {
      const server = inject('mysqlUrl')
      return server === null ? null : onMariadb(server)
    },
  },
  {
    name: 'SQLite',
    database: 'sqlite',
    async open() {
      const { world, file, drop } = onSqlite.sqliteDatabase()
      return {
        ...world,
        drop,
        async client(isLate) {
          const { PrismaClient } = await import('../../.tmp/prisma/sqlite/index.js')
          const adapter = delaying(new PrismaLibSql({ url: `file:${file}` }), isLate)
          return new PrismaClient({ adapter }) as unknown as PrismaClient
        },
      }
    },
  },
]

async function onMariadb(server: string): Promise<Opened> {
  const { world, url, drop } = await onMysql.mysqlDatabase(server)
  return {
    ...world,
    drop,
    async client(isLate) {
      const { PrismaClient } = await import('../../.tmp/prisma/mysql/index.js')
      const adapter = delaying(new PrismaMariaDb(url.replace('mysql:', 'mariadb:')), isLate)
      return new PrismaClient({ adapter }) as unknown as PrismaClient
    },
  }
}

beforeAll(makePrismaClients)

describe.each(KINDS.filter(({ database }) => isOn(database)))(
  'Prisma on $name, when its timeout ends a transaction',
  ({ open }) => {
    let database: Opened | null
    beforeAll(async () => {
      database = await open()
    })
    afterAll(() => database?.drop())

    /** A client whose statements are late, if they match, and an outbox. */
    async function world(skip: () => void, isLate: RegExp) {
      if (!database) skip()
      const { client, createStore, committed } = database as Opened
      const prisma = await client(isLate)
      onTestFinished(() => prisma.$disconnect())
      const side = await started(createStore)
      return { ...side, prisma, committed, transaction: prismaTransactions(side.outbox, prisma) }
    }

    it.for(['one', 'many'])('an event that is on its way then is refused: %s', async (count, { skip }) => {
      const { outbox, transaction, publish, committed, handledAll } = await world(skip, /into .?.?own_\w+/i)
      const id = newId()
      const called: string[] = []
      let late: unknown
      const result = transaction(
        async (tx, scope) => {
          scope.afterCommit(() => called.push('committed'))
          await tx.business.create({ data: { id } })
          const events = Array.from({ length: 3 }, () => ({ type: 'noted', payload: { name: 'never' } }))
          const publishing = count === 'one' ? publish('never') : outbox.publishAll(events)
          late = await publishing.catch((error) => error)
        },
        { timeout: 1_000 },
      )
      const error = await result.then(
        () => undefined,
        (error) => error,
      )
      expect([error.code, error.cause?.code]).toContain('P2028')
      expect(late).toBeInstanceOf(Error)
      expect(called).toEqual([])
      expect(await committed([id])).toEqual([])
      await handledAll()
    })

    it('what was written before is gone, and nothing is announced', async ({ skip }) => {
      const { transaction, publish, committed, handledAll } = await world(skip, /^nothing$/)
      const [id, ended] = [newId(), gate()]
      const called: string[] = []
      const result = transaction(
        async (tx, scope) => {
          scope.afterRollback(() => called.push('rolled back'))
          await tx.business.create({ data: { id } })
          await publish('never')
          await expect
            .poll(() => tx.business.count().catch((error) => error.code), { timeout: 5_000 })
            .toBe('P2028')
          await expect(publish('never')).rejects.toMatchObject({ code: 'P2028' })
          ended.open()
        },
        { timeout: 1_000 },
      )
      await expect(result).rejects.toMatchObject({ code: 'P2028' })
      await ended.opened
      expect(called).toEqual(['rolled back'])
      expect(await committed([id])).toEqual([])
      await handledAll()
    })
  },
)

describeOn('postgres', 'Prisma on PostgreSQL', () => {
  async function world() {
    const database = (await KINDS[0]?.open()) as Opened
    const prisma = await database.client(/^nothing$/)
    onTestFinished(async () => {
      await prisma.$disconnect()
      await database.drop()
    })
    const side = await started(database.createStore)
    return { ...side, prisma, transaction: prismaTransactions(side.outbox, prisma) }
  }

  it('a commit that the server refuses is its error, and a rollback', async () => {
    const { prisma, transaction, publish, handledAll } = await world()
    await prisma.$executeRawUnsafe(`create table late (id text primary key,
      business text references business(id) deferrable initially deferred)`)
    const called: string[] = []
    const result = transaction(async (tx, scope) => {
      scope.afterRollback(() => called.push('rolled back'))
      await tx.$executeRawUnsafe(`insert into late values ('l', 'nobody')`)
      await publish('never')
    })
    await expect(result).rejects.toMatchObject({ name: 'DriverAdapterError' })
    expect(called).toEqual(['rolled back'])
    await handledAll()
  })

  it('a nested one in which not even the first event could be written costs the outer one nothing', async () => {
    const { transaction, publish, handledAll } = await world()
    await transaction(async () => {
      const inner = transaction(async (tx) => {
        await tx.$queryRawUnsafe(onPostgres.BROKEN).catch(() => {})
        await publish('never')
      })
      await expect(inner).rejects.toThrow()
      await publish('one')
    })
    await handledAll('one')
  })
})

describeOn('sqlite', 'Prisma on SQLite', () => {
  /** Its adapter says that it is another one, where `adapterName` does. */
  async function world(adapterName?: string) {
    const { world, file, drop } = onSqlite.sqliteDatabase()
    const { PrismaClient } = await import('../../.tmp/prisma/sqlite/index.js')
    const adapter = new PrismaLibSql({ url: `file:${file}` })
    const prisma = new PrismaClient({
      adapter: adapterName ? Object.assign(adapter, { adapterName }) : adapter,
    })
    onTestFinished(async () => {
      await prisma.$disconnect()
      drop()
    })
    return { ...world, ...(await started(world.createStore)), prisma }
  }
  const isUnsupported = expect.objectContaining({ code: 'UNSUPPORTED' })

  it('refuses an adapter that is not known to refuse late statements', async () => {
    const { outbox, prisma } = await world('@prisma/adapter-better-sqlite3')
    expect(() => prismaTransactions(outbox, prisma)).toThrow(/use @prisma\/adapter-libsql/)
    expect(() => prismaTransactions(outbox, prisma)).toThrow(isUnsupported)
  })

  it('refuses the first event when it cannot tell which adapter there is', async () => {
    const { outbox, prisma, publish, committed, handledAll } = await world()
    const $transaction = prisma.$transaction.bind(prisma) as typeof prisma.$transaction
    const transaction = prismaTransactions(outbox, { $transaction })
    const [id, nothing] = [newId(), newId()]
    const result = transaction((tx) => Promise.all([tx.business.create({ data: { id } }), publish('never')]))
    await expect(result).rejects.toEqual(isUnsupported)
    await transaction((tx) => tx.business.create({ data: { id: nothing } }))
    expect(await committed([id, nothing])).toEqual([nothing])
    await handledAll()
  })

  it('takes a client that was extended', async () => {
    const { outbox, prisma, publish, handledAll } = await world()
    const transaction = prismaTransactions(outbox, prisma.$extends({ client: { answer: () => 42 } }))
    await transaction(() => publish('one'))
    await handledAll('one')
  })
})
