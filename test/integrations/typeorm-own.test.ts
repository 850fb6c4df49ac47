import { createRequire } from 'node:module'
import { DataSource, type DataSourceOptions, type EntitySubscriberInterface } from 'typeorm'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { CommitUnknownError } from '../../src/index.js'
import { typeormTransactions } from '../../src/transactions/typeorm.js'
import { describeOn } from '../support/databases.js'
import { type Database as PostgresDatabase, postgresDatabase } from './support/postgres.js'
import { type Database as SqliteDatabase, sqliteDatabase } from './support/sqlite.js'
import { newId, type Started, started } from './support/started.js'

const LATE = `create table if not exists late (id varchar(64) primary key,
  business varchar(64) references business(id) deferrable initially deferred)`

/** Fails behind the commit. */
const FAILING: EntitySubscriberInterface = {
  afterTransactionCommit() {
    throw new Error('a subscriber')
  },
}

/** One for each test: a refused commit leaves its marks on a connection of libsql's. */
async function opened(options: DataSourceOptions): Promise<DataSource> {
  const source = await new DataSource(options).initialize()
  onTestFinished(() => source.destroy())
  await source.query(LATE)
  return source
}

/** What the server says at the COMMIT, and what a subscriber says behind it. */
function commitTests(open: () => Promise<DataSource>, world: () => Promise<Started>): void {
  it('a commit that the database refuses is its error, and a rollback', async () => {
    const source = await open()
    const { outbox, publish, handledAll } = await world()
    const called: string[] = []
    const result = typeormTransactions(
      outbox,
      source,
    )(async (tx, scope) => {
      scope.afterCommit(() => called.push('committed'))
      scope.afterRollback(() => called.push('rolled back'))
      await tx.query(`insert into late values ('l', 'nobody')`)
      await publish('never')
    })
    await expect(result).rejects.toMatchObject({ name: 'QueryFailedError' })
    expect(called).toEqual(['rolled back'])
    await handledAll()
  })

  it('an error of a subscriber behind the commit claims nothing: the row is there, and no hook runs', async () => {
    const source = await open()
    const { outbox, publish, names } = await world()
    const called: string[] = []
    source.subscribers.push(FAILING)
    const result = typeormTransactions(
      outbox,
      source,
    )(async (_tx, scope) => {
      scope.afterCommit(() => called.push('committed'))
      scope.afterRollback(() => called.push('rolled back'))
      await publish('one')
    })
    await expect(result).rejects.toBeInstanceOf(CommitUnknownError)
    expect(called).toEqual([])
    expect(await names()).toEqual(['one'])
  })
}

describeOn('postgres', 'TypeORM on PostgreSQL', () => {
  let database: PostgresDatabase
  beforeAll(async () => {
    database = await postgresDatabase()
  })
  afterAll(() => database?.drop())

  commitTests(
    () => opened({ type: 'postgres', url: database.url }),
    () => started(database.world.createStore),
  )
})

describeOn('postgres', 'a handle that outlives a nested transaction', () => {
  it('can still be marked with', async () => {
    const database = await postgresDatabase()
    onTestFinished(() => database.drop())
    const source = await opened({ type: 'postgres', url: database.url })
    const { outbox } = await started(database.world.createStore)
    const transaction = typeormTransactions(outbox, source)
    const eventId = newId()
    await transaction(async (tx) => {
      await transaction(
        async (inner) => void (await transaction.store.markProcessed(inner, 'inner', eventId)),
      )
      await transaction.store.markProcessed(tx, 'outer', eventId)
    })
    expect(await transaction.store.isProcessed('inner', eventId)).toBe(true)
    expect(await transaction.store.isProcessed('outer', eventId)).toBe(true)
  })
})

describeOn('sqlite', 'TypeORM on SQLite, where there is one connection', () => {
  let database: SqliteDatabase
  beforeAll(() => {
    database = sqliteDatabase()
  })
  afterAll(() => database?.drop())
  const open = () => {
    const driver = createRequire(import.meta.url)('libsql')
    return opened({ type: 'better-sqlite3', database: database.file, driver })
  }
  const world = () => started(database.world.createStore)
  const isNested = { code: 'NESTED_TRANSACTION' }

  commitTests(open, world)

  it('one of another outbox inside of one is refused: it would wait for ever', async () => {
    const source = await open()
    const [one, other] = [await world(), await world()]
    const ofOther = typeormTransactions(other.outbox, source)
    await typeormTransactions(
      one.outbox,
      source,
    )(async () => {
      await expect(ofOther(() => other.publish('never'))).rejects.toMatchObject(isNested)
      await one.publish('one')
    })
    await ofOther(() => other.publish('other'))
    await one.handledAll('one')
    await other.handledAll('other')
  })

  it('those of two outboxes wait for each other', async () => {
    const source = await open()
    const [one, other] = [await world(), await world()]
    const id = newId()
    const order: string[] = []
    const run = (side: Started, name: string) =>
      typeormTransactions(
        side.outbox,
        source,
      )(async (tx) => {
        order.push(`${name} begins`)
        await tx.query('insert into business values (?)', [`${id}-${name}`])
        await side.publish(name)
        order.push(`${name} ends`)
        if (name === 'one') throw new Error('roll back')
      })
    const results = await Promise.allSettled([run(one, 'one'), run(other, 'other')])
    expect(results.map((result) => result.status)).toEqual(['rejected', 'fulfilled'])
    expect(order).toEqual(['one begins', 'one ends', 'other begins', 'other ends'])
    expect(await database.world.committed([`${id}-one`, `${id}-other`])).toEqual([`${id}-other`])
    await one.handledAll()
    await other.handledAll('other')
  })

  it('one inside of one that the outbox does not know is refused: its rollback would not be seen', async () => {
    const source = await open()
    const { outbox, publish, handledAll } = await world()
    const transaction = typeormTransactions(outbox, source)
    await source.transaction(async () => {
      await expect(transaction(() => publish('never'))).rejects.toMatchObject(isNested)
    })
    await transaction(() => publish('one'))
    await handledAll('one')
  })
})
