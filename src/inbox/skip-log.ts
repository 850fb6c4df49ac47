import { currentLog } from '../ambient.js'
import type { EventEnvelope } from '../core/envelope.js'
import { needs } from '../core/settings.js'
import { safeLogger, withFields } from '../observe/logger.js'
import type { InboxLogOptions } from './handler-name.js'

/**
 * Returns a function that logs a skipped duplicate of a handler object, which gets no context to log with. Without a logger
 * in the options, the line goes to the log of the outbox or the bus that calls the handler.
 */
export function skipLog(handler: string, { logger }: InboxLogOptions): (event: EventEnvelope) => void {
  needs('logger', logger, ['debug', 'info', 'warn', 'error'])
  const own = logger && safeLogger(logger, undefined)
  return ({ eventId, eventType, metadata: { correlationId } }) => {
    const ids = {
      event_id: eventId,
      event_type: eventType,
      ...(correlationId && { correlation_id: correlationId }),
    }
    const log = own ? withFields(own, { ...ids, handler }) : currentLog()
    log?.debug({}, 'processed before; skipped')
  }
}
