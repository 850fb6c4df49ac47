import { spawn } from 'node:child_process'
import path from 'node:path'
import { expect, inject, it, onTestFinished } from 'vitest'
import { createOutbox, silentLogger } from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { freshDatabase } from '../../support/database.js'
import { poolOn } from '../../support/trap-kit.js'
import { until } from '../../support/until.js'

const MAIN = path.resolve(import.meta.dirname, '../../../dist/cli/main.js')
/** Nobody listens there. */
const NOWHERE = '127.0.0.1:1'

function start(...args: string[]) {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  const run = {
    child,
    stdout: '',
    stderr: '',
    code: new Promise<number | null>((resolve) => child.once('exit', resolve)),
  }
  child.stdout.setEncoding('utf8').on('data', (text: string) => (run.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (run.stderr += text))
  onTestFinished(() => void child.kill('SIGKILL'))
  return run
}

it.each([
  [['relay'], /Nowhere to relay to/],
  [['relay', '--to', `redis://${NOWHERE}`, '--batch-size', 'abc'], /--batch-size/],
  [['relay', '--to', `redis://${NOWHERE}`, '--batch-size', '2000'], /--batch-size/],
  [['relay', '--to', `redis://${NOWHERE}`, '--events', 'a,,b'], /--events/],
  [['relay', '--to', `redis://${NOWHERE}`, '--destination', 'a b'], /--destination/],
  [['relay', '--to', `redis://${NOWHERE}`, '--nonsense'], /nonsense/],
  [['relay', '--to', 'gopher://x'], /--to must begin with/],
  [['relay', '--to', 'kafka://user:secret@host:9092'], /addresses alone/],
  [
    ['relay', '--to', `redis://${NOWHERE}`, '--database', 'oracle://u:secret@h/x'],
    /database URL begins with none of/,
  ],
  [['fly'], /no command 'fly'/],
])('refuses %j in one line, with exit code 2', async (args, message) => {
  const run = start(
    ...args,
    ...(args.includes('--database') || args[0] !== 'relay' ? [] : ['--database', 'postgres://u:secret@h/x']),
  )
  expect(await run.code).toBe(2)
  expect(run.stderr).toMatch(message)
  expect(run.stderr.trim().split('\n')).toHaveLength(1)
  expect(run.stdout + run.stderr).not.toContain('secret')
})

it('tells what there is', async () => {
  for (const [args, text] of [
    [['--help'], 'relay'],
    [['relay', '--help'], '--batch-size'],
  ] as const) {
    const run = start(...args)
    expect(await run.code).toBe(0)
    expect(run.stdout).toContain(text)
  }
})

it('says in one line that the database cannot be reached', async () => {
  const run = start('relay', '--database', `postgres://u:secret@${NOWHERE}/x`, '--to', `redis://${NOWHERE}`)
  expect(await run.code).toBe(1)
  expect(run.stderr.trim().split('\n')).toHaveLength(1)
  expect(run.stdout + run.stderr).not.toContain('secret')
})

it.each(['redis', 'nats', 'amqp', 'kafka'])(
  'waits for %s when it is down at the start, and ends when it is told to',
  {
    timeout: 60_000,
  },
  async (scheme) => {
    const database = await freshDatabase(inject('postgresUrl'))
    onTestFinished(() => database.drop())
    const outbox = createOutbox({
      store: postgresStore(poolOn(database.url), { doorbell: false }),
      logger: silentLogger,
    })
    await outbox.migrate()
    await outbox.enqueue({ type: 'a' })
    const run = start('relay', '--database', database.url, '--to', `${scheme}://${NOWHERE}`)
    // The client of NATS has no connection to hand out before it is connected.
    const line = scheme === 'nats' ? 'connecting to the broker' : 'the broker is unavailable'
    await until(() => run.stdout.includes(line), { timeoutMs: 40_000, what: `it says: ${line}` })
    expect(run.child.exitCode).toBe(null)
    run.child.kill('SIGTERM')
    expect(await run.code).toBe(0)
    expect(await outbox.stats()).toMatchObject({ pending: 1, dead: 0, failed: 0 })
  },
)
