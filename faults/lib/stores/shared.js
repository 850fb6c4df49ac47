import { EXACTLY_ONCE, HANDLERS } from '../cast.js'

const STATUS = ['NEW', 'DONE', 'RETRY', 'DEAD']

export const EVENTS = `select event_id, seq, status, attempts, ordering_key, locked_by, last_error, event_type
  from outbox_event order by seq`
export const BUSINESS = 'select event_id, akey, version from business'
export const EFFECTS = 'select handler, event_id, count(*) as n from effect group by handler, event_id'
export const PENDING = `select event_id, status, attempts, ordering_key, locked_by from outbox_event
  where status in (0, 2) order by seq limit 20`
export const LEFT_OF_POISON = `select event_id, event_type, attempts from outbox_event
  where event_type in ('poison.fails', 'poison.kills') and status <> 3`

/** The final state of a round, from the rows of the three queries above. */
export function stateOf(events, business, effects) {
  return {
    rows: events.map((row) => ({
      eventId: row.event_id,
      seq: Number(row.seq),
      status: STATUS[row.status],
      attempts: Number(row.attempts),
      orderingKey: row.ordering_key,
      lockedBy: row.locked_by,
      lastError: row.last_error,
      eventType: row.event_type,
    })),
    business: business.map((row) => ({
      eventId: row.event_id,
      key: row.akey,
      version: row.version === null ? null : Number(row.version),
    })),
    effects: effects.map((row) => ({ handler: row.handler, eventId: row.event_id, count: Number(row.n) })),
    handlers: HANDLERS,
    exactlyOnce: EXACTLY_ONCE,
    poison: events.filter((row) => row.event_type.startsWith('poison.')).map((row) => row.event_id),
  }
}
