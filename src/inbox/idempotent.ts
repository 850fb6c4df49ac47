import type { EventHandler } from '../bus.js'
import type { EventEnvelope } from '../core/envelope.js'
import { InvalidSettingError } from '../core/errors.js'
import type { HandlerContext, HandlerFunction } from '../handler.js'
import { checkHandler, checkName, type InboxOptions, nameFor } from './handler-name.js'
import type { ProcessedEventStore } from './processed-events.js'

/**
 * The same handler, for `outbox.on` (a function) or `bus.subscribe` (an object), which skips what it has processed.
 * Marked only after it succeeded: a crash in between, or two deliveries at once, still run it twice. Effects in the
 * database of an outbox need not live with that; see `exactlyOnce`.
 */
export function idempotent<T>(
  handler: HandlerFunction<T>,
  store: ProcessedEventStore,
  options?: InboxOptions,
): (event: EventEnvelope<T>, context: HandlerContext) => Promise<void>
export function idempotent<T>(handler: EventHandler<T>, store: ProcessedEventStore): EventHandler<T>
export function idempotent<T>(
  handler: HandlerFunction<T> | EventHandler<T>,
  store: ProcessedEventStore,
  options: InboxOptions = {},
): HandlerFunction<T> | EventHandler<T> {
  checkHandler(handler, 'idempotent(handler, store)')
  if (typeof store?.contains !== 'function' || typeof store.markProcessed !== 'function') {
    throw new InvalidSettingError('store', 'must keep marks: idempotent(handler, processedEvents(outbox))')
  }
  const once = async (name: string, event: EventEnvelope<T>, handle: () => unknown): Promise<boolean> => {
    if (await store.contains(name, event.eventId)) return false
    await handle()
    await store.markProcessed(name, event.eventId)
    return true
  }
  if (typeof handler !== 'function') {
    const name = checkName(handler.name)
    return {
      name,
      handle: async (event) => void (await once(name, event, () => handler.handle(event))),
    }
  }
  if (options.name !== undefined) checkName(options.name)
  return async (event, context) => {
    if (await once(nameFor(options, context), event, () => handler(event, context))) return
    context.log.debug({}, 'processed before; skipped')
  }
}
