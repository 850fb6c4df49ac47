import { InvalidSettingError } from '../core/errors.js'
import { nameNested } from '../core/name-nested.js'
import { integerSetting } from '../core/number-settings.js'
import { readSettings } from '../core/settings.js'
import { eventIdsFields } from '../observe/event-fields.js'
import type { Logger } from '../observe/logger.js'
import type { EventFilter, EventRecord, OutboxStore } from '../store.js'

/** Which dead events: one by id, those of a type, or all of them. */
export type DeadLetterSelection = string | { readonly eventType: string } | { readonly all: true }

export interface DeadLetterOptions {
  /** At most so many, those that were written first; for work in batches. Default all that are chosen. */
  readonly limit?: number
}

export interface DeadLetterCount {
  readonly eventType: string
  readonly count: number
}

type DeadLetterStore = Pick<OutboxStore, 'list' | 'overview' | 'retryDead' | 'discardDead'>

/** Events that are dead stay so until someone acts here. Each act leaves an audit line. */
export class DeadLetters {
  readonly #store: DeadLetterStore
  readonly #logger: Logger
  readonly #onChanged: () => void

  constructor(store: DeadLetterStore, logger: Logger, onChanged: () => void) {
    this.#store = store
    this.#logger = logger
    this.#onChanged = onChanged
  }

  /** In the order in which they were written; 100 at a time unless told. */
  async list(
    given: { eventType?: string; limit?: number; afterSeq?: number } = {},
  ): Promise<readonly EventRecord[]> {
    const filter = readSettings('list()', given, ['eventType', 'limit', 'afterSeq'])
    if (filter.afterSeq !== undefined) integerSetting('afterSeq', filter.afterSeq)
    return nameNested('deadLetters.list()', () =>
      this.#store.list({ ...filter, limit: limitOf(filter.limit ?? 100), status: 'DEAD' }),
    )
  }

  /** How many there are of each type, most of them first. It counts rows, so it is not free. */
  async counts(): Promise<readonly DeadLetterCount[]> {
    const { types } = await nameNested('deadLetters.counts()', () => this.#store.overview())
    return types
      .filter(({ dead }) => dead > 0)
      .map(({ eventType, dead }) => ({ eventType, count: dead }))
      .sort((a, b) => b.count - a.count || (a.eventType < b.eventType ? -1 : 1))
  }

  /** The whole story of one event, dead or not; undefined when there is no such event. */
  async show(eventId: string): Promise<EventRecord | undefined> {
    const [record] = await nameNested('deadLetters.show()', () =>
      this.#store.list({ eventIds: [eventId], limit: 1 }),
    )
    return record
  }

  /** Due again at once, with a fresh count of attempts. Returns the ids. */
  async retry(selection: DeadLetterSelection, options: DeadLetterOptions = {}): Promise<readonly string[]> {
    const filter = filterOf(selection, options)
    const ids = await nameNested('deadLetters.retry()', () => this.#store.retryDead(filter))
    this.#logger.info({ act: 'retry', ...eventIdsFields(ids) }, 'dead letters retried')
    if (ids.length > 0) this.#onChanged()
    return ids
  }

  /** Deletes them for good. Returns the ids. */
  async discard(selection: DeadLetterSelection, options: DeadLetterOptions = {}): Promise<readonly string[]> {
    const filter = filterOf(selection, options)
    const ids = await nameNested('deadLetters.discard()', () => this.#store.discardDead(filter))
    this.#logger.info({ act: 'discard', ...eventIdsFields(ids) }, 'dead letters discarded')
    // An ordering key may have waited for it.
    if (ids.length > 0) this.#onChanged()
    return ids
  }
}

/** At most what every database takes. */
function limitOf(limit: number): number {
  return Math.min(integerSetting('limit', limit, { min: 1 }), 2 ** 31 - 1)
}

function filterOf(selection: DeadLetterSelection, options: DeadLetterOptions): EventFilter {
  const { limit } = readSettings('options', options, ['limit'])
  if (limit === undefined) return chosenBy(selection)
  return { ...chosenBy(selection), limit: limitOf(limit) }
}

function chosenBy(selection: DeadLetterSelection): EventFilter {
  if (typeof selection === 'string' && selection !== '') return { eventIds: [selection] }
  if (typeof selection === 'object' && selection !== null) {
    const { eventType, all } = readSettings<{ eventType?: unknown; all?: unknown }>(
      'dead letters',
      selection,
      ['eventType', 'all'],
    )
    if (typeof eventType === 'string' && eventType !== '' && all === undefined) return { eventType }
    if (all === true && eventType === undefined) return {}
  }
  throw new InvalidSettingError('dead letters', 'are chosen by an event id, { eventType } or { all: true }')
}
