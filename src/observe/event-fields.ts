import { MAX_EVENT_ID } from '../core/event-id.js'
import type { EventMetadata } from '../core/metadata.js'
import { isClean, quoteText } from '../core/text.js'
import type { LogFields } from './logger.js'

/* The fields of log lines about events. Payloads, headers, ordering keys and user ids are not among them. */

interface LoggedEvent {
  readonly eventId: string
  readonly eventType: string
  readonly metadata: Pick<EventMetadata, 'correlationId'>
}

/** Returns `event_id`, `event_type` and, if the event has a correlation id, `correlation_id`. */
export function eventFields({ eventId, eventType, metadata }: LoggedEvent): LogFields {
  const { correlationId } = metadata
  return {
    event_id: loggableId(eventId),
    event_type: eventType,
    ...(correlationId === undefined ? {} : { correlation_id: correlationId }),
  }
}

/** Returns the fields of a handler call: those of the event, `handler` and `attempt`, which counts from 1. */
export function callFields(event: LoggedEvent, handler: string, attempt: number): LogFields {
  return { ...eventFields(event), handler, attempt }
}

/** Returns `event_id` for a log line in whose place only the id of the event is known. */
export function eventIdField(eventId: string): LogFields {
  return { event_id: loggableId(eventId) }
}

const MOST_IDS = 100

/** Returns `event_ids`, which has the first 100 ids, and `count`. */
export function eventIdsFields(eventIds: readonly string[]): LogFields {
  return { event_ids: eventIds.slice(0, MOST_IDS).map(loggableId), count: eventIds.length }
}

/** Quotes and shortens an id that plain SQL wrote with any length and any characters. */
function loggableId(eventId: string): string {
  return eventId.length <= MAX_EVENT_ID && isClean(eventId) ? eventId : quoteText(eventId, MAX_EVENT_ID)
}
