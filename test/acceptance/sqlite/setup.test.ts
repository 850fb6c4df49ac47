import type Libsql from 'libsql'
import { describe, expect, expectTypeOf, it, onTestFinished } from 'vitest'
import { createOutbox, defineEvent, type OutboxStore, silentLogger } from '../../../src/index.js'
import { type SqliteDatabase, sqliteStore } from '../../../src/stores/sqlite/index.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { until } from '../../support/until.js'

const Thing = defineEvent<{ n: number }>('thing.happened')
const events = { onRing: () => {}, onWarning: () => {} }

function fileOf() {
  const folder = sqliteFolder()
  onTestFinished(() => folder.remove())
  return folder.file('app.db')
}

describe.each(sqliteDrivers())('the store by $name', ({ open }) => {
  it('refuses a database in memory, and says what to do', async () => {
    const store = sqliteStore(() => open(':memory:'))
    const refusal = expect.objectContaining({
      code: 'INVALID_SETTING',
      message: expect.stringContaining('database file'),
    })
    await expect(store.migrate()).rejects.toEqual(refusal)
    await expect(store.open(events)).rejects.toEqual(refusal)
    await expect(store.transaction(async () => {})).rejects.toEqual(refusal)
    await store.close()
  })

  it('does not open before the first migration, which can also be run by hand, and twice', async () => {
    const file = fileOf()
    const store = sqliteStore(() => open(file), { table: 'mine' })
    await expect(store.open(events)).rejects.toMatchObject({ code: 'STORE_NOT_MIGRATED' })
    expect((await store.pendingMigrations()).map(({ version }) => version)).toEqual([1])
    const own = open(file)
    for (const { sql } of [...store.migrations(), ...store.migrations()]) own.exec(sql)
    own.close()
    expect(await store.pendingMigrations()).toEqual([])
    expect(await store.migrate()).toEqual([])
    await store.open(events)
    await expect(store.open(events)).rejects.toMatchObject({ code: 'STORE_IN_USE' })
    await store.close()
  })

  it('publishes without being opened, is closed at the end, and can be used again', async () => {
    const file = fileOf()
    const opened: SqliteDatabase[] = []
    const store = sqliteStore(() => {
      opened.push(open(file))
      return opened.at(-1) as SqliteDatabase
    })
    await store.migrate()
    const outbox = createOutbox({ store, logger: silentLogger })
    await outbox.enqueue(Thing({ n: 1 }))
    expect(opened.length).toBe(2)
    const stillOpen = outbox.transaction(async (tx) => {
      await store.close()
      return tx.publish(Thing({ n: 2 }))
    })
    await stillOpen
    for (const connection of opened) expect(() => connection.prepare('select 1').all()).toThrow()
    expect((await store.stats()).pending).toBe(2)
    await store.close()
  })

  it('handles what was published, by an outbox that is started later', async () => {
    const file = fileOf()
    const newOutbox = () => createOutbox({ store: sqliteStore(() => open(file)), logger: silentLogger })
    const publisher = newOutbox()
    await publisher.migrate()
    const ids = [await publisher.enqueue(Thing({ n: 1 })), await publisher.enqueue(Thing({ n: 2 }))]
    await publisher.store.close()
    const worker = newOutbox()
    const handled: string[] = []
    worker.on(Thing, 'note', (event) => void handled.push(event.eventId))
    await worker.start()
    await until(() => handled.length === 2)
    await worker.stop()
    expect(handled).toEqual(ids)
  })

  it('works again by itself after its own connection has failed', async () => {
    const file = fileOf()
    const store = sqliteStore(() => open(file))
    await store.migrate()
    const outbox = createOutbox({ store, logger: silentLogger })
    await outbox.enqueue(Thing({ n: 1 }))
    const own = open(file)
    own.exec('alter table outbox_event rename to elsewhere')
    await expect(store.stats()).rejects.toThrow('outbox_event')
    await expect(outbox.enqueue(Thing({ n: 2 }))).rejects.toThrow('outbox_event')
    own.exec('alter table elsewhere rename to outbox_event')
    own.close()
    await outbox.enqueue(Thing({ n: 3 }))
    expect((await store.stats()).pending).toBe(2)
    await store.close()
  })

  it('reads what a connection with other settings gives it', async () => {
    const file = fileOf()
    const store = sqliteStore(() => {
      const connection = open(file) as SqliteDatabase & { defaultSafeIntegers?(): unknown }
      connection.defaultSafeIntegers?.()
      return connection
    })
    await store.migrate()
    const outbox = createOutbox({ store, logger: silentLogger })
    await outbox.enqueue(Thing({ n: 1 }))
    const [row] = await store.list({})
    expect([row?.seq, row?.attempts, row?.version, row?.status]).toEqual([1, 0, 1, 'NEW'])
    await store.close()
  })
})

describe.each(sqliteDrivers())('a wrapper of $name that does not report open transactions', ({ open }) => {
  const wrapped = (file: string): SqliteDatabase => {
    const client = open(file)
    return {
      prepare: (sql) => client.prepare(sql),
      exec: (sql) => client.exec(sql),
      close: () => client.close(),
    }
  }
  const unsupported = {
    code: 'UNSUPPORTED',
    message: expect.stringMatching(/does not report whether a transaction is open\. Use better-sqlite3/),
  }

  it('is refused as the connection of a store', async () => {
    const file = fileOf()
    const store = sqliteStore(() => wrapped(file))
    await expect(store.migrate()).rejects.toMatchObject(unsupported)
    await expect(store.transaction(async () => {})).rejects.toMatchObject(unsupported)
    await store.close()
  })

  it('is refused as the transaction of a caller, and writes nothing', async () => {
    const file = fileOf()
    const store = sqliteStore(() => open(file))
    await store.migrate()
    const outbox = createOutbox({ store, logger: silentLogger })
    const own = wrapped(file)
    own.exec('BEGIN')
    await expect(outbox.publish(Thing({ n: 1 }), { tx: own })).rejects.toMatchObject(unsupported)
    own.exec('COMMIT')
    own.close()
    expect(await store.list({})).toEqual([])
    await store.close()
  })
})

it('refuses settings that it does not know or cannot take', async () => {
  const open = () => ({ prepare: () => ({ run() {}, all: () => [] }), exec() {}, close() {} })
  const bad = (options: object) => () => sqliteStore(open, options)
  expect(bad({ schema: 'x' })).toThrow('schema')
  expect(bad({ table: 'x; drop table y' })).toThrow('table')
  expect(bad({ table: 'sqlite_x' })).toThrow('table')
  expect(() => sqliteStore('app.db' as never)).toThrow('open')
  const promised = sqliteStore((async () => open()) as never)
  await expect(promised.migrate()).rejects.toMatchObject({ code: 'INVALID_SETTING', setting: 'open' })
  const shared = sqliteDrivers()[0]?.open(fileOf()) as SqliteDatabase
  const one = sqliteStore(() => shared)
  await one.migrate()
  await expect(one.transaction(async () => {})).rejects.toMatchObject({ setting: 'open' })
  await one.close()
})

it('knows the type of its connections by the function that opens them', () => {
  const Database = undefined as unknown as typeof Libsql
  const store = sqliteStore(() => new Database('never-opened.db'))
  expectTypeOf(store).toEqualTypeOf<OutboxStore<Libsql.Database>>()
})
