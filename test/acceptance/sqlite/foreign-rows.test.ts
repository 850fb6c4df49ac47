import { describe, expect, it, onTestFinished } from 'vitest'
import { createOutbox } from '../../../src/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import {
  actsOnDeadForeignRows,
  type Columns,
  type ForeignTable,
  readsOddRowsAsDocumented,
  rejectsForeignRows,
  rejectsForeignRowsWithoutHandler,
  type StoredRow,
  showsForeignRows,
  survivesRandomRows,
} from '../../support/foreign-rows.js'
import { fuzzSeeds } from '../../support/fuzz-seeds.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'

describe.each(sqliteDrivers())('SQLite by $name: rows of other writers', ({ open }) => {
  function newTable(): ForeignTable {
    const folder = sqliteFolder()
    const file = folder.file('app.db')
    const db = open(file)
    onTestFinished(() => {
      db.close()
      folder.remove()
    })
    db.exec('pragma journal_mode = wal; pragma busy_timeout = 5000')
    const run = (sql: string, values: readonly unknown[] = []) => db.prepare(sql).run(...(values as never[]))
    const rows = `select iif(typeof(event_id) = 'text', event_id, hex(event_id)) as eventId, status, attempts + 0.0 as attempts, last_error as lastError from outbox_event order by seq`
    return {
      dialect: 'sqlite',
      store: sqliteStore(() => open(file)) as ForeignTable['store'],
      insert: async (columns: Columns) => {
        const names = Object.keys(columns)
        const marks = names.map(() => '?').join(', ')
        run(
          `insert into outbox_event (${names.join(', ')}) values (${marks})`,
          Object.values(columns).map((value) => (value instanceof Uint8Array ? Buffer.from(value) : value)),
        )
      },
      run: async (sql) => run(sql),
      rows: async () => db.prepare(rows).all() as readonly StoredRow[],
    }
  }

  it('become dead with the reason when publish() would have refused them, and are handled otherwise', {
    timeout: 60_000,
  }, async () => {
    await rejectsForeignRows(newTable())
  })

  it('become dead with the same reason when no instance handles their type', {
    timeout: 60_000,
  }, async () => {
    await rejectsForeignRowsWithoutHandler(newTable())
  })

  it('are counted, listed, shown, retried and discarded when they are dead', {
    timeout: 60_000,
  }, async () => {
    await actsOnDeadForeignRows(newTable())
  })

  it('are read as documented when their metadata or version are unusual', async () => {
    await readsOddRowsAsDocumented(newTable())
  })

  it('are shown by everything that people look at', async () => {
    const table = newTable()
    await showsForeignRows(table, createOutbox({ store: table.store as never }))
    expect(await table.rows()).not.toEqual([])
  })

  it.each(fuzzSeeds())('harm nobody else whatever they hold (seed %i)', { timeout: 60_000 }, async (seed) => {
    await survivesRandomRows(newTable(), seed, 150)
  })
})
