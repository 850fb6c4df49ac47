import { randomBytes } from 'node:crypto'
import { createPool } from 'mysql2/promise'
import type pg from 'pg'
import postgres from 'postgres'
import { describe, expect, inject, it } from 'vitest'
import {
  AftercommitError,
  createOutbox,
  fixedDelay,
  type OutboxStore,
  silentLogger,
} from '../../src/index.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { mysqlStore } from '../../src/stores/mysql/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { sqliteStore } from '../../src/stores/sqlite/index.js'
import { recordLog } from '../support/log-recorder.js'
import { afterwards, emptyDatabase, poolOn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

const ENCODINGS = ['LATIN1', 'EUC_JP', 'SQL_ASCII', 'WIN1252']

async function databaseIn(encoding: string): Promise<string> {
  const name = `test_${randomBytes(8).toString('hex')}`
  const server = poolOn(inject('postgresUrl'), { max: 1 })
  await server.query(
    `create database ${name} template template0 encoding '${encoding}' lc_collate 'C' lc_ctype 'C'`,
  )
  afterwards('drop the database', () => server.query(`drop database if exists ${name} with (force)`))
  return inject('postgresUrl').replace(/[^/]*$/, name)
}

const DRIVERS: Readonly<Record<string, (url: string) => OutboxStore<never>>> = {
  pg: (url: string) => postgresStore(poolOn(url)) as unknown as OutboxStore<never>,
  'postgres.js': (url: string) => {
    const sql = postgres(url, { max: 6, onnotice: () => {} })
    afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
    return postgresStore(sql) as unknown as OutboxStore<never>
  },
}

describe.each(Object.entries(DRIVERS))('%s', (_driver, storeOn) => {
  it.each(ENCODINGS)('migrate() and start() refuse a database in %s', async (encoding) => {
    const outbox = createOutbox({ store: storeOn(await databaseIn(encoding)), logger: silentLogger })
    for (const call of [() => outbox.migrate(), () => outbox.start()]) {
      const error = await call().catch((thrown) => thrown)
      expect(error).toBeInstanceOf(AftercommitError)
      expect([error.code, error.message]).toEqual([
        'UNSUPPORTED_ENCODING',
        `The encoding of this database is ${encoding}, and the outbox needs UTF8. Create another database and move the data there: CREATE DATABASE <name> TEMPLATE template0 ENCODING 'UTF8';`,
      ])
    }
    const found = (await outbox.store.diagnose()).find(({ check }) => check === 'encoding')
    expect(found).toMatchObject({
      level: 'problem',
      says: `The encoding of this database is ${encoding}, and the outbox needs UTF8.`,
      advice: expect.stringMatching(/^Create another database/),
    })
  })
})

describe('a database in LATIN1 that was migrated by hand', () => {
  it('refuses an event that it cannot store, with the reason', async () => {
    const pool = poolOn(await databaseIn('LATIN1'))
    const outbox = createOutbox({ store: postgresStore(pool), logger: silentLogger })
    for (const { sql } of outbox.store.migrations()) await pool.query(sql)
    await outbox.enqueue({ type: 'thing.happened', payload: 'plain' })
    const error = await outbox.enqueue({ type: 'thing.happened', payload: '漢字' }).catch((thrown) => thrown)
    expect(error).toMatchObject({ code: 'UNSUPPORTED_ENCODING' })
    expect(error).toBeInstanceOf(AftercommitError)
    expect(String(error.message)).not.toContain('漢')
  })

  it('settles events whose error texts it cannot store, without delay for other events', async () => {
    const pool = poolOn(await databaseIn('LATIN1'))
    const log = recordLog()
    const outbox = createOutbox({
      store: postgresStore(pool),
      logger: log.logger,
      retry: { policy: fixedDelay(1), maxAttempts: 2 },
    })
    afterwards('stop the outbox', () => outbox.stop())
    for (const { sql } of outbox.store.migrations()) await pool.query(sql)
    const handled: string[] = []
    outbox.on('thing.happened', 'see', ({ eventId }) => void handled.push(eventId))
    outbox.on('thing.failed', 'fail', () => {
      throw new Error('nicht möglich: 漢字')
    })
    const ids: string[] = []
    for (let n = 0; n < 40; n++) {
      ids.push(await outbox.enqueue({ type: n % 10 ? 'thing.happened' : 'thing.failed', payload: n }))
    }
    await outbox.drain()
    const { pending, dead } = await outbox.stats()
    expect([pending, dead]).toEqual([0, 4])
    expect(handled.toSorted()).toEqual(ids.filter((_, n) => n % 10).toSorted())
    const records = await outbox.store.list({ status: 'DEAD' })
    expect(records.map(({ lastError }) => lastError)).toEqual(
      Array(4).fill('error text could not be stored: SQLSTATE 22P05'),
    )
    await until('each replacement is logged', () => log.matching(/error text was replaced/).length === 8)
  })
})

describe('connections whose client_encoding is not that of the driver', () => {
  it('are refused by migrate() and start()', async () => {
    const url = await emptyDatabase()
    await createOutbox({ store: postgresStore(poolOn(url)) }).migrate()
    const pool = poolOn(url)
    pool.on('connect', (client: pg.PoolClient) => void client.query(`set client_encoding to 'LATIN1'`))
    const outbox = createOutbox({ store: postgresStore(pool), logger: silentLogger })
    for (const call of [() => outbox.migrate(), () => outbox.start()]) {
      const error = await call().catch((thrown) => thrown)
      expect(error).toMatchObject({
        code: 'UNSUPPORTED_ENCODING',
        message: expect.stringMatching(/^The connections of the pool use client_encoding LATIN1/),
      })
    }
    const found = (await outbox.store.diagnose()).find(({ check }) => check === 'encoding')
    expect(found?.level).toBe('problem')
  })
})

describe('the SQL of the migrations', () => {
  it('is plain ASCII for every store, so that a database in any encoding can read it', () => {
    const mysql = createPool({ uri: 'mysql://nobody@127.0.0.1:1/none' })
    afterwards('end the pool', () => mysql.end())
    const stores = [
      postgresStore(poolOn('postgres://nobody@127.0.0.1:1/none')),
      postgresStore(poolOn('postgres://nobody@127.0.0.1:1/none'), { schema: 'shop', table: 'shop_outbox' }),
      mysqlStore(mysql),
      sqliteStore(() => {
        throw new Error('nobody opens it')
      }),
      memoryStore(),
    ]
    for (const store of stores) {
      for (const { version, sql } of store.migrations()) {
        const others = sql.match(/[^\n\t\x20-\x7e]+/g) ?? []
        expect([store.name, version, others]).toEqual([store.name, version, []])
      }
    }
  })
})
