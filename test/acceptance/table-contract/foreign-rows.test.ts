import { describe, expect, inject, it } from 'vitest'
import { createOutbox } from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { freshDatabase } from '../../support/database.js'
import {
  actsOnDeadForeignRows,
  type Columns,
  type ForeignTable,
  readsOddRowsAsDocumented,
  rejectsForeignRows,
  rejectsForeignRowsWithoutHandler,
  showsForeignRows,
  survivesRandomRows,
} from '../../support/foreign-rows.js'
import { fuzzSeeds } from '../../support/fuzz-seeds.js'
import { afterwards, poolOn } from '../../support/trap-kit.js'

const TYPES: Readonly<Record<string, string>> = {
  ...Object.fromEntries(
    ['headers', 'metadata', 'payload', 'handled_by', 'failures'].map((name) => [name, 'json']),
  ),
  ...Object.fromEntries(
    ['occurred_at', 'locked_until', 'available_at', 'created_at'].map((name) => [name, 'timestamptz']),
  ),
  halts: 'boolean',
}

const servers = { newest: inject('postgresUrl'), oldest: inject('postgresOldestUrl') }

describe.each(Object.entries(servers))('rows of other writers (%s PostgreSQL)', (_age, server) => {
  async function newTable(): Promise<ForeignTable> {
    const database = await freshDatabase(server as string)
    afterwards('drop the database', () => database.drop())
    const pool = poolOn(database.url)
    const insert = (columns: Columns) => {
      const names = Object.keys(columns)
      const values = names.map((name, at) => `$${at + 1}${TYPES[name] ? `::text::${TYPES[name]}` : ''}`)
      return pool.query(
        `insert into outbox_event (${names.join(', ')}) values (${values.join(', ')})`,
        Object.values(columns).map((value) => (value instanceof Uint8Array ? Buffer.from(value) : value)),
      )
    }
    return {
      dialect: 'postgres',
      store: postgresStore(pool) as ForeignTable['store'],
      insert,
      run: (sql) => pool.query(sql),
      rows: async () =>
        (
          await pool.query(
            `select event_id "eventId", status, attempts, last_error "lastError" from outbox_event order by seq`,
          )
        ).rows,
    }
  }

  it.skipIf(server === null)(
    'become dead with the reason when publish() would have refused them, and are handled otherwise',
    { timeout: 60_000 },
    async () => {
      await rejectsForeignRows(await newTable())
    },
  )

  it.skipIf(server === null)(
    'become dead with the same reason when no instance handles their type',
    { timeout: 60_000 },
    async () => {
      await rejectsForeignRowsWithoutHandler(await newTable())
    },
  )

  it.skipIf(server === null)(
    'are counted, listed, shown, retried and discarded when they are dead',
    { timeout: 60_000 },
    async () => {
      await actsOnDeadForeignRows(await newTable())
    },
  )

  it.skipIf(server === null)(
    'are read as documented when their metadata or version are unusual',
    async () => {
      await readsOddRowsAsDocumented(await newTable())
    },
  )

  it.skipIf(server === null)('are shown by everything that people look at', async () => {
    const table = await newTable()
    await showsForeignRows(table, createOutbox({ store: table.store as never }))
    expect(await table.rows()).not.toEqual([])
  })

  it.skipIf(server === null).each(fuzzSeeds())(
    'harm nobody else whatever they hold (seed %i)',
    { timeout: 60_000 },
    async (seed) => {
      await survivesRandomRows(await newTable(), seed, 150)
    },
  )
})
