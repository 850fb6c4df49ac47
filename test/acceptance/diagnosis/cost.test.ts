import { createPool, type RowDataPacket } from 'mysql2/promise'
import { describe, expect, inject, it } from 'vitest'
import type { OutboxStore } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { sqliteStore } from '../../../src/stores/sqlite/index.js'
import { namesOf } from '../../../src/stores/sqlite/names.js'
import { overviewStatements } from '../../../src/stores/sqlite/overview.js'
import { unhandledStatements } from '../../../src/stores/sqlite/unhandled.js'
import { isOn } from '../../support/databases.js'
import { freshMysql } from '../../support/mariadb-server.js'
import { sqliteDrivers, sqliteFolder } from '../../support/sqlite-drivers.js'
import { afterwards, migratedDatabase, poolOn } from '../../support/trap-kit.js'

const DONE = 5_000
const PENDING = 20

/** An overview looks at what is pending or dead. However much is done, it costs the same. */
describe('an overview does not look at done rows', () => {
  it.runIf(isOn('postgres'))('on PostgreSQL, also by statistics of a time when all was pending', async () => {
    const pool = poolOn(await migratedDatabase(), { max: 1 })
    const store = postgresStore(pool)
    await pool.query('alter table outbox_event set (autovacuum_enabled = off)')
    await pool.query(
      `insert into outbox_event (event_id, event_type) select n, 't' || n % 3 from generate_series(1, $1::int) n`,
      [DONE + PENDING],
    )
    await pool.query('analyze outbox_event')
    await pool.query('update outbox_event set status = 1, done_at = now() where event_id::int <= $1', [DONE])
    await pool.query('vacuum outbox_event')
    const blocks = async () => {
      await pool.query('select pg_stat_force_next_flush()')
      const { rows } = await pool.query(
        `select pg_relation_size(relid) / 8192 pages, heap_blks_read + heap_blks_hit + coalesce(idx_blks_read, 0)
           + coalesce(idx_blks_hit, 0) blocks from pg_statio_user_tables where relname = 'outbox_event'`,
      )
      return { pages: Number(rows[0].pages), blocks: Number(rows[0].blocks) }
    }
    const before = await blocks()
    expect((await store.overview()).types.reduce((sum, type) => sum + type.pending, 0)).toBe(PENDING)
    const after = await blocks()
    expect(before.pages).toBeGreaterThan(100)
    expect(after.blocks - before.blocks).toBeGreaterThan(0)
    expect(after.blocks - before.blocks).toBeLessThan(PENDING * 4)
  })

  it.runIf(isOn('mysql'))('on MySQL', async () => {
    const database = await freshMysql(inject('mysqlUrl') ?? '')
    afterwards('drop the database', () => database.drop())
    const pool = createPool({ uri: database.url, connectionLimit: 1 })
    afterwards('end the pool', () => pool.end())
    const store = mysqlStore(pool)
    await store.migrate()
    await pool.query(
      `insert into outbox_event (event_id, event_type, status, done_at)
       select n, concat('t', n % 3), if(n > ?, 0, 1), if(n > ?, null, utc_timestamp(6))
         from json_table(?, '$[*]' columns (n int path '$')) numbers`,
      [DONE, DONE, JSON.stringify(Array.from({ length: DONE + PENDING }, (_, at) => at + 1))],
    )
    const reads = async () => {
      const [rows] = await pool.query<RowDataPacket[]>(`show session status like 'Handler_read%'`)
      return rows.reduce((sum, row) => sum + Number(row.Value), 0)
    }
    const before = await reads()
    expect((await store.overview()).types.reduce((sum, type) => sum + type.pending, 0)).toBe(PENDING)
    expect((await reads()) - before).toBeLessThan(PENDING * 20)
  })

  it.runIf(isOn('sqlite'))('on SQLite', async () => {
    const folder = sqliteFolder()
    afterwards('remove the folder', async () => folder.remove())
    const [driver] = sqliteDrivers()
    const open = () => (driver as NonNullable<typeof driver>).open(folder.file('a.db'))
    const store = sqliteStore(open)
    await store.migrate()
    await store.close()
    const client = open()
    for (const sql of Object.values(overviewStatements(namesOf({})))) {
      const plan = client.prepare(`explain query plan ${sql}`).all() as { detail: string }[]
      const scans = plan.map(({ detail }) => detail).filter((detail) => /outbox_event/.test(detail))
      expect(scans.length).toBeGreaterThan(0)
      for (const scan of scans)
        expect(scan).toMatch(/USING (COVERING )?INDEX outbox_event_(fresh|timed|ordered|leased)/)
    }
    client.close()
  })
})

const BACKLOG = 20_000
const PAGE = 100

/** Health checks and heartbeats look for missing handlers all the time, with any backlog. */
describe('a look for types without a handler reads one page, however many rows are pending', () => {
  const request = {
    known: { names: ['t'], versions: [1], prefixes: [] },
    olderThanMs: 0,
    limit: PAGE,
    after: null,
  }

  /** Behind a position in the middle, where an index scan starts as well. */
  const from = async (store: Pick<OutboxStore, 'unhandled'>) => {
    const { after } = await store.unhandled({ ...request, limit: BACKLOG / 2 })
    return { ...request, after }
  }

  it.runIf(isOn('postgres')).each(['with statistics', 'without'])('on PostgreSQL, %s', async (statistics) => {
    const pool = poolOn(await migratedDatabase(), { max: 1 })
    const store = postgresStore(pool)
    await pool.query('alter table outbox_event set (autovacuum_enabled = off)')
    await pool.query(
      `insert into outbox_event (event_id, event_type, ordering_key, available_at)
       select n, 't', case when n % 3 = 0 then 'k' || n % 10 end,
         case when n % 3 = 1 then now() + interval '1 hour' + (n % 5000) * interval '1 ms' else statement_timestamp() end
         from generate_series(1, $1::int) n`,
      [3 * BACKLOG],
    )
    if (statistics === 'with statistics') await pool.query('analyze outbox_event')
    const blocks = async () => {
      await pool.query('select pg_stat_force_next_flush()')
      const { rows } = await pool.query(
        `select heap_blks_read + heap_blks_hit + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0) blocks
           from pg_statio_user_tables where relname = 'outbox_event'`,
      )
      return Number(rows[0].blocks)
    }
    for (const page of [request, await from(store)]) {
      const before = await blocks()
      expect((await store.unhandled(page)).after).not.toBe(null)
      expect((await blocks()) - before).toBeLessThan(3 * PAGE * 2)
    }
  })

  it.runIf(isOn('mysql'))('on MySQL', async () => {
    const database = await freshMysql(inject('mysqlUrl') ?? '')
    afterwards('drop the database', () => database.drop())
    const pool = createPool({ uri: database.url, connectionLimit: 1 })
    afterwards('end the pool', () => pool.end())
    const store = mysqlStore(pool)
    await store.migrate()
    await pool.query(
      `insert into outbox_event (event_id, event_type, ordering_key, available_at)
       select n, 't', if(n % 3 = 0, concat('k', n % 10), null),
         if(n % 3 = 1, utc_timestamp(6) + interval 1 hour + interval n % 5000 * 1000 microsecond, utc_timestamp(6))
         from json_table(?, '$[*]' columns (n int path '$')) numbers`,
      [JSON.stringify(Array.from({ length: 3 * BACKLOG }, (_, at) => at + 1))],
    )
    const reads = async () => {
      const [rows] = await pool.query<RowDataPacket[]>(`show session status like 'Handler_read%'`)
      return rows.reduce((sum, row) => sum + Number(row.Value), 0)
    }
    for (const page of [request, await from(store)]) {
      const before = await reads()
      expect((await store.unhandled(page)).after).not.toBe(null)
      expect((await reads()) - before).toBeLessThan(3 * PAGE * 10)
    }
  })

  it.runIf(isOn('sqlite'))('on SQLite', async () => {
    const folder = sqliteFolder()
    afterwards('remove the folder', async () => folder.remove())
    const [driver] = sqliteDrivers()
    const open = () => (driver as NonNullable<typeof driver>).open(folder.file('a.db'))
    const store = sqliteStore(open)
    await store.migrate()
    await store.close()
    const client = open()
    for (const [index, sql] of Object.entries(unhandledStatements(namesOf({})))) {
      const plan = client.prepare(`explain query plan ${sql}`).all() as { detail: string }[]
      const scans = plan.map(({ detail }) => detail).filter((detail) => /\boutbox_event\b/.test(detail))
      expect(scans).toEqual([
        expect.stringMatching(`^SEARCH outbox_event USING INDEX outbox_event_${index} `),
      ])
    }
    client.close()
  })
})
