import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox, defineEvent, silentLogger, type TransactionHost } from '../../../src/index.js'
import { type SqliteDatabase, sqliteStore } from '../../../src/stores/sqlite/index.js'
import { HostedClient } from '../../../src/transaction.js'
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

describe.each(sqliteDrivers())('findPresent in a transaction of an ORM on $name', ({ open }) => {
  /** A connection of an ORM with an open transaction that has written the event e-1. */
  async function newTransaction() {
    const folder = sqliteFolder()
    const file = folder.file('app.db')
    const db = open(file)
    const store = sqliteStore(() => open(file))
    onTestFinished(async () => {
      await store.close()
      db.close()
      folder.remove()
    })
    await store.migrate()
    const host = hostOn(db)
    const client = new HostedClient(host, (sql, params) => host.query({}, sql, params))
    db.exec('begin immediate')
    db.exec(`insert into outbox_event (event_id, event_type, payload) values ('e-1', 'a', '1')`)
    return { db, find: (ids: readonly string[]) => store.findPresent(client as never, ids) }
  }

  it('finds events of the open transaction, which no other connection sees', async () => {
    const { find } = await newTransaction()
    expect([...(await find(['e-1', 'e-2'])).keys()]).toEqual(['e-1'])
    expect(await find([])).toEqual(new Map())
  })

  it('reports a rollback if the transaction has ended and none of its events is there', async () => {
    const { db, find } = await newTransaction()
    db.exec('rollback')
    await expect(find(['e-1'])).rejects.toMatchObject({ code: 'TRANSACTION_ROLLED_BACK' })
  })

  it('reports that the commit is unknown if the transaction has ended and its events are there', async () => {
    const { db, find } = await newTransaction()
    db.exec('commit')
    await expect(find(['e-1'])).rejects.toMatchObject({ code: 'COMMIT_UNKNOWN' })
    await expect(find([])).rejects.toMatchObject({ code: 'COMMIT_UNKNOWN' })
  })
})
