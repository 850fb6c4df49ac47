import { currentTransaction, runInTransaction } from '../ambient.js'
import type { PublishOptions } from '../bus.js'
import type { PublishableEvent } from '../core/domain-event.js'
import { AftercommitError, CommitUnknownError, TransactionEndedError } from '../core/errors.js'
import type { EventId } from '../core/event-id.js'
import { redactDriverError } from '../core/redact.js'
import { isA, settled } from '../core/unknown.js'
import { errorFields, type Logger } from '../observe/logger.js'
import { readPublishOptions } from '../publish-options.js'
import type { OutboxStore } from '../store.js'
import type { HostedClient, Transaction, TransactionSession } from '../transaction.js'
import type { AppendedEvents, PendingEvent, PreparedEvents, Publisher } from './publisher.js'

type Hook = () => unknown

/** What all transactions of one outbox share. */
export interface Shared<Client> {
  readonly owner: object
  readonly store: OutboxStore<Client>
  readonly publisher: Publisher<Client>
  readonly logger: Logger
  /** Open transactions of ORMs, by the transaction handle of the ORM. */
  readonly byHandle: WeakMap<object & Client, TransactionScope<Client>>
}

/** Error for a transaction inside one that another function began: the two would be committed separately. */
export function nestedTransaction(): AftercommitError {
  return new AftercommitError(
    'NESTED_TRANSACTION',
    'A transaction of this outbox is open here that was begun by another function, and a second one would be committed without it. Nest by the function that began the first, publish in the one that is open, or use outbox.enqueue().',
  )
}

/** begin → body → commit, by OutboxStore.transaction() or by an ORM. */
export type Begin<Client> = <T>(body: (session: ScopeSession<Client>) => Promise<T>) => Promise<T>

/** Session of a store or an ORM as a scope uses it. */
export interface ScopeSession<Client> extends TransactionSession<Client> {
  /** Client that the store writes with, in a transaction of an ORM. */
  readonly hosted?: HostedClient
  /** Sends writes that the ORM delays until the commit. Events that are published meanwhile belong to the transaction. */
  flush?(): Promise<unknown>
  savepoint<T>(body: (inner: ScopeSession<Client>) => Promise<T>): Promise<T>
}

/** Events that one database transaction has published, shared by its nested scopes. */
class Ledger {
  pending: PendingEvent[] = []
  /** Whether a savepoint was rolled back, so that the database must be asked which rows are left. */
  lostRows = false
  /** Whether an exactly-once handler has written a mark in the transaction. */
  isMarked = false
}

/** The `tx` of application code: the transaction itself, or one savepoint in it. */
export class TransactionScope<Client> implements Transaction<Client> {
  readonly #shared: Shared<Client>
  readonly #session: ScopeSession<Client>
  readonly #ledger: Ledger
  readonly #parent: TransactionScope<Client> | null
  readonly #onCommit: Hook[] = []
  readonly #onRollback: Hook[] = []
  #ended = false
  /** Publish calls of this scope, without its nested scopes, that are under way. */
  #underway = 0
  /** Called when no publish call is under way. */
  readonly #waiting: (() => void)[] = []
  #nested: Promise<unknown> | null = null
  #nesting = 0

  private constructor(
    shared: Shared<Client>,
    session: ScopeSession<Client>,
    ledger: Ledger,
    parent: TransactionScope<Client> | null,
  ) {
    this.#shared = shared
    this.#session = session
    this.#ledger = ledger
    this.#parent = parent
  }

  /** begin → body → commit. Afterwards the events are announced or dropped, and the hooks run. */
  static async run<Client, T>(
    shared: Shared<Client>,
    begin: Begin<Client>,
    body: (tx: TransactionScope<Client>) => Promise<T>,
  ): Promise<T> {
    let scope = undefined as TransactionScope<Client> | undefined
    let present: readonly PendingEvent[] = []
    let hasRung = false
    let thrown: { readonly error: unknown } | undefined
    let result: T
    try {
      result = await begin(async (session) => {
        // An ORM that runs the body again has rolled back its previous attempt.
        if (scope) scope.#fail(true)
        const current = new TransactionScope(shared, session, new Ledger(), null)
        scope = current
        let value: T
        try {
          value = await current.#runBody(body)
        } catch (error) {
          await current.#shut()
          thrown = { error }
          throw error
        }
        const closed = current.#close()
        present = Array.isArray(closed) ? closed : await closed
        hasRung = shared.publisher.ringWith(session, present)
        return value
      })
    } catch (failure) {
      // The error of a body belongs to the application. The error of a commit may quote an event.
      const isCommit = !thrown && (!scope || scope.#ledger.pending.length > 0)
      const error = isCommit ? redactDriverError(failure) : failure
      // A CommitUnknownError from the body is about a transaction of another outbox. hosted.ts recognises those of ORMs.
      const isOfAnother = !scope?.host && thrown?.error === error
      if (scope) scope.#fail(isOfAnother || !isA(error, CommitUnknownError))
      throw error
    }
    if (scope) scope.#succeed(present, hasRung)
    return result
  }

  /** Whether the value is a transaction of an outbox, and not only an object with its prototype. */
  static isScope(value: unknown): value is TransactionScope<unknown> {
    return typeof value === 'object' && value !== null && #ledger in value
  }

  get client(): Client {
    return this.#session.client
  }

  /** ORM that began the transaction; undefined if the store began it. */
  get host(): object | undefined {
    return this.#session.hosted?.host
  }

  /** Source of the session that the transaction holds; see holdsEverySession(). */
  get sessionOf(): object | undefined {
    return this.#shared.store.sessions?.source
  }

  /** The outermost transaction. */
  get root(): object {
    return this.#parent?.root ?? this
  }

  /** Client that the store writes with. */
  get storeClient(): Client {
    return (this.#session.hosted as Client | undefined) ?? this.client
  }

  publish(event: PublishableEvent, options?: PublishOptions): Promise<EventId> {
    const ids = this.#publish([event], options)
    return Array.isArray(ids) ? Promise.resolve(first(ids)) : ids.then(first)
  }

  publishAll(events: readonly PublishableEvent[], options?: PublishOptions): Promise<EventId[]> {
    const ids = this.#publish(events, options)
    return Array.isArray(ids) ? Promise.resolve(ids) : ids
  }

  #publish(events: readonly PublishableEvent[], options: unknown): EventId[] | Promise<EventId[]> {
    if (this.#isEnded()) return Promise.reject(new TransactionEndedError())
    try {
      return this.send(this.#shared.publisher.prepare(events, readPublishOptions(options)))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /**
   * Writes events that publisher.prepare() has read. Waits for an open nested transaction, because the rows would be lost if
   * its savepoint were rolled back.
   */
  send(prepared: PreparedEvents): EventId[] | Promise<EventId[]> {
    if (this.#isEnded()) return Promise.reject(new TransactionEndedError())
    const innermost = this.#innermost()
    if (innermost) return innermost.send(prepared)
    const work =
      this.#nesting === 0
        ? this.#append(prepared)
        : (this.#nested ?? Promise.resolve()).then(() => this.#append(prepared))
    // `instanceof Promise` would not recognise promises if the application has replaced the global Promise.
    if (Array.isArray(work)) return work
    this.#underway++
    work.then(this.#answered, this.#answered)
    return work
  }

  readonly #answered = () => {
    this.#underway--
    if (this.#underway > 0) return
    for (const resolve of this.#waiting) resolve()
    this.#waiting.length = 0
  }

  /** Nested calls of one scope run one after the other, because they share a connection. */
  async transaction<T>(body: (tx: TransactionScope<Client>) => Promise<T>): Promise<T> {
    if (this.#isEnded()) throw new TransactionEndedError()
    // A call on the outer handle from inside a nested scope would wait for itself.
    const innermost = this.#innermost()
    if (innermost) return innermost.transaction(body)
    this.#nesting++
    const run = (this.#nested ?? Promise.resolve())
      .then(() => this.#savepoint(body))
      .finally(() => {
        this.#nesting--
      })
    this.#nested = run.catch(() => {})
    return run
  }

  /** Returns the nested scope that surrounds the caller, if the caller uses this outer handle in it. */
  #innermost(): TransactionScope<Client> | undefined {
    const current = currentTransaction(this.#shared.owner)
    return current instanceof TransactionScope && current.#isInside(this) ? current : undefined
  }

  afterCommit(callback: Hook): void {
    if (this.#isEnded()) throw new TransactionEndedError()
    this.#onCommit.push(callback)
  }

  afterRollback(callback: Hook): void {
    if (this.#isEnded()) throw new TransactionEndedError()
    this.#onRollback.push(callback)
  }

  /** Whether publishing is refused. */
  get ended(): boolean {
    return this.#isEnded()
  }

  belongsTo(owner: object): boolean {
    return this.#shared.owner === owner
  }

  #isInside(outer: TransactionScope<Client>): boolean {
    if (this.#ended || this.#parent === null) return false
    return this.#parent === outer || this.#parent.#isInside(outer)
  }

  #isEnded(): boolean {
    return this.#ended || this.#parent?.ended === true
  }

  /** Records in the transaction that the handler has processed the event. Returns false if it had done so before. */
  mark(handler: string, eventId: string): Promise<boolean> {
    this.#ledger.isMarked = true
    return this.#alone(() => this.#shared.store.markProcessed(this.storeClient, handler, eventId))
  }

  #alone<T>(work: () => Promise<T>): Promise<T> {
    return this.#session.hosted ? this.#session.hosted.alone(work) : work()
  }

  #append(prepared: PreparedEvents): EventId[] | Promise<EventId[]> {
    const { publisher } = this.#shared
    const append = () => publisher.append(this.storeClient, prepared, this.#session)
    const appended = this.#session.hosted ? this.#session.hosted.alone(async () => append()) : append()
    return 'ids' in appended ? this.#record(appended) : appended.then(this.#record)
  }

  readonly #record = ({ ids, pending }: AppendedEvents): EventId[] => {
    // Not spread, because there may be more events than a call accepts arguments.
    for (const published of pending) this.#ledger.pending.push(published)
    return ids
  }

  async #savepoint<T>(body: (tx: TransactionScope<Client>) => Promise<T>): Promise<T> {
    let scope = undefined as TransactionScope<Client> | undefined
    try {
      const result = await this.#session.savepoint(async (session) => {
        const inner = new TransactionScope(this.#shared, session, this.#ledger, this)
        scope = inner
        try {
          const value = await inner.#runBody(body)
          while (inner.#isBusy) await inner.#quiet()
          inner.#ended = true
          return value
        } catch (error) {
          await inner.#shut()
          throw error
        }
      })
      if (scope) this.#onCommit.push(...scope.#onCommit)
      if (scope) this.#onRollback.push(...scope.#onRollback)
      return result
    } catch (error) {
      this.#ledger.lostRows = true
      if (scope) scope.#ended = true
      if (scope) runHooks(scope.#onRollback, this.#shared)
      throw error
    }
  }

  /** After an error, the caller must call #shut(). */
  #runBody<T>(body: (tx: TransactionScope<Client>) => Promise<T>): Promise<T> {
    const { owner } = this.#shared
    const value = runInTransaction(owner, this, body)
    return this.#session.flush ? this.#flushBehind(value) : value
  }

  async #flushBehind<T>(body: Promise<T>): Promise<T> {
    const value = await body
    await runInTransaction(this.#shared.owner, this, () => this.#session.flush?.())
    return value
  }

  /** Refuses publishing before the rollback is sent, because later rows would be written after it. */
  #shut(): Promise<void> {
    this.#ended = true
    return this.#quiet()
  }

  get #isBusy(): boolean {
    return this.#nesting > 0 || this.#underway > 0
  }

  /** Waits for publish calls that the application did not await, including those of nested scopes. */
  async #quiet(): Promise<void> {
    while (this.#isBusy) {
      await this.#nested
      if (this.#underway > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  /** Refuses publishing from now on. Returns the events that the commit will contain. */
  #close(): readonly PendingEvent[] | Promise<readonly PendingEvent[]> {
    if (this.#isBusy) return this.#quiet().then(() => this.#close())
    this.#ended = true
    const { pending, lostRows, isMarked } = this.#ledger
    const hasNoEffects = pending.length === 0 && this.#onCommit.length === 0 && !isMarked
    return hasNoEffects || !(lostRows || this.#session.mayHaveLostRows()) ? pending : this.#presentOf(pending)
  }

  async #presentOf(pending: readonly PendingEvent[]): Promise<readonly PendingEvent[]> {
    const ids = pending.map(({ event }) => event.eventId)
    const present = await this.#alone(() => this.#shared.store.findPresent(this.storeClient, ids))
    // Compared by `seq`, because the id of a lost row may have been published again.
    const isThere = ({ event, seq }: PendingEvent) => present.get(event.eventId) === seq
    this.#shared.publisher.cancelReservations(pending.filter((published) => !isThere(published)))
    const left = pending.filter(isThere)
    this.#ledger.pending = left
    return left
  }

  #succeed(present: readonly PendingEvent[], hasRung: boolean): void {
    this.#shared.publisher.committed(present, hasRung)
    runHooks(this.#onCommit, this.#shared)
  }

  /** If it is unknown whether the transaction was rolled back, no hook runs. */
  #fail(isRolledBack: boolean): void {
    this.#ended = true
    void this.#quiet().then(() => this.#shared.publisher.cancelReservations(this.#ledger.pending))
    if (isRolledBack) runHooks(this.#onRollback, this.#shared)
  }
}

function first(ids: readonly EventId[]): EventId {
  return ids[0] as EventId
}

/** Calls all hooks without waiting for their promises. */
function runHooks(hooks: readonly Hook[], { logger }: Pick<Shared<unknown>, 'logger'>): void {
  const failed = (error: unknown) =>
    logger.error(errorFields(error), 'an after-commit or after-rollback callback failed')
  for (const hook of hooks) {
    try {
      settled(hook()).catch(failed)
    } catch (error) {
      failed(error)
    }
  }
}
