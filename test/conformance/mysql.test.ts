import mysql from 'mysql2'
import { createPool } from 'mysql2/promise'
import { afterAll, afterEach, beforeAll, beforeEach, describe, inject, it } from 'vitest'
import { mysqlStore } from '../../src/stores/mysql/index.js'
import { type InsertedRow, storeConformance } from '../../src/testing/index.js'
import { freshMysql } from '../support/mariadb-server.js'
import { flavor } from '../support/mysql-flavor.js'

const runner = { describe, it, beforeEach, afterEach }
const TABLES = ['outbox_event', 'outbox_event_instance', 'outbox_event_pause', 'outbox_event_inbox']
const BROKEN = 'select * from nowhere_at_all'

function inserting(query: (sql: string, values: unknown[]) => Promise<unknown>) {
  return async (row: InsertedRow) => {
    const values = Object.values(row).map((value) =>
      value instanceof Uint8Array ? Buffer.from(value) : value,
    )
    await query(
      `insert into outbox_event (${Object.keys(row).join(', ')}) values (${values.map(() => '?')})`,
      values,
    )
  }
}

const server = inject('mysqlUrl')

describe.skipIf(!server)(flavor, () => {
  let database: Awaited<ReturnType<typeof freshMysql>>
  beforeAll(async () => {
    database = await freshMysql(server ?? '')
  })
  afterAll(() => database?.drop())

  describe('promises', () => {
    let pool: ReturnType<typeof createPool>
    beforeAll(() => {
      pool = createPool({ uri: database.url, connectionLimit: 12 })
    })
    afterAll(() => pool?.end())
    storeConformance({
      name: `${flavor} by mysql2 with promises`,
      runner,
      createStore: async () => {
        const store = mysqlStore(pool)
        await store.migrate()
        for (const table of TABLES) await pool.query(`delete from ${table}`)
        const insert = inserting((sql, values) => pool.query(sql, values))
        return { store, dispose: async () => {}, begin, insert }
      },
      failingStatement: (client) => client.query(BROKEN),
    })

    async function begin() {
      const client = await pool.getConnection()
      await client.beginTransaction()
      const end = async (how: 'commit' | 'rollback') => {
        await client[how]()
        client.release()
      }
      return { client, commit: () => end('commit'), rollback: () => end('rollback') }
    }
  })

  describe('callbacks', () => {
    let pool: mysql.Pool
    beforeAll(() => {
      pool = mysql.createPool({ uri: database.url, connectionLimit: 12 })
    })
    afterAll(() => pool?.promise().end())
    storeConformance({
      name: `${flavor} by mysql2 with callbacks`,
      runner,
      createStore: async () => {
        const store = mysqlStore(pool)
        await store.migrate()
        for (const table of TABLES) await pool.promise().query(`delete from ${table}`)
        const insert = inserting((sql, values) => pool.promise().query(sql, values))
        return { store, dispose: async () => {}, begin, insert }
      },
      failingStatement: (client) => client.promise().query(BROKEN),
    })

    async function begin() {
      const client = await new Promise<mysql.PoolConnection>((resolve, reject) => {
        pool.getConnection((error, connection) => (error ? reject(error) : resolve(connection)))
      })
      await client.promise().beginTransaction()
      const end = async (how: 'commit' | 'rollback') => {
        await client.promise()[how]()
        client.release()
      }
      return { client, commit: () => end('commit'), rollback: () => end('rollback') }
    }
  })
})
