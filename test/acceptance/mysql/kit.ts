import { createPool, type Pool, type PoolOptions, type RowDataPacket } from 'mysql2/promise'
import { afterEach, describe, inject } from 'vitest'
import {
  createOutbox,
  defineEvent,
  type Outbox,
  type OutboxOptions,
  silentLogger,
} from '../../../src/index.js'
import { type ClientOf, mysqlStore } from '../../../src/stores/mysql/index.js'
import { freshMysql } from '../../support/mariadb-server.js'
import { flavor } from '../../support/mysql-flavor.js'

export const OrderPlaced = defineEvent<{ orderId: string }>('order.placed')

const cleanups: (() => Promise<unknown>)[] = []

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

export function cleanUp(cleanup: () => Promise<unknown>): void {
  cleanups.push(cleanup)
}

/** Skipped where no server can be had; the services say so once. */
export function onMysql(name: string, body: () => void): void {
  describe.skipIf(inject('mysqlUrl') === null)(`${flavor}: ${name}`, body)
}

export async function freshUrl(): Promise<string> {
  const database = await freshMysql(inject('mysqlUrl') ?? '')
  cleanUp(() => database.drop())
  return database.url
}

export function poolOn(url: string, options: PoolOptions = {}): Pool {
  const pool = createPool({ uri: url, connectionLimit: 8, ...options })
  cleanUp(() => pool.end())
  return pool
}

type Settings = Omit<OutboxOptions<MysqlClient>, 'store'>

/** Stopped at the end of the test. */
export function outboxOn(pool: Pool, settings: Settings = {}): Outbox<MysqlClient> {
  const outbox = createOutbox({ store: mysqlStore(pool), logger: silentLogger, ...settings })
  cleanUp(() => outbox.stop())
  return outbox
}

type MysqlClient = ClientOf<Pool>

/** A migrated database, a pool on it and an outbox that is not started. */
export async function newWorld(settings: Settings = {}, options: PoolOptions = {}) {
  const url = await freshUrl()
  const pool = poolOn(url, options)
  const outbox = outboxOn(pool, settings)
  await outbox.migrate()
  return { url, pool, outbox }
}

export async function rowsOf(pool: Pool, sql = 'select event_id, status from outbox_event order by seq') {
  const [rows] = await pool.query<RowDataPacket[]>(sql)
  return rows
}
