import fs from 'node:fs'
import { AftercommitError } from '../../core/errors.js'
import { isA } from '../../core/unknown.js'
import {
  backlogChecks,
  type Check,
  type CheckResult,
  type LeaseTimes,
  LIMITS,
  type Limits,
  ok,
  problem,
  refusal,
  runChecks,
  some,
  warning,
} from '../../diagnosis.js'
import type { Finding, OutboxStore } from '../../store.js'
import type { Connections } from './connections.js'
import { type Connection, canLock, type SqliteDatabase } from './driver.js'
import type { Names } from './names.js'
import { PATIENCE_MS } from './patience.js'
import { FRESH, indexesOf, migrationsFor, NOW, ORDERED, TIMED } from './schema.js'

const MEGABYTE = 1_048_576
/** Nothing else runs in the process while the file is checked. */
const SMALL_FILE = 64 * MEGABYTE
const LARGE_WAL = 64 * MEGABYTE
const LOCK_WITHIN_MS = 1_000

export interface Subject<Client extends SqliteDatabase> {
  readonly store: Pick<OutboxStore, 'overview' | 'instances' | 'paused' | 'unhandled' | 'pendingMigrations'>
  readonly connections: Connections<Client>
  readonly names: Names
}

export async function diagnose<Client extends SqliteDatabase>(
  { store, connections, names }: Subject<Client>,
  limits: Limits = LIMITS,
): Promise<readonly Finding[]> {
  const read = <T>(work: (db: Connection) => T) => connections.read(work)
  const ping = () => read((db) => db.all('select 1'))
  const refused = await refusedModes(connections)
  if (refused) return [{ check: 'journal', ...refused }]
  const file = await read(fileOf)
  const isThere = (await read((db) => missingIn(db, tablesOf(names)))).length === 0
  const checks: Check[] = [
    { check: 'connection', look: () => read((db) => connectionCheck(db, file)) },
    { check: 'schema', look: async () => schemaCheck(await store.pendingMigrations(), connections, names) },
    ...(isThere ? [{ check: 'indexes', look: () => read((db) => indexCheck(db, names)) }] : []),
    { check: 'journal', look: () => read(journalCheck) },
    { check: 'busy timeout', look: () => read(timeoutCheck) },
    { check: 'integrity', look: () => read((db) => integrityCheck(db, file)) },
    { check: 'write-ahead log', look: () => walCheck(file) },
    { check: 'long transactions', look: () => lockCheck(connections) },
    ...(isThere ? backlogChecks(store, () => read((db) => leaseTimes(db, names, limits)), limits) : []),
  ]
  return runChecks(checks, ping)
}

const MODES = ['JOURNAL_MODE', 'LOCKING_MODE', 'STORE_BUSY']

/** The finding when the settings of a connection keep the store from opening its own connections. */
async function refusedModes<Client extends SqliteDatabase>(
  connections: Connections<Client>,
): Promise<CheckResult | null> {
  try {
    await connections.prepare()
    return null
  } catch (error) {
    if (isA(error, AftercommitError) && MODES.includes(error.code)) return refusal(error)
    throw error
  }
}

function fileOf(db: Connection): string {
  return String(db.all('PRAGMA database_list').find(({ name }) => name === 'main')?.file)
}

function pragma(db: Connection, name: string): unknown {
  return Object.values(db.all(`PRAGMA ${name}`)[0] ?? {})[0]
}

function connectionCheck(db: Connection, file: string): CheckResult {
  const version = db.all('select sqlite_version() as version')[0]?.version
  const says = `SQLite ${version}, ${fs.statSync(file).size} bytes.`
  try {
    canLock(db)
    return ok(says)
  } catch {
    return problem(
      `${says} It cannot be written.`,
      'Give the user of this process the right to write the file and its folder, and open it without a read-only option.',
    )
  }
}

function tablesOf({ table }: Names): string[] {
  return ['', '_instance', '_pause', '_inbox', '_migration'].map((end) => `${table}${end}`)
}

/** Of tables or indexes. */
function missingIn(db: Connection, names: readonly string[]): string[] {
  const there = db.all('select lower(name) as name from sqlite_master').map((row) => String(row.name))
  return names.filter((name) => !there.includes(name.toLowerCase()))
}

async function schemaCheck<Client extends SqliteDatabase>(
  pending: readonly { readonly version: number; readonly name: string }[],
  connections: Connections<Client>,
  names: Names,
): Promise<CheckResult> {
  const all = migrationsFor(names)
  if (pending.length === all.length)
    return problem(`The tables of ${names.events} are not there.`, 'Run: aftercommit migrate')
  if (pending.length > 0) {
    const missing = pending.map(({ version, name }) => `${version} (${name})`)
    return problem(`The schema is old: without migration ${missing.join(', ')}.`, 'Run: aftercommit migrate')
  }
  const lost = await connections.read((db) => missingIn(db, tablesOf(names)))
  if (lost.length > 0) {
    return problem(
      `Somebody has dropped ${some(lost)}.`,
      'Run the migrations again, which create what is missing: aftercommit migrate --print | sqlite3 FILE',
    )
  }
  const [row] = await connections.read((db) =>
    db.all(`select max(version) as version from ${names.migrations}`),
  )
  const version = Number(row?.version)
  return ok(
    `Version ${version}${version > all.length ? `, newer than the ${all.length} of this program` : ''}.`,
  )
}

function indexCheck(db: Connection, names: Names): CheckResult {
  const indexes = Object.values(indexesOf(names)).map((name) => name.slice(1, -1))
  const missing = missingIn(db, indexes)
  if (missing.length === 0) return ok(`${indexes.length} indexes.`)
  return problem(
    `Missing: ${some(missing)}.`,
    'Run the migrations again, which create what is missing: aftercommit migrate --print | sqlite3 FILE',
  )
}

function journalCheck(db: Connection): CheckResult {
  const mode = String(pragma(db, 'journal_mode'))
  if (mode === 'wal') return ok('Write-ahead log: readers do not wait for the writer.')
  return problem(
    `The journal mode is ${mode}: readers and the writer wait for each other.`,
    'PRAGMA journal_mode = WAL; on a local disk, and nobody else may change it back.',
  )
}

/** A wait inside of SQLite would stop the whole process. */
function timeoutCheck(db: Connection): CheckResult {
  const timeoutMs = Number(pragma(db, 'busy_timeout'))
  const says = `A lock is waited for by timers, up to ${PATIENCE_MS / 1_000} s`
  if (timeoutMs === 0) return ok(`${says}, and the process goes on meanwhile.`)
  return warning(
    `${says}, but before that the process stands still for ${timeoutMs} ms each time.`,
    'Somebody has set `PRAGMA busy_timeout` on the connection that open() returned: leave that to the store.',
  )
}

function integrityCheck(db: Connection, file: string): CheckResult {
  const { size } = fs.statSync(file)
  if (size > SMALL_FILE) {
    return ok(
      `Not checked, since the file is large (${Math.round(size / MEGABYTE)} MB): PRAGMA quick_check; does it.`,
    )
  }
  const answers = db.all('PRAGMA quick_check(5)').map((row) => String(Object.values(row)[0]))
  if (answers.join() === 'ok') return ok('PRAGMA quick_check found nothing.')
  return problem(
    `PRAGMA quick_check found ${answers.length} faults or more: the file is damaged.`,
    'Stop what writes to it, and restore a backup, or save what can be read: sqlite3 FILE .recover | sqlite3 NEWFILE',
  )
}

function walCheck(file: string): CheckResult {
  const size = fs.statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0
  const says = `The write-ahead log has ${size} bytes.`
  if (size < LARGE_WAL) return ok(says)
  return warning(
    says,
    'Some reader never ends, so that the log cannot be begun anew: close it, then PRAGMA wal_checkpoint(TRUNCATE);',
  )
}

/** The only sign of somebody else's transaction is that the lock cannot be had. */
async function lockCheck<Client extends SqliteDatabase>(
  connections: Connections<Client>,
): Promise<CheckResult> {
  const giveUpAt = performance.now() + LOCK_WITHIN_MS
  while (!(await connections.read(canLock))) {
    if (performance.now() > giveUpAt) {
      return warning(
        `Another transaction has held the write lock for ${LOCK_WITHIN_MS / 1_000} s.`,
        'Keep transactions short, and wait for nothing else in one. `fuser FILE` tells which processes have the file open.',
      )
    }
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  return ok('The write lock is free.')
}

/** Of an ordering key only the first row counts: the others wait for it. */
function leaseTimes(db: Connection, names: Names, { lostMs }: Limits): LeaseTimes {
  const { events, pauses } = names
  const index = indexesOf(names)
  const part = (by: string, where: string) => `
  select locked_until from ${events} e indexed by ${by} where ${where} and status in (0, 2)
    and (locked_until > ${NOW} or (locked_until < ${NOW} - :lostMs and available_at <= ${NOW}
      and not exists (select 1 from ${pauses} p where p.event_type in (e.event_type, '*'))))`
  const isFirst = `not exists (select 1 from ${events} f where f.ordering_key = e.ordering_key and f.seq < e.seq
    and (f.status in (0, 2) or f.halts))`
  const [row] = db.all(
    `select coalesce(sum(locked_until < ${NOW}), 0) as lost, ${NOW} - min(locked_until) as lost_for,
  max(locked_until) - ${NOW} as longest
  from (${part(index.fresh, FRESH)} union all ${part(index.timed, TIMED)}
    union all ${part(index.ordered, `${ORDERED} and ${isFirst}`)})`,
    { lostMs },
  )
  return {
    lost: Number(row?.lost),
    lostForMs: Math.max(0, Number(row?.lost_for ?? 0)),
    longestMs: Math.max(0, Number(row?.longest ?? 0)),
  }
}
