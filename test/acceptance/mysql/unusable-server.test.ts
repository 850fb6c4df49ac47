import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import type { PoolOptions } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { AftercommitError } from '../../../src/index.js'
import { type MysqlStoreOptions, mysqlStore } from '../../../src/stores/mysql/index.js'
import { isMariadb } from '../../support/mysql-flavor.js'
import { cleanUp, freshUrl, OrderPlaced, onMysql, outboxOn, poolOn } from './kit.js'

/** Time in which a call must have failed that can never succeed. The wait for the migration lock takes a minute. */
const AT_ONCE_MS = 15_000

/** Makes each call, and returns the code and the message of the error that refuses it. */
async function refusals(
  url: string,
  options: PoolOptions = {},
  store: MysqlStoreOptions = {},
): Promise<Record<string, string>> {
  const pool = poolOn(url, options)
  const outbox = outboxOn(pool, { store: mysqlStore(pool, store) } as never)
  outbox.on('order.placed', 'see', () => {})
  const calls = {
    migrate: () => outbox.migrate(),
    start: () => outbox.start(),
    enqueue: () => outbox.enqueue(OrderPlaced({ orderId: 'o-1' })),
    stats: () => outbox.stats(),
    drain: () => outbox.drain(),
    doctor: () => outbox.store.diagnose(),
  }
  const refused: Record<string, string> = {}
  for (const [name, call] of Object.entries(calls)) {
    const began = performance.now()
    const error: unknown = await call().then(
      () => new Error('nothing was refused'),
      (thrown) => thrown,
    )
    expect(error, `${name}: ${error}`).toBeInstanceOf(AftercommitError)
    const { code, message } = error as AftercommitError
    refused[name] = `${code}: ${message}`
    expect(performance.now() - began, name).toBeLessThan(AT_ONCE_MS)
  }
  return refused
}

type UrlParts = Partial<Pick<URL, 'username' | 'password' | 'hostname' | 'port' | 'pathname'>>

function changed(url: string, parts: UrlParts): string {
  return Object.assign(new URL(url), parts).href
}

onMysql('a server that cannot be used', () => {
  it('names an unknown database, and what to do', async () => {
    const url = await freshUrl()
    const unknown = /^NO_SCHEMA: The database does not exist\. CREATE DATABASE <database>; or name another/
    for (const message of Object.values(await refusals(changed(url, { pathname: '/nowhere' }))))
      expect(message).toMatch(unknown)
    const pool = poolOn(url)
    const outbox = outboxOn(pool, { store: mysqlStore(pool, { database: 'nowhere' }) } as never)
    const error = await outbox.migrate().catch((thrown) => thrown)
    expect(`${error.code}: ${error.message}`).toMatch(unknown)
  })

  it('names a login that the server refuses, without the user or the host', async () => {
    const url = await freshUrl()
    const admin = poolOn(url)
    await admin.query(`create user stranger_1@'%' identified by 'secret' account lock`)
    cleanUp(() => admin.query(`drop user stranger_1@'%'`))
    const logins = [
      changed(url, { password: 'wrong' }),
      changed(url, { username: 'stranger_2' }),
      changed(url, { username: 'stranger_1', password: 'secret' }),
    ]
    for (const login of logins) {
      for (const message of Object.values(await refusals(login))) {
        expect(message).toMatch(/^LOGIN_REFUSED: The server refused the login of the database user\. Check /)
        expect(message).not.toMatch(/stranger|127\.0\.0\.1|localhost/)
      }
    }
  })

  it('names a limit of connections', async () => {
    const url = await freshUrl()
    const admin = poolOn(url)
    await admin.query(`create user limited_1@'%' with max_user_connections 1`)
    cleanUp(() => admin.query(`drop user limited_1@'%'`))
    await admin.query(`grant all on ${new URL(url).pathname.slice(1)}.* to limited_1@'%'`)
    const theirs = changed(url, { username: 'limited_1', password: '' })
    const taken = await poolOn(theirs).getConnection()
    for (const message of Object.values(await refusals(theirs)))
      expect(message).toMatch(/^TOO_MANY_CONNECTIONS: .* Lower connectionLimit of the pools, or raise/)
    taken.release()
  })

  it('names connectTimeout when the server does not answer', async () => {
    const silent = createServer((socket) => void socket.resume().on('error', () => {})).listen(0, '127.0.0.1')
    await once(silent, 'listening')
    cleanUp(async () => silent.close())
    const { port } = silent.address() as AddressInfo
    const url = changed(await freshUrl(), { hostname: '127.0.0.1', port: String(port) })
    for (const message of Object.values(await refusals(url, { connectTimeout: 200 })))
      expect(message).toMatch(/^CONNECTION_TIMEOUT: .* within connectTimeout of the pool\. Check its host/)
  })

  it('names the time limit of statements, also when it ends the wait for the migration lock', async () => {
    const url = await freshUrl()
    const admin = poolOn(url)
    await outboxOn(admin).migrate()
    const limited = poolOn(url)
    const limit = isMariadb ? 'set max_statement_time = 0.2' : 'set max_execution_time = 200'
    limited.pool.on('connection', (connection) => void connection.query(limit))
    const holder = await admin.getConnection()
    const lock = `left(concat('aftercommit ', sha2(concat(coalesce(database(), ''), ?), 256)), 64)`
    await holder.query(`do get_lock(${lock}, 5)`, ['`outbox_event`'])
    const outbox = outboxOn(limited)
    const expected = { code: 'STATEMENT_TIMEOUT', message: expect.stringMatching(/ Raise that limit /) }
    await expect(outbox.migrate()).rejects.toMatchObject(expected)
    await holder.query('do release_all_locks()')
    await holder.query(
      'lock tables outbox_event write, outbox_event_instance write, outbox_event_pause write',
    )
    await expect(outbox.stats()).rejects.toMatchObject(expected)
    await holder.query('unlock tables')
    holder.release()
    expect(await outbox.migrate()).toEqual([])
    expect((await outbox.stats()).pending).toBe(0)
  })

  it('names a lock that is not to be had in time', async () => {
    const url = await freshUrl()
    const admin = poolOn(url)
    await outboxOn(admin).migrate()
    const impatient = poolOn(url)
    impatient.pool.on('connection', (connection) => {
      connection.query('set innodb_lock_wait_timeout = 1, lock_wait_timeout = 1')
    })
    const holder = await admin.getConnection()
    await holder.beginTransaction()
    await holder.query(
      `insert into outbox_event (event_id, event_type, payload) values ('e-1', 'other', '1')`,
    )
    const outbox = outboxOn(impatient)
    const expected = { code: 'LOCK_TIMEOUT', message: expect.stringContaining('aftercommit doctor') }
    const event = { type: 'order.placed', eventId: 'e-1' }
    await expect(outbox.enqueue(event)).rejects.toMatchObject(expected)
    await holder.rollback()
    await holder.query('lock tables outbox_event write')
    await expect(outbox.enqueue(event)).rejects.toMatchObject(expected)
    await holder.query('unlock tables')
    holder.release()
    await outbox.enqueue(event)
  })
})
