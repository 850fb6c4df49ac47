import { currentEvent } from '../ambient.js'
import type { ReadPublishOptions } from '../bus/publish-options.js'
import type { EventCatalog } from '../core/catalog.js'
import type { Clock, Timer } from '../core/clock.js'
import { type PublishableEvent, readEvents } from '../core/domain-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import { DuplicateEventError } from '../core/errors.js'
import { redactDriverError } from '../core/redact.js'
import type { BoundedQueue } from '../dispatcher/bounded-queue.js'
import { Delivery } from '../dispatcher/delivery.js'
import type { Dispatcher } from '../dispatcher/dispatcher.js'
import type { Routes } from '../dispatcher/routing.js'
import type { Settler } from '../dispatcher/settler.js'
import { eventFields } from '../observe/event-fields.js'
import { type LogFields, type Logger, logs, type Redact } from '../observe/logger.js'
import { type MetricsExporter, typeLabels } from '../observe/metrics.js'
import { type Tracer, traced, tracedEvent, withTrace } from '../observe/tracing.js'
import type { DebouncedDoorbell } from '../poller/doorbell.js'
import type { Poller } from '../poller/poller.js'
import type { AppendRow, EventStore } from '../store.js'
import type { TransactionSession } from '../transaction.js'

/** An event whose row is written and whose transaction is still open. */
export interface Pending {
  /** The envelope itself only when it is going hot: a large transaction must not keep all its payloads. */
  readonly event: Announced
  /** NaN as long as it is not written; a lower one when nobody has asked. */
  seq: number
  /** It has a place in the hot queue and its row is leased to this process. */
  readonly hot: boolean
  /** Monotonic time from before the insert was sent. */
  asked: number
  /** It waits for a moment, which the database's clock decides. */
  readonly timed: boolean
}

/** Events and options of one publish call, read and checked when the call was made. */
export interface Prepared {
  readonly events: readonly EventEnvelope[]
  /** Whether no event has an id that could be in the outbox already. */
  readonly haveNewIds: boolean
  readonly options: ReadPublishOptions
}

/** What one call has written. */
export interface Appended {
  readonly ids: EventEnvelope['eventId'][]
  readonly pending: Pending[]
}

type Announced = Pick<
  EventEnvelope,
  'eventId' | 'eventType' | 'aggregateType' | 'orderingKey' | 'metadata' | 'payloadSize'
>

export interface PublisherOptions<Client> {
  readonly store: EventStore<Client>
  readonly clock: Clock
  readonly catalog: EventCatalog
  readonly routes: Routes
  readonly hot: BoundedQueue<Delivery>
  readonly dispatcher: Dispatcher
  readonly settler: Settler
  readonly poller: Poller
  readonly doorbell: DebouncedDoorbell
  readonly leaseMs: number
  /** All hot rows of this process carry it: each is born once, and any later claim has another token. */
  readonly hotToken: string
  readonly logger: Logger
  readonly redact: Redact | undefined
  readonly metrics: MetricsExporter | undefined
  readonly tracer: Tracer | undefined
  /** Every poller looks at everything once, and so learns when the next delayed row is due. */
  lookAgain(): void
}

const WARN_EVERY_MS = 10_000
/** Marks the audit line of an event whose transaction may still be rolled back. */
const UNOBSERVED: LogFields = { commit: 'unobserved' }

/** publish → append, and after the commit → hot queue or doorbell. */
export class Publisher<Client> {
  readonly #options: PublisherOptions<Client>
  #warnedAt = Number.NEGATIVE_INFINITY
  readonly #nudges = new Set<Timer>()
  /** True while the process is started: rows may be born leased. */
  accepting = false

  constructor(options: PublisherOptions<Client>) {
    this.#options = options
  }

  close(): void {
    this.accepting = false
    for (const timer of this.#nudges) timer.cancel()
    this.#nudges.clear()
  }

  /**
   * Reads what a caller publishes. The caller can change its objects as soon as publish() has returned, and some rows are
   * written only later, so nothing else reads these objects. Throws when an event is not acceptable.
   */
  prepare(given: readonly PublishableEvent[], options: ReadPublishOptions): Prepared {
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
   * Writes the rows in the caller's transaction by one statement. With a `session` the caller will report the end
   * of the transaction, so that events can go by the hot path; otherwise the rows are born free.
   */
  append(
    client: Client,
    prepared: Prepared,
    session?: TransactionSession<Client>,
  ): Appended | Promise<Appended> {
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

  /** Without a promise when the rows go with the COMMIT: this is the path of most events. */
  #write(
    client: Client,
    given: readonly EventEnvelope[],
    { options, haveNewIds }: Prepared,
    session: TransactionSession<Client> | undefined,
  ): Appended | Promise<Appended> {
    const { clock, hotToken } = this.#options
    const { delayMs, deliverAt } = options
    const { envelopes, twice } = firstOfEach(given)
    if (twice.length > 0 && options.onDuplicate !== 'ignore') throw new DuplicateEventError(twice)
    // Whether a moment has come is for the database's clock to say.
    const timed = (delayMs !== undefined && delayMs > 0) || deliverAt !== undefined
    const mayBeHot = session !== undefined && !timed
    const asked = clock.monotonic()
    // Pushed, here and below: what V8 makes of map() depends on how far it has compiled it, and whoever has been compiled for
    // the one kind of array starts anew with the other.
    const pending: Pending[] = []
    const rows: AppendRow[] = []
    for (const event of envelopes) {
      const hot = mayBeHot && this.#reserve(event)
      pending.push({ event: hot ? event : lightOf(event), seq: Number.NaN, hot, asked, timed })
      rows.push({ event, token: hot ? hotToken : null, delayMs, deliverAt })
    }
    const ids: Appended['ids'] = []
    for (const event of given) ids.push(event.eventId)
    const mayWait = given.length > 0 && options.onDuplicate !== 'ignore' && haveNewIds
    const failed = (error: unknown): never => {
      this.forget(pending)
      throw redactDriverError(error, envelopes)
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

  /** Returns those that were written; an ignored duplicate is not. */
  async #appendNow(
    client: Client,
    rows: readonly AppendRow[],
    pending: readonly Pending[],
    { onDuplicate = 'error' }: ReadPublishOptions,
  ): Promise<Pending[]> {
    const { store, leaseMs } = this.#options
    const { seqs, duplicates } = await store.append(client, rows, { leaseMs, onDuplicate })
    if (duplicates.length > 0 && onDuplicate === 'error') throw new DuplicateEventError(duplicates)
    setSeqs(pending, seqs)
    this.forget(pending.filter(isUnwritten))
    return pending.filter((one) => !isUnwritten(one))
  }

  #appendLater(
    session: TransactionSession<Client>,
    rows: readonly AppendRow[],
    pending: readonly Pending[],
  ): Promise<void> | undefined {
    const { clock, leaseMs } = this.#options
    return session.appendLater?.({
      rows,
      leaseMs,
      sent: () => {
        const asked = clock.monotonic()
        for (const one of pending) one.asked = asked
      },
      written: (seqs) => setSeqs(pending, seqs),
    })
  }

  /** Lets the transaction ring the doorbell itself, for the rows that this process leaves to others. */
  ringWith(session: TransactionSession<Client>, pending: readonly Pending[]): boolean {
    const cold = pending.filter((one) => !one.hot && !one.timed && !isOrdered(one))
    if (cold.length === 0 || !session.ringAfterCommit || !this.#options.doorbell.lend()) return false
    const onlyLate = cold.length === 1 && cold.every(isUnwritten)
    session.ringAfterCommit({ lowestSeq: () => lowestOf(cold), onlyLate })
    return true
  }

  /** The transaction is committed and these rows are in it. `rung`: the doorbell has been seen to. */
  committed(pending: readonly Pending[], rung: boolean): void {
    let lowest: number | null = null
    let mine = false
    let timed = false
    let ordered = false
    for (const one of pending) {
      // A trigger of the application has left it out.
      if (isUnwritten(one)) {
        this.forget([one])
        continue
      }
      this.#audit(one.event)
      if (one.hot && this.#goHot(one)) continue
      timed ||= one.timed
      ordered ||= isOrdered(one)
      if (one.timed || isOrdered(one)) continue
      lowest = lowest === null ? one.seq : Math.min(lowest, one.seq)
      mine ||= this.#options.routes.handlersOf(one.event).length > 0
    }
    if (timed) this.#options.lookAgain()
    if (ordered) {
      this.#options.poller.wakeOrdered()
      this.#options.doorbell.ring('ordered')
    }
    if (lowest === null) return
    if (mine) this.#options.poller.wake(lowest)
    if (!rung) this.#options.doorbell.ring(lowest)
  }

  /** The rows are gone, or nobody knows: either way nothing is announced. */
  forget(pending: readonly Pending[]): void {
    for (const one of pending) if (one.hot) this.#options.hot.cancel(one.event.payloadSize)
  }

  /**
   * The rows are written in a transaction that the caller began and the outbox does not track. Its commit is never reported,
   * so the audit line is written now and says so, and the poller looks for the rows when they are likely to be committed.
   */
  writtenUntracked(pending: readonly Pending[]): void {
    if (pending.length === 0) return
    for (const { event } of pending) this.#audit(event, UNOBSERVED)
    const lowest = lowestOf(pending)
    const ordered = pending.some(isOrdered)
    for (const delay of [10, 100, 1_000]) {
      const timer = this.#options.clock.setTimer(() => {
        this.#nudges.delete(timer)
        this.#options.poller.wake(lowest)
        this.#options.doorbell.ring(lowest)
        if (!ordered) return
        this.#options.poller.wakeOrdered()
        this.#options.doorbell.ring('ordered')
      }, delay)
      timer.unref?.()
      this.#nudges.add(timer)
    }
  }

  #goHot(one: Pending): boolean {
    const { clock, hot, hotToken, dispatcher, leaseMs, settler } = this.#options
    if (this.accepting && clock.monotonic() - one.asked <= leaseMs / 2) {
      dispatcher.hot(
        new Delivery({
          event: one.event as EventEnvelope,
          token: hotToken,
          leasedUntil: one.asked + leaseMs,
          attempts: 0,
          handledBy: [],
          source: 'hot',
          suspect: false,
          unroutable: false,
        }),
      )
      return true
    }
    hot.cancel(one.event.payloadSize)
    settler.add({ eventId: one.event.eventId, token: hotToken, outcome: 'release', delayMs: 0 }, null)
    return false
  }

  /** A place in the hot queue, when this process is going to handle the event itself. */
  #reserve(event: EventEnvelope): boolean {
    const { hot, routes, clock, logger, metrics } = this.#options
    if (!this.accepting || event.orderingKey !== undefined || routes.isPaused(event.eventType)) return false
    if (routes.handlersOf(event).length === 0) return false
    if (hot.reserve(event.payloadSize)) return true
    metrics?.count('hot_dropped', 1, typeLabels(event.eventType))
    const now = clock.monotonic()
    if (now - this.#warnedAt >= WARN_EVERY_MS) {
      this.#warnedAt = now
      logger.warn(eventFields(event), 'the hot queue is full; events are left to the poller')
    }
    return false
  }

  #audit(event: Announced, remark?: LogFields): void {
    const { logger, metrics } = this.#options
    metrics?.count('published', 1, typeLabels(event.eventType))
    if (!logs(logger, 'info')) return
    const fields = eventFields(event)
    logger.info(remark === undefined ? fields : { ...fields, ...remark }, 'event published')
  }
}

function lightOf(event: EventEnvelope): Announced {
  const { eventId, eventType, aggregateType, orderingKey, metadata, payloadSize } = event
  return { eventId, eventType, aggregateType, orderingKey, metadata, payloadSize }
}

function setSeqs(pending: readonly Pending[], seqs: ReadonlyMap<string, number> | number): void {
  for (const one of pending) {
    one.seq = typeof seqs === 'number' ? seqs : (seqs.get(one.event.eventId) ?? Number.NaN)
  }
}

function isOrdered({ event }: Pending): boolean {
  return event.orderingKey !== undefined
}

function isUnwritten({ seq }: Pending): boolean {
  return Number.isNaN(seq)
}

function lowestOf(pending: readonly Pending[]): number {
  return pending.reduce((lowest, one) => Math.min(lowest, one.seq), Number.POSITIVE_INFINITY)
}

/** The same id twice in one call is a duplicate whatever the database says. */
function firstOfEach(events: readonly EventEnvelope[]): {
  envelopes: readonly EventEnvelope[]
  twice: readonly string[]
} {
  if (events.length < 2) return { envelopes: events, twice: [] }
  const seen = new Set<string>()
  const twice: string[] = []
  const envelopes = events.filter(({ eventId }) => {
    if (seen.has(eventId)) twice.push(eventId)
    return seen.size !== seen.add(eventId).size
  })
  return { envelopes, twice }
}
