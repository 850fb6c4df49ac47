import { AftercommitError } from '../../core/errors.js'
import { isA } from '../../core/unknown.js'
import {
  backlogChecks,
  type Check,
  type CheckResult,
  clockCheck,
  type LeaseTimes,
  LIMITS,
  type Limits,
  ok,
  once,
  problem,
  refusal,
  runChecks,
  shown,
  some,
  warning,
} from '../../diagnosis.js'
import type { Finding, OutboxStore } from '../../store.js'
import { checkEncoding, checkMayMigrate, checkSchema, missingRights, rowSecurityOf } from './access.js'
import { behindPooler } from './connections.js'
import { answered, milliseconds, notify, type PostgresDriver, type Query, statement } from './driver.js'
import { explained, grantsOf, policiesFor, rowSecurity } from './errors.js'
import { longTransactionCheck } from './long-transactions.js'
import type { Names } from './names.js'
import { FRESH, indexesOf, migrationsFor, ORDERED, TIMED } from './schema.js'
import { inSchemaOf, vacuumCheck } from './vacuum.js'

const OLDEST = 14
const NEWEST = 18
const HEARD_WITHIN_MS = 5_000
const PROBE = 'aftercommit_probe'

export interface Subject {
  readonly store: Pick<OutboxStore, 'overview' | 'instances' | 'paused' | 'unhandled' | 'pendingMigrations'>
  readonly driver: PostgresDriver<unknown>
  readonly names: Names
  /** As the settings have it. */
  readonly doorbell: boolean
  readonly prepare: boolean | undefined
  /** Connections that the started outboxes of the pool keep for themselves, and what the pool needs with this one. */
  readonly taken: number
  readonly needed: number
}

const server = statement(`
select current_setting('server_version_num')::int / 10000, current_setting('server_version'),
  (pg_is_in_recovery() or current_setting('default_transaction_read_only')::boolean)::int`)
const now = statement(`select ${milliseconds('clock_timestamp()')}`)
const tables = statement(
  `select name from unnest(string_to_array($1::text, ' ')) name where to_regclass(name) is null`,
)
const applied = (names: Names) => statement(`select coalesce(max(version), 0) from ${names.migrations}`)
const present = statement(`
select lower(c.relname), (i.indisvalid and i.indisready)::int, i.indisprimary::int, quote_ident(c.relname)
  from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = to_regclass($1::text)`)
const usage = statement(
  `select (select sum(numbackends) from pg_stat_database), current_setting('max_connections')::int`,
)

export async function diagnose(subject: Subject, limits: Limits = LIMITS): Promise<readonly Finding[]> {
  const { driver, names, store } = subject
  const query: Query = (sql, params) =>
    answered(driver.query(sql, params)).catch((error) => {
      throw explained(error, names)
    })
  const ping = () => query(now, [])
  const first: Check[] = [
    { check: 'connection', look: () => connectionCheck(query) },
    { check: 'encoding', look: () => encodingCheck(query) },
    { check: 'schema', look: () => schemaCheck(query, subject) },
  ]
  const found = await runChecks(first, ping)
  const isThere = await hasTables(query, names).catch(async () => {
    // Not even the schema may be looked into.
    await ping()
    return false
  })
  const pooler = once(() => poolerOf(subject))
  const rest: Check[] = [
    { check: 'rights', look: () => (isThere ? rightsCheck(query, names) : migrationCheck(query, names)) },
    ...(isThere ? [{ check: 'row security', look: () => rowSecurityCheck(query, names) }] : []),
    ...(isThere ? [{ check: 'indexes', look: () => indexCheck(query, names) }] : []),
    { check: 'clock', look: () => clockCheck(async () => Number((await query(now, []))[0]?.[0]), limits) },
    ...(isThere ? [{ check: 'vacuum', look: () => vacuumCheck(query, names) }] : []),
    { check: 'long transactions', look: () => longTransactionCheck(query, limits) },
    ...(isThere ? backlogChecks(store, () => leaseTimes(query, names, limits), limits) : []),
    { check: 'notify', look: async () => notifyCheck(subject, await pooler()) },
    { check: 'pooler', look: async () => poolerCheck(subject, await pooler()) },
    { check: 'pool size', look: () => poolSizeCheck(query, subject) },
  ]
  return [...found, ...(await runChecks(rest, ping))]
}

async function hasTables(query: Query, { events, instances, pauses }: Names): Promise<boolean> {
  return (await query(tables, [`${events} ${instances} ${pauses}`])).length === 0
}

async function connectionCheck(query: Query): Promise<CheckResult> {
  const [row = []] = await query(server, [])
  const says = `PostgreSQL ${row[1]}.`
  if (Number(row[2]) === 1) {
    return problem(
      `${says} Nothing can be written there: it is a standby, or read-only by default.`,
      'Connect to the primary (`target_session_attrs=read-write` where the driver knows it), or set default_transaction_read_only = off.',
    )
  }
  const major = Number(row[0])
  if (major < OLDEST)
    return problem(`${says} It is too old.`, `Upgrade the server to PostgreSQL ${OLDEST} or newer.`)
  if (major > NEWEST) {
    return warning(
      `${says} This version of aftercommit was tested up to ${NEWEST}.`,
      'Look for a newer version of aftercommit.',
    )
  }
  return ok(says)
}

async function encodingCheck(query: Query): Promise<CheckResult> {
  return (await refusedBy(checkEncoding(query))) ?? ok('UTF8, in the database and on the connections.')
}

/** Null when the check throws nothing. */
function refusedBy(check: Promise<void>): Promise<CheckResult | null> {
  return check.then(
    () => null,
    (error) => {
      if (isA(error, AftercommitError)) return refusal(error)
      throw error
    },
  )
}

async function migrationCheck(query: Query, names: Names): Promise<CheckResult> {
  return (await refusedBy(checkMayMigrate(query, names))) ?? ok('The user may create the tables.')
}

async function rightsCheck(query: Query, names: Names): Promise<CheckResult> {
  const missing = await missingRights(query, names, 'everything')
  if (missing.length === 0) return ok('The user has the rights of a worker.')
  const essential = await missingRights(query, names, 'handling')
  const says = `The user lacks rights on ${missing.map(({ name }) => name).join(', ')}`
  return essential.length > 0
    ? problem(`${says}, so no worker can run.`, grantsOf(missing))
    : warning(
        `${says}. Handling events needs none of them, publishing, pausing and pruning do.`,
        grantsOf(missing),
      )
}

async function rowSecurityCheck(query: Query, names: Names): Promise<CheckResult> {
  const active = await rowSecurityOf(query, names, 'everything')
  if (active.length === 0) return ok('No policy hides rows from this user.')
  const refused = active.filter(({ isAllowed }) => !isAllowed).map(({ table }) => table)
  if (refused.length > 0) return refusal(rowSecurity(refused))
  const tables = active.map(({ table }) => table)
  return warning(
    `Row level security applies to ${some(tables)}: events that its policies hide from a worker are never handled.`,
    `See that the policies allow a worker all rows. ${policiesFor(tables)}`,
  )
}

async function schemaCheck(query: Query, { store, names }: Subject): Promise<CheckResult> {
  const pending = await store.pendingMigrations()
  const all = migrationsFor(names)
  const noSchema = pending.length === all.length ? await refusedBy(checkSchema(query, names)) : null
  if (noSchema) return noSchema
  if (pending.length === all.length)
    return problem(`The tables of ${names.events} are not there.`, 'Run: aftercommit migrate')
  if (pending.length > 0) {
    const missing = pending.map(({ version, name }) => `${version} (${name})`)
    return problem(`The schema is old: without migration ${missing.join(', ')}.`, 'Run: aftercommit migrate')
  }
  const { events, instances, pauses, inbox, ranges, sequence } = names
  const lost = await query(tables, [[events, instances, pauses, inbox, ranges, sequence].join(' ')])
  if (lost.length > 0) {
    return problem(
      `Somebody has dropped ${some(lost.map(([name]) => String(name)))}.`,
      'Run the migrations again, which create what is missing: aftercommit migrate --print | psql "$DATABASE_URL"',
    )
  }
  const version = Number((await query(applied(names), []))[0]?.[0])
  return ok(
    `Version ${version}${version > all.length ? `, newer than the ${all.length} of this program` : ''}.`,
  )
}

async function indexCheck(query: Query, names: Names): Promise<CheckResult> {
  const rows = await query(present, [names.events])
  const broken = rows.filter(([, valid]) => Number(valid) === 0).map((row) => String(row[3]))
  const missing = indexesOf(names).filter(({ name }) => !rows.some((row) => row[0] === name.toLowerCase()))
  const hasKey = rows.some(([, , primary]) => Number(primary) === 1)
  if (missing.length + broken.length === 0 && hasKey) return ok(`${rows.length} indexes, all valid.`)
  const says = [
    missing.length > 0 ? `Missing: ${some(missing.map(({ name }) => name))}.` : '',
    hasKey ? '' : 'The primary key is missing.',
    broken.length > 0 ? `Not valid: ${some(broken.map(shown))}.` : '',
  ]
  const advice = [
    ...missing.map(({ sql }) => `CREATE INDEX CONCURRENTLY ${sql};`),
    ...(hasKey ? [] : [`ALTER TABLE ${names.events} ADD PRIMARY KEY (event_id);`]),
    ...broken.map((name) => `REINDEX INDEX CONCURRENTLY ${inSchemaOf(names.events, name)};`),
  ]
  return problem(says.filter(Boolean).join(' '), advice.join(' '))
}

/** Of an ordering key only the first row counts: the others wait for it. */
async function leaseTimes(query: Query, { events, pauses }: Names, { lostMs }: Limits): Promise<LeaseTimes> {
  const part = (where: string) => `
  select locked_until from ${events} e where ${where} and status in (0, 2) and locked_until is not null
    and (locked_until > statement_timestamp() or (locked_until < statement_timestamp() - $1::float8 * interval '1 ms'
      and available_at <= statement_timestamp()
      and not exists (select from ${pauses} p where p.event_type in (e.event_type, '*'))))`
  const isFirst = `not exists (select from ${events} f
    where f.ordering_key = e.ordering_key and f.seq < e.seq and (f.status in (0, 2) or f.halts))`
  const sql = statement(`
select count(*) filter (where locked_until < statement_timestamp()),
  coalesce(${milliseconds('statement_timestamp() - min(locked_until)')}, 0),
  coalesce(${milliseconds('max(locked_until) - statement_timestamp()')}, 0)
  from (${part(FRESH)} union all ${part(TIMED)} union all ${part(`${ORDERED} and ${isFirst}`)}) found`)
  const [row = []] = await query(sql, [lostMs])
  return {
    lost: Number(row[0]),
    lostForMs: Math.max(0, Number(row[1])),
    longestMs: Math.max(0, Number(row[2])),
  }
}

type Pooler = 'none' | 'transaction' | 'statement' | 'unknown'

/** Two connections are needed to tell. */
async function poolerOf({ driver, taken }: Subject): Promise<Pooler> {
  if (!driver.pooled) return 'none'
  if (driver.maxConnections - taken < 2) return 'unknown'
  if (!(await behindPooler(driver))) return 'none'
  try {
    // An empty one would not even be begun.
    await driver.transaction(({ client }) => driver.queryOn(client, statement('select 1'), []))
    return 'transaction'
  } catch {
    return 'statement'
  }
}

function poolerCheck({ doorbell, prepare }: Subject, pooler: Pooler): CheckResult {
  if (pooler === 'none') return ok('Sessions keep their server connection.')
  if (pooler === 'unknown') {
    return warning(
      'Could not look: it takes two connections, and the pool has no two to spare.',
      'Let the pool have more connections (`max`).',
    )
  }
  if (pooler === 'statement') {
    return problem(
      'Connections go through a pooler in statement mode: there are no transactions.',
      'Set pool_mode = transaction (or session) for this database in the pooler, or connect to PostgreSQL itself.',
    )
  }
  const says = 'Connections go through a pooler in transaction mode: no prepared statements and no doorbell.'
  if (!doorbell && prepare === false) return ok(`${says} The settings allow for that.`)
  return warning(
    says,
    'Give workers a pool that connects to PostgreSQL itself, or to the pooler in session mode; or, if polling is fine, postgresStore(pool, { doorbell: false, prepare: false }).',
  )
}

async function notifyCheck({ driver, doorbell, taken }: Subject, pooler: Pooler): Promise<CheckResult> {
  if (!doorbell) return ok('The doorbell is off by a setting: new events are found by polling.')
  if (pooler === 'transaction' || pooler === 'statement') {
    return warning(
      'Not tried: behind a pooler that changes connections LISTEN is lost, and new events are found by polling.',
      'See "pooler"; `poller.pollIntervalMs` says how long an event of another process waits at most.',
    )
  }
  if (driver.pooled && driver.maxConnections - taken < 2) {
    return warning(
      'Could not look: it takes two connections, and the pool has no two to spare.',
      'Let the pool have more connections (`max`).',
    )
  }
  const ms = await heardAfterMs(driver)
  if (ms !== null) return ok(`A notification arrived after ${Math.round(ms)} ms.`)
  return warning(
    `A notification did not arrive within ${HEARD_WITHIN_MS} ms: new events are found by polling only.`,
    'Look for a pooler or proxy between here and PostgreSQL, and connect without it.',
  )
}

/** Listens on one connection and notifies on another. On a channel of its own, so that nobody is woken. */
async function heardAfterMs(driver: PostgresDriver<unknown>): Promise<number | null> {
  const nonce = Math.random().toString(36).slice(2)
  let heard: (heard: true) => void = () => {}
  const hearing = new Promise<true>((resolve) => {
    heard = resolve
  })
  const listening = await driver.listen(
    PROBE,
    (payload) => payload === nonce && heard(true),
    () => {},
  )
  try {
    const began = performance.now()
    await answered(driver.query(notify, [PROBE, nonce]))
    return await answered(hearing, HEARD_WITHIN_MS).then(
      () => performance.now() - began,
      () => null,
    )
  } finally {
    await listening.close(false)
  }
}

async function poolSizeCheck(query: Query, { driver, needed }: Subject): Promise<CheckResult> {
  if (!driver.pooled) return ok('One session for everybody.')
  const max = driver.maxConnections
  const size = Number.isFinite(max)
    ? `The pool has up to ${max} connections`
    : 'The pool does not say its size'
  if (max < needed) {
    return problem(
      `${size}, and a worker needs ${needed}.`,
      `Set \`max\` of the pool to ${needed} or more: the outbox keeps up to three for itself.`,
    )
  }
  const [row = []] = await query(usage, [])
  const [used = 0, most = 0] = row.map(Number)
  const says = `${size}; the server has ${used} of ${most} in use.`
  if (used < most * 0.9) return ok(says)
  return warning(
    says,
    'Let the pools of the application be smaller, put a pooler in front of those that only publish, or raise max_connections.',
  )
}
