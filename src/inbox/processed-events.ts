import { type Clock, systemClock } from '../core/clock.js'
import { InvalidSettingError } from '../core/errors.js'
import { EventId } from '../core/event-id.js'
import type { EventStore } from '../store.js'
import type { Transaction } from '../transaction.js'
import { checkName } from './handler-name.js'

/** What each handler has processed. One handler does not see the marks of another. */
export interface ProcessedEventStore {
  contains(handler: string, eventId: string): Promise<boolean>
  /** A mark that is there already stays as it is. */
  markProcessed(handler: string, eventId: string): Promise<void>
  /** Forgets what was marked before that moment. Returns how many marks that were. */
  deleteBefore(date: Date): Promise<number>
}

/** What the inbox needs of an outbox; every outbox has it. */
export interface OutboxLike<Client> {
  readonly store: Pick<EventStore, 'isProcessed' | 'pruneProcessed'> & {
    markProcessed(client: Client, handler: string, eventId: string): Promise<boolean>
  }
  readonly clock?: Clock
  transaction<T>(body: (tx: Transaction<Client>) => Promise<T>): Promise<T>
}

const BATCH = 1_000
/** No mark is older than a hundred years, and databases have no dates for some of what JavaScript has. */
const OLDEST_MS = 3_155_760_000_000

/**
 * The marks in the outbox's own database, where `exactlyOnce` keeps them too. Inside a transaction of the outbox a mark
 * is part of it. The outbox deletes them by itself after `retention.processedMs`.
 */
export function processedEvents<Client>(outbox: OutboxLike<Client>): ProcessedEventStore {
  const { store, clock = systemClock } = outbox
  return {
    contains: (handler, eventId) => store.isProcessed(handler, eventId),
    async markProcessed(handler, eventId) {
      const mark = [checkName(handler), EventId.from(eventId)] as const
      await outbox.transaction((tx) => store.markProcessed(tx.client, ...mark))
    },
    async deleteBefore(date) {
      const before = timeOf(date)
      for (let deleted = 0; ; ) {
        // Anew for each batch, since time goes on; what was marked at that very moment is not older.
        const ageMs = Math.min(clock.now() - before + 1, OLDEST_MS)
        const batch = await store.pruneProcessed(ageMs, BATCH)
        deleted += batch
        if (batch < BATCH) return deleted
      }
    },
  }
}

/** Marks that are gone with the process, for tests and for effects that are gone with it as well. Grows until pruned. */
export function memoryProcessedEvents(options: { readonly clock?: Clock } = {}): ProcessedEventStore {
  const { clock = systemClock } = options
  const marks = new Map<string, number>()
  const keyOf = (handler: string, eventId: string) => JSON.stringify([handler, eventId])
  return {
    contains: async (handler, eventId) => marks.has(keyOf(handler, eventId)),
    async markProcessed(handler, eventId) {
      const key = keyOf(handler, eventId)
      if (!marks.has(key)) marks.set(key, clock.now())
    },
    async deleteBefore(date) {
      const before = timeOf(date)
      const old = [...marks].filter(([, at]) => at < before)
      for (const [key] of old) marks.delete(key)
      return old.length
    },
  }
}

function timeOf(date: Date): number {
  const time = date instanceof Date ? date.getTime() : Number.NaN
  if (Number.isNaN(time)) throw new InvalidSettingError('deleteBefore', 'takes a Date')
  return time
}
