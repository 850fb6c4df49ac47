import { createPool } from 'mysql2/promise'
import { inject } from 'vitest'
import type { OutboxStore } from '../../src/index.js'
import { mysqlStore } from '../../src/stores/mysql/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { sqliteStore } from '../../src/stores/sqlite/index.js'
import type { Database } from '../projects.js'
import { isOn } from './databases.js'
import { freshMysql } from './mariadb-server.js'
import { sqliteDrivers, sqliteFolder } from './sqlite-drivers.js'
import { afterwards, emptyDatabase, poolOn } from './trap-kit.js'

type Value = string | number | null

/** A migrated store on an empty database, and SQL past it. */
export interface StoreWorld {
  readonly store: OutboxStore<unknown>
  /** Parameters are `?` in their order. Rows come back as objects. */
  query(sql: string, params?: readonly Value[]): Promise<readonly Record<string, unknown>[]>
  /** Bytes that the server has sent on all connections so far; null for a database in the same process. */
  bytesReceived(): number | null
  /** A statement that writes rows by number: `insert(columns, values of the row ${n}, from 1 to count)`. */
  fill(columns: string, values: string, count: number): Promise<unknown>
}

async function onPostgres(): Promise<StoreWorld> {
  const pool = poolOn(await emptyDatabase())
  const streams = new Set<{ bytesRead: number }>()
  pool.on('connect', (client) => {
    streams.add((client as unknown as { connection: { stream: { bytesRead: number } } }).connection.stream)
  })
  const store = postgresStore(pool) as OutboxStore<unknown>
  await store.migrate()
  const query = async (sql: string, params: readonly Value[] = []) => {
    let n = 0
    return (
      await pool.query(
        sql.replaceAll('?', () => `$${++n}`),
        [...params],
      )
    ).rows
  }
  return {
    store,
    query,
    bytesReceived: () => sum(streams),
    fill: (columns, values, count) =>
      query(`insert into outbox_event (${columns}) select ${values} from generate_series(1, ${count}) n`),
  }
}

async function onMysql(): Promise<StoreWorld> {
  const database = await freshMysql(inject('mysqlUrl') ?? '')
  afterwards('drop the database', () => database.drop())
  const pool = createPool({ uri: database.url, connectionLimit: 8 })
  afterwards('end the pool', () => pool.end())
  const streams = new Set<{ bytesRead: number }>()
  pool.on('connection', (connection) => {
    streams.add((connection as unknown as { stream: { bytesRead: number } }).stream)
  })
  const store = mysqlStore(pool) as OutboxStore<unknown>
  await store.migrate()
  const query = async (sql: string, params: readonly Value[] = []) => {
    const [rows] = await pool.query(sql, [...params])
    return Array.isArray(rows) ? (rows as Record<string, unknown>[]) : []
  }
  return {
    store,
    query,
    bytesReceived: () => sum(streams),
    fill: async (columns, values, count) => {
      const digits = Array.from({ length: 10 }, (_, n) => `select ${n} d`).join(' union all ')
      const powers = String(count).length
      const tables = Array.from({ length: powers }, (_, at) => `(${digits}) d${at}`).join(' cross join ')
      const number = Array.from({ length: powers }, (_, at) => `d${at}.d * ${10 ** at}`).join(' + ')
      await query(
        `insert into outbox_event (${columns}) select ${values} from (select ${number} + 1 as n from ${tables}) numbers where n <= ${count} order by n`,
      )
    },
  }
}

async function onSqlite(): Promise<StoreWorld> {
  const folder = sqliteFolder()
  const [driver] = sqliteDrivers()
  const open = () => (driver as NonNullable<typeof driver>).open(folder.file('a.db'))
  const store = sqliteStore(open) as OutboxStore<unknown>
  afterwards('remove the folder', async () => folder.remove())
  afterwards('close', () => store.close())
  await store.migrate()
  const query = async (sql: string, params: readonly Value[] = []) => {
    const client = open()
    try {
      let n = 0
      const statement = client.prepare(sql.replaceAll('?', () => `:p${++n}`))
      const named = Object.fromEntries(params.map((value, at) => [`p${at + 1}`, value]))
      if (/^\s*(select|with|explain)/i.test(sql))
        return statement.all(named as never) as Record<string, unknown>[]
      statement.run(named as never)
      return []
    } finally {
      client.close()
    }
  }
  return {
    store,
    query,
    bytesReceived: () => null,
    fill: (columns, values, count) =>
      query(
        `insert into outbox_event (${columns})
         select ${values} from (with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < ${count}) select n from numbers)`,
      ),
  }
}

function sum(streams: ReadonlySet<{ bytesRead: number }>): number {
  let bytes = 0
  for (const stream of streams) bytes += stream.bytesRead
  return bytes
}

const WORLDS: readonly (readonly [title: string, open: () => Promise<StoreWorld>, database: Database])[] = [
  ['PostgreSQL', onPostgres, 'postgres'],
  ['MySQL', onMysql, 'mysql'],
  ['SQLite', onSqlite, 'sqlite'],
]

/** The worlds of the databases that the current project runs on, for `describe.each`. */
export const STORE_WORLDS = WORLDS.filter(([, , database]) => isOn(database))
