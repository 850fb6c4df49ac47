import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { createPool } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import { createOutbox, silentLogger } from '../../src/index.js'
import { mysqlStore } from '../../src/stores/mysql/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { sqliteStore } from '../../src/stores/sqlite/index.js'
import { describeOn, isOn } from '../support/databases.js'
import { freshMysql } from '../support/mariadb-server.js'
import { expectGolden, inTerminal } from '../support/pty.js'
import { sqliteDrivers, sqliteFolder } from '../support/sqlite-drivers.js'
import { migratedDatabase, poolOn } from '../support/trap-kit.js'
import { cli } from './process.js'

const HANDLERS = `
export default (outbox) => {
  outbox.on('order.placed', 'note', (event) => {
    console.log('saw ' + JSON.stringify(event.payload))
    if (event.payload.fail) throw new Error('the printer is on fire')
  })
}`

let folder: string
let handlers: string

beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-cli-'))
  handlers = path.join(folder, 'handlers.mjs')
  fs.writeFileSync(handlers, HANDLERS)
})
afterAll(() => fs.rmSync(folder, { recursive: true }))

const consume = (database: string, ...args: string[]) =>
  cli(['consume', '--handlers', handlers, '--database', database, ...args])

describe('aftercommit consume --once handles exactly one event that plain SQL has written', () => {
  it.runIf(isOn('postgres'))('in PostgreSQL', async () => {
    const url = await migratedDatabase()
    const pool = poolOn(url)
    await pool.query(`select outbox_publish('order.placed', '{"orderId": "o-1"}')`)
    await pool.query(`
      insert into outbox_event (event_id, event_type, payload)
      values (gen_random_uuid(), 'order.placed', '{"orderId": "o-2"}')`)
    const states = async () => {
      const { rows } = await pool.query('select status from outbox_event order by seq')
      return rows.map(({ status }) => status)
    }
    const first = await inTerminal(['consume', '--once', '--handlers', handlers], {
      env: { OUTBOX_DB_URL: url },
    })
    expect(first.code).toBe(0)
    expectGolden('consume-once', first.output)
    expect(await states()).toEqual([1, 0])
    const { code, stdout } = await consume(url, '--once', '--json')
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: 'saw {"orderId":"o-2"}\n{"handled":1,"succeeded":1,"failed":0}\n',
    })
    expect(await states()).toEqual([1, 1])
    const third = await consume(url, '--once')
    expect(third).toMatchObject({ code: 0, stdout: 'Nothing was due.\n', stderr: '' })
  })

  it.runIf(isOn('mysql'))('in MySQL', async () => {
    const database = await freshMysql(inject('mysqlUrl') ?? '')
    onTestFinished(() => database.drop())
    const pool = createPool({ uri: database.url })
    onTestFinished(() => pool.end())
    await mysqlStore(pool).migrate()
    for (const id of ['o-1', 'o-2']) {
      const nulls = Array.from({ length: 9 }, () => 'null').join(', ')
      await pool.query(`call outbox_publish('order.placed', '{"orderId": "${id}"}', ${nulls})`)
    }
    const { code, stdout } = await consume(database.url, '--once')
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'saw {"orderId":"o-1"}\n1 event succeeded.\n' })
    const [rows] = await pool.query('select status from outbox_event order by seq')
    expect(rows).toEqual([{ status: 1 }, { status: 0 }])
  })

  it.runIf(isOn('sqlite'))('in SQLite', async () => {
    const [driver] = sqliteDrivers()
    const files = sqliteFolder()
    onTestFinished(() => files.remove())
    const file = files.file('app.db')
    const open = () => driver?.open(file) as never
    const store = sqliteStore(open)
    await store.migrate()
    await store.close()
    const own = driver?.open(file)
    own?.exec(`insert into outbox_event (event_id, event_type, payload)
      values ('e-1', 'order.placed', '{"orderId": "o-1"}'), ('e-2', 'order.placed', '{"orderId": "o-2"}')`)
    const { code, stdout } = await consume(`sqlite:${file}`, '--once')
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'saw {"orderId":"o-1"}\n1 event succeeded.\n' })
    expect(own?.prepare('select event_id from outbox_event where status = 0').all()).toMatchObject([
      { event_id: 'e-2' },
    ])
    own?.close()
  })
})

describeOn('postgres', 'aftercommit consume', () => {
  async function world() {
    const url = await migratedDatabase()
    const outbox = createOutbox({ store: postgresStore(poolOn(url)), logger: silentLogger })
    return { url, outbox }
  }

  it('handles all that is due, leaves alone what it has no handler for, and counts for `status`', async () => {
    const { url, outbox } = await world()
    const payload = { orderId: 'o-1' }
    for (const type of ['order.placed', 'order.placed', 'of.others']) await outbox.enqueue({ type, payload })
    await outbox.enqueue({ type: 'order.placed', payload }, { delayMs: 3_600_000 })
    // So old that a worker would give it up.
    const { rows } = await poolOn(
      url,
    ).query(`update outbox_event set created_at = created_at - interval '1 h',
      available_at = available_at - interval '1 h' where event_type = 'of.others' returning seq`)
    expect(rows).toHaveLength(1)
    const { code, stdout } = await consume(url)
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: 'saw {"orderId":"o-1"}\nsaw {"orderId":"o-1"}\n2 events succeeded.\n',
    })
    expect(await outbox.stats()).toMatchObject({ pending: 2, dead: 0, done: 2 })
  })

  it('ends with 1 when a handler failed, whose event is tried again later; with and without --once', async () => {
    const { url, outbox } = await world()
    await outbox.enqueue({ type: 'order.placed', payload: { fail: true, secret: 'hunter2' } })
    const once = await consume(url, '--once', '--json')
    expect(once.code).toBe(1)
    expect(once.stdout).toMatch(/\{"handled":1,"succeeded":0,"failed":1\}\n$/)
    expect(once.stderr).toContain('the printer is on fire')
    expect(once.stderr).not.toContain('hunter2')
    await outbox.enqueue({ type: 'order.placed', payload: { fail: true } })
    const [, fresh] = await outbox.store.list({ eventType: 'order.placed' })
    expect(fresh).toMatchObject({ status: 'NEW', attempts: 0 })
    const all = await consume(url)
    expect(all.code).toBe(1)
    expect(all.stdout).toMatch(/events? failed\.\n$/)
    expect(await outbox.stats()).toMatchObject({ pending: 2, dead: 0 })
  })

  it('ends with 1 when an event cannot even be decoded', async () => {
    const { url, outbox } = await world()
    const typed = path.join(folder, 'typed.mjs')
    fs.writeFileSync(
      typed,
      `import { defineEvent } from 'aftercommit'
      export default (outbox) => {
        const upcast = () => { throw new Error('from before the flood') }
        outbox.on(defineEvent('order.placed', { version: 2, upcast }), 'note', () => {})
      }`.replace("'aftercommit'", JSON.stringify(path.resolve('dist/index.js'))),
    )
    await outbox.enqueue({ type: 'order.placed', payload: {} })
    const { code, stdout } = await cli(['consume', '--handlers', typed, '--database', url])
    expect({ code, stdout }).toEqual({ code: 1, stdout: '1 event failed.\n' })
    expect(await outbox.stats()).toMatchObject({ dead: 1 })
  })

  it('says what is paused when it had nothing to do', async () => {
    const { url, outbox } = await world()
    await outbox.enqueue({ type: 'order.placed', payload: {} })
    await outbox.pause('order.placed')
    expect(await consume(url, '--once')).toMatchObject({
      code: 0,
      stdout: 'Nothing was due. Paused: order.placed.\n',
    })
    await outbox.pause()
    expect(await consume(url)).toMatchObject({
      code: 0,
      stdout: 'Nothing was handled: everything is paused.\n',
    })
  })

  it('says that the function of the handlers file never ends', async () => {
    const file = path.join(folder, 'endless.mjs')
    fs.writeFileSync(file, `export default (outbox) => new Promise(() => {})`)
    const { code, stderr } = await cli(['consume', '--handlers', file, '--database', 'postgres://h/x'])
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^aftercommit: .*ever end\?\n$/),
    })
  })

  it('says in one line that the tables are missing', async () => {
    const { pathname, href } = new URL(inject('postgresUrl'))
    const { code, stderr } = await consume(
      href.replace(pathname, '/postgres'),
      '--once',
      '--table',
      'none_such',
    )
    expect(code).toBe(1)
    expect(stderr.trim().split('\n')).toHaveLength(1)
    expect(stderr).toMatch(/migrate/)
  })
})
