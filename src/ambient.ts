import { AsyncLocalStorage } from 'node:async_hooks'
import type { EventEnvelope } from './core/envelope.js'

/** What surrounds the running code: the event being handled, and the open transaction of each outbox. */
interface Ambient {
  readonly event: EventEnvelope | undefined
  readonly owner: object | undefined
  readonly transaction: unknown
  readonly outer: Ambient | undefined
}

const storage = new AsyncLocalStorage<Ambient>()

/** Runs inside a transaction of `owner`; another outbox does not see it. */
export function runInTransaction<T>(owner: object, transaction: unknown, body: () => T): T {
  const outer = storage.getStore()
  return storage.run({ event: outer?.event, owner, transaction, outer }, body)
}

export function currentTransaction(owner: object): unknown {
  for (let at = storage.getStore(); at; at = at.outer) if (at.owner === owner) return at.transaction
  return undefined
}

/** Runs a handler: it sees its event, and no transaction of whoever published it. */
export function runHandling<Context, T>(
  event: EventEnvelope,
  handle: (event: EventEnvelope, context: Context) => T,
  context: Context,
): T {
  const ambient = { event, owner: undefined, transaction: undefined, outer: undefined }
  return storage.run(ambient, handle, event, context)
}

export function currentEvent(): EventEnvelope | undefined {
  return storage.getStore()?.event
}

/** Captures the context of the caller, to run later work in it and not in that of whoever triggers it. */
export function captureContext(): <T>(body: () => T) => T {
  return AsyncLocalStorage.snapshot()
}
