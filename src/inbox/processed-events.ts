import { type Clock, systemClock } from '../core/clock.js'
import { InvalidSettingError } from '../core/errors.js'
import { EventId } from '../core/event-id.js'
import { checkHandlerName } from '../core/handler-checks.js'
import { nameNested } from '../core/name-nested.js'
import { timeOf } from '../core/plain.js'
import { hasMethod, readSettings, requireMethods } from '../core/settings.js'
import { read } from '../core/unknown.js'
import type { OutboxStore } from '../store.js'
import type { Transaction } from '../transaction.js'

/** The mark that a handler has processed an event. An object, because two strings could be swapped without an error. */
export interface ProcessedEvent {
  readonly handler: string
  readonly eventId: string
}

/** Marks of the events that each handler has processed. A handler does not see the marks of another handler. */
export interface ProcessedEventStore {
  contains(mark: ProcessedEvent): Promise<boolean>
  /** Does nothing when the mark exists already. */
  markProcessed(mark: ProcessedEvent): Promise<void>
  /** Deletes the marks that were made before this time. Returns their number. */
  deleteBefore(date: Date): Promise<number>
}

/** The part of an outbox that the inbox uses. */
export interface OutboxLike<Client> {
  readonly store: Pick<OutboxStore, 'isProcessed' | 'pruneProcessed'> & {
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
  if (!hasMethod(read(outbox, 'store'), 'isProcessed') || !hasMethod(outbox, 'transaction')) {
    throw new InvalidSettingError('outbox', 'must be an outbox: processedEvents(outbox)')
  }
  const { store, clock = systemClock } = outbox
  return {
    async contains(mark) {
      const { handler, eventId } = checkMark('contains', mark)
      return nameNested('processedEvents().contains()', () => store.isProcessed(handler, eventId))
    },
    async markProcessed(mark) {
      const { handler, eventId } = checkMark('markProcessed', mark)
      await outbox.transaction((tx) => store.markProcessed(tx.client, handler, eventId))
    },
    async deleteBefore(date) {
      const before = checkDate(date)
      for (let deleted = 0; ; ) {
        // Anew for each batch, since time goes on; what was marked at that very moment is not older.
        const ageMs = Math.min(clock.now() - before + 1, OLDEST_MS)
        const batch = await nameNested('processedEvents().deleteBefore()', () =>
          store.pruneProcessed(ageMs, BATCH),
        )
        deleted += batch
        if (batch < BATCH) return deleted
      }
    },
  }
}

/** Marks that are gone with the process, for tests and for effects that are gone with it as well. Grows until pruned. */
export function memoryProcessedEvents(options?: { readonly clock?: Clock }): ProcessedEventStore {
  const { clock = systemClock } = readSettings('memoryProcessedEvents()', options, ['clock'])
  requireMethods('clock', clock, ['now'])
  const marks = new Map<string, number>()
  const keyOf = ({ handler, eventId }: ProcessedEvent) => JSON.stringify([handler, eventId])
  return {
    contains: async (mark) => marks.has(keyOf(checkMark('contains', mark))),
    async markProcessed(mark) {
      const key = keyOf(checkMark('markProcessed', mark))
      if (!marks.has(key)) marks.set(key, clock.now())
    },
    async deleteBefore(date) {
      const before = checkDate(date)
      const old = [...marks].filter(([, at]) => at < before)
      for (const [key] of old) marks.delete(key)
      return old.length
    },
  }
}

function checkMark(method: string, mark: ProcessedEvent): ProcessedEvent {
  if (typeof mark !== 'object' || mark === null) {
    throw new InvalidSettingError(method, `takes an object: ${method}({ handler, eventId })`)
  }
  const handler = checkHandlerName(read(mark, 'handler'))
  return { handler, eventId: EventId.from(read(mark, 'eventId') as string) }
}

function checkDate(date: Date): number {
  const time = timeOf(date)
  if (Number.isNaN(time)) throw new InvalidSettingError('deleteBefore', 'takes a Date')
  return time
}
