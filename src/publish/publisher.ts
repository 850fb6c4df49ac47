import { currentEvent } from '../ambient.js'
import type { EventCatalog } from '../core/catalog.js'
import type { Clock, Timer } from '../core/clock.js'
import { type PublishableEvent, readEvents } from '../core/domain-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import { DuplicateEventError } from '../core/errors.js'
import { redactDriverError } from '../core/redact.js'
import { eventFields } from '../observe/event-fields.js'
import { type LogFields, type Logger, logs, type Redact } from '../observe/logger.js'
import { type MetricsExporter, typeLabels } from '../observe/metrics.js'
import { type Tracer, traced, tracedEvent, withTrace } from '../observe/tracing.js'
import type { Doorbell, HotPath, Wakeups } from '../ports.js'
import type { ReadPublishOptions } from '../publish-options.js'
import type { AppendRow, EventStore } from '../store.js'
import type { TransactionSession } from '../transaction.js'

/** Event whose row is written, and whose transaction is still open. */
export interface PendingEvent {
  /** The whole envelope only for an event of the hot path, because a large transaction must not keep all its payloads. */
  readonly event: PublishedEvent
  /** NaN until the row is written. May be lower than the real `seq` if the transaction did not read it. */
  seq: number
  /** Whether the event has a reservation in the hot path, and its row is leased to this process. */
  readonly isHot: boolean
  /** Monotonic time from before the insert was sent. */
  askedAt: number
  /** Whether the event waits for a time, which the clock of the database decides. */
  readonly isDelayed: boolean
}

/** Checked events and options of one publish call. */
export interface PreparedEvents {
  readonly events: readonly EventEnvelope[]
  /** Whether no event has an id that could be in the outbox already. */
  readonly haveNewIds: boolean
  readonly options: ReadPublishOptions
}

/** Result of one publish call. */
export interface AppendedEvents {
  readonly ids: EventEnvelope['eventId'][]
  readonly pending: PendingEvent[]
}

type PublishedEvent = Pick<
  EventEnvelope,
  'eventId' | 'eventType' | 'aggregateType' | 'orderingKey' | 'metadata' | 'payloadSize'
>

export interface PublisherOptions<Client> {
  readonly store: Pick<EventStore<Client>, 'append'>
  readonly clock: Clock
  readonly catalog: EventCatalog
  readonly hotPath: HotPath
  readonly wakeups: Wakeups
  readonly doorbell: Doorbell
  readonly leaseMs: number
  readonly logger: Logger
  readonly redact: Redact | undefined
  readonly metrics: MetricsExporter | undefined
  readonly tracer: Tracer | undefined
}

/** Fields of the audit line of an event whose transaction may still be rolled back. */
const UNOBSERVED: LogFields = { commit: 'unobserved' }
/** When to look for rows whose commit is not reported. */
const UNOBSERVED_DELAYS_MS = [10, 100, 1_000]

/** Appends events in the caller's transaction, and hands them to the hot path or to the claimers after its commit. */
export class Publisher<Client> {
  readonly #options: PublisherOptions<Client>
  readonly #timers = new Set<Timer>()

  constructor(options: PublisherOptions<Client>) {
    this.#options = options
  }

  close(): void {
    for (const timer of this.#timers) timer.cancel()
    this.#timers.clear()
  }

  /**
   * Reads the events of a publish call. The caller can change its objects as soon as publish() has returned, and some rows
   * are written later, so nothing else reads these objects. Throws if an event is invalid.
   */
  prepare(given: readonly PublishableEvent[], options: ReadPublishOptions): PreparedEvents {
    const { envelopes, haveNewIds } = readEvents(given, this.#options.catalog)
    const parent = currentEvent()
    if (parent !== undefined) {
      for (const [at, event] of envelopes.entries()) {
        if (event.metadata.causationId === undefined) envelopes[at] = event.causedBy(parent)
      }
    }
    return { events: envelopes, haveNewIds, options }
  }

  /**
   * Writes the rows in the caller's transaction in one statement. With a `session`, the caller reports the end of the
   * transaction, so that events can use the hot path. Without a session, the rows are written without a lease.
   */
  append(
    client: Client,
    prepared: PreparedEvents,
    session?: TransactionSession<Client>,
  ): AppendedEvents | Promise<AppendedEvents> {
    const { tracer, redact } = this.#options
    const { events } = prepared
    try {
      if (tracer === undefined || events.length === 0) {
        return this.#write(client, events, prepared, session)
      }
      const plan = { operation: 'publish', events: events.map(tracedEvent) } as const
      return traced(tracer, plan, { redact }, (context) => {
        const carrying = events.map((event) => withTrace(event, context))
        return this.#write(client, carrying, prepared, session)
      })
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Returns no promise if the rows are sent with the COMMIT, because this is the path of most events (bar B3). */
  #write(
    client: Client,
    given: readonly EventEnvelope[],
    { options, haveNewIds }: PreparedEvents,
    session: TransactionSession<Client> | undefined,
  ): AppendedEvents | Promise<AppendedEvents> {
    const { clock, hotPath } = this.#options
    const { delayMs, deliverAt } = options
    const { first, duplicates } = splitDuplicates(given)
    if (duplicates.length > 0 && options.onDuplicate !== 'ignore') throw new DuplicateEventError(duplicates)
    const isDelayed = (delayMs !== undefined && delayMs > 0) || deliverAt !== undefined
    const mayBeHot = session !== undefined && !isDelayed
    const askedAt = clock.monotonic()
    // push() instead of map(): V8 gives the arrays of map() another elements kind once the caller is optimised, and then
    // deoptimises the functions that read them.
    const pending: PendingEvent[] = []
    const rows: AppendRow[] = []
    for (const event of first) {
      const isHot = mayBeHot && hotPath.reserve(event)
      pending.push({
        event: isHot ? event : withoutPayload(event),
        seq: Number.NaN,
        isHot,
        askedAt,
        isDelayed,
      })
      rows.push({ event, token: isHot ? hotPath.token : null, delayMs, deliverAt })
    }
    const ids: AppendedEvents['ids'] = []
    for (const event of given) ids.push(event.eventId)
    const mayWait = given.length > 0 && options.onDuplicate !== 'ignore' && haveNewIds
    const failed = (error: unknown): never => {
      this.cancelReservations(pending)
      throw redactDriverError(error, first)
    }
    if (!mayWait || !session?.appendLater) {
      const appended = this.#appendNow(client, rows, pending, options)
      return appended.then((present) => ({ ids, pending: present }), failed)
    }
    try {
      const written = this.#appendLater(session, rows, pending)
      return written ? written.then(() => ({ ids, pending }), failed) : { ids, pending }
    } catch (error) {
      return failed(error)
    }
  }

  /** Returns the events that were written. An ignored duplicate is not among them. */
  async #appendNow(
    client: Client,
    rows: readonly AppendRow[],
    pending: readonly PendingEvent[],
    { onDuplicate = 'error' }: ReadPublishOptions,
  ): Promise<PendingEvent[]> {
    const { store, leaseMs } = this.#options
    const { seqs, duplicates } = await store.append(client, rows, { leaseMs, onDuplicate })
    if (duplicates.length > 0 && onDuplicate === 'error') throw new DuplicateEventError(duplicates)
    setSeqs(pending, seqs)
    this.cancelReservations(pending.filter(isUnwritten))
    return pending.filter((event) => !isUnwritten(event))
  }

  #appendLater(
    session: TransactionSession<Client>,
    rows: readonly AppendRow[],
    pending: readonly PendingEvent[],
  ): Promise<void> | undefined {
    const { clock, leaseMs } = this.#options
    return session.appendLater?.({
      rows,
      leaseMs,
      sent: () => {
        const askedAt = clock.monotonic()
        for (const event of pending) event.askedAt = askedAt
      },
      written: (seqs) => setSeqs(pending, seqs),
    })
  }

  /** Lets the transaction ring the doorbell for rows that this process leaves to others. Returns whether it does. */
  ringWith(session: TransactionSession<Client>, pending: readonly PendingEvent[]): boolean {
    const cold = pending.filter((event) => !event.isHot && !event.isDelayed && !isOrdered(event))
    if (cold.length === 0 || !session.ringAfterCommit || !this.#options.doorbell.lend()) return false
    const onlyLate = cold.length === 1 && cold.every(isUnwritten)
    session.ringAfterCommit({ lowestSeq: () => lowestSeqOf(cold), onlyLate })
    return true
  }

  /** Announces the events of a committed transaction. `hasRung`: the transaction has rung the doorbell. */
  committed(pending: readonly PendingEvent[], hasRung: boolean): void {
    const { hotPath, wakeups, doorbell } = this.#options
    let lowestSeq: number | null = null
    let isHandledHere = false
    let hasDelayed = false
    let hasOrdered = false
    for (const published of pending) {
      // A trigger of the application has prevented the insert.
      if (isUnwritten(published)) {
        this.cancelReservations([published])
        continue
      }
      const { event } = published
      this.#audit(event)
      if (published.isHot && hotPath.deliver(event as EventEnvelope, published.askedAt)) continue
      if (published.isDelayed) hasDelayed = true
      if (isOrdered(published)) hasOrdered = true
      if (published.isDelayed || isOrdered(published)) continue
      lowestSeq = Math.min(lowestSeq ?? Number.POSITIVE_INFINITY, published.seq)
      isHandledHere ||= hotPath.handles(event)
    }
    if (hasDelayed) {
      // All claimers look at all rows once, and so learn when the row becomes due.
      wakeups.request({ reason: 'everything' })
      doorbell.ring(null)
    }
    if (hasOrdered) this.#announceOrdered()
    if (lowestSeq === null) return
    if (isHandledHere) wakeups.request({ reason: 'new', fromSeq: lowestSeq })
    if (!hasRung) doorbell.ring(lowestSeq)
  }

  #announceOrdered(): void {
    this.#options.wakeups.request({ reason: 'ordered' })
    this.#options.doorbell.ring('ordered')
  }

  /** The rows are gone, or the end of their transaction is unknown: nothing is announced. */
  cancelReservations(pending: readonly PendingEvent[]): void {
    for (const { isHot, event } of pending) if (isHot) this.#options.hotPath.cancelReservation(event)
  }

  /**
   * The rows are written in a transaction that the caller began and that the outbox does not track. Its commit is never
   * reported, so the audit line is written now and says so, and claimers look for the rows when they are probably committed.
   */
  writtenUntracked(pending: readonly PendingEvent[]): void {
    if (pending.length === 0) return
    for (const { event } of pending) this.#audit(event, UNOBSERVED)
    const { clock, wakeups, doorbell } = this.#options
    const fromSeq = lowestSeqOf(pending)
    const hasOrdered = pending.some(isOrdered)
    for (const delay of UNOBSERVED_DELAYS_MS) {
      const timer = clock.setTimer(() => {
        this.#timers.delete(timer)
        wakeups.request({ reason: 'new', fromSeq })
        doorbell.ring(fromSeq)
        if (hasOrdered) this.#announceOrdered()
      }, delay)
      timer.unref?.()
      this.#timers.add(timer)
    }
  }

  #audit(event: PublishedEvent, remark?: LogFields): void {
    const { logger, metrics } = this.#options
    metrics?.count('published', 1, typeLabels(event.eventType))
    if (!logs(logger, 'info')) return
    const fields = eventFields(event)
    logger.info(remark === undefined ? fields : { ...fields, ...remark }, 'event published')
  }
}

function withoutPayload(event: EventEnvelope): PublishedEvent {
  const { eventId, eventType, aggregateType, orderingKey, metadata, payloadSize } = event
  return { eventId, eventType, aggregateType, orderingKey, metadata, payloadSize }
}

function setSeqs(pending: readonly PendingEvent[], seqs: ReadonlyMap<string, number> | number): void {
  for (const published of pending) {
    published.seq = typeof seqs === 'number' ? seqs : (seqs.get(published.event.eventId) ?? Number.NaN)
  }
}

function isOrdered({ event }: PendingEvent): boolean {
  return event.orderingKey !== undefined
}

function isUnwritten({ seq }: PendingEvent): boolean {
  return Number.isNaN(seq)
}

function lowestSeqOf(pending: readonly PendingEvent[]): number {
  return pending.reduce((lowest, { seq }) => Math.min(lowest, seq), Number.POSITIVE_INFINITY)
}

/** An id that occurs twice in one call is a duplicate, even if the table does not contain it. */
function splitDuplicates(events: readonly EventEnvelope[]): {
  readonly first: readonly EventEnvelope[]
  readonly duplicates: readonly string[]
} {
  if (events.length < 2) return { first: events, duplicates: [] }
  const seen = new Set<string>()
  const duplicates: string[] = []
  const first = events.filter(({ eventId }) => {
    if (seen.has(eventId)) duplicates.push(eventId)
    return seen.size !== seen.add(eventId).size
  })
  return { first, duplicates }
}
