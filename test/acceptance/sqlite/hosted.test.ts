import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox, defineEvent, silentLogger, type TransactionHost } from '../../../src/index.js'
import { type SqliteDatabase, sqliteStore } from '../../../src/stores/sqlite/index.js'
import { type SqliteDriver, sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

const Thing = defineEvent<{ n: number }>('thing.happened')

/** Runs after the current turn, as a driver does that talks to a worker thread or a server. */
const nextTurn = () => new Promise<void>((resolve) => void setImmediate(resolve))

/** Transactions on one connection by a driver that needs a turn for each statement. */
function hostOn(db: SqliteDatabase, fault: (sql: string) => void = () => {}): TransactionHost<object> {
  return {
    async transaction(body) {
      db.exec('BEGIN IMMEDIATE')
      const result = await body({})
      db.exec('COMMIT')
      return result
    },
    async query(_tx, sql, params) {
      await nextTurn()
      fault(sql)
      if (!/^(BEGIN|ROLLBACK|SAVEPOINT|RELEASE)/.test(sql))
        return db.prepare(sql).all(...(params as never[])) as never
      db.exec(sql)
      return []
    },
  }
}

async function newWorld({ open }: SqliteDriver) {
  const folder = sqliteFolder()
  const file = folder.file('app.db')
  const db = open(file)
  const outbox = createOutbox({ store: sqliteStore(() => open(file)), logger: silentLogger })
  onTestFinished(async () => {
    await outbox.store.close()
    db.close()
    folder.remove()
  })
  await outbox.migrate()
  db.exec('create table account (id text primary key)')
  db.exec(`insert into account values ('taken')`)
  /** Ends the transaction without telling the host. */
  const endTransaction = () => {
    expect(() => db.exec(`insert or rollback into account values ('taken')`)).toThrow()
  }
  const accounts = () =>
    (db.prepare('select id from account order by id').all() as { id: string }[]).map(({ id }) => id)
  return { db, outbox, endTransaction, accounts }
}

describe.each(sqliteDrivers())('a transaction of an ORM on $name that SQLite has rolled back', (driver) => {
  it('leaves no transaction open on the connection when publish is rejected', async () => {
    const { db, outbox, endTransaction, accounts } = await newWorld(driver)
    const transaction = outbox.transactionsOf(hostOn(db))
    let rejection: unknown
    const running = transaction(async (_, scope) => {
      endTransaction()
      rejection = await scope.publish(Thing({ n: 1 })).catch((error) => error)
      // Without a transaction SQLite commits this row at once.
      db.exec(`insert into account values ('late')`)
    })
    await expect(running).rejects.toThrow()
    await nextTurn()
    expect(rejection).toMatchObject({ code: 'TRANSACTION_ENDED' })
    expect(accounts()).toEqual(['late', 'taken'])
    expect(await outbox.store.list({})).toEqual([])
  })

  it('rejects publish with the error of the driver when the probe for the transaction cannot be rolled back', async () => {
    const { db, outbox, endTransaction } = await newWorld(driver)
    const transaction = outbox.transactionsOf(
      hostOn(db, (sql) => {
        if (sql === 'ROLLBACK') throw new Error('worker has ended')
      }),
    )
    const rejections: unknown[] = []
    const running = transaction(async (_, scope) => {
      endTransaction()
      rejections.push(await scope.publish(Thing({ n: 1 })).catch((error) => error))
      db.exec('ROLLBACK')
    })
    await expect(running).rejects.toThrow()
    await nextTurn()
    expect(rejections).toMatchObject([{ message: 'worker has ended' }])
  })
})
