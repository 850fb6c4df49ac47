import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import { createOutbox, type Outbox, silentLogger, Unrecoverable } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { type FreshDatabase, freshDatabase } from '../support/database.js'
import { startProxy } from '../support/proxy.js'
import { expectGolden, inTerminal, Pty } from '../support/pty.js'
import { migratedDatabase, poolOn } from '../support/trap-kit.js'
import { Cli, cli } from './process.js'

let database: FreshDatabase
let pool: pg.Pool
let outbox: Outbox<pg.PoolClient>

const ESCAPE = '\u001b'
const ENTER = `${ESCAPE}[?1049h`
const LEAVE = `${ESCAPE}[?7h${ESCAPE}[?25h${ESCAPE}[?1049l`
/** The title, and no trouble below it. */
const WELL = new RegExp(`q ends it${ESCAPE}\\[22m${ESCAPE}\\[K\r\n${ESCAPE}\\[K\r\n`)
/** Columns are as wide as their widest cell, which is new in every run. */
const SPACES = [/ {2,}/g, '  '] as const

beforeAll(async () => {
  database = await freshDatabase(inject('postgresUrl'))
  pool = new pg.Pool({ connectionString: database.url, max: 5 })
  pool.on('error', () => {})
  outbox = createOutbox({ store: postgresStore(pool, { doorbell: false }), logger: silentLogger })
  await outbox.migrate()
  await seed()
})
afterAll(async () => {
  await outbox.stop()
  await pool.end()
  await database.drop()
})

/** Three pending of one type, one of a hostile one, one dead; an instance that holds two leases, and one that is nobody. */
async function seed(): Promise<void> {
  outbox.on('mail.bounced', 'give-up', () => {
    throw new Unrecoverable('no such mailbox')
  })
  await outbox.enqueue({ type: 'mail.bounced', payload: { secret: 'hunter2' } })
  await outbox.drain()
  for (let n = 0; n < 3; n++) await outbox.enqueue({ type: 'order.placed', payload: { secret: 'hunter2' } })
  const accept = { names: ['order.placed'], versions: [1], prefixes: [] }
  const about = {
    host: 'web-1',
    pid: 4242,
    version: '0.1.0',
    accept,
    counters: { done: 120, failed: 3, dead: 1 },
  }
  const handlers = { 'order.placed': ['send-receipt'], 'mail.*': ['count'] }
  await outbox.store.heartbeat({ id: 'aaaaaaaaaaaa', handlers, ...about })
  const claim = { leaseMs: 600_000, maxBytes: 1e6, accept, fromSeq: 0, suspects: 0, skipRecentMs: 0 }
  await outbox.store.claim({ ...claim, token: 'aaaaaaaaaaaa:1', limit: 2 })
  await outbox.store.claim({ ...claim, token: 'bbbbbbbbbbbb:1', limit: 1 })
  await pool.query(`insert into outbox_event (event_id, event_type, payload) values ('h', $1, 'null')`, [
    `${ESCAPE}[2Jevil.type`,
  ])
  await outbox.pause('payment.received')
}

const watch = (...args: string[]) => ['status', '--watch', '--database', database.url, ...args]

/** What the screen shows after the last drawing that is complete. */
function frame(output: string): string[] {
  const last = output.split(`${ESCAPE}[H`).findLast((drawing) => drawing.includes(`${ESCAPE}[J`)) ?? ''
  return last
    .replaceAll(new RegExp(`${ESCAPE}\\[[KJ]`, 'g'), '')
    .replaceAll(new RegExp(`${ESCAPE}\\[\\d+m`, 'g'), '')
    .split('\r\n')
}

describe('aftercommit status', () => {
  it('shows it all in one look', async () => {
    const { code, output } = await inTerminal(['status'], {
      env: { OUTBOX_DB_URL: database.url },
      columns: 120,
    })
    expect(code).toBe(0)
    expectGolden('status', output, [SPACES, [/\d[\d.]*\/s/g, '<rate>']])
    expect(output).not.toContain('hunter2')
    expect(output).not.toContain(`${ESCAPE}[2J`)
  })

  it('has no colours without a terminal or with NO_COLOR, and prints JSON', async () => {
    const env = { DATABASE_URL: database.url, NO_COLOR: '1' }
    const [plain, json, noColour] = await Promise.all([
      cli(['status'], { env }),
      cli(['status', '--json'], { env }),
      inTerminal(['status'], { env }),
    ])
    expect(plain.stdout + noColour.output).not.toContain(ESCAPE)
    expect(json.stdout.trim().split('\n')).toHaveLength(1)
    const { instances, ...look } = JSON.parse(json.stdout)
    expect(look).toMatchObject({
      store: 'postgres',
      pending: 4,
      dead: 1,
      paused: ['payment.received'],
      rates: { basis: 'start' },
      otherLeases: [{ instance: 'bbbbbbbbbbbb', count: 1 }],
    })
    expect(look.types.map(({ eventType }: { eventType: string }) => eventType)).toContain('order.placed')
    expect(instances).toMatchObject([
      { id: 'aaaaaaaaaaaa', host: 'web-1', pid: 4242, state: 'running', leases: 2, counters: { done: 120 } },
    ])
    expect(json.stdout).not.toContain('hunter2')
  })

  it('says in one line what is wrong', async () => {
    const empty = new URL(database.url)
    empty.searchParams.set('options', '-c search_path=nowhere')
    const [interval, unreachable, missing] = await Promise.all([
      cli(watch('--interval', 'soon')),
      cli(['status', '--watch', '--database', 'postgres://u:hunter2@127.0.0.1:1/x']),
      cli(['status', '--database', database.url, '--table', 'none_such']),
    ])
    expect(interval).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^aftercommit: --interval .*\n$/),
    })
    expect(unreachable).toMatchObject({ code: 1, stderr: expect.stringMatching(/^.*ECONNREFUSED.*\n$/) })
    expect(unreachable.stderr).not.toContain('hunter2')
    expect(missing).toMatchObject({ code: 1, stderr: expect.stringMatching(/^.*migrate.*\n$/) })
  })
})

describe('aftercommit status --watch in a terminal', () => {
  const modes = (command: string) => `stty -g; ${command}; code=$?; stty -g; exit $code`

  /** The other screen was left once, after the last drawing, and `stty` says the same as before. */
  function expectAsItWas(output: string): void {
    const [drawn = '', after = '', ...more] = output.split(LEAVE)
    expect(more).toEqual([])
    expect(after).not.toContain(`${ESCAPE}[H`)
    const [before] = drawn.split('\r\n')
    expect(before).toMatch(/^[0-9a-f]+(:[0-9a-f]+)+$/)
    expect(after.trim().split('\r\n').at(-1)).toBe(before)
  }

  it('draws again and again, and gives the terminal back at q', async () => {
    const pty = new Pty(watch('--interval', '0.1'), { columns: 110, rows: 30, shell: modes })
    await pty.shows(/INSTANCE[\s\S]*aaaaaaaaaaaa[\s\S]*\[J/)
    const drawn = frame(pty.output).join('\n')
    expectGolden('status-watch', drawn, [SPACES, [/\d[\d.]*\/s/g, '<rate>'], [/[▁-█]+/g, '<bars>']])
    // Several looks later the sparklines have several bars.
    await pty.shows(/[▁-█]{4}/)
    expect(pty.output.split(ENTER)).toHaveLength(2)
    pty.type('q')
    expect(await pty.exit).toBe(0)
    expectAsItWas(pty.output)
  })

  it('is drawn at once for a window of another size', async () => {
    const pty = new Pty(watch('--interval', '3600'), { columns: 110, rows: 30 })
    await pty.shows(/INSTANCE[\s\S]*\[J/)
    const before = pty.output.length
    pty.resize(60, 11)
    await pty.shows(/… and \d lines? more[\s\S]*\[J/, before)
    const small = frame(pty.output)
    expect(small.length).toBeLessThanOrEqual(11)
    expect(Math.max(...small.map((line) => line.length))).toBeLessThanOrEqual(60)
    pty.type('q')
    expect(await pty.exit).toBe(0)
  })

  it.each([
    ['Ctrl-C', (pty: Pty) => pty.type('\u0003'), 0],
    ['SIGTERM', (pty: Pty) => process.kill(pty.pid, 'SIGTERM'), 0],
    ['a crash', (pty: Pty) => process.kill(pty.pid, 'SIGUSR2'), 7],
  ])('gives the terminal back at %s', async (_, end, expected) => {
    const crash = 'data:text/javascript,process.on("SIGUSR2",()=>{throw new Error("planted")})'
    const env = { NODE_OPTIONS: `--import=${encodeURI(crash)}` }
    const pty = new Pty(watch(), { shell: modes, env })
    await pty.shows(/INSTANCE[\s\S]*\[J/)
    end(pty)
    const code = await pty.exit
    if (expected === 0) expect(code).toBe(0)
    else expect(code).not.toBe(0)
    expectAsItWas(pty.output)
    // What is said about the crash is on the screen that stays.
    if (expected !== 0) expect(pty.output.split(LEAVE)[1]).toContain('planted')
  })

  it('survives a database that is gone or silent, says so, and goes on when it is back', async () => {
    const proxy = await startProxy(database.url)
    onTestFinished(() => proxy.close())
    const pty = new Pty(['status', '--watch', '--interval', '0.1', '--database', proxy.url])
    await pty.shows(/INSTANCE[\s\S]*\[J/)
    proxy.refuse()
    await pty.shows(/; trying again, below is what was last seen[\s\S]*\[J/)
    expect(frame(pty.output).join('\n')).toContain('order.placed')
    const back = pty.output.length
    proxy.accept()
    await pty.shows(WELL, back)
    proxy.freeze()
    await pty.shows(/No answer of the database for \d/, back)
    // It ends at once, and not when the answer is given up after ten seconds.
    const asked = performance.now()
    pty.type('q')
    expect(await pty.exit).toBe(0)
    expect(performance.now() - asked).toBeLessThan(6_000)
  })
})

describe('aftercommit status --watch without a terminal', () => {
  it('prints a block every interval, a JSON line with --json, and ends at SIGTERM with 0', async () => {
    const text = new Cli(watch('--interval', '0.1'))
    const json = new Cli(watch('--interval', '0.1', '--json'))
    await Promise.all([text.prints(/(postgres, [\s\S]*){3}/), json.prints(/(\n[\s\S]*){3}/)])
    for (const run of [text, json]) run.kill('SIGTERM')
    expect([await text.exit, await json.exit]).toEqual([
      { code: 0, signal: null },
      { code: 0, signal: null },
    ])
    expect(text.stdout).not.toContain(ESCAPE)
    const looks = json.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(new Set(looks.map(({ pending }) => pending))).toEqual(new Set([4]))
    expect(new Set(looks.map(({ at }) => at)).size).toBe(looks.length)
  })

  it('goes on when the database is gone for a while', async () => {
    const proxy = await startProxy(database.url)
    onTestFinished(() => proxy.close())
    const run = new Cli(['status', '-w', '--json', '--interval', '0.1', '--database', proxy.url])
    await run.prints(/\n/)
    proxy.refuse()
    await expect.poll(() => run.stderr, { timeout: 10_000 }).toMatch(/; trying again\n/)
    await run.prints(/\n\{"error":\{"code":"\w+","message":"[^"]*; trying again"\}\}\n/)
    const before = run.stdout.length
    proxy.accept()
    await expect.poll(() => run.stdout.length, { timeout: 10_000 }).toBeGreaterThan(before)
    run.kill('SIGINT')
    expect(await run.exit).toEqual({ code: 0, signal: null })
  })
})

it('status --watch, status and show survive odd values in rows of instances and events that were written by hand', async () => {
  const url = await migratedDatabase()
  const pool = poolOn(url, { max: 1 })
  await pool.query(
    `insert into outbox_event_instance (id, host, pid, version, handlers, accept, done, started_at, last_seen_at, stopped_at)
     select 'odd-' || row_number() over (), h, p, v, j::json, a::json, d, t::timestamptz, u::timestamptz, s::timestamptz
       from (values
         ('', -1, '', '5', '[]', -9223372036854775808, 'infinity', 'infinity', null),
         (E'a\u0007\u001b[2J', 2147483647, 'x', '{"a": 5, "b": [null, 1]}', '{"names": 5}', 9223372036854775807, '-infinity', 'infinity', null),
         ('h', 0, 'v', 'null', '{"names": [5, null], "versions": "x"}', 0, '294276-12-31', '4713-01-01 BC', 'infinity')
       ) odd (h, p, v, j, a, d, t, u, s)`,
  )
  await pool.query(
    `insert into outbox_event (event_id, event_type, payload, status, failures, handled_by, done_at, created_at)
     values ('odd', 'a', '1', 3, '[{"at": "never", "message": 5}]', '5', 'infinity', '-infinity')`,
  )
  const pty = new Pty(['status', '--watch', '--interval', '0.1', '--database', url], {
    columns: 110,
    rows: 30,
  })
  await pty.shows(/INSTANCE[\s\S]*odd-\d[\s\S]*\[J/)
  pty.type('q')
  expect(await pty.exit).toBe(0)
  expect(pty.output).not.toContain('\u0007')
  for (const command of [['status'], ['show', 'odd'], ['list']]) {
    for (const args of [command, [...command, '--json']]) {
      expect(await cli([...args, '--database', url]), args.join(' ')).toMatchObject({ code: 0, stderr: '' })
    }
  }
})
