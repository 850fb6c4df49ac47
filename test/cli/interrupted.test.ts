import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { migratedDatabase, poolOn } from '../support/trap-kit.js'
import { until } from '../support/until.js'
import { Cli } from './process.js'

let folder: string
let handlers: string
/** Takes connections and says nothing, like a firewall or a pooler whose database is gone. */
const silent = net.createServer((socket) => void sockets.push(socket.on('error', () => {})))
const sockets: net.Socket[] = []

beforeAll(async () => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'aftercommit-cli-'))
  handlers = path.join(folder, 'handlers.mjs')
  fs.writeFileSync(
    handlers,
    `export default (outbox) => outbox.on('a.b', 'stuck', () => new Promise((end) => {
      console.log('begun')
      setTimeout(end, 60_000)
    })) && (() => {})`,
  )
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
})
afterAll(() => {
  for (const socket of sockets) socket.destroy()
  silent.close()
  fs.rmSync(folder, { recursive: true })
})

const COMMANDS: readonly [args: string[], code: number][] = [
  [['list'], 1],
  [['list', '--json'], 1],
  [['doctor'], 1],
  [['status'], 1],
  [['status', '--watch', '--json'], 1],
  [['prune'], 1],
  [['retry', '--dead', '--yes'], 1],
  [['consume', '--handlers'], 1],
  [['consume', '--once', '--handlers'], 1],
  [['work', '--handlers'], 0],
]

it.each(COMMANDS)(
  'one signal ends %j while the database does not answer',
  { timeout: 20_000 },
  async (args, code) => {
    const before = sockets.length
    const { port } = silent.address() as net.AddressInfo
    const given = args.at(-1) === '--handlers' ? [...args, handlers] : args
    const run = new Cli([...given, '--database', `postgres://me:hidden@127.0.0.1:${port}/x`])
    await until(() => sockets.length > before, { timeoutMs: 10_000, what: 'it connects' })
    run.kill('SIGINT')
    const tooLate = new Promise((resolve) => setTimeout(resolve, 12_000, 'still there'))
    expect(await Promise.race([run.exit, tooLate])).toEqual({ code, signal: null })
    const failure = { error: { code: 'COMMAND_FAILED', message: 'interrupted' } }
    expect(run.stdout).toBe(args.includes('--json') ? `${JSON.stringify(failure)}\n` : '')
    expect(run.stderr).toBe(code === 0 ? '' : 'aftercommit: interrupted\n')
  },
)

it.each(['consume', 'consume --once'])(
  '%s releases an event after a signal if its handler runs beyond the drain timeout, and ends with 1',
  async (command) => {
    const url = await migratedDatabase()
    const pool = poolOn(url)
    await pool.query(`select outbox_publish('a.b', '{}')`)
    const run = new Cli([...command.split(' '), '--handlers', handlers, '--database', url], {
      env: { OUTBOX_DRAIN_TIMEOUT_MS: '200' },
    })
    await run.prints(/begun/)
    run.kill('SIGTERM')
    expect(await run.exit).toEqual({ code: 1, signal: null })
    expect(run.stdout).toBe('begun\nNothing was handled.\n')
    expect(run.stderr).toContain('handler still running after the drain timeout, event released')
    expect(run.stderr).toMatch(/\naftercommit: interrupted; there may be more\n$/)
    const { rows } = await pool.query('select attempts, locked_until from outbox_event')
    expect(rows).toEqual([{ attempts: 0, locked_until: null }])
  },
)
