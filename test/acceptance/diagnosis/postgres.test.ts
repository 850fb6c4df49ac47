import { randomBytes } from 'node:crypto'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it, vi } from 'vitest'
import { LIMITS } from '../../../src/diagnosis.js'
import type { OutboxStore } from '../../../src/index.js'
import { PgDriver, type PgPool } from '../../../src/stores/postgres/drivers/pg.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { namesOf } from '../../../src/stores/postgres/names.js'
import type { PostgresStore } from '../../../src/stores/postgres/store.js'
import { vacuumCheck } from '../../../src/stores/postgres/vacuum.js'
import { type FreshDatabase, freshDatabase } from '../../support/database.js'
import { afterwards, emptyDatabase, poolOn } from '../../support/trap-kit.js'
import { findingOf, levels, one, statementsIn } from './kit.js'

const WITHOUT_TABLES = [
  'connection',
  'encoding',
  'schema',
  'rights',
  'clock',
  'long transactions',
  'notify',
  'pooler',
  'pool size',
]
const ALL = [
  'connection',
  'encoding',
  'schema',
  'rights',
  'row security',
  'indexes',
  'clock',
  'vacuum',
  'long transactions',
  'stuck leases',
  'dead letters',
  'lag',
  'missing handlers',
  'instances',
  'notify',
  'pooler',
  'pool size',
]

/** PGlite passes the suite of all stores; it takes too long to start one more. */
const DRIVERS: readonly (readonly [string, () => Promise<OutboxStore<never>>])[] = [
  ['pg', async () => postgresStore(poolOn(await emptyDatabase())) as OutboxStore<never>],
  [
    'pg, oldest PostgreSQL',
    async () =>
      postgresStore(
        poolOn(await emptyDatabase(inject('postgresOldestUrl') ?? undefined)),
      ) as OutboxStore<never>,
  ],
  [
    'postgres.js',
    async () => {
      const sql = postgres(await emptyDatabase(), { max: 6, onnotice: () => {} })
      afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
      return postgresStore(sql) as unknown as OutboxStore<never>
    },
  ],
]

describe.each(DRIVERS)('diagnosis of PostgreSQL by %s', (_name, open) => {
  it('looks at what it can without tables, and at everything with them', async () => {
    const store = await open()
    const before = await store.diagnose()
    expect(levels(before)).toEqual(
      WITHOUT_TABLES.map((check) => `${check}: ${check === 'schema' ? 'problem' : 'ok'}`),
    )
    expect(one(before, 'schema').advice).toContain('aftercommit migrate')

    await store.migrate()
    const after = await store.diagnose()
    expect(levels(after)).toEqual(ALL.map((check) => `${check}: ${check === 'instances' ? 'warning' : 'ok'}`))
    expect(one(after, 'notify').says).toMatch(/arrived after \d+ ms/)
  })
})

/** What a finding proposes is done as it is written, and then all is well. */
async function follow(pool: pg.Pool | pg.Client, advice: string | undefined): Promise<void> {
  for (const sql of statementsIn(advice)) await pool.query(sql)
}

describe('diagnosis of PostgreSQL', () => {
  let pool: pg.Pool
  let store: OutboxStore<pg.PoolClient>
  let url: string

  let database: FreshDatabase

  beforeAll(async () => {
    database = await freshDatabase(inject('postgresUrl'))
  })
  afterAll(() => database?.drop())

  beforeEach(async () => {
    url = database.url
    pool = poolOn(url)
    store = postgresStore(pool)
    await pool.query(
      'drop schema public cascade; create schema public; grant usage on schema public to public',
    )
    await store.migrate()
  })

  const diagnoseBy = (limits: Partial<typeof LIMITS>) =>
    (store as unknown as PostgresStore<never>).diagnose({ ...LIMITS, ...limits })

  it('works on a worker that is running', async () => {
    await store.open({ onRing: () => {}, onWarning: () => {} })
    afterwards('close', () => store.close())
    expect(levels(await store.diagnose())).toContain('notify: ok')
  })

  it('is rejected when the database cannot be reached', async () => {
    const nowhere = postgresStore(poolOn('postgres://nobody:secret@127.0.0.1:1/none'))
    await expect(nowhere.diagnose()).rejects.toThrow(/ECONNREFUSED/)
  })

  it('says that the schema is old, and looks at the rest all the same; a newer one is fine', async () => {
    await pool.query('delete from outbox_event_migration where version = 2')
    const findings = await store.diagnose()
    expect(one(findings, 'schema')).toMatchObject({
      level: 'problem',
      says: 'The schema is old: without migration 2 (publishing by SQL).',
      advice: 'Run: aftercommit migrate',
    })
    expect(findings.map((finding) => finding.check)).toEqual(ALL)

    await store.migrate()
    await pool.query(`insert into outbox_event_migration (version, name) values (99, 'of tomorrow')`)
    expect(await findingOf(store, 'schema')).toEqual({
      check: 'schema',
      level: 'ok',
      says: `Version 99, newer than the ${store.migrations().length} of this program.`,
    })
  })

  it('says what somebody has dropped, and how to get it back', async () => {
    await pool.query('drop table outbox_event_pause, outbox_event_inbox')
    const findings = await store.diagnose()
    expect(one(findings, 'schema')).toMatchObject({
      level: 'problem',
      says: 'Somebody has dropped "outbox_event_pause", "outbox_event_inbox".',
    })
    expect(findings.map((finding) => finding.check)).toEqual(WITHOUT_TABLES)
    for (const { sql } of store.migrations()) await pool.query(sql)
    expect(await findingOf(store, 'schema')).toMatchObject({ level: 'ok' })
  })

  it('finds indexes that are missing or not valid, and its SQL mends them', async () => {
    await pool.query('drop index outbox_event_fresh')
    // Of the user's own, with a name that must not reach a terminal as it is.
    await pool.query('create index "My\u001b[31m" on outbox_event (tenant_id)')
    await pool.query(
      `update pg_index set indisvalid = false where indexrelid = 'outbox_event_timed'::regclass`,
    )
    const { level, says, advice } = await findingOf(store, 'indexes')
    expect([level, says]).toEqual(['problem', 'Missing: outbox_event_fresh. Not valid: outbox_event_timed.'])
    await follow(pool, advice)
    expect(await findingOf(store, 'indexes')).toMatchObject({ level: 'ok', says: '6 indexes, all valid.' })

    await pool.query(`update pg_index set indisvalid = false where indexrelid = '"My\u001b[31m"'::regclass`)
    const odd = await findingOf(store, 'indexes')
    expect(`${odd.says}${odd.advice}`).not.toContain('\u001b')
    await pool.query(`drop index "My\u001b[31m"`)

    await pool.query('alter table outbox_event drop constraint outbox_event_pkey')
    const withoutKey = await findingOf(store, 'indexes')
    expect(withoutKey).toMatchObject({ level: 'problem', says: 'The primary key is missing.' })
    await follow(pool, withoutKey.advice)
    expect(await findingOf(store, 'indexes')).toMatchObject({ level: 'ok' })
  })

  it('notes that the clocks differ', async () => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 7_200_000 })
    try {
      expect(await findingOf(store, 'clock')).toMatchObject({
        level: 'warning',
        says: "The database's clock is 2 h behind the one of this process.",
      })
    } finally {
      vi.useRealTimers()
    }
  })

  it('finds a table that is not vacuumed', async () => {
    await pool.query('alter table outbox_event set (autovacuum_enabled = off)')
    const { level, says, advice } = await findingOf(store, 'vacuum')
    expect(level).toBe('problem')
    expect(says).toMatch(/^Autovacuum is off for the events table/)
    await follow(pool, advice)
    expect(await findingOf(store, 'vacuum')).toMatchObject({ level: 'ok' })
  })

  it('finds that vacuum does not keep up, and indexes that are mostly empty', async () => {
    const single = poolOn(url, { max: 1 })
    await single.query('alter table outbox_event set (autovacuum_enabled = off)')
    await single.query(
      `insert into outbox_event (event_id, event_type) select n, 't' from generate_series(1, 2000) n`,
    )
    await single.query('delete from outbox_event')
    // What a session has counted is told to others now and then, or now.
    await single.query('select pg_stat_force_next_flush()')
    await single.query('alter table outbox_event reset (autovacuum_enabled)')
    const driver = new PgDriver(single as unknown as PgPool)
    const look = (limits: Parameters<typeof vacuumCheck>[2]) =>
      vacuumCheck((sql, params) => driver.query(sql, params), namesOf({}), limits)
    const limits = { dead: 1_999, indexBytes: 16_384, bytesAnEntry: 400 }
    const late = await look(limits)
    expect(late).toMatchObject({ level: 'warning' })
    expect(late.says).toMatch(/^Vacuum does not keep up: 0 live and 2000 dead row versions/)
    await follow(single, late.advice)
    await single.query('select pg_stat_force_next_flush()')
    const bloated = await look(limits)
    expect(bloated.says).toMatch(/^Indexes that are mostly empty: outbox_event_pkey/)
    await follow(single, bloated.advice)
    expect(await look(limits)).toMatchObject({ level: 'ok' })
  })

  it('names a transaction that stays open, and its SQL ends it', async () => {
    const name = 'app\u001b[31m"'
    const sleeper = new pg.Client({ connectionString: url, application_name: name })
    sleeper.on('error', () => {})
    await sleeper.connect()
    await sleeper.query('begin; select txid_current()')
    const { rows } = await pool.query(`select pid from pg_stat_activity where state = 'idle in transaction'
      and datname = current_database()`)
    const limits = (problem: number) => diagnoseBy({ transactionMs: { warning: 0, problem } })
    const found = one(await limits(3_600_000), 'long transactions')
    expect(found.level).toBe('warning')
    expect(found.says).toContain(`(pid ${rows[0].pid}, idle in transaction) has been open for`)
    expect(found.says).toMatch(/^A transaction of "app/)
    expect(found.says).not.toContain('\u001b')
    expect(one(await limits(0), 'long transactions').level).toBe('problem')
    expect(await findingOf(store, 'long transactions')).toMatchObject({ level: 'ok' })
    const [terminate] = statementsIn(found.advice)
    await pool.query(terminate as string)
    const isOver = async () => expect(one(await limits(0), 'long transactions').level).toBe('ok')
    await vi.waitFor(isOver, { timeout: 15_000 })
  })

  it('says that it could not look where rights are missing, and throws nothing', async () => {
    const role = `plain_${randomBytes(4).toString('hex')}`
    await pool.query(`create role ${role} login`)
    afterwards('drop the role', () => pool.query(`drop role ${role}`))
    const theirs = new URL(url)
    theirs.username = role
    const plain = postgresStore(poolOn(theirs.href))
    // Somebody else's session, into which this user may not look.
    await pool.query('select 1')
    const findings = await plain.diagnose()
    expect(findings.map((finding) => finding.check)).toEqual(ALL)
    expect(one(findings, 'schema')).toMatchObject({ level: 'warning' })
    for (const check of ['schema', 'stuck leases', 'dead letters', 'lag', 'missing handlers', 'instances'])
      expect(one(findings, check).says).toMatch(
        /^Could not look: The database user lacks rights on "outbox_event/,
      )
    expect(one(findings, 'rights')).toMatchObject({ level: 'problem' })
    const sessions = one(findings, 'long transactions')
    expect(sessions).toMatchObject({ level: 'warning', says: expect.stringMatching(/^Could not look into/) })
    expect(sessions.advice).toBe('GRANT pg_read_all_stats TO <role>;')
    await follow(pool, sessions.advice?.replace('<role>', role))
    expect(await findingOf(plain, 'long transactions')).toMatchObject({ level: 'ok' })

    await pool.query('create schema closed')
    const closed = await postgresStore(poolOn(theirs.href), { schema: 'closed' }).diagnose()
    expect(closed.map((finding) => finding.check)).toEqual(WITHOUT_TABLES)
    expect(JSON.stringify([findings, closed])).not.toContain(role)
    expect(one(closed, 'schema').says).toBe('Could not look: The database user may not use schema "closed".')
  })

  it('says that nothing can be written', async () => {
    const name = new URL(url).pathname.slice(1)
    const mode = (how: 'set' | 'reset') =>
      `alter database ${name} ${how} default_transaction_read_only ${how === 'set' ? '= on' : ''}`
    await pool.query(mode('set'))
    const readers = postgresStore(poolOn(url))
    expect(await findingOf(readers, 'connection')).toMatchObject({ level: 'problem' })
    await pool.query(mode('reset'))
  })

  it('says that the pool is too small, and does not wait for connections that it has not', async () => {
    const small = await postgresStore(poolOn(url, { max: 1 })).diagnose()
    expect(levels(small)).toEqual(
      expect.arrayContaining(['notify: warning', 'pooler: warning', 'pool size: problem']),
    )
    expect(one(small, 'pool size').advice).toContain('4 or more')
    const almost = postgresStore(poolOn(url, { max: 3 }), { doorbell: false })
    expect(await findingOf(almost, 'pool size')).toMatchObject({ level: 'ok' })
    expect(await findingOf(almost, 'notify')).toMatchObject({
      level: 'ok',
      says: expect.stringMatching(/off/),
    })
  })

  it('shows nothing of payloads, and no control characters, whatever is in the rows', async () => {
    await pool.query(`insert into outbox_event (event_id, event_type, payload, headers, status, available_at)
      select 'a' || n, E'\\x1b[2J\\n' || repeat('x', 300), '"top secret"', '{"h": "top secret"}', n, case n when 3 then 'infinity'
        else now() - interval '2 hours' end::timestamptz from generate_series(0, 3) n where n <> 1`)
    const findings = await store.diagnose()
    expect(one(findings, 'dead letters').says).toMatch(/^1 event is dead: "\\u001b\[2J\\nx+…" \(1\)\.$/)
    expect(JSON.stringify(findings)).not.toContain('secret')
    for (const { says, advice } of findings) expect(`${says}${advice}`).not.toMatch(/\p{Cc}/u)
    expect((await store.overview()).types[0]).toMatchObject({ pending: 2, dead: 1 })
  })
})
