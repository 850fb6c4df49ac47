import { InvalidSettingError } from '../core/errors.js'
import type { Logger } from '../observe/logger.js'
import type { EventFilter, EventRecord, EventStore } from '../store.js'

/** Which dead events: one by id, those of a type, or all of them. */
export type DeadLetterSelection = string | { readonly eventType: string } | { readonly all: true }

/** Events that are dead stay so until someone acts here. Each act leaves an audit line. */
export class DeadLetters {
  readonly #store: Pick<EventStore, 'list' | 'retryDead' | 'discardDead'>
  readonly #logger: Logger
  readonly #onChanged: () => void

  constructor(
    store: Pick<EventStore, 'list' | 'retryDead' | 'discardDead'>,
    logger: Logger,
    onChanged: () => void,
  ) {
    this.#store = store
    this.#logger = logger
    this.#onChanged = onChanged
  }

  /** In the order in which they were written; 100 at a time unless told. */
  list(
    filter: { eventType?: string; limit?: number; afterSeq?: number } = {},
  ): Promise<readonly EventRecord[]> {
    return this.#store.list({ ...filter, status: 'DEAD' })
  }

  /** The whole story of one event, dead or not; undefined when there is no such event. */
  async show(eventId: string): Promise<EventRecord | undefined> {
    const [record] = await this.#store.list({ eventIds: [eventId], limit: 1 })
    return record
  }

  /** Due again at once, with a fresh count of attempts. Returns the ids. */
  async retry(selection: DeadLetterSelection): Promise<readonly string[]> {
    const ids = await this.#store.retryDead(filterOf(selection))
    this.#logger.info(
      { act: 'retry', event_ids: ids.slice(0, 100), count: ids.length },
      'dead letters retried',
    )
    if (ids.length > 0) this.#onChanged()
    return ids
  }

  /** Deletes them for good. Returns the ids. */
  async discard(selection: DeadLetterSelection): Promise<readonly string[]> {
    const ids = await this.#store.discardDead(filterOf(selection))
    this.#logger.info(
      { act: 'discard', event_ids: ids.slice(0, 100), count: ids.length },
      'dead letters discarded',
    )
    // An ordering key may have waited for it.
    if (ids.length > 0) this.#onChanged()
    return ids
  }
}

function filterOf(selection: DeadLetterSelection): EventFilter {
  if (typeof selection === 'string' && selection !== '') return { eventIds: [selection] }
  const { eventType, all, ...unknown } = (Object(selection) ?? {}) as { eventType?: unknown; all?: unknown }
  if (Object.keys(unknown).length === 0) {
    if (typeof eventType === 'string' && eventType !== '' && all === undefined) return { eventType }
    if (all === true && eventType === undefined) return {}
  }
  throw new InvalidSettingError('dead letters', 'are chosen by an event id, { eventType } or { all: true }')
}
