import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { Pool } from 'mysql2/promise'
import { expect, it } from 'vitest'
import type { EventEnvelope } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { findMariadb } from '../../support/mariadb-server.js'
import { isMariadb } from '../../support/mysql-flavor.js'
import { cleanUp, freshUrl, newWorld, onMysql, outboxOn, poolOn, rowsOf } from './kit.js'

/** As a person would, with the command-line client. */
async function typed(url: string, sql: string): Promise<string> {
  const { hostname, port, username, password, pathname } = new URL(url)
  const args = [`-h${hostname}`, `-P${port}`, `-u${username}`, '--protocol=tcp', pathname.slice(1), '-e', sql]
  if (password) args.push(`-p${decodeURIComponent(password)}`)
  const { stdout } = await promisify(execFile)(findMariadb()?.client ?? 'mysql', args)
  return stdout
}

async function handledOf(world: Awaited<ReturnType<typeof newWorld>>): Promise<EventEnvelope[]> {
  const handled: EventEnvelope[] = []
  world.outbox.on('*', 'note', (event) => void handled.push(event as EventEnvelope))
  await world.outbox.drain()
  return handled
}

onMysql('publishing by SQL', () => {
  it('works from the command-line client, with and without a transaction', async () => {
    const world = await newWorld()
    const nulls = ', null, null, null, null, null, null, null, null, null'
    await typed(world.url, `call outbox_publish('order.placed', '{"orderId": "o-1"}'${nulls})`)
    await typed(
      world.url,
      `start transaction; call outbox_publish('order.placed', '{"orderId": "gone"}'${nulls}); rollback;
       start transaction; call outbox_publish('order.placed', '{"orderId": "o-2"}', 'order', 'o-2', 'my-id', null,
         'tenant', 3, '{"x": "y"}', '{"correlationId": "c"}', 0); commit`,
    )
    const [first, second, ...others] = await handledOf(world)
    expect(others).toEqual([])
    expect(first).toMatchObject({ aggregateType: '__GLOBAL__', version: 1, payload: { orderId: 'o-1' } })
    expect(second).toMatchObject({
      eventId: 'my-id',
      aggregateType: 'order',
      aggregateId: 'o-2',
      tenantId: 'tenant',
      version: 3,
      headers: { x: 'y' },
      payload: { orderId: 'o-2' },
    })
    expect(second?.metadata.correlationId).toBe('c')
  })

  it('works from a trigger, and by a plain INSERT', async () => {
    const world = await newWorld()
    await world.pool.query('create table orders (id varchar(20) primary key)')
    await world.pool.query(`create trigger placed after insert on orders for each row
      call outbox_publish('order.placed', json_object('orderId', new.id), 'order', new.id, null,
        concat('order-', new.id), null, null, null, null, null)`)
    await world.pool.query(`insert into orders values ('o-1'), ('o-2')`)
    await world.pool.query(
      `insert into outbox_event (event_id, event_type, payload) values (uuid(), 'order.placed', '{"orderId": "o-3"}')`,
    )
    const handled = await handledOf(world)
    expect(handled.map((event) => (event.payload as { orderId: string }).orderId).sort()).toEqual([
      'o-1',
      'o-2',
      'o-3',
    ])
    expect(handled.map((event) => event.orderingKey ?? '').sort()).toEqual(['', 'order-o-1', 'order-o-2'])
  })

  it('refuses what could not be handled, and says why', async () => {
    const { pool } = await newWorld()
    const call = (...args: (string | null)[]) => {
      const all = [...args, ...Array.from({ length: 11 - args.length }, () => null)]
      return pool.query(`call outbox_publish(${all.map(() => '?').join(', ')})`, all)
    }
    await expect(call('x', '{broken')).rejects.toThrow(/'Invalid payload at \$: the text is not valid JSON/)
    await expect(call('', '1')).rejects.toThrow(/'Invalid eventType: it is empty/)
    await expect(call('x', '1', null, null, null, '')).rejects.toThrow(
      /'Invalid orderingKey of event "x": it is empty/,
    )
    await call('x', null, null, null, 'twice')
    await expect(call('x', null, null, null, 'twice')).rejects.toMatchObject({ errno: 1062 })
    expect(await rowsOf(pool)).toEqual([{ event_id: 'twice', status: 0 }])
  })

  it('refuses the same events whatever the sql_mode of the caller is', async () => {
    const { pool } = await newWorld()
    const connection = await pool.getConnection()
    try {
      for (const mode of ['', 'ANSI_QUOTES', 'NO_BACKSLASH_ESCAPES', 'PIPES_AS_CONCAT']) {
        await connection.query('set session sql_mode = ?', [mode])
        const call = (headers: string, payload = '1') =>
          connection.execute(
            `call outbox_publish('x', ?, null, null, null, null, null, null, ?, null, null)`,
            [payload, headers],
          )
        await expect(call('{"a": 5}'), mode).rejects.toThrow(
          /header "a" of event "x": its value is not a string/,
        )
        await expect(call('{}', '"\\u0000"'), mode).rejects.toThrow(/holds U\+0000/)
        await call('{"a": "b\\"c\\\\"}', '{"a": "\\\\u0000 [[ 1e400"}')
      }
    } finally {
      connection.destroy()
    }
    expect(await rowsOf(pool)).toHaveLength(4)
  })

  it('replaces the procedure of an earlier version with migration 3', async () => {
    const { pool, outbox, url } = await newWorld()
    const [first, second] = outbox.store.migrations()
    await pool.query('drop procedure outbox_publish')
    await pool.query('delete from outbox_event_migration where version > 1')
    for (const one of [first, second]) await typed(url, one?.sql ?? '')
    const call = () =>
      pool.query(`call outbox_publish('x', '1', null, null, null, null, null, null, '{"a": 1}', null, null)`)
    await call()
    expect(await outbox.migrate()).toEqual([3])
    await expect(call()).rejects.toThrow(/its value is not a string/)
  })

  it('waits as long as it is told to', async () => {
    const world = await newWorld()
    await world.pool.query(
      `call outbox_publish('later', null, null, null, null, null, null, null, null, null, 3600000)`,
    )
    expect(await handledOf(world)).toEqual([])
    expect((await world.outbox.stats()).pending).toBe(1)
  })
})

onMysql('migrations', () => {
  const storesOn =
    (url: string) =>
    (pool: Pool = poolOn(url)) =>
      mysqlStore(pool)

  it('are applied once when ten instances start at once', async () => {
    const url = await freshUrl()
    const newStore = storesOn(url)
    const pool = poolOn(url, { connectionLimit: 12 })
    const applied = await Promise.all(Array.from({ length: 10 }, () => newStore(pool).migrate()))
    expect(applied.flat().sort()).toEqual([1, 2, 3])
    expect(await newStore(pool).pendingMigrations()).toEqual([])
    expect(await newStore(pool).migrate()).toEqual([])
  })

  it('can be run by hand, twice, and are known to have been', async () => {
    const url = await freshUrl()
    const store = storesOn(url)()
    const silent = { onRing: () => {}, onWarning: () => {} }
    await expect(store.open(silent)).rejects.toMatchObject({ code: 'STORE_NOT_MIGRATED' })
    for (let round = 0; round < 2; round++) {
      for (const { sql } of store.migrations()) await typed(url, sql)
    }
    expect(await store.pendingMigrations()).toEqual([])
    await store.open(silent)
    await store.close()
  })

  it.skipIf(!isMariadb)('keep the grants of the procedure when they are run once more', async () => {
    const { pool, outbox, url } = await newWorld()
    const database = new URL(url).pathname.slice(1)
    const user = `g${database.slice(-12)}`
    await pool.query(`create user '${user}'@'%'`)
    cleanUp(() => pool.query(`drop user '${user}'@'%'`))
    await pool.query(`grant execute on procedure ${database}.outbox_publish to '${user}'@'%'`)
    const grants = () => rowsOf(pool, `show grants for '${user}'@'%'`)
    const before = await grants()
    for (const { sql } of outbox.store.migrations()) await typed(url, sql)
    expect(JSON.stringify(before)).toContain('outbox_publish')
    expect(await grants()).toEqual(before)
  })

  it('give each table a procedure of its own', async () => {
    const pool = poolOn(await freshUrl())
    const procedures = {
      outbox_event: 'outbox_publish',
      outbox: 'outbox_outbox_publish',
      shop_event: 'shop_event_publish',
      shop: 'shop_publish',
    }
    for (const table of Object.keys(procedures)) await mysqlStore(pool, { table }).migrate()
    for (const [table, procedure] of Object.entries(procedures)) {
      await pool.query(`call ${procedure}(?, '1', null, null, null, null, null, null, null, null, null)`, [
        table,
      ])
      expect(await rowsOf(pool, `select event_type from ${table}`)).toEqual([{ event_type: table }])
    }
  })

  it('say which right is missing, and leave the worker able to start', async () => {
    const url = new URL(await freshUrl())
    const admin = poolOn(url.href)
    // With a name of its own: in those that begin with test_ MariaDB grants nearly everything to everybody.
    const database = `rights_${url.pathname.slice(-12)}`
    await admin.query(`create database ${database}`)
    cleanUp(() => admin.query(`drop database ${database}`))
    const user = `u${database.slice(-12)}`
    await admin.query(`create user '${user}'@'%' identified by 'secret'`)
    await admin.query(`grant select, insert, update, delete, create, index on ${database}.* to '${user}'@'%'`)
    const mine = new URL(url.href)
    mine.username = user
    mine.password = 'secret'
    mine.pathname = `/${database}`
    const store = storesOn(mine.href)()
    await expect(store.migrate()).rejects.toThrow(/CREATE ROUTINE/)
    await store.open({ onRing: () => {}, onWarning: () => {} })
    await store.close()
    await admin.query(`drop user '${user}'@'%'`)
  })

  it('take another table name, in another database', async () => {
    const url = new URL(await freshUrl())
    const database = url.pathname.slice(1)
    url.pathname = '/mysql'
    const pool = poolOn(url.href)
    const store = mysqlStore(pool, { database, table: 'shop_event' })
    expect(await store.migrate()).toEqual([1, 2, 3])
    await pool.query(
      `call ${database}.shop_event_publish('x', '1', null, null, null, null, null, null, null, null, null)`,
    )
    expect(await store.list({})).toHaveLength(1)
  })

  it.each<[session: string, options: object, statement: string]>([
    ['the charset latin1', { charset: 'LATIN1_SWEDISH_CI' }, 'do 0'],
    ['SET NAMES latin1', {}, 'set names latin1'],
    ['another collation', {}, `set names utf8mb4 collate utf8mb4_bin`],
  ])('creates the same procedure on a session with %s', async (_, options, statement) => {
    const url = await freshUrl()
    const migrating = poolOn(url, { ...options, connectionLimit: 1 })
    await migrating.query(statement)
    const charsets = 'select @@character_set_client, @@character_set_connection, @@collation_connection'
    const [before] = await migrating.query(charsets)
    expect(await mysqlStore(migrating).migrate()).toEqual([1, 2, 3])
    const [after] = await migrating.query(charsets)
    expect(after).toEqual(before)

    const pool = poolOn(url)
    const world = { url, pool, outbox: outboxOn(pool) }
    const created = `select character_set_client as charset, collation_connection as collation
      from information_schema.routines where routine_schema = database() and routine_name = 'outbox_publish'`
    expect(await rowsOf(world.pool, created)).toEqual([
      { charset: 'utf8mb4', collation: 'utf8mb4_unicode_ci' },
    ])
    const call = 'call outbox_publish(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)'
    const payload = '{"text": "\u00e4 \u{1f600}\u{10ffff} \u4e2d"}'
    const metadata = JSON.stringify({ userId: 'user-\u{1f600}' })
    const headers = JSON.stringify({ 'h\u{1f600}': 'v\u{1f600}' })
    const names = [
      't\u{1f600}',
      payload,
      'agg\u{1f600}',
      'id\u00e4',
      'e-\u{1f600}',
      'k\u{1f600}',
      'tenant\u{1f600}',
    ]
    await world.pool.query(call, [...names, 1, headers, metadata, 0])
    await world.pool.query(call, ['plain', '1', null, null, null, null, null, null, null, null, null])
    const refused = world.pool.query(call, [
      't\u{1f600}',
      '{',
      null,
      null,
      null,
      null,
      null,
      null,
      null,
      null,
      null,
    ])
    await expect(refused).rejects.toThrow(/JSON/)
    const handled = await handledOf(world)
    const [plain, event] = ['plain', 't\u{1f600}'].map((type) =>
      handled.find(({ eventType }) => eventType === type),
    )
    expect(event).toMatchObject({
      eventType: 't\u{1f600}',
      eventId: 'e-\u{1f600}',
      aggregateType: 'agg\u{1f600}',
      aggregateId: 'id\u00e4',
      orderingKey: 'k\u{1f600}',
      tenantId: 'tenant\u{1f600}',
      metadata: JSON.parse(metadata),
      payloadText: payload,
    })
    expect({ ...event?.headers }).toEqual(JSON.parse(headers))
    expect(plain?.eventId).toMatch(/^[0-9a-f-]{36}$/)
  })

  it('a bad option is refused by name', async () => {
    const pool = poolOn(await freshUrl())
    expect(() => mysqlStore(pool, { table: 'a b' })).toThrow(/table/)
    expect(() => mysqlStore(pool, { database: '`x`' })).toThrow(/database/)
    expect(() => mysqlStore(pool, { tabel: 'x' } as never)).toThrow(/tabel/)
    expect(() => mysqlStore({})).toThrow(/mysql2/)
    for (const options of [null, 'outbox', []]) {
      expect(() => mysqlStore(pool, options as never)).toThrow(
        /must be an object of settings.*database, table/,
      )
    }
  })
})
