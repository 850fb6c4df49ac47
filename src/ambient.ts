import { AsyncLocalStorage } from 'node:async_hooks'
import type { EventEnvelope } from './core/envelope.js'
import type { Logger } from './observe/logger.js'
import type { StoreSessions } from './store.js'

/** Context of the running code: the event being handled, and the open transaction of each outbox. */
interface Ambient {
  readonly event: EventEnvelope | undefined
  /** Context of the running handler. */
  readonly context: HandlingContext
  readonly owner: object | undefined
  readonly transaction: unknown
  readonly outer: Ambient | undefined
  /** Context from which a handler was called. The handler does not see its transactions, but their sessions count as taken. */
  readonly caller: Ambient | undefined
}

/** A transaction that may hold a session of a store. */
export interface SessionHolder {
  /** Source of the sessions of its store. */
  readonly sessionOf: object | undefined
  /** The transaction itself; a savepoint is no further session. */
  readonly root: object
  readonly host: object | undefined
  readonly ended: boolean
}

/** The logger of the call, with the ids of the event bound. */
type HandlingContext = { readonly log: Logger } | undefined

const storage = new AsyncLocalStorage<Ambient>()

/** Runs inside a transaction of `owner`; another outbox does not see it. */
export function runInTransaction<Tx, T>(owner: object, transaction: Tx, body: (transaction: Tx) => T): T {
  const outer = storage.getStore()
  return storage.run(
    { event: outer?.event, context: outer?.context, owner, transaction, outer, caller: undefined },
    body,
    transaction,
  )
}

export function currentTransaction(owner: object): unknown {
  for (let at = storage.getStore(); at; at = at.outer) if (at.owner === owner) return at.transaction
  return undefined
}

/**
 * Whether the open transactions around the caller hold every session that is free. A statement that needs another session
 * would then wait for its own caller.
 */
export function holdsEverySession({ source, free, isOnly }: StoreSessions): boolean {
  let at = free === Number.POSITIVE_INFINITY ? undefined : storage.getStore()
  if (at === undefined) return false
  const held = new Set<object>()
  for (; at; at = at.outer ?? at.caller) {
    const holder = at.transaction as SessionHolder | undefined
    // A pool of an ORM may be another one.
    if (holder?.sessionOf === source && !holder.ended && (isOnly || !holder.host)) held.add(holder.root)
  }
  return held.size >= free
}

/** Runs a handler. The handler sees its event, but not the transaction of the code that published the event. */
export function runHandling<Context extends HandlingContext, T>(
  event: EventEnvelope,
  handle: (event: EventEnvelope, context: Context) => T,
  context: Context,
): T {
  const caller = storage.getStore()
  const ambient = { event, context, owner: undefined, transaction: undefined, outer: undefined, caller }
  return storage.run(ambient, handle, event, context)
}

export function currentEvent(): EventEnvelope | undefined {
  return storage.getStore()?.event
}

/** Logger of the handler call that surrounds the running code. */
export function currentLog(): Logger | undefined {
  return storage.getStore()?.context?.log
}

interface Inside {
  readonly subject: object
  readonly outer: Inside | undefined
  isOver: boolean
}

const inside = new AsyncLocalStorage<Inside>()
const last = new WeakMap<object, Promise<unknown>>()

/**
 * Runs one piece of work per subject at a time, in the order of the calls. Rejects with the error of `nested` if the caller is
 * itself part of such work at any depth, because it would wait for itself.
 */
export async function serialized<T>(
  subject: object,
  work: () => Promise<T>,
  nested: () => Error,
): Promise<T> {
  const outer = inside.getStore()
  for (let at = outer; at; at = at.outer) if (at.subject === subject && !at.isOver) throw nested()
  const mine: Inside = { subject, outer, isOver: false }
  const result = (last.get(subject) ?? Promise.resolve()).then(() => inside.run(mine, work))
  const ended = () => {
    mine.isOver = true
  }
  last.set(subject, result.then(ended, ended))
  return result
}

/** Captures the context of the caller. The returned function runs later work in this context. */
export function captureContext(): <T>(body: () => T) => T {
  return AsyncLocalStorage.snapshot()
}
