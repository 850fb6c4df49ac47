import { expect } from 'vitest'
import { processedEvents } from '../../src/inbox/index.js'
import type { Outbox, Transaction } from '../../src/index.js'
import { InMemoryEventBus } from '../../src/testing/index.js'
import { event } from './trap-kit.js'
import { within } from './waiting.js'

type Tx = Transaction<unknown>
export type Call = (outbox: Outbox<never>, tx: Tx) => unknown

const LONG_MS = 8_000

/** Calls that need a session besides that of an open transaction. */
export const NEEDS_A_SESSION: Readonly<Record<string, Call>> = {
  migrate: (outbox) => outbox.migrate(),
  pause: (outbox) => outbox.pause(),
  resume: (outbox) => outbox.resume(),
  paused: (outbox) => outbox.paused(),
  enqueue: (outbox) => outbox.enqueue(event()),
  stats: (outbox) => outbox.stats(),
  'deadLetters.list': (outbox) => outbox.deadLetters.list(),
  'deadLetters.counts': (outbox) => outbox.deadLetters.counts(),
  'deadLetters.show': (outbox) => outbox.deadLetters.show('e-1'),
  'deadLetters.retry': (outbox) => outbox.deadLetters.retry({ all: true }),
  'deadLetters.discard': (outbox) => outbox.deadLetters.discard('e-1'),
  'processedEvents().contains': (outbox) =>
    processedEvents(outbox).contains({ handler: 'h', eventId: 'e-1' }),
  'processedEvents().deleteBefore': (outbox) => processedEvents(outbox).deleteBefore(new Date()),
}

/** Calls that wait for handlers. They are refused in every open transaction, however many sessions are free. */
export const WAITS_FOR_HANDLERS: Readonly<Record<string, Call>> = {
  poll: (outbox) => outbox.poll(),
  consumeOne: (outbox) => outbox.consumeOne(),
  drain: (outbox) => outbox.drain(),
}

/** Calls that work in an open transaction, on its session or without any. */
export const NEEDS_NO_SESSION: Readonly<Record<string, Call>> = {
  publish: (outbox) => outbox.publish(event()),
  publishAll: (outbox) => outbox.publishAll([event(), event()]),
  transaction: (outbox) => outbox.transaction((inner) => inner.publish(event())),
  'processedEvents().markProcessed': (outbox) =>
    processedEvents(outbox).markProcessed({ handler: 'h', eventId: 'e-1' }),
  health: (outbox) => outbox.health({ timeoutMs: 100 }),
  on: (outbox) => outbox.on('other', 'h', () => {}),
  onBatch: (outbox) => outbox.onBatch('other', 'b', { size: 1, waitMs: 0 }, () => {}),
  relay: (outbox) => outbox.relay(new InMemoryEventBus(), { events: ['third'] }),
  subscribe: (outbox) => outbox.subscribe('other', { name: 's', handle: () => {} }),
  subscribeAll: (outbox) => outbox.subscribeAll(['other'], { name: 'a', handle: () => {} }),
  handledTypes: (outbox) => outbox.handledTypes,
  transactionsOf: (outbox) => outbox.transactionsOf({} as never),
}

/** How the call ended in an open transaction, and that the transaction is as usable as before. */
export async function inside(outbox: Outbox<never>, call: Call): Promise<unknown> {
  let result: unknown
  const work = outbox.transaction(async (tx) => {
    result = await Promise.resolve(call(outbox, tx)).catch((error) => error)
    await tx.publish({ type: 'thing.happened', payload: 1, eventId: 'afterwards' })
  })
  await within('the call', work, LONG_MS)
  const record = await outbox.deadLetters.show('afterwards')
  if (record?.status !== 'NEW') throw new Error('the transaction has lost its event')
  return result
}

/** Checks that each call that waits for handlers is refused in an open transaction, which stays usable. */
export async function refusesToWaitForHandlers(outbox: Outbox<never>): Promise<void> {
  const calls = Object.entries(WAITS_FOR_HANDLERS)
  const errors = new Map<string, unknown>()
  const result = await inside(outbox, async (_outbox, tx) => {
    for (const [name, call] of calls) {
      errors.set(name, await Promise.resolve(call(outbox, tx)).catch((error) => error))
      const nested = tx.transaction(async (inner) => call(outbox, inner))
      errors.set(`${name} in a savepoint`, await nested.catch((error) => error))
    }
  })
  expect(result).toBeUndefined()
  for (const [name] of calls) {
    const message = `${name}() cannot run inside the open transaction: it waits for handlers, and a handler may wait for this transaction to end. Call ${name}() before the transaction begins or after its commit.`
    const refused = { name: 'NestedTransactionError', code: 'NESTED_TRANSACTION', message }
    expect(errors.get(name)).toMatchObject(refused)
    expect(errors.get(`${name} in a savepoint`)).toMatchObject(refused)
  }
}
