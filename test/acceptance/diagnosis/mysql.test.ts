import { randomBytes } from 'node:crypto'
import { createConnection, createPool, type Pool } from 'mysql2/promise'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it, vi } from 'vitest'
import { LIMITS } from '../../../src/diagnosis.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import type { MysqlStore } from '../../../src/stores/mysql/store.js'
import { freshMysql, type MariadbServer } from '../../support/mariadb-server.js'
import { flavor, isMariadb, startOwnServer } from '../../support/mysql-flavor.js'
import { afterwards } from '../../support/trap-kit.js'
import { findingOf, levels, one, statementsIn } from './kit.js'

const WITHOUT_TABLES = [
  'connection',
  'schema',
  'rights',
  'clock',
  'isolation',
  'binary log',
  'packet size',
  'purge',
  'long transactions',
  'pool size',
]
const ALL = [
  'connection',
  'schema',
  'rights',
  'indexes',
  'clock',
  'collation',
  'isolation',
  'binary log',
  'packet size',
  'purge',
  'long transactions',
  'stuck leases',
  'dead letters',
  'lag',
  'missing handlers',
  'instances',
  'pool size',
]

function poolOn(uri: string, connectionLimit = 8): Pool {
  const pool = createPool({ uri, connectionLimit })
  afterwards('end the pool', () => pool.end())
  return pool
}

async function follow(pool: Pool, advice: string | undefined): Promise<void> {
  for (const sql of statementsIn(advice)) await pool.query(sql)
}

describe(`diagnosis of ${flavor}`, () => {
  let url: string
  let pool: Pool
  let store: ReturnType<typeof mysqlStore<Pool>>

  beforeEach(async () => {
    const database = await freshMysql(inject('mysqlUrl') ?? '')
    afterwards('drop the database', () => database.drop())
    url = database.url
    pool = poolOn(url)
    store = mysqlStore(pool)
  })

  it('looks at what it can without tables, and at everything with them', async () => {
    const before = await store.diagnose()
    expect(levels(before)).toEqual(
      WITHOUT_TABLES.map((check) => `${check}: ${check === 'schema' ? 'problem' : 'ok'}`),
    )
    expect(one(before, 'schema').advice).toContain('aftercommit migrate')
    await store.migrate()
    const after = await store.diagnose()
    expect(levels(after)).toEqual(ALL.map((check) => `${check}: ${check === 'instances' ? 'warning' : 'ok'}`))
    const named = mysqlStore(pool, { database: new URL(url).pathname.slice(1) })
    expect(levels(await named.diagnose())).toEqual(levels(after))
  })

  it('is rejected when the database cannot be reached', async () => {
    const nowhere = mysqlStore(poolOn('mysql://nobody:secret@127.0.0.1:1/none'))
    await expect(nowhere.diagnose()).rejects.toThrow(/ECONNREFUSED/)
  })

  it('finds an old schema, dropped tables and tables without transactions', async () => {
    await store.migrate()
    await pool.query('delete from outbox_event_migration where version = 2')
    const old = await store.diagnose()
    expect(one(old, 'schema').says).toMatch(/^The schema is old: without migration 2/)
    expect(old.map((finding) => finding.check)).toEqual(ALL)
    await store.migrate()

    await pool.query('alter table outbox_event_migration engine = MyISAM')
    const { says, advice } = await findingOf(store, 'schema')
    expect(says).toBe('Tables without transactions: outbox_event_migration.')
    await follow(pool, advice)
    expect(await findingOf(store, 'schema')).toMatchObject({ level: 'ok', says: 'Version 3.' })

    await pool.query('drop table outbox_event_pause')
    const dropped = await store.diagnose()
    expect(one(dropped, 'schema').says).toBe('Somebody has dropped outbox_event_pause.')
    expect(dropped.map((finding) => finding.check)).toEqual(WITHOUT_TABLES)
  })

  it('finds indexes that are missing or ignored, and its SQL mends them', async () => {
    await store.migrate()
    await pool.query('drop index outbox_event_fresh on outbox_event')
    await pool.query(
      `alter table outbox_event alter index outbox_event_timed ${isMariadb ? 'ignored' : 'invisible'}`,
    )
    const { level, says, advice } = await findingOf(store, 'indexes')
    expect([level, says]).toEqual([
      'problem',
      'Missing: outbox_event_fresh. Not used by the server: outbox_event_timed.',
    ])
    await follow(pool, advice)
    expect(await findingOf(store, 'indexes')).toMatchObject({ level: 'ok' })
    expect((await store.overview()).types).toEqual([])
  })

  it('finds ids that are not compared byte by byte', async () => {
    await store.migrate()
    await pool.query('alter table outbox_event modify locked_by varchar(255) collate utf8mb4_general_ci')
    expect(await findingOf(store, 'collation')).toMatchObject({
      level: 'problem',
      says: expect.stringMatching(/locked_by \(utf8mb4_general_ci\)/),
    })
  })

  it('says that it could not look where rights are missing, and throws nothing', async () => {
    await store.migrate()
    const user = `plain_${randomBytes(4).toString('hex')}`
    await pool.query(`create user ${user}@'%'`)
    afterwards('drop the user', () => pool.query(`drop user ${user}@'%'`))
    await pool.query(`grant select on outbox_event_migration to ${user}@'%'`)
    const theirs = new URL(url)
    theirs.username = user
    const findings = await mysqlStore(poolOn(theirs.href)).diagnose()
    for (const check of ['purge', 'long transactions']) {
      expect(one(findings, check)).toMatchObject({
        level: 'warning',
        says: expect.stringMatching(/^Could not look: ".*PROCESS/),
      })
    }
    expect(one(findings, 'connection').level).toBe('ok')
  })

  it('says that the pool is too small', async () => {
    const small = mysqlStore(poolOn(url, 2))
    const finding = await findingOf(small, 'pool size')
    expect(finding).toMatchObject({ level: 'problem', advice: expect.stringContaining('3 or more') })
    expect(await findingOf(mysqlStore(poolOn(url, 0)), 'pool size')).toMatchObject({ level: 'ok' })
  })
})

/** Transactions are seen of the whole server, and its settings are everybody's. */
describe(`diagnosis of a ${flavor} server`, () => {
  let server: MariadbServer
  beforeAll(async () => {
    server = await startOwnServer({
      settings: {
        'log-bin': 'binlog',
        'binlog-format': 'STATEMENT',
        'max-allowed-packet': 1_048_576,
        'transaction-isolation': 'SERIALIZABLE',
      },
    })
  })
  afterAll(() => server?.stop())

  it('names a transaction that stays open, and its SQL ends it', async () => {
    const pool = poolOn(server.url)
    const store = mysqlStore(pool)
    await store.migrate()
    const sleeper = await createConnection({ uri: server.url })
    sleeper.on('error', () => {})
    await sleeper.query('begin')
    await sleeper.query(`insert into outbox_event_pause (event_type) values ('x')`)
    const look = async (problem: number) => {
      const limits = { ...LIMITS, transactionMs: { warning: 0, problem } }
      return one(await (store as unknown as MysqlStore<never>).diagnose(limits), 'long transactions')
    }
    const found = await look(3_600_000)
    expect(found.level).toBe('warning')
    expect(found.says).toContain(`(thread ${sleeper.threadId}, `)
    expect((await look(0)).level).toBe('problem')
    expect(await findingOf(store, 'long transactions')).toMatchObject({ level: 'ok' })
    const [kill] = statementsIn(found.advice)
    expect(kill).toBe(`KILL ${sleeper.threadId};`)
    await pool.query(kill as string)
    const isGone = async () => expect((await look(0)).says).not.toContain(`thread ${sleeper.threadId},`)
    // InnoDB shows what it has shown before to whoever asks again within 100 ms.
    await vi.waitFor(isGone, { timeout: 15_000, interval: 300 })
  })

  it('finds settings under which it would not work well', async () => {
    const pool = poolOn(server.url)
    const store = mysqlStore(pool)
    await store.migrate()
    const found = await store.diagnose()
    expect(levels(found).filter((one) => !one.endsWith('ok'))).toEqual([
      'isolation: warning',
      'binary log: problem',
      'packet size: warning',
      'instances: warning',
    ])
    await pool.query(
      `insert into outbox_event (event_id, event_type, payload, payload_size) values ('a', 'a', '1', 600000)`,
    )
    expect(await findingOf(store, 'packet size')).toMatchObject({ level: 'problem' })
    await expect(store.pause('x')).rejects.toMatchObject({ code: 'BINARY_LOG_FORMAT' })
    for (const check of ['isolation', 'binary log', 'packet size'])
      await follow(pool, one(found, check).advice)
    await pool.query('set global read_only = 1')
    const anew = poolOn(server.url)
    const mended = await mysqlStore(anew).diagnose()
    expect(levels(mended).filter((one) => !one.endsWith('ok'))).toEqual([
      'connection: problem',
      'instances: problem',
    ])
    await mysqlStore(anew).pause('x')
  })
})
