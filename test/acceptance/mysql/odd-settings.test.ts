import mysql from 'mysql2'
import type { createPool } from 'mysql2/promise'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { storeConformance } from '../../../src/testing/index.js'
import { freshMysql } from '../../support/mariadb-server.js'
import { flavor } from '../../support/mysql-flavor.js'
import { newWorld, onMysql, rowsOf } from './kit.js'

const TABLES = ['outbox_event', 'outbox_event_instance', 'outbox_event_pause', 'outbox_event_inbox']
const SESSION = `set time_zone = '-09:30', sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,ONLY_FULL_GROUP_BY', div_precision_increment = 0`

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
