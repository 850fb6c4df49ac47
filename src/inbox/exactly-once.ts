import { runHandling } from '../ambient.js'
import type { EventHandler } from '../bus.js'
import type { EventEnvelope } from '../core/envelope.js'
import { InvalidSettingError } from '../core/errors.js'
import { checkHandlerName } from '../core/handler-checks.js'
import { hasMethod, readSettings } from '../core/settings.js'
import { read } from '../core/unknown.js'
import type { HandlerContext } from '../handler.js'
import type { Transaction } from '../transaction.js'
import { checkHandler, type InboxLogOptions, type InboxOptions, nameFor } from './handler-name.js'
import type { OutboxLike } from './processed-events.js'
import { skipLog } from './skip-log.js'

export interface ExactlyOnceContext<Client> extends HandlerContext {
  /** What is done and published here is committed together with the mark, or not at all. */
  readonly tx: Transaction<Client>
}

export type ExactlyOnceFunction<T, Client> = (
  event: EventEnvelope<T>,
  context: ExactlyOnceContext<Client>,
) => unknown

/** For `bus.subscribe`. */
export interface ExactlyOnceHandler<T, Client> {
  readonly name: string
  handle(event: EventEnvelope<T>, context: { readonly tx: Transaction<Client> }): unknown
}

/**
 * Runs the handler in a transaction of the outbox that begins with the mark of this handler and event. A duplicate runs
 * nothing; one that comes while the first is under way waits for its end. Resolves after the commit, so that a broker
 * is answered no sooner. On any failure, also CommitUnknownError, the next attempt learns from the mark what happened.
 * Only what goes through `tx` is protected.
 */
export function exactlyOnce<T, Client>(
  handler: ExactlyOnceFunction<T, Client>,
  outbox: OutboxLike<Client>,
  options?: InboxOptions,
): (event: EventEnvelope<T>, context: HandlerContext) => Promise<void>
export function exactlyOnce<T, Client>(
  handler: ExactlyOnceHandler<T, Client>,
  outbox: OutboxLike<Client>,
  options?: InboxLogOptions,
): EventHandler<T>
export function exactlyOnce<T, Client>(
  handler: ExactlyOnceFunction<T, Client> | ExactlyOnceHandler<T, Client>,
  outbox: OutboxLike<Client>,
  given: InboxOptions & InboxLogOptions = {},
): ((event: EventEnvelope<T>, context: HandlerContext) => Promise<void>) | EventHandler<T> {
  checkHandler(handler, 'exactlyOnce(handler, outbox)')
  const names = typeof handler === 'function' ? (['name'] as const) : (['logger'] as const)
  const options = readSettings<InboxOptions & InboxLogOptions>('exactlyOnce()', given, names)
  if (!hasMethod(read(outbox, 'store'), 'markProcessed') || !hasMethod(outbox, 'transaction')) {
    throw new InvalidSettingError('outbox', 'must be an outbox: exactlyOnce(handler, outbox)')
  }
  const once = (
    name: string,
    event: EventEnvelope<T>,
    handle: (tx: Transaction<Client>) => unknown,
  ): Promise<boolean> =>
    outbox.transaction(async (tx) => {
      if (!(await outbox.store.markProcessed(tx.client, name, event.eventId))) return false
      await handle(tx)
      return true
    })

  if (typeof handler !== 'function') {
    const name = checkHandlerName(read(handler, 'name'))
    const skipped = skipLog(name, options)
    const handle = async (event: EventEnvelope<T>): Promise<void> => {
      const run = () => once(name, event, (tx) => handler.handle(event, { tx }))
      // Joining a transaction that happens to surround the call would answer the broker before the commit.
      if (!(await runHandling(event, run, undefined))) skipped(event)
    }
    return { name, handle }
  }
  if (options.name !== undefined) checkHandlerName(options.name)
  return async (event, context) => {
    const name = nameFor(options, context)
    if (await once(name, event, (tx) => handler(event, withTransaction(context, tx)))) return
    context.log.debug({}, 'processed before; skipped')
  }
}

/** Signal and logger are made when they are asked for. */
function withTransaction<Client>(
  context: HandlerContext,
  tx: Transaction<Client>,
): ExactlyOnceContext<Client> {
  return {
    tx,
    attempt: context.attempt,
    handler: context.handler,
    scope: context.scope,
    get signal() {
      return context.signal
    },
    get log() {
      return context.log
    },
  }
}
