import { spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import Database from 'libsql'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { sqliteFolder } from '../support/sqlite-drivers.js'
import { until } from '../support/waiting.js'
import { Program } from './program.js'

/** Each example by its one command, in processes of their own. */

const ROOT = path.resolve(import.meta.dirname, '../..')
/** An example installs nothing here, but it compiles, and the machine may be busy. */
const PATIENCE = 120_000

/** By `npm start`, as its README says; to the end. */
async function start(name: string, env: Record<string, string> = {}, ...args: string[]): Promise<string[]> {
  const command = ['npm', 'start', '--silent', '-w', `examples/${name}`, '--', ...args]
  const program = new Program(command, env)
  const { code, stderr } = await program.ends(PATIENCE)
  expect(code, stderr).toBe(0)
  return program.lines
}

/** Compiled, to be run without npm in between: signals reach it, and nothing else. */
function compile(name: string): string {
  const cwd = path.join(ROOT, 'examples', name)
  const { status, stdout, stderr } = spawnSync(process.execPath, ['../prepare.mjs'], {
    cwd,
    encoding: 'utf8',
  })
  expect(status, stdout + stderr).toBe(0)
  return `examples/${name}/dist/main.js`
}

it('every example is here, and its README gives the command', () => {
  const folders = fs
    .readdirSync(path.join(ROOT, 'examples'), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
    .sort()
  expect(folders).toEqual([
    '1-first-event',
    '2-account-profile',
    '3-nestjs-api',
    '4-two-databases',
    '5-relay-to-broker',
    '6-ordered-events',
  ])
  for (const folder of folders) {
    for (const page of [`${folder}/README.md`, 'README.md']) {
      const text = fs.readFileSync(path.join(ROOT, 'examples', page), 'utf8')
      expect(text).toContain(`npm start -w examples/${folder}`)
    }
  }
})

describe('the examples that end by themselves', { timeout: PATIENCE }, () => {
  it('1-first-event announces the order that was committed, and not the other', async () => {
    expect(await start('1-first-event')).toEqual([
      'o-1 is written, nothing is announced yet',
      'receipt over 42 for o-1',
      'o-2 is written, nothing is announced yet',
      'o-2 was rolled back: the card was declined',
      'orders: o-1; events: 1 done, 0 pending',
    ])
  })

  it('4-two-databases carries an order to the other database and the answer back', async () => {
    expect(await start('4-two-databases')).toEqual([
      "refused, since the transaction is the shop's: true",
      'warehouse: packed 3 items of o-1',
      'shop: o-1 is shipped in parcel 1',
      'o-1: shipped',
      'events done: shop 1, warehouse 1',
    ])
  })

  it('5-relay-to-broker writes one invoice for each order, whoever is killed', async () => {
    const lines = await start('5-relay-to-broker', {}, '--kills', '6')
    expect(lines[0]).toMatch(/^killed: \d times the shop, \d times billing$/)
    expect(lines.slice(1)).toEqual(['orders: 60', 'invoices: 60, for 60 orders'])
  })

  it('6-ordered-events keeps the order of each account, and lets nobody else wait', async () => {
    const lines = await start('6-ordered-events')
    expect(lines.filter((line) => line !== 'bob: 2 cannot be booked yet')).toEqual([
      'alice: 1 2 3 4 5',
      'bob: 1 2 3 4 5',
      '10 done',
    ])
    expect(lines).toHaveLength(4)
  })
})

describe('2-account-profile', { timeout: PATIENCE }, () => {
  const HANDLED = ['CreateProfileOnAccountCreated: ada', 'LogAccountCreated: ada@example.org']
  const handlerLines = (lines: readonly string[]) =>
    lines.filter((line) => / ?AccountCreated: /.test(line)).sort()

  function accounts() {
    const folder = sqliteFolder()
    onTestFinished(() => folder.remove())
    const file = folder.file('accounts.db')
    const rows = (sql: string) => {
      const database = new Database(file)
      const found = database.prepare(sql).all()
      database.close()
      return found
    }
    return { env: { ACCOUNTS_DB: file }, rows }
  }

  it('creates an account, logs it, and makes its profile', async () => {
    const { env, rows } = accounts()
    const lines = await start('2-account-profile', env, 'ada@example.org')
    expect(handlerLines(lines)).toEqual(HANDLED)
    expect(lines.at(-1)).toBe('accounts: 1, profiles: 1')
    expect(rows('select display_name from profiles')).toEqual([{ display_name: 'ada' }])
  })

  it('killed between commit and handler has made no profile; after a restart it is there, once', async () => {
    const { env, rows } = accounts()
    const main = compile('2-account-profile')
    const killed = Program.node(main, env, 'ada@example.org', '--crash')
    expect(await killed.ends(PATIENCE)).toMatchObject({ code: null, signal: 'SIGKILL' })
    expect(handlerLines(killed.lines)).toEqual([])
    expect(rows('select email from accounts')).toEqual([{ email: 'ada@example.org' }])
    expect(rows('select * from profiles')).toEqual([])
    expect(rows('select status from outbox_event')).toEqual([{ status: 0 }])

    const again = Program.node(main, env, '--deliver')
    expect(await again.ends(PATIENCE)).toMatchObject({ code: 0, stderr: '' })
    expect(handlerLines(again.lines)).toEqual(HANDLED)
    expect(rows('select display_name from profiles')).toEqual([{ display_name: 'ada' }])

    const third = Program.node(main, env, '--deliver')
    expect(await third.ends(PATIENCE)).toMatchObject({ code: 0, stderr: '' })
    expect(third.lines).toEqual(['accounts: 1, profiles: 1'])
  })

  it('rolls the event back with the account', async () => {
    const { env, rows } = accounts()
    const main = compile('2-account-profile')
    await Program.node(main, env, 'ada@example.org').ends(PATIENCE)
    const twice = Program.node(main, env, 'ada@example.org')
    expect(await twice.ends(PATIENCE)).toMatchObject({ code: 1, stderr: expect.stringContaining('UNIQUE') })
    expect(handlerLines(twice.lines)).toEqual([])
    expect(rows('select status from outbox_event')).toEqual([{ status: 1 }])
  })
})

describe('3-nestjs-api', { timeout: PATIENCE }, () => {
  let main: string
  beforeAll(() => {
    main = compile('3-nestjs-api')
  }, PATIENCE)

  it('answers HTTP, handles each event in a request scope of its own, and ends by itself on SIGTERM', async () => {
    const server = Program.node(main, { PORT: '0' })
    const url = await server.says('listening on ', PATIENCE)
    for (const orderId of ['o-1', 'o-2']) {
      const response = await fetch(`${url}/orders`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', connection: 'close' },
        body: JSON.stringify({ orderId, total: 42 }),
      })
      expect(response.status).toBe(201)
      expect(await response.json()).toEqual({ orderId, total: 42 })
    }
    const receipts = async () => {
      const response = await fetch(`${url}/receipts`, { headers: { connection: 'close' } })
      return (await response.json()) as { order_id: string; event_id: string; scope: number }[]
    }
    await until('both are handled', async () => (await receipts()).length === 2, PATIENCE)
    const found = await receipts()
    expect(found.map(({ order_id }) => order_id)).toEqual(['o-1', 'o-2'])
    expect(found.map(({ scope }) => scope).sort()).toEqual([1, 2])
    expect(new Set(found.map(({ event_id }) => event_id)).size).toBe(2)

    server.signal('SIGTERM')
    expect(await server.ends(PATIENCE)).toEqual({ code: 0, signal: null, stderr: '' })
    expect(server.lines.slice(-2)).toEqual(['SIGTERM: closing', 'the database is closed'])
  })
})
