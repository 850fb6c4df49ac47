import { currentTransaction, runInTransaction } from '../ambient.js'
import { readPublishOptions } from '../bus/publish-options.js'
import type { PublishOptions } from '../bus.js'
import type { PublishableEvent } from '../core/domain-event.js'
import { AftercommitError, CommitUnknownError, TransactionEndedError } from '../core/errors.js'
import type { EventId } from '../core/event-id.js'
import { redactDriverError } from '../core/redact.js'
import { isA, settled } from '../core/unknown.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { EventStore } from '../store.js'
import type { HostedClient, Transaction, TransactionSession } from '../transaction.js'
import type { Appended, Pending, Prepared, Publisher } from './publisher.js'

type Hook = () => unknown

export interface Shared<Client> {
  readonly owner: object
  readonly store: EventStore<Client>
  readonly publisher: Publisher<Client>
  readonly logger: Logger
  /** Transactions of ORMs, by the handle that the application has. */
  readonly byHandle: WeakMap<object & Client, TransactionScope<Client>>
}

/** Of another ORM, or of the store: to begin a second one would part what belongs together, and nobody would see it. */
export function nestedTransaction(): AftercommitError {
  return new AftercommitError(
    'NESTED_TRANSACTION',
    'A transaction of this outbox is open here that was begun by another function, and a second one would be committed without it. Nest by the function that began the first, publish in the one that is open, or use outbox.enqueue().',
  )
}

/** begin → body → commit, as EventStore.transaction does it or an ORM. */
export type Begin<Client> = <T>(body: (session: Session<Client>) => Promise<T>) => Promise<T>

/** With what the store works on, where that is not what the application sees. */
export interface Session<Client> extends TransactionSession<Client> {
  readonly hosted?: HostedClient
  /** Sends what is kept back until the commit; what is published meanwhile belongs to the transaction. */
  flush?(): Promise<unknown>
  savepoint<T>(body: (inner: Session<Client>) => Promise<T>): Promise<T>
}

/** What one database transaction has published, shared by the nested scopes in it. */
class Ledger {
  pending: Pending[] = []
  /** A savepoint was rolled back: the database is asked which rows are still there. */
  lostRows = false
  /** Somebody goes by a mark that is written in it. */
  isMarked = false
}

/** The `tx` of application code: the transaction itself, or one savepoint in it. */
export class TransactionScope<Client> implements Transaction<Client> {
  readonly #shared: Shared<Client>
  readonly #session: Session<Client>
  readonly #ledger: Ledger
  readonly #parent: TransactionScope<Client> | null
  readonly #onCommit: Hook[] = []
  readonly #onRollback: Hook[] = []
  #ended = false
  /** Publishes of this very scope that have not been answered. */
  #underway = 0
  /** Told when there are none. */
  readonly #waiting: (() => void)[] = []
  #nested: Promise<unknown> | null = null
  #nesting = 0

  private constructor(
    shared: Shared<Client>,
    session: Session<Client>,
    ledger: Ledger,
    parent: TransactionScope<Client> | null,
  ) {
    this.#shared = shared
    this.#session = session
    this.#ledger = ledger
    this.#parent = parent
  }

  /** begin → body → commit; afterwards the events are handed on, or forgotten, and the hooks run. */
  static async run<Client, T>(
    shared: Shared<Client>,
    begin: Begin<Client>,
    body: (tx: TransactionScope<Client>) => Promise<T>,
  ): Promise<T> {
    let scope = undefined as TransactionScope<Client> | undefined
    let present: readonly Pending[] = []
    let rung = false
    let thrown: { readonly error: unknown } | undefined
    let result: T
    try {
      result = await begin(async (session) => {
        // An ORM that runs the body again has rolled the attempt before this one back.
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
        rung = shared.publisher.ringWith(session, present)
        return value
      })
    } catch (failure) {
      // A failed body is the application's, a failed commit may quote an event.
      const isCommit = !thrown && (!scope || scope.#ledger.pending.length > 0)
      const error = isCommit ? redactDriverError(failure) : failure
      // Out of the body it tells of a transaction with another outbox; an ORM's own are told apart where they come from.
      const isOfAnother = !scope?.host && thrown?.error === error
      if (scope) scope.#fail(isOfAnother || !isA(error, CommitUnknownError))
      throw error
    }
    if (scope) scope.#succeed(present, rung)
    return result
  }

  /** Whether the value is a transaction of some outbox, and not just an object with the prototype of one. */
  static isScope(value: unknown): value is TransactionScope<unknown> {
    return typeof value === 'object' && value !== null && #ledger in value
  }

  get client(): Client {
    return this.#session.client
  }

  /** The ORM whose transaction it is; undefined for one of the store's. */
  get host(): object | undefined {
    return this.#session.hosted?.host
  }

  /** Whose session it holds: see holdsEverySession(). */
  get sessionOf(): object | undefined {
    return this.#shared.store.sessions?.source
  }

  /** The transaction itself, of a savepoint in it. */
  get root(): object {
    return this.#parent?.root ?? this
  }

  /** What the store writes with. */
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
   * Writes events that publisher.prepare() has read. Waits for a nested transaction that is open: its savepoint would
   * swallow the rows if it failed.
   */
  send(prepared: Prepared): EventId[] | Promise<EventId[]> {
    if (this.#isEnded()) return Promise.reject(new TransactionEndedError())
    const innermost = this.#innermost()
    if (innermost) return innermost.send(prepared)
    const work =
      this.#nesting === 0
        ? this.#append(prepared)
        : (this.#nested ?? Promise.resolve()).then(() => this.#append(prepared))
    // By what they are, and not by Promise: an application may have put another one in its place.
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

  /** Nested calls of one scope run one after the other: they share a connection. */
  async transaction<T>(body: (tx: TransactionScope<Client>) => Promise<T>): Promise<T> {
    if (this.#isEnded()) throw new TransactionEndedError()
    // Called on the outer handle from inside a nested scope: it would wait for itself.
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

  /** The nested scope in which the caller is, when it uses this outer handle there. */
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

  /** Nothing can be published in it any more. */
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

  /** Notes in the transaction that this handler has seen the event; false when it had before. */
  mark(handler: string, eventId: string): Promise<boolean> {
    this.#ledger.isMarked = true
    return this.#alone(() => this.#shared.store.markProcessed(this.storeClient, handler, eventId))
  }

  #alone<T>(work: () => Promise<T>): Promise<T> {
    return this.#session.hosted ? this.#session.hosted.alone(work) : work()
  }

  #append(prepared: Prepared): EventId[] | Promise<EventId[]> {
    const { publisher } = this.#shared
    const append = () => publisher.append(this.storeClient, prepared, this.#session)
    const appended = this.#session.hosted ? this.#session.hosted.alone(async () => append()) : append()
    return 'ids' in appended ? this.#note(appended) : appended.then(this.#note)
  }

  readonly #note = ({ ids, pending }: Appended): EventId[] => {
    // Not spread: there may be more of them than a call takes arguments.
    for (const one of pending) this.#ledger.pending.push(one)
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

  /** When it fails the caller has to shut the scope. */
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

  /** Nothing more is let in, before the rollback is even sent: it would be written behind it. */
  #shut(): Promise<void> {
    this.#ended = true
    return this.#quiet()
  }

  get #isBusy(): boolean {
    return this.#nesting > 0 || this.#underway > 0
  }

  /** Waits for publishes that were not awaited, also those of nested scopes. */
  async #quiet(): Promise<void> {
    while (this.#isBusy) {
      await this.#nested
      if (this.#underway > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    }
  }

  /** From now on publishing is refused. Returns the events that the commit is going to contain. */
  #close(): readonly Pending[] | Promise<readonly Pending[]> {
    if (this.#isBusy) return this.#quiet().then(() => this.#close())
    this.#ended = true
    const { pending, lostRows, isMarked } = this.#ledger
    const nobodyCares = pending.length === 0 && this.#onCommit.length === 0 && !isMarked
    return nobodyCares || !(lostRows || this.#session.mayHaveLostRows()) ? pending : this.#whatIsLeft(pending)
  }

  async #whatIsLeft(pending: readonly Pending[]): Promise<readonly Pending[]> {
    const ids = pending.map((one) => one.event.eventId)
    const present = await this.#alone(() => this.#shared.store.findPresent(this.storeClient, ids))
    // By number: the id of a row that is gone may have been published again.
    const isThere = (one: Pending) => present.get(one.event.eventId) === one.seq
    this.#shared.publisher.forget(pending.filter((one) => !isThere(one)))
    const left = pending.filter(isThere)
    this.#ledger.pending = left
    return left
  }

  #succeed(present: readonly Pending[], rung: boolean): void {
    this.#shared.publisher.committed(present, rung)
    runHooks(this.#onCommit, this.#shared)
  }

  /** `known`: rolled back for certain. Otherwise nobody knows, and no hook may claim to. */
  #fail(known: boolean): void {
    this.#ended = true
    void this.#quiet().then(() => this.#shared.publisher.forget(this.#ledger.pending))
    if (known) runHooks(this.#onRollback, this.#shared)
  }
}

function first(ids: readonly EventId[]): EventId {
  return ids[0] as EventId
}

/** All of them are called before the caller goes on; none of them is waited for. */
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
