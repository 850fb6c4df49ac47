import type { EventHandler } from '../bus.js'
import type { EventEnvelope } from '../core/envelope.js'
import { InvalidSettingError } from '../core/errors.js'
import { checkHandlerName } from '../core/handler-checks.js'
import { hasMethod, readSettings } from '../core/settings.js'
import { read } from '../core/unknown.js'
import type { HandlerContext, HandlerFunction } from '../handler.js'
import { checkHandler, type InboxLogOptions, type InboxOptions, nameFor } from './handler-name.js'
import type { ProcessedEventStore } from './processed-events.js'
import { skipLog } from './skip-log.js'

/**
 * Wraps a handler for `outbox.on` (a function), or for `subscribe` (an object), so that it skips events that it has already
 * processed. An event is marked after the handler has succeeded, so a crash in between, or two deliveries at the same time,
 * still run the handler twice. `exactlyOnce` prevents that for effects in the database of an outbox.
 */
export function idempotent<T>(
  handler: HandlerFunction<T>,
  store: ProcessedEventStore,
  options?: InboxOptions,
): (event: EventEnvelope<T>, context: HandlerContext) => Promise<void>
export function idempotent<T>(
  handler: EventHandler<T>,
  store: ProcessedEventStore,
  options?: InboxLogOptions,
): EventHandler<T>
export function idempotent<T>(
  handler: HandlerFunction<T> | EventHandler<T>,
  store: ProcessedEventStore,
  given: InboxOptions & InboxLogOptions = {},
): HandlerFunction<T> | EventHandler<T> {
  checkHandler(handler, 'idempotent(handler, store)')
  const names = typeof handler === 'function' ? (['name'] as const) : (['logger'] as const)
  const options = readSettings<InboxOptions & InboxLogOptions>('idempotent()', given, names)
  if (!hasMethod(store, 'contains') || !hasMethod(store, 'markProcessed')) {
    throw new InvalidSettingError('store', 'must keep marks: idempotent(handler, processedEvents(outbox))')
  }
  const once = async (
    handlerName: string,
    event: EventEnvelope<T>,
    handle: () => unknown,
  ): Promise<boolean> => {
    const mark = { handler: handlerName, eventId: event.eventId }
    if (await store.contains(mark)) return false
    await handle()
    await store.markProcessed(mark)
    return true
  }
  if (typeof handler !== 'function') {
    const name = checkHandlerName(read(handler, 'name'))
    const skipped = skipLog(name, options)
    return {
      name,
      handle: async (event) => {
        if (!(await once(name, event, () => handler.handle(event)))) skipped(event)
      },
    }
  }
  if (options.name !== undefined) checkHandlerName(options.name)
  return async (event, context) => {
    if (await once(nameFor(options, context), event, () => handler(event, context))) return
    context.log.debug({}, 'processed before; skipped')
  }
}
