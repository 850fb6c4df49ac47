import { PGlite } from '@electric-sql/pglite'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, afterEach, beforeAll, beforeEach, describe, inject, it } from 'vitest'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { type InsertedRow, storeConformance } from '../../src/testing/index.js'
import { freshDatabase } from '../support/database.js'

const runner = { describe, it, beforeEach, afterEach }
const EMPTY =
  'truncate outbox_event, outbox_event_instance, outbox_event_pause, outbox_event_inbox, outbox_event_range'
const BROKEN = 'select 1/0'

function onServer(server: 'newest' | 'oldest') {
  const url = inject(server === 'newest' ? 'postgresUrl' : 'postgresOldestUrl')
  if (!url)
    return describe.skip(`store conformance: pg on the ${server} PostgreSQL (it could not be had)`, () => {})

  describe(`on the ${server} PostgreSQL`, () => {
    let database: Awaited<ReturnType<typeof freshDatabase>>
    beforeAll(async () => {
      database = await freshDatabase(url)
    })
    afterAll(() => database.drop())

    describe('pg', () => {
      let pool: pg.Pool
      beforeAll(() => {
        pool = new pg.Pool({ connectionString: database.url, max: 12 })
        pool.on('error', () => {})
      })
      afterAll(() => pool.end())
      storeConformance({
        name: `pg, ${server} PostgreSQL`,
        runner,
        createStore: async () => {
          const store = postgresStore(pool)
          await store.migrate()
          await pool.query(EMPTY)
          const insert = inserting((sql, values) => pool.query(sql, values))
          return { store, dispose: async () => {}, begin: () => beginPg(pool), insert }
        },
        failingStatement: (client) => client.query(BROKEN),
      })
    })

    if (server === 'oldest') return
    describe('postgres.js', () => {
      let sql: postgres.Sql
      beforeAll(() => {
        sql = postgres(database.url, { max: 12, onnotice: () => {} })
      })
      afterAll(() => sql.end())
      storeConformance({
        name: 'postgres.js',
        runner,
        createStore: async () => {
          const store = postgresStore(sql)
          await store.migrate()
          await sql.unsafe(EMPTY)
          const insert = inserting((text, values) => sql.unsafe(text, values as never[]))
          return { store, dispose: async () => {}, insert }
        },
        failingStatement: (client) => client.unsafe(BROKEN),
      })
    })
  })
}

const JSON_COLUMNS = ['payload', 'headers', 'metadata', 'handled_by']

function inserting(query: (sql: string, values: unknown[]) => Promise<unknown>) {
  return async (row: InsertedRow) => {
    const columns = Object.keys(row)
    // postgres.js would encode a text as JSON once more.
    const places = columns.map((name, at) =>
      JSON_COLUMNS.includes(name) ? `$${at + 1}::text::json` : `$${at + 1}`,
    )
    await query(
      `insert into outbox_event (${columns.join(', ')}) values (${places.join(', ')})`,
      Object.values(row),
    )
  }
}

async function beginPg(pool: pg.Pool) {
  const client = await pool.connect()
  await client.query('begin')
  const end = async (statement: string) => {
    await client.query(statement)
    client.release()
  }
  return { client, commit: () => end('commit'), rollback: () => end('rollback') }
}

onServer('newest')
onServer('oldest')

describe('PGlite', () => {
  let database: PGlite
  beforeAll(async () => {
    database = await PGlite.create()
  })
  afterAll(() => database.close())
  storeConformance({
    name: 'PGlite',
    runner,
    createStore: async () => {
      const store = postgresStore(database)
      await store.migrate()
      await database.exec(EMPTY)
      const insert = inserting((sql, values) => database.query(sql, values))
      return { store, dispose: async () => {}, insert }
    },
    failingStatement: (client) => client.query(BROKEN),
  })
})
