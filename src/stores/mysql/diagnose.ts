import {
  backlogChecks,
  type Check,
  type CheckResult,
  clockCheck,
  type LeaseTimes,
  LIMITS,
  type Limits,
  ok,
  problem,
  runChecks,
  some,
  warning,
} from '../../diagnosis.js'
import type { Finding, OutboxStore } from '../../store.js'
import type { Answer, Param, Query } from './driver.js'
import { grantsOf } from './errors.js'
import { longTransactionCheck } from './long-transactions.js'
import type { Names } from './names.js'
import { pendingSources } from './overview.js'
import { missingRights } from './rights.js'
import { migrationsFor, STATED_INDEXES } from './schema.js'
import { isMariadb, versionOf } from './version.js'

/** A batch of payloads, or one of the largest, fits into that. */
const ENOUGH_BYTES = 4_194_304
const LONG_HISTORY = 1_000_000
const EXACT_COLLATIONS = ['utf8mb4_0900_bin', 'utf8mb4_nopad_bin', 'utf8mb4_bin']

export interface Subject {
  readonly store: Pick<OutboxStore, 'overview' | 'instances' | 'paused' | 'unhandled' | 'pendingMigrations'>
  /** In a transaction of its own each. */
  readonly query: (sql: string, params?: readonly Param[]) => Promise<Answer>
  readonly names: Names
  readonly database: string | undefined
  /** What the pool may open; Infinity when there is no limit. */
  readonly maxConnections: number
  readonly needed: number
}

export async function diagnose(subject: Subject, limits: Limits = LIMITS): Promise<readonly Finding[]> {
  const { query, names, store } = subject
  const ping = () => query('select 1')
  const first: Check[] = [
    { check: 'connection', look: () => connectionCheck(query) },
    { check: 'schema', look: () => schemaCheck(subject) },
    { check: 'rights', look: () => rightsCheck(subject) },
  ]
  const found = await runChecks(first, ping)
  const isThere = missingIn(await enginesOf(subject)).length === 0
  const rest: Check[] = [
    ...(isThere ? [{ check: 'indexes', look: () => indexCheck(subject) }] : []),
    { check: 'clock', look: () => clockCheck(() => databaseNow(query), limits) },
    ...(isThere ? [{ check: 'collation', look: () => collationCheck(subject) }] : []),
    { check: 'isolation', look: () => isolationCheck(query) },
    { check: 'binary log', look: () => binaryLogCheck(query) },
    { check: 'packet size', look: () => packetCheck(query, isThere ? names : null) },
    { check: 'purge', look: () => purgeCheck(query) },
    { check: 'long transactions', look: () => longTransactionCheck(query, limits) },
    ...(isThere ? backlogChecks(store, () => leaseTimes(query, names, limits), limits) : []),
    { check: 'pool size', look: () => poolSizeCheck(subject) },
  ]
  return [...found, ...(await runChecks(rest, ping))]
}

async function connectionCheck(query: Query): Promise<CheckResult> {
  const version = await versionOf(query)
  const isMaria = isMariadb(version)
  const [major = 0, minor = 0] = version.split('.').map(Number.parseFloat)
  const says = isMaria ? `MariaDB ${version.replace(/-mariadb.*/i, '')}.` : `MySQL ${version}.`
  if (isMaria ? major < 10 || (major === 10 && minor < 6) : major < 8)
    return problem(`${says} It is too old.`, 'Upgrade the server to MariaDB 10.6 or MySQL 8, or newer.')
  if ((await variables(query, 'read_only')).get('read_only') !== 'OFF') {
    return problem(
      `${says} It is read-only: a replica, or set so.`,
      'Connect to the primary, or: SET GLOBAL read_only = OFF;',
    )
  }
  return ok(says)
}

async function databaseNow(query: Query): Promise<number> {
  const { rows } = await query(`select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1000`)
  return Number(rows[0]?.[0])
}

const inDatabase = 'table_schema = coalesce(?, database())'

/** Engines of the tables that are there, by name; null for those that are not. */
async function enginesOf({
  query,
  names: { index },
  database,
}: Subject): Promise<Map<string, string | null>> {
  const ours = ['', '_instance', '_pause', '_inbox', '_migration'].map((end) => `${index}${end}`)
  const { rows } = await query(
    `select table_name, engine from information_schema.tables
      where ${inDatabase} and lower(table_name) in (${ours.map(() => '?').join(', ')})`,
    [database ?? null, ...ours.map((table) => table.toLowerCase())],
  )
  const engines = new Map(rows.map(([name, engine]) => [String(name).toLowerCase(), String(engine)]))
  return new Map(ours.map((table) => [table, engines.get(table.toLowerCase()) ?? null]))
}

function missingIn(engines: Map<string, string | null>): string[] {
  return [...engines].filter(([, engine]) => engine === null).map(([table]) => table)
}

async function schemaCheck(subject: Subject): Promise<CheckResult> {
  const { store, names, query } = subject
  const pending = await store.pendingMigrations()
  const all = migrationsFor(names)
  if (pending.length === all.length)
    return problem(`The tables of ${names.events} are not there.`, 'Run: aftercommit migrate')
  if (pending.length > 0) {
    const missing = pending.map(({ version, name }) => `${version} (${name})`)
    return problem(`The schema is old: without migration ${missing.join(', ')}.`, 'Run: aftercommit migrate')
  }
  const engines = await enginesOf(subject)
  // The server hides a table from a user who has no right on it.
  const denied = (await missingRights(query, names, 'everything')).map(({ bare }) => bare)
  const lost = missingIn(engines).filter((table) => !denied.includes(table))
  if (lost.length > 0) {
    return problem(
      `Somebody has dropped ${some(lost)}.`,
      'Run the migrations again, which create what is missing: aftercommit migrate --print | mysql DATABASE',
    )
  }
  const others = [...engines]
    .filter(([, engine]) => engine !== null && engine !== 'InnoDB')
    .map(([table]) => table)
  if (others.length > 0) {
    const prefix = names.events.slice(0, names.events.lastIndexOf('`', names.events.length - 2))
    return problem(
      `Tables without transactions: ${some(others)}.`,
      others.map((table) => `ALTER TABLE ${prefix}\`${table}\` ENGINE = InnoDB;`).join(' '),
    )
  }
  const version = Number((await query(`select max(version) from ${names.migrations}`)).rows[0]?.[0])
  return ok(
    `Version ${version}${version > all.length ? `, newer than the ${all.length} of this program` : ''}.`,
  )
}

async function rightsCheck({ query, names }: Subject): Promise<CheckResult> {
  const missing = await missingRights(query, names, 'everything')
  if (missing.length === 0) return ok('The user has the rights of a worker.')
  const essential = await missingRights(query, names, 'handling')
  const says = `The user lacks rights on ${missing.map(({ name }) => name).join(', ')}`
  return essential.length > 0
    ? problem(`${says}, so no worker can run.`, grantsOf(missing))
    : warning(
        `${says}. Handling events needs none of these rights. Publishing, pausing or pruning does.`,
        grantsOf(missing),
      )
}

async function indexCheck({ query, names }: Subject): Promise<CheckResult> {
  const { rows } = await query(`show index from ${names.events}`)
  const isMaria = isMariadb(await versionOf(query))
  // The last word on an index: whether MariaDB ignores it, or whether MySQL sees it.
  const hidden = isMaria ? 'YES' : 'NO'
  const nameOf = (end: string) => `${names.index}${end}`.toLowerCase()
  const has = (end: string, visible: boolean) =>
    rows.some((row) => String(row[2]).toLowerCase() === nameOf(end) && (!visible || row[13] !== hidden))
  const missing = STATED_INDEXES.filter(({ end }) => !has(end, false))
  const unseen = STATED_INDEXES.filter(({ end }) => has(end, false) && !has(end, true))
  if (missing.length + unseen.length === 0) return ok(`${STATED_INDEXES.length} indexes and the primary key.`)
  const says = [
    missing.length > 0 ? `Missing: ${some(missing.map(({ end }) => nameOf(end)))}.` : '',
    unseen.length > 0 ? `Not used by the server: ${some(unseen.map(({ end }) => nameOf(end)))}.` : '',
  ]
  const advice = [
    ...missing.map(
      ({ end, on, unique }) =>
        `CREATE ${unique ? 'UNIQUE ' : ''}INDEX ${names.index}${end} ON ${names.events} ${on};`,
    ),
    ...unseen.map(
      ({ end }) =>
        `ALTER TABLE ${names.events} ALTER INDEX ${names.index}${end} ${isMaria ? 'NOT IGNORED' : 'VISIBLE'};`,
    ),
  ]
  return problem(says.filter(Boolean).join(' '), advice.join(' '))
}

async function collationCheck({ query, names, database }: Subject): Promise<CheckResult> {
  const { rows } = await query(
    `select column_name, collation_name from information_schema.columns
      where ${inDatabase} and table_name = ? and column_name in ('event_id', 'event_type', 'ordering_key', 'locked_by')`,
    [database ?? null, names.index],
  )
  const other = rows.filter(([, collation]) => !EXACT_COLLATIONS.includes(String(collation)))
  if (other.length === 0) return ok('Ids, types and keys are compared byte by byte.')
  return problem(
    `Not compared byte by byte: ${some(other.map(([column, collation]) => `${column} (${collation})`))}. Different ids can count as the same.`,
    `Give the columns the collation of the migration (aftercommit migrate --print): ALTER TABLE ${names.events} MODIFY …`,
  )
}

/** By name; what this server does not have is left out. */
async function variables(query: Query, ...names: string[]): Promise<Map<string, string>> {
  const list = names.map((name) => `'${name}'`).join(', ')
  const { rows } = await query(`show global variables where variable_name in (${list})`)
  return new Map(rows.map(([name, value]) => [String(name).toLowerCase(), String(value)]))
}

async function isolationCheck(query: Query): Promise<CheckResult> {
  // Older servers have the one name, newer ones the other.
  const [value = 'unknown'] = (await variables(query, 'tx_isolation', 'transaction_isolation')).values()
  const isolation = value.replace('-', ' ')
  const says = `New sessions are ${isolation}; the connections of workers are READ COMMITTED.`
  if (isolation !== 'SERIALIZABLE') return ok(says)
  return warning(
    says,
    "In such transactions all that is read is locked, which holds up publishers and workers: SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED; or set the pool's own.",
  )
}

async function binaryLogCheck(query: Query): Promise<CheckResult> {
  const set = await variables(query, 'log_bin', 'binlog_format')
  if (set.get('log_bin') !== 'ON') return ok('The binary log is off.')
  const format = set.get('binlog_format') ?? 'ROW'
  if (format !== 'STATEMENT') return ok(`Its format is ${format}.`)
  return problem(
    'Its format is STATEMENT: the server refuses what workers write, since they are READ COMMITTED.',
    "SET GLOBAL binlog_format = 'ROW'; and the same in the server's configuration. Sessions that are open keep the old one.",
  )
}

async function packetCheck(query: Query, names: Names | null): Promise<CheckResult> {
  const packet = Number((await variables(query, 'max_allowed_packet')).get('max_allowed_packet'))
  const sizes = names
    ? pendingSources(names).map((from) => `select max(payload_size) as size from ${from}`)
    : ['select 0 as size']
  const { rows } = await query(`select coalesce(max(size), 0) from (${sizes.join(' union all ')}) found`)
  const largest = Number(rows[0]?.[0])
  const says = `The server takes packets of ${packet} bytes (max_allowed_packet); the largest pending payload has ${largest}.`
  const advice = 'SET GLOBAL max_allowed_packet = 16777216; and the same in the configuration of the server.'
  // In a statement a payload may take twice its size.
  if (largest * 2 > packet) return problem(says, advice)
  return packet < ENOUGH_BYTES ? warning(says, advice) : ok(says)
}

async function purgeCheck(query: Query): Promise<CheckResult> {
  const { rows } = await query(
    `select count from information_schema.innodb_metrics where name = 'trx_rseg_history_len'`,
  )
  const length = Number(rows[0]?.[0] ?? 0)
  const says = `${length} old row versions wait to be purged.`
  if (length < LONG_HISTORY) return ok(says)
  return warning(
    says,
    'Something old is still read: see "long transactions". If there is none, raise innodb_purge_threads.',
  )
}

/** Of an ordering key only the first row counts: the others wait for it. */
async function leaseTimes(query: Query, names: Names, { lostMs }: Limits): Promise<LeaseTimes> {
  const { events, pauses, index } = names
  const now = 'utc_timestamp(6)'
  const before = `${now} - interval ${Math.round(lostMs * 1_000)} microsecond`
  const parts = pendingSources(names).map(
    (from) => `
  select e.locked_until from ${from.replace(events, `${events} e`)} and e.status in (0, 2)
    and (e.locked_until > ${now} or (e.locked_until < ${before} and e.available_at <= ${now}
      and not exists (select 1 from ${pauses} p where p.event_type in (e.event_type, '*'))
      and (e.ordering_key is null or e.seq = (select f.seq from ${events} f force index (${index}_ordered)
        where f.pending_key = e.ordering_key order by f.pending_key, f.seq limit 1))))`,
  )
  const { rows } = await query(`
select coalesce(sum(locked_until < ${now}), 0),
  coalesce(timestampdiff(microsecond, min(locked_until), ${now}), 0) / 1000,
  coalesce(timestampdiff(microsecond, ${now}, max(locked_until)), 0) / 1000
  from (${parts.join(' union all ')}) found`)
  const [lost = 0, lostForMs = 0, longestMs = 0] = (rows[0] ?? []).map(Number)
  return { lost, lostForMs: Math.max(0, lostForMs), longestMs: Math.max(0, longestMs) }
}

async function poolSizeCheck({ query, maxConnections, needed }: Subject): Promise<CheckResult> {
  const size = Number.isFinite(maxConnections)
    ? `The pool has up to ${maxConnections} connections`
    : 'The pool has no limit'
  if (maxConnections < needed) {
    return problem(
      `${size}, and a worker needs ${needed}.`,
      `Set \`connectionLimit\` of the pool to ${needed} or more: the outbox keeps two for itself.`,
    )
  }
  const [, used] = (await query(`show global status like 'Threads_connected'`)).rows[0] ?? []
  const most = Number((await variables(query, 'max_connections')).get('max_connections'))
  const says = `${size}; the server has ${used} of ${most} in use.`
  if (Number(used) < most * 0.9) return ok(says)
  return warning(says, 'Let the pools of the application be smaller, or raise max_connections.')
}
