import { PGlite } from '@electric-sql/pglite'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createOutbox, fixedDelay, type Outbox } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { type LogRecorder, recordLog } from '../support/log-recorder.js'
import { afterwards, emptyDatabase, poolOn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

type Settings = Readonly<Record<string, string>>

/** Settings of a database or role that change how values are written, how text is read, or which rows are seen. */
const VALUES: readonly (readonly [title: string, settings: Settings])[] = [
  ['extra_float_digits = -15', { extra_float_digits: '-15' }],
  ['extra_float_digits = -5', { extra_float_digits: '-5' }],
  [
    'the date and interval styles of SQL',
    { datestyle: 'SQL, DMY', intervalstyle: 'sql_standard', timezone: 'Asia/Kathmandu' },
  ],
  [
    'the date style of Germany and the interval style of ISO 8601',
    { datestyle: 'German', intervalstyle: 'iso_8601', timezone: '<-03>+3:30' },
  ],
  [
    'the verbose date and interval styles of PostgreSQL',
    { datestyle: 'Postgres, MDY', intervalstyle: 'postgres_verbose', timezone: 'America/St_Johns' },
  ],
  [
    'backslashes that escape in plain strings',
    { standard_conforming_strings: 'off', backslash_quote: 'off', bytea_output: 'escape' },
  ],
  [
    'unusual semantics of null, arrays and row security',
    { transform_null_equals: 'on', array_nulls: 'off', row_security: 'off', xmloption: 'document' },
  ],
  [
    'an unusual locale and encoding',
    { lc_monetary: 'C', lc_numeric: 'C', lc_time: 'C', client_encoding: 'LATIN1' },
  ],
]

/** Settings that change only how statements are planned and carried out, which the driver cannot influence. */
const PLANS: readonly (readonly [title: string, settings: Settings])[] = [
  ['generic plans', { plan_cache_mode: 'force_generic_plan', quote_all_identifiers: 'on' }],
  [
    'custom plans that are compiled',
    { plan_cache_mode: 'force_custom_plan', jit: 'on', jit_above_cost: '0' },
  ],
  [
    'serializable, deferrable transactions',
    {
      default_transaction_isolation: 'serializable',
      default_transaction_deferrable: 'on',
    },
  ],
  [
    'no scan but the sequential scan',
    { enable_indexscan: 'off', enable_indexonlyscan: 'off', enable_bitmapscan: 'off', enable_tidscan: 'off' },
  ],
  [
    'no joins, sorts and hashes',
    {
      enable_hashjoin: 'off',
      enable_mergejoin: 'off',
      enable_nestloop: 'off',
      enable_hashagg: 'off',
      enable_sort: 'off',
      enable_material: 'off',
    },
  ],
  [
    'every additional check of PL/pgSQL',
    {
      'plpgsql.extra_errors': 'all',
      'plpgsql.extra_warnings': 'all',
      'plpgsql.variable_conflict': 'use_column',
    },
  ],
  [
    'little memory, few joins and short timeouts',
    {
      from_collapse_limit: '1',
      join_collapse_limit: '1',
      geqo_threshold: '2',
      work_mem: '64kB',
      statement_timeout: '5s',
      lock_timeout: '2s',
      client_min_messages: 'debug1',
    },
  ],
]

/** Every digit counts: a time that is rounded on its way differs. */
const OCCURRED_AT = new Date('2024-05-06T07:08:09.123Z')
const PAYLOAD = { text: `"double", 'single', \\ and \\' and ünïcödé 漢字`, number: 1.2345678901234567 }
const LAG_MS = 123_456

interface Subject {
  readonly outbox: Outbox<unknown>
  readonly log: LogRecorder
  /** Runs SQL of the application. */
  run(sql: string): Promise<unknown>
}

type Open = (settings: Settings) => Promise<Subject>

function outboxOn(store: object, log = recordLog()) {
  const outbox = createOutbox({
    store: store as ReturnType<typeof postgresStore>,
    logger: log.logger,
    poller: { pollIntervalMs: 50 },
    retry: { policy: fixedDelay(1), maxAttempts: 2 },
  })
  afterwards('stop the outbox', () => outbox.stop())
  return { outbox: outbox as unknown as Outbox<unknown>, log }
}

const assigned = (value: string) => (value.includes(',') ? value : `'${value}'`)

async function databaseWith(settings: Settings): Promise<string> {
  const url = await emptyDatabase()
  const pool = poolOn(url, { max: 1 })
  for (const [name, value] of Object.entries(settings)) {
    await pool.query(`alter database ${new URL(url).pathname.slice(1)} set ${name} to ${assigned(value)}`)
  }
  await pool.end()
  return url
}

const onPg: Open = async (settings) => {
  const pool = poolOn(await databaseWith(settings))
  return { ...outboxOn(postgresStore(pool)), run: (sql) => pool.query(sql) }
}

const onPostgresJs: Open = async (settings) => {
  const sql = postgres(await databaseWith(settings), { max: 8, onnotice: () => {} })
  afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
  return { ...outboxOn(postgresStore(sql)), run: async (text) => sql.unsafe(text) }
}

let pglite: PGlite
let tables = 0

/** PGlite has one session, which gets the settings itself. It cannot change its encoding. */
const onPGlite: Open = async ({ client_encoding: _, ...settings }) => {
  const database = pglite
  for (const [name, value] of Object.entries(settings))
    await database.exec(`set ${name} to ${assigned(value)}`)
  afterwards('reset the settings', () => database.exec('reset all'))
  const table = `outbox_${++tables}`
  return {
    ...outboxOn(postgresStore(database, { table })),
    run: (sql) => database.exec(sql.replaceAll('outbox_event', table)),
  }
}

// It takes seconds to start, so that all tests share it.
beforeAll(async () => {
  pglite = await PGlite.create()
}, 120_000)
afterAll(() => pglite.close())

async function deliversUnchanged({ outbox, log, run }: Subject): Promise<void> {
  const began = Date.now()
  const isNow = (time: Date | null | undefined) =>
    time != null && time.getTime() > began - 2_000 && time.getTime() < Date.now() + 2_000
  await outbox.migrate()
  const seen = new Map<string, object>()
  outbox.on('thing.happened', 'see', ({ eventId, occurredAt, payload, headers }) => {
    seen.set(eventId, { occurredAt: occurredAt.toISOString(), payload, headers: { ...headers } })
  })
  outbox.on('thing.failed', 'fail', () => {
    throw new Error(`refused: ${PAYLOAD.text}`)
  })
  const headers = { note: "it's \\ here" }
  const plain = { type: 'thing.happened', payload: PAYLOAD, occurredAt: OCCURRED_AT }
  const bytes = new Uint8Array([0, 39, 92, 255])
  const later = new Date(Date.now() + 3_600_123)
  // Published before the start, so that they are claimed.
  const events = [
    plain,
    { ...plain, headers },
    { ...plain, headers, orderingKey: `key'\\1` },
    { ...plain, orderingKey: `key'\\1` },
    { ...plain, payload: bytes },
  ]
  const claimed: string[] = []
  for (const event of events) claimed.push(await outbox.enqueue(event))
  claimed.push(await outbox.enqueue(plain, { delayMs: 20 }))
  claimed.push(await outbox.enqueue(plain, { deliverAt: new Date(Date.now() + 20) }))
  const failing = await outbox.enqueue({ ...plain, type: 'thing.failed' })
  const waiting = await outbox.enqueue(plain, { deliverAt: later })
  await outbox.start()
  const hot = await outbox.enqueue({ ...plain, headers })
  await until('all events are settled', async () => {
    const { pending, dead } = await outbox.stats()
    return pending === 1 && dead === 1
  })

  const occurredAt = OCCURRED_AT.toISOString()
  const expected = [...events, {}, {}, { headers }].map((event) => ({
    occurredAt,
    payload: PAYLOAD,
    headers: {},
    ...('payload' in event ? { payload: event.payload } : {}),
    ...('headers' in event ? { headers: event.headers } : {}),
  }))
  expect([...claimed, hot].map((id) => seen.get(id))).toEqual(expected)

  const records = await outbox.store.list({ limit: 100 })
  expect(records.map(({ occurredAtMs }) => occurredAtMs)).toEqual(
    Array(claimed.length + 3).fill(OCCURRED_AT.getTime()),
  )
  expect(records.filter(({ createdAt }) => !isNow(createdAt))).toEqual([])
  const done = records.filter(({ status }) => status === 'DONE')
  expect(done).toHaveLength(claimed.length + 1)
  expect(done.filter(({ doneAt }) => !isNow(doneAt))).toEqual([])
  const record = (id: string) => records.find(({ eventId }) => eventId === id)
  expect(record(waiting)?.availableAt).toEqual(later)
  expect(record(failing)?.lastError).toContain(PAYLOAD.text)
  expect(record(failing)?.failures.map(({ at }) => isNow(at))).toEqual([true, true])

  const [instance] = await outbox.store.instances(60_000)
  expect([instance?.startedAt, instance?.lastSeenAt].map(isNow)).toEqual([true, true])
  const findings = await outbox.store.diagnose()
  expect(findings.filter(({ level, check }) => level !== 'ok' && check !== 'dead letters')).toEqual([])
  await outbox.stop()

  await run(`insert into outbox_event (event_id, event_type, created_at, available_at)
    select 'old', 'thing.old', at, at from (select now() - interval '${LAG_MS} milliseconds' as at) old`)
  const type = (await outbox.store.overview()).types.find(({ eventType }) => eventType === 'thing.old')
  for (const lag of [(await outbox.stats()).oldestLagMs, type?.oldestLagMs]) {
    expect(lag).toBeGreaterThanOrEqual(LAG_MS)
    expect(lag).toBeLessThan(LAG_MS + 10_000)
  }
  const warnings = log.lines('warn').filter(({ msg }) => msg !== 'handler failed')
  expect(warnings.map(({ msg, error_message }) => `${msg}: ${error_message}`)).toEqual([])
}

describe.each([
  ['pg', onPg],
  ['postgres.js', onPostgresJs],
  ['PGlite', onPGlite],
] as const)('%s', (_driver, open) => {
  it.each(VALUES)('delivers, settles and reports events unchanged with %s', async (_title, settings) => {
    await deliversUnchanged(await open(settings))
  })
})

describe('any driver', () => {
  it.each(PLANS)('delivers, settles and reports events unchanged with %s', async (_title, settings) => {
    await deliversUnchanged(await onPg(settings))
  })
})
