import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createOutbox, type Outbox, silentLogger } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { expectGolden, Pty } from '../support/pty.js'
import { migratedDatabase, poolOn } from '../support/trap-kit.js'
import { until } from '../support/until.js'
import { Cli, cli } from './process.js'

const canLoadTypeScript = Number(process.versions.node.split('.')[0]) >= 23

let folder: string
const fileOf = (name: string, code: string): string => {
  const file = path.join(folder, name)
  fs.writeFileSync(file, code)
  return file
}

beforeAll(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-cli-'))
})
afterAll(() => fs.rmSync(folder, { recursive: true }))

/** Tells what it does on standard output, and can be held up by a file. */
const HANDLERS = `
import fs from 'node:fs'
export default async (outbox) => {
  await undefined
  outbox.on('order.placed', 'note', async ({ payload, eventId }) => {
    console.log('begin ' + payload.n)
    while (payload.gate && !fs.existsSync(payload.gate)) await new Promise((done) => setTimeout(done, 10))
    console.log('end ' + payload.n)
  })
  // Would keep the process alive.
  setInterval(() => {}, 1_000)
  return () => console.log('closed')
}`

describe('aftercommit work refuses', () => {
  it('what makes no sense, in one line that says so', async () => {
    const refusing = ['--database', 'postgres://u:hunter2@127.0.0.1:1/x']
    const [missing, broken, text, none, concurrency, variable, unreachable] = await Promise.all([
      cli(['work', '--handlers', 'none/such.mjs', ...refusing]),
      cli(['work', '--handlers', fileOf('broken.mjs', 'export default ('), ...refusing]),
      cli(['work', '--handlers', fileOf('handlers.txt', 'x'), ...refusing]),
      cli(['work', '--database', 'postgres://h/x']),
      cli(['work', '--handlers', 'x.mjs', '--database', 'postgres://h/x', '--concurrency', '0']),
      cli(['work', '--handlers', 'x.mjs', '--database', 'postgres://h/x'], { env: { OUTBOX_LEASE_MS: '5' } }),
      cli(['work', '--handlers', fileOf('good.mjs', HANDLERS), ...refusing]),
    ])
    expect(missing).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^.*no file none\/such\.mjs.*\n$/),
    })
    expect(broken).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/^.*cannot be loaded.*SyntaxError.*\n$/),
    })
    expect(text).toMatchObject({ code: 2, stderr: expect.stringMatching(/^.*must be a \.js, .*\n$/) })
    expect(none).toMatchObject({ code: 2, stderr: expect.stringMatching(/^aftercommit: No handlers\..*\n$/) })
    expect(concurrency).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/^aftercommit: --concurrency/),
    })
    expect(variable).toMatchObject({ code: 2, stderr: expect.stringMatching(/OUTBOX_LEASE_MS: must be/) })
    expect(unreachable).toMatchObject({
      code: 1,
      stdout: 'closed\n',
      stderr: expect.stringMatching(/^.*REFUSED.*\n$/),
    })
    expect(unreachable.stderr).not.toContain('hunter2')
  })
})

describe('aftercommit work', () => {
  let url: string
  let pool: pg.Pool
  let outbox: Outbox<pg.PoolClient>

  beforeEach(async () => {
    url = await migratedDatabase()
    pool = poolOn(url)
    outbox = createOutbox({ store: postgresStore(pool), logger: silentLogger })
  })

  const args = (file: string) => ['work', '--handlers', file, '--database', url]
  const publish = (n: number, more: object = {}) =>
    outbox.enqueue({ type: 'order.placed', payload: { n, ...more } })
  const hasStatus = (status: number, count: number) =>
    until(async () => {
      const { rows } = await pool.query('select 1 from outbox_event where status = $1', [status])
      return rows.length === count
    })

  it('handles what comes, logs JSON lines, and ends in order at SIGTERM', async () => {
    const gate = path.join(folder, 'gate')
    const worker = new Cli([...args(fileOf('work.mjs', HANDLERS)), '--concurrency', '2'], {
      env: { OUTBOX_LOG_LEVEL: 'info', OUTBOX_DRAIN_TIMEOUT_MS: '20000' },
    })
    await worker.prints(/the worker has started/)
    await publish(1)
    await publish(2, { gate, secret: 'hunter2' })
    await worker.prints(/end 1/)
    await worker.prints(/begin 2/)
    worker.kill('SIGTERM')
    await worker.prints(/the worker is stopping/)
    // Not taken any more: it is for the next one.
    await publish(3)
    fs.writeFileSync(gate, '')
    expect(await worker.exit).toEqual({ code: 0, signal: null })
    expect(worker.stderr).toBe('')
    expect(worker.stdout).not.toContain('hunter2')
    expect(worker.stdout).not.toContain('begin 3')
    const lines = worker.stdout.trim().split('\n')
    const log = lines.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line).msg)
    expect(log.filter((message) => /worker/.test(message))).toEqual([
      'the worker has started',
      'the worker is stopping',
      'the worker has stopped',
    ])
    expect(lines.indexOf('end 2')).toBeLessThan(lines.findIndex((line) => line.includes('has stopped')))
    // A log line may come behind what was printed in the same turn.
    expect(lines.slice(-2)).toContain('closed')
    await hasStatus(1, 2)
  })

  it('killed for real: another one takes over when the lease is over', async () => {
    const file = fileOf('killed.mjs', HANDLERS)
    const env = { OUTBOX_LEASE_MS: '1000', OUTBOX_POLL_INTERVAL_MS: '100' }
    const first = new Cli(args(file), { env })
    await first.prints(/the worker has started/)
    await publish(1, { gate: path.join(folder, 'never') })
    await first.prints(/begin 1/)
    first.kill('SIGKILL')
    expect(await first.exit).toEqual({ code: null, signal: 'SIGKILL' })
    fs.writeFileSync(path.join(folder, 'never'), '')
    const second = new Cli(args(file), { env })
    await second.prints(/end 1/)
    await hasStatus(1, 1)
    second.kill('SIGINT')
    expect(await second.exit).toEqual({ code: 0, signal: null })
  })

  it('leaves handlers behind that take longer than OUTBOX_DRAIN_TIMEOUT_MS, and gives their events back', async () => {
    const env = { OUTBOX_DRAIN_TIMEOUT_MS: '50' }
    const worker = new Cli([...args(fileOf('slow.mjs', HANDLERS)), '--concurrency', '3'], { env })
    await worker.prints(/the worker has started/)
    await publish(1, { gate: path.join(folder, 'much later') })
    await worker.prints(/begin 1/)
    worker.kill('SIGTERM')
    expect(await worker.exit).toEqual({ code: 0, signal: null })
    const times = [...worker.stdout.matchAll(/"time":"([^"]+)".*the worker (?:is stopping|has stopped)/g)]
    const [asked, stopped] = times.map((match) => Date.parse(String(match[1])))
    // By default it is five seconds.
    expect(Number(stopped) - Number(asked)).toBeLessThan(4_000)
    const { rows } = await pool.query('select status, attempts, locked_until from outbox_event')
    expect(rows).toEqual([{ status: 0, attempts: 0, locked_until: null }])
  })

  it('a second signal ends it at once, whichever it is', async () => {
    const worker = new Cli(args(fileOf('stuck.mjs', HANDLERS)), { env: { OUTBOX_DRAIN_TIMEOUT_MS: '60000' } })
    await worker.prints(/the worker has started/)
    await publish(1, { gate: path.join(folder, 'closed for ever') })
    await worker.prints(/begin 1/)
    worker.kill('SIGTERM')
    await worker.prints(/the worker is stopping/)
    worker.kill('SIGINT')
    expect(await worker.exit).toEqual({ code: null, signal: 'SIGINT' })
  })

  it('takes CommonJS, and TypeScript where Node can; at a terminal Ctrl-C ends it', async () => {
    const body = `outbox.on('order.placed', 'note', ({ payload }) => console.log('saw ' + payload.n))`
    const files = [
      fileOf('plain.cjs', `module.exports = (outbox) => { ${body} }`),
      fileOf(
        'compiled.cjs',
        `Object.defineProperty(exports, '__esModule', { value: true }); exports.default = (outbox) => { ${body} }`,
      ),
      fileOf('typed.mts', `export default (outbox: { on: Function }): void => { ${body} }`),
    ]
    const runs = await Promise.all(
      files.map((file) => cli(['consume', '--once', '--handlers', file, '--database', url, '--json'])),
    )
    const typed = runs.pop()
    for (const run of runs) expect(run).toMatchObject({ code: 0, stderr: '' })
    if (canLoadTypeScript) expect(typed).toMatchObject({ code: 0 })
    else
      expect(typed).toMatchObject({
        code: 2,
        stderr: expect.stringMatching(/cannot load TypeScript.*compile it/),
      })
    const pty = new Pty(args(String(files[0])))
    await pty.shows(/the worker has started/)
    await publish(7)
    await pty.shows(/saw 7/)
    await pty.shows(/event handled/)
    pty.type('\u0003')
    expect(await pty.exit).toBe(0)
    expectGolden('work', pty.output.replaceAll(/"duration_ms":[\d.]+/g, '"duration_ms":<n>'))
  })
})
