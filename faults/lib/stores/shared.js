import { EXACTLY_ONCE, HANDLERS } from '../cast.js'

const STATUS = ['NEW', 'DONE', 'RETRY', 'DEAD']

const EVENTS = `select event_id, seq, status, attempts, ordering_key, locked_by, last_error, event_type
  from outbox_event order by seq`
const BUSINESS = 'select event_id, akey, version from business'
const EFFECTS = 'select handler, event_id, count(*) as n from effect group by handler, event_id'
const PENDING = `select event_id, status, attempts, ordering_key, locked_by from outbox_event
  where status in (0, 2) order by seq limit 20`
const LEFT_OF_POISON = `select event_id, event_type, attempts from outbox_event
  where event_type in ('poison.fails', 'poison.kills') and status <> 3`

/** What is asked of the database of a round whatever the store, through `rows(text)`, which each store has. */
export class RoundDatabase {
  pending() {
    return this.rows(PENDING)
  }

  /** Poison that is not DEAD yet, and how often it was charged. */
  leftOfPoison() {
    return this.rows(LEFT_OF_POISON)
  }

  async finalState() {
    return stateOf(await this.rows(EVENTS), await this.rows(BUSINESS), await this.rows(EFFECTS))
  }
}

/** One database of a server, which somebody administers and the children use as `app`. */
export class ServerDatabase extends RoundDatabase {
  #server

  constructor(server, name) {
    super()
    this.#server = server
    this.name = name
  }

  get url() {
    return this.urlAs('app')
  }

  urlAs(user) {
    const url = new URL(this.#server.url)
    url.username = user
    url.pathname = `/${this.name}`
    return url.href
  }
}

/** The final state of a round, from the rows of the three queries above. */
function stateOf(events, business, effects) {
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
