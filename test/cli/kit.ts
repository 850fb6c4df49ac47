import { spawn } from 'node:child_process'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { EventId } from '../../src/core/event-id.js'
import { createOutbox, fixedDelay, RetryAfter, silentLogger, Unrecoverable } from '../../src/index.js'
import type { EventStore } from '../../src/store.js'

const ROOT = path.resolve(import.meta.dirname, '../..')
export const MAIN = path.join(ROOT, 'dist/cli/main.js')

export interface Run {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

interface RunOptions {
  readonly env?: Readonly<Record<string, string>>
  readonly cwd?: string
}

/** The command line tool as a script has it: no terminal, nobody to be asked. Nothing of the environment but the PATH. */
export function start(args: readonly string[], { env = {}, cwd = ROOT }: RunOptions = {}) {
  const child = spawn(process.execPath, [MAIN, ...args], {
    cwd,
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

/** To its end. */
export function run(args: readonly string[], options?: RunOptions): Promise<Run> {
  return start(args, options).ended
}

/** Never to be seen, unless it is asked for. */
export const SECRETS = { payload: 'hidden-payload', header: 'hidden-header', user: 'hidden-user' } as const

/** What a handler threw: several lines, and what a terminal would obey. */
const CARD_ERROR = 'card declined\n    at bank \u001b[2J\u009b31m'

/**
 * Events of every kind: `dead-1` to `dead-3`, dead after two attempts of charge-card, while send-receipt has succeeded;
 * `gone-1`, dead at once; `done-1`, `done-2`; `new-1` with an ordering key; `late-1`, waiting; `bytes-1`.
 */
export async function seed(store: EventStore<unknown>): Promise<void> {
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
