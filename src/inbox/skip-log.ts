import { currentEvent, currentLog } from '../ambient.js'
import type { EventEnvelope } from '../core/envelope.js'
import { requireMethods } from '../core/settings.js'
import { eventFields } from '../observe/event-fields.js'
import { type Logger, safeLogger, withFields, withoutFields } from '../observe/logger.js'
import type { InboxLogOptions } from './handler-name.js'

/**
 * Returns a function that logs a skipped duplicate of a handler object, which gets no context to log with. Without a logger
 * in the options, the line goes to the log of the outbox or the bus that calls the handler.
 */
export function skipLog(handler: string, { logger }: InboxLogOptions): (event: EventEnvelope) => void {
  requireMethods('logger', logger, ['debug', 'info', 'warn', 'error'])
  const own = logger && safeLogger(logger, undefined)
  return (event) => {
    const log = own ?? callersLog(event)
    if (log) withFields(log, { ...eventFields(event), handler }).debug({}, 'processed before; skipped')
  }
}

/** The log of the surrounding call. Its fields are kept only if they are about the same event. */
function callersLog({ eventId }: EventEnvelope): Logger | undefined {
  const log = currentLog()
  return log && currentEvent()?.eventId !== eventId ? withoutFields(log) : log
}
