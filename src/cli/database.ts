import fs from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import type { OutboxStore } from '../store.js'
import { mysqlStore } from '../stores/mysql/index.js'
import { postgresStore } from '../stores/postgres/index.js'
import { type SqliteDatabase, sqliteStore } from '../stores/sqlite/index.js'
import { loadDriver, member } from './drivers.js'
import { explainUrl, UsageError } from './errors.js'
import { hideUrlParts, useUrl } from './url-parts.js'

export type Dialect = 'postgres' | 'mysql' | 'sqlite'

export interface Database {
  readonly store: OutboxStore<unknown>
  /** What the database's clock shows: rows are to be compared with nothing else. */
  now(): Promise<Date>
  close(): Promise<void>
}

type Make<T> = new (...args: readonly unknown[]) => T

const USAGE = 'Give --database URL, or set OUTBOX_DB_URL or DATABASE_URL.'

/** Of every command that looks into a database. */
export const DATABASE_OPTIONS = {
  database: {
    type: 'string',
    value: 'URL',
    help: 'postgres://, mysql:// or sqlite:FILE; else OUTBOX_DB_URL, else DATABASE_URL',
  },
  schema: {
    type: 'string',
    value: 'NAME',
    help: 'where the tables are in PostgreSQL; default by its search_path',
  },
  table: { type: 'string', value: 'NAME', help: "the events table; default 'outbox_event'" },
} as const

export interface Chosen {
  readonly database: string | undefined
  readonly schema?: string | undefined
  readonly table: string | undefined
}

export interface Opening {
  /** An SQLite file that is not there is made. Default: it is an error, since a name may be misspelt. */
  readonly mayCreate?: boolean
  /** Whoever waits at a shell wants to know; default as long as the driver likes. */
  readonly connectMs?: number
}

/** Opens the database of a URL with the driver that the project has. Nothing is connected yet. */
export async function openDatabase(chosen: Chosen, opening: Opening = {}): Promise<Database> {
  const url = urlOf(chosen)
  if (!url) throw new UsageError(`No database. ${USAGE}`)
  useUrl('database', url)
  const dialect = dialectOf(url)
  if (chosen.schema !== undefined && dialect !== 'postgres') throw noSchema()
  return OPEN[dialect](url, namesOf(chosen), opening).catch((error) => {
    throw explainUrl('The database URL', error)
  })
}

export function urlOf({ database }: Chosen): string | undefined {
  return database || process.env.OUTBOX_DB_URL || process.env.DATABASE_URL || undefined
}

export function dialectOf(url: string): Dialect {
  if (/^postgres(ql)?:\/\//.test(url)) return 'postgres'
  if (/^(mysql|mariadb):\/\//.test(url)) return 'mysql'
  if (/^(sqlite|file):/.test(url)) return 'sqlite'
  // Without the URL: it may hold a password.
  throw new UsageError(
    `The database URL begins with none of postgres://, mysql://, mariadb://, sqlite:, file:. ${USAGE}`,
  )
}

export function noSchema(): UsageError {
  return new UsageError('--schema is for PostgreSQL alone.')
}

interface Names {
  readonly schema?: string
  readonly table?: string
}

function namesOf({ schema, table }: Chosen): Names {
  return { ...(schema === undefined ? {} : { schema }), ...(table === undefined ? {} : { table }) }
}

type Open = (url: string, names: Names, opening: Opening) => Promise<Database>

const OPEN: Readonly<Record<Dialect, Open>> = {
  postgres: openPostgres,
  mysql: openMysql,
  sqlite: openSqlite,
}

const CLOCK = 'select round(extract(epoch from clock_timestamp()) * 1000) as now'

interface PgPool {
  query(sql: string): Promise<{ readonly rows: readonly Record<string, unknown>[] }>
  end(): Promise<void>
  on(event: 'error', listener: () => void): unknown
}

interface PostgresJs {
  unsafe(sql: string): PromiseLike<readonly Record<string, unknown>[]>
  end(options: { timeout: number }): Promise<void>
}

async function openPostgres(url: string, names: Names, { connectMs }: Opening): Promise<Database> {
  const { name, modules } = await loadDriver('PostgreSQL', [['pg'], ['postgres']])
  if (name === 'postgres') {
    const connect = member<(url: string, options: object) => PostgresJs>(modules[0], 'default')
    const limit = connectMs === undefined ? {} : { connect_timeout: connectMs / 1_000 }
    const sql = connect(url, { max: 10, onnotice: () => {}, ...limit })
    return {
      store: postgresStore(sql, names),
      now: async () => dateOf((await sql.unsafe(CLOCK))[0]?.now),
      close: () => sql.end({ timeout: 5 }),
    }
  }
  const limit = connectMs === undefined ? {} : { connectionTimeoutMillis: connectMs }
  const pool = new (member<Make<PgPool>>(modules[0], 'Pool'))({ connectionString: url, max: 10, ...limit })
  // A connection that breaks while it is idle is replaced by the pool.
  pool.on('error', () => {})
  return {
    store: postgresStore(pool, names),
    now: async () => dateOf((await pool.query(CLOCK)).rows[0]?.now),
    close: () => pool.end(),
  }
}

interface MysqlPool {
  query(sql: string): Promise<readonly [readonly Record<string, unknown>[], unknown]>
  end(): Promise<void>
}

async function openMysql(url: string, names: Names, { connectMs }: Opening): Promise<Database> {
  const { modules } = await loadDriver('MySQL', [['mysql2/promise']])
  const createPool = member<(options: object) => MysqlPool>(modules[0], 'createPool')
  const uri = url.replace(/^mariadb:/, 'mysql:')
  const limit = connectMs === undefined ? {} : { connectTimeout: connectMs }
  const pool = withHiddenParts(() => createPool({ uri, connectionLimit: 10, ...limit }))
  const clock = `select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) / 1000 as now`
  return {
    store: mysqlStore(pool, names),
    now: async () => dateOf((await pool.query(clock))[0][0]?.now),
    close: () => pool.end(),
  }
}

/** mysql2 3.x writes warnings about the URL to `console.error`, with the value of `timezone`. */
function withHiddenParts<T>(create: () => T): T {
  const { error } = console
  console.error = (...texts: unknown[]) => error(...texts.map((text) => hideUrlParts(String(text))))
  try {
    return create()
  } finally {
    console.error = error
  }
}

async function openSqlite(url: string, names: Names, { mayCreate = false }: Opening): Promise<Database> {
  const file = fileOf(url)
  if (!file) throw new UsageError('The database URL names no file: sqlite:data/app.db')
  if (!mayCreate && !fs.existsSync(file))
    throw new UsageError(`There is no file ${path.resolve(file)}. aftercommit migrate makes a new database.`)
  const { name, modules } = await loadDriver('SQLite', [['better-sqlite3'], ['libsql'], ['node:sqlite']])
  const Open = member<Make<SqliteDatabase>>(modules[0], name === 'node:sqlite' ? 'DatabaseSync' : 'default')
  return {
    store: sqliteStore(() => new Open(file), names),
    // The clock of this machine is the database's.
    now: async () => new Date(),
    close: async () => {},
  }
}

/** `file:data/app.db` is taken as it is written, though a URL has no relative paths. */
export function fileOf(url: string): string {
  if (url.startsWith('file://')) return fileURLToPath(new URL(url))
  return url.replace(/^(sqlite|file):(\/\/)?/, '').replace(/\?.*$/, '')
}

function dateOf(epochMs: unknown): Date {
  return new Date(Math.round(Number(epochMs)))
}
