import mysql from 'mysql2'
import type { createPool, PoolConnection } from 'mysql2/promise'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { fixedDelay } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { storeConformance } from '../../../src/testing/index.js'
import { freshMysql } from '../../support/mariadb-server.js'
import { flavor, isMariadb } from '../../support/mysql-flavor.js'
import { cleanUp, newWorld, onMysql, outboxOn, poolOn, rowsOf } from './kit.js'

const TABLES = ['outbox_event', 'outbox_event_instance', 'outbox_event_pause', 'outbox_event_inbox']
const MODES = ['ANSI_QUOTES', 'NO_BACKSLASH_ESCAPES', 'PIPES_AS_CONCAT', 'ONLY_FULL_GROUP_BY']
/** The mode ORACLE of MariaDB changes the syntax of procedures. */
const SQL_MODE = [...MODES, ...(isMariadb ? ['ORACLE'] : [])].join()
const SESSION = `set time_zone = '-09:30', sql_mode = '${SQL_MODE}', div_precision_increment = 0`

/** Whatever the application has set, the whole suite holds. */
describe.skipIf(inject('mysqlUrl') === null)(`${flavor}: a pool with odd settings`, () => {
  let database: Awaited<ReturnType<typeof freshMysql>>
  let pool: ReturnType<typeof createPool>
  beforeAll(async () => {
    database = await freshMysql(inject('mysqlUrl') ?? '')
    const core = mysql.createPool({
      uri: database.url,
      connectionLimit: 12,
      dateStrings: true,
      supportBigNumbers: true,
      bigNumberStrings: true,
      decimalNumbers: true,
      timezone: '+05:00',
      namedPlaceholders: true,
      rowsAsArray: true,
      nestTables: true,
      stringifyObjects: true,
      typeCast: () => 'spoilt by a typeCast',
    })
    core.on('connection', (connection) => connection.query(SESSION))
    pool = core.promise()
  })
  afterAll(async () => {
    await pool?.end()
    await database?.drop()
  })

  storeConformance({
    name: `${flavor} by mysql2 with odd settings`,
    runner: { describe, it, beforeEach, afterEach },
    print: () => {},
    createStore: async () => {
      const store = mysqlStore(pool)
      await store.migrate()
      for (const table of TABLES) await pool.query(`delete from ${table}`)
      return { store, dispose: async () => {} }
    },
  })
})

onMysql('a pool with nestTables', () => {
  it('publishes from a transaction of an ORM on it, and from one of its own', async () => {
    const { url, outbox } = await newWorld()
    const nested = poolOn(url, { nestTables: true })
    const own = outboxOn(nested)
    await own.transaction((tx) => tx.publish({ type: 'own', payload: 1 }))
    const transaction = outbox.transactionsOf<PoolConnection>({
      async transaction(body) {
        const connection = await nested.getConnection()
        await connection.beginTransaction()
        try {
          const result = await body(connection)
          await connection.commit()
          return result
        } catch (error) {
          await connection.rollback()
          throw error
        } finally {
          connection.release()
        }
      },
      async query(connection, sql, params) {
        const [rows] = await connection.query(sql, [...params])
        return Array.isArray(rows) ? (rows as Record<string, unknown>[]) : []
      },
    })
    await transaction(async () => {
      await outbox.publish({ type: 'hosted', payload: 1 })
      await outbox.publishAll([
        { type: 'hosted', payload: 2 },
        { type: 'hosted', payload: 3 },
      ])
    })
    const records = await own.store.list({})
    expect(records.map((record) => record.eventType)).toEqual(['own', 'hosted', 'hosted', 'hosted'])
  })
})

onMysql('settings of the session', () => {
  it.each([
    'completion_type = "CHAIN"',
    'completion_type = "RELEASE"',
    'autocommit = 0, completion_type = "CHAIN"',
    'sql_safe_updates = 1',
    'max_join_size = 1000',
  ])('a started outbox publishes, handles and settles with %s', async (setting) => {
    const { url } = await newWorld()
    const core = mysql.createPool({ uri: url, connectionLimit: 8 })
    core.on('connection', (connection) => connection.query(`set ${setting}`))
    const pool = core.promise()
    cleanUp(() => pool.end())
    const outbox = outboxOn(pool, { retry: { policy: fixedDelay(1), maxAttempts: 2 } })
    const handled: unknown[] = []
    outbox.on('thing.happened', 'see', ({ payload }) => void handled.push(payload))
    outbox.on('thing.failed', 'fail', () => {
      throw new Error('never works')
    })
    const events = Array.from({ length: 60 }, (_, payload) => ({ type: 'thing.happened', payload }))
    await outbox.migrate()
    await outbox.transaction((tx) => tx.publishAll(events.slice(0, 30)))
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll(events.slice(30)))
    await outbox.enqueue({ type: 'thing.failed', payload: 1 })
    await outbox.drain()
    expect(handled.toSorted((a, b) => Number(a) - Number(b))).toEqual(events.map(({ payload }) => payload))
    expect(await outbox.stats()).toMatchObject({ pending: 0, dead: 1 })
    await outbox.pause('thing.happened')
    expect(await outbox.resume('thing.happened')).toBe(true)
  })

  it.each(['completion_type = "CHAIN"', 'completion_type = "RELEASE"'])(
    'a consumer that is not started handles events with %s',
    async (setting) => {
      const { url, outbox: publisher } = await newWorld()
      await publisher.enqueue({ type: 'thing.happened', payload: 1 })
      const core = mysql.createPool({ uri: url, connectionLimit: 8 })
      core.on('connection', (connection) => connection.query(`set ${setting}`))
      const pool = core.promise()
      cleanUp(() => pool.end())
      const outbox = outboxOn(pool)
      const handled: unknown[] = []
      outbox.on('thing.happened', 'see', ({ payload }) => void handled.push(payload))
      await outbox.drain()
      expect(handled).toEqual([1])
      expect(await outbox.stats()).toMatchObject({ pending: 0, dead: 0 })
    },
  )

  it('sql_select_limit is refused at the start and before anything is written', async () => {
    const { url, pool } = await newWorld()
    const core = mysql.createPool({ uri: url, connectionLimit: 8 })
    core.on('connection', (connection) => connection.query('set sql_select_limit = 1000'))
    cleanUp(() => core.promise().end())
    const outbox = outboxOn(core.promise())
    const isRefused = expect.objectContaining({
      code: 'INVALID_SETTING',
      message: expect.stringContaining('sql_select_limit: must not limit'),
    })
    await expect(outbox.start()).rejects.toEqual(isRefused)
    await expect(outbox.enqueue({ type: 'x', payload: 1 })).rejects.toEqual(isRefused)
    expect(await rowsOf(pool)).toEqual([])
  })

  it('max_join_size that forbids a query of the start is named in the error', async () => {
    const { url } = await newWorld()
    const core = mysql.createPool({ uri: url, connectionLimit: 8 })
    core.on('connection', (connection) => connection.query('set max_join_size = 1'))
    cleanUp(() => core.promise().end())
    await expect(outboxOn(core.promise()).start()).rejects.toMatchObject({
      code: 'STATEMENT_REFUSED',
      message: expect.stringContaining('Set sql_big_selects = 1'),
    })
  })

  it.runIf(isMariadb)('sql_safe_updates that forbids a write is named in the error', async () => {
    const { url, outbox: other } = await newWorld({ retry: { maxAttempts: 1 } })
    other.on('thing.failed', 'fail', () => {
      throw new Error('never works')
    })
    await other.enqueue({ type: 'thing.failed', payload: 1 })
    await other.drain()
    const core = mysql.createPool({ uri: url, connectionLimit: 8 })
    core.on('connection', (connection) => connection.query('set sql_safe_updates = 1'))
    cleanUp(() => core.promise().end())
    await expect(outboxOn(core.promise()).deadLetters.discard({ all: true })).rejects.toMatchObject({
      code: 'STATEMENT_REFUSED',
      message: expect.stringContaining('Set sql_safe_updates = 0'),
    })
  })
})

onMysql('the mode EMPTY_STRING_IS_NULL of MariaDB', () => {
  it.runIf(isMariadb)('is refused at the start and before anything is written', async () => {
    const { url, pool } = await newWorld()
    const core = mysql.createPool({ uri: url, connectionLimit: 8 })
    core.on('connection', (connection) => connection.query(`set sql_mode = 'EMPTY_STRING_IS_NULL'`))
    const outbox = outboxOn(core.promise())
    const isRefused = expect.objectContaining({
      code: 'INVALID_SETTING',
      message: expect.stringContaining('sql_mode: must not contain EMPTY_STRING_IS_NULL'),
    })
    await expect(outbox.start()).rejects.toEqual(isRefused)
    await expect(outbox.enqueue({ type: 'x', payload: 1 })).rejects.toEqual(isRefused)
    await core.promise().end()
    expect(await rowsOf(pool)).toEqual([])
  })
})

onMysql('texts', () => {
  it('ids that differ by case or a trailing space are different, and so are keys and types', async () => {
    const { outbox, pool } = await newWorld()
    const texts = ['a', 'A', 'a ', 'a  ', ' a', 'ä', 'á', 'ａ']
    const handled: string[] = []
    for (const type of texts) {
      outbox.on(type, `note ${texts.indexOf(type)}`, (event) => void handled.push(event.eventType))
    }
    await outbox.transaction((tx) =>
      tx.publishAll(
        texts.map((text) => ({ type: text, eventId: text, orderingKey: text, payload: { of: text } })),
      ),
    )
    await outbox.drain()
    expect(handled.sort()).toEqual([...texts].sort())
    const found = await rowsOf(
      pool,
      'select count(distinct event_id) as ids, count(distinct ordering_key) as k from outbox_event',
    )
    expect(found).toEqual([{ ids: texts.length, k: texts.length }])
  })
})
