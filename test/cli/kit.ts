import { spawn } from 'node:child_process'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { onTestFinished } from 'vitest'
import type { Command } from '../../src/cli/command.js'
import { complaintOf } from '../../src/cli/complaint.js'
import { Terminal } from '../../src/cli/terminal.js'
import { EventId } from '../../src/core/event-id.js'
import { createOutbox, fixedDelay, RetryAfter, silentLogger, Unrecoverable } from '../../src/index.js'
import type { OutboxStore } from '../../src/store.js'

const ROOT = path.resolve(import.meta.dirname, '../..')
export const MAIN = path.join(ROOT, 'dist/cli/main.js')

export interface Run {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** The command line tool as a script has it: no terminal, nobody to be asked. Nothing of the environment but the PATH. */
export function start(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd: ROOT,
    env: { PATH: process.env.PATH, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  const output = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (output.stderr += text))
  const ended = new Promise<Run>((resolve) => child.once('close', (code) => resolve({ code, ...output })))
  return { child, ended }
}

/** The same in this process, which costs less than a new one. Without a URL the environment is asked. */
export async function run([name = '', ...args]: readonly string[], url?: string): Promise<Run> {
  const module = await import(`../../src/cli/commands/${name}.ts`)
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough(), env: {} }
  const output = { stdout: '', stderr: '' }
  for (const stream of ['stdout', 'stderr'] as const)
    streams[stream].setEncoding('utf8').on('data', (text: string) => (output[stream] += text))
  const given = url === undefined ? args : [...args, '--database', url]
  const terminal = new Terminal(given, streams)
  const complain = (error: unknown) => {
    const complaint = complaintOf(error)
    terminal.fail(complaint)
    return complaint.exitCode
  }
  const work = async () =>
    (module[name] as Command).run(given, { terminal, signal: new AbortController().signal })
  const code = await work().catch(complain)
  // What was written is read in the next turns.
  await Promise.all(
    [streams.stdout, streams.stderr].map(
      (stream) => new Promise((resolve) => stream.on('close', resolve).end()),
    ),
  )
  return { code, ...output }
}

/** Never to be seen, unless it is asked for. */
export const SECRETS = { payload: 'hidden-payload', header: 'hidden-header', user: 'hidden-user' } as const

/** What a handler threw: several lines, and what a terminal would obey. */
const CARD_ERROR = 'card declined\n    at bank \u001b[2J\u009b31m'

/**
 * Events of every kind: `dead-1` to `dead-3`, dead after two attempts of charge-card, while send-receipt has succeeded;
 * `gone-1`, dead at once; `done-1`, `done-2`; `new-1` with an ordering key; `late-1`, waiting; `bytes-1`.
 */
export async function seed(store: OutboxStore<unknown>): Promise<void> {
  const outbox = createOutbox({
    store,
    logger: silentLogger,
    retry: { maxAttempts: 2, policy: fixedDelay(0) },
  })
  await outbox.migrate()
  outbox.on('order.placed', 'send-receipt', async () => {})
  outbox.on('order.placed', 'charge-card', async () => {
    throw new Error(CARD_ERROR)
  })
  outbox.on('mail.sent', 'archive', async () => {})
  outbox.on('legacy.thing', 'import', async () => {
    throw new Unrecoverable('unknown format')
  })
  outbox.on('report.due', 'report', async () => {
    throw new RetryAfter(3_600_000, 'too early')
  })
  const order = (n: number) => ({
    eventId: EventId.from(`dead-${n}`),
    type: 'order.placed',
    aggregateType: 'order',
    aggregateId: `o-${n}`,
    payload: { note: SECRETS.payload },
    headers: { token: SECRETS.header },
    metadata: { userId: SECRETS.user, correlationId: 'request-7', causationId: 'done-1' },
  })
  await outbox.transaction((tx) =>
    tx.publishAll([
      { eventId: EventId.from('done-1'), type: 'mail.sent', payload: 1 },
      order(1),
      order(2),
      order(3),
      { eventId: EventId.from('gone-1'), type: 'legacy.thing', payload: null },
      { eventId: EventId.from('done-2'), type: 'mail.sent', payload: 2 },
      { eventId: EventId.from('new-1'), type: 'order.shipped', orderingKey: 'order o-1', payload: {} },
      { eventId: EventId.from('late-1'), type: 'report.due', payload: {} },
      { eventId: EventId.from('bytes-1'), type: 'image.taken', payload: new Uint8Array([1, 2, 3]) },
    ]),
  )
  await outbox.drain()
  await outbox.stop()
}
