import { fileURLToPath } from 'node:url'
import type { EventStore } from '../store.js'
import { mysqlStore } from '../stores/mysql/index.js'
import { postgresStore } from '../stores/postgres/index.js'
import { type SqliteDatabase, sqliteStore } from '../stores/sqlite/index.js'
import { loadDriver, member } from './drivers.js'
import { UsageError } from './errors.js'

export interface Database {
  readonly store: EventStore<unknown>
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
  table: { type: 'string', value: 'NAME', help: "the events table; default 'outbox_event'" },
} as const

interface Chosen {
  readonly database: string | undefined
  readonly table: string | undefined
}

/** Opens the database of a URL with the driver that the project has. Nothing is connected yet. */
export async function openDatabase({ database: given, table }: Chosen): Promise<Database> {
  const url = given ?? process.env.OUTBOX_DB_URL ?? process.env.DATABASE_URL
  if (!url) throw new UsageError(`No database. ${USAGE}`)
  const options = table === undefined ? {} : { table }
  if (/^postgres(ql)?:\/\//.test(url)) return openPostgres(url, options)
  if (/^(mysql|mariadb):\/\//.test(url)) return openMysql(url, options)
  if (/^(sqlite|file):/.test(url)) return openSqlite(url, options)
  // Without the URL: it may hold a password.
  throw new UsageError(
    `The database URL begins with none of postgres://, mysql://, mariadb://, sqlite:, file:. ${USAGE}`,
  )
}

interface Pool {
  end(): Promise<void>
  on?(event: 'error', listener: () => void): unknown
}

async function openPostgres(url: string, options: { table?: string }): Promise<Database> {
  const { name, modules } = await loadDriver('PostgreSQL', [['pg'], ['postgres']])
  if (name === 'postgres') {
    const connect = member<(url: string, options: object) => Pool>(modules[0], 'default')
    const sql = connect(url, { max: 10, onnotice: () => {} })
    return { store: postgresStore(sql, options), close: () => sql.end() }
  }
  const pool = new (member<Make<Pool>>(modules[0], 'Pool'))({ connectionString: url, max: 10 })
  // A connection that breaks while it is idle is replaced by the pool.
  pool.on?.('error', () => {})
  return { store: postgresStore(pool, options), close: () => pool.end() }
}

async function openMysql(url: string, options: { table?: string }): Promise<Database> {
  const { modules } = await loadDriver('MySQL', [['mysql2/promise']])
  const createPool = member<(options: object) => Pool>(modules[0], 'createPool')
  const pool = createPool({ uri: url.replace(/^mariadb:/, 'mysql:'), connectionLimit: 10 })
  return { store: mysqlStore(pool, options), close: () => pool.end() }
}

async function openSqlite(url: string, options: { table?: string }): Promise<Database> {
  const file = url.startsWith('file:') ? fileURLToPath(new URL(url)) : url.replace(/^sqlite:(\/\/)?/, '')
  if (!file) throw new UsageError('The database URL names no file: sqlite:data/app.db')
  const { name, modules } = await loadDriver('SQLite', [['better-sqlite3'], ['libsql'], ['node:sqlite']])
  const Open = member<Make<SqliteDatabase>>(modules[0], name === 'node:sqlite' ? 'DatabaseSync' : 'default')
  return { store: sqliteStore(() => new Open(file), options), close: async () => {} }
}
