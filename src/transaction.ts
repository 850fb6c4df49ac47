import type { EventPublisher, PublishOptions } from './bus.js'
import type { PublishableEvent } from './core/domain-event.js'
import type { EventId } from './core/event-id.js'
import type { OutboxStore } from './store.js'

export type { LateAppend, TransactionSession } from './store.js'

export type SqlValue = string | number | Uint8Array | null
export type SqlRow = Readonly<Record<string, unknown>>

/** How an ORM begins and ends its transactions, and runs a statement in one. */
export interface TransactionHost<Tx extends object, Options = unknown> {
  /** The ORM's own object: wrapped a second time, it gives the same function, so that the two nest. */
  readonly source?: object
  /** begin → body → commit; rolls back and rethrows when the body throws. Resolves only after the commit. */
  transaction<T>(body: (tx: Tx) => Promise<T>, options?: Options): Promise<T>
  /**
   * In that transaction and no other. The placeholders are the database's own (`$1` or `?`). Rows come as objects, none
   * for a statement that gives none; errors as the driver throws them, or with the driver's one as their `cause`.
   */
  query(tx: Tx, sql: string, params: readonly SqlValue[]): Promise<readonly SqlRow[]>
  /**
   * SQLite only: the driver refuses statements behind the end of the transaction. Without it the outbox sends a BEGIN before
   * each write, which SQLite refuses as long as the transaction is open.
   */
  readonly refusesLate?: boolean
  /** For an ORM that keeps writes back until the commit: sends them. Called behind the body, still in the transaction. */
  flush?(tx: Tx): Promise<unknown>
  /**
   * For an ORM whose nested transactions have a handle of their own, or undo more than rows: a savepoint around the body,
   * rolled back when the body throws. Without it SAVEPOINT and ROLLBACK TO are sent as statements.
   */
  savepoint?<T>(tx: Tx, body: (inner: Tx) => Promise<T>): Promise<T>
}

/** In the place of a client of the store: a transaction that an ORM has begun and is going to end. */
export class HostedClient {
  #last: Promise<unknown> = Promise.resolve()
  readonly host: object
  readonly query: (sql: string, params: readonly SqlValue[]) => Promise<readonly SqlRow[]>
  /** As the host says. */
  readonly refusesLate: boolean

  constructor(host: object, query: HostedClient['query'], refusesLate = false) {
    this.host = host
    this.query = query
    this.refusesLate = refusesLate
  }

  /** One piece of work of ours at a time, of however many statements: not every driver takes two at once. */
  alone<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#last.then(work)
    this.#last = result.catch(() => {})
    return result
  }
}

/** The transaction that application code sees. */
export interface Transaction<Client = unknown> extends EventPublisher {
  /** The driver's own handle, for the application's statements. */
  readonly client: Client
  publish(event: PublishableEvent, options?: PublishOptions): Promise<EventId>
  publishAll(events: readonly PublishableEvent[], options?: PublishOptions): Promise<EventId[]>
  /** Nested by savepoint: what it published is gone when the callback throws. */
  transaction<T>(body: (tx: Transaction<Client>) => Promise<T>): Promise<T>
  /** Called after the commit was confirmed. An error in it is logged and harms nothing. */
  afterCommit(callback: () => unknown): void
  /** Called after a rollback, of this transaction or of the savepoint it was registered in. */
  afterRollback(callback: () => unknown): void
}

/**
 * Runs a transaction of the ORM with the outbox in it; the second argument of the body is the outbox's side of it, with
 * `publish` and the hooks. `exactlyOnce` takes it in the place of an outbox.
 */
export interface HostedTransactions<Tx extends object, Options = unknown> {
  <T>(body: (tx: Tx, scope: Transaction<Tx>) => Promise<T>, options?: Options): Promise<T>
  transaction<T>(body: (tx: Transaction<Tx>) => Promise<T>): Promise<T>
  readonly store: Pick<OutboxStore, 'isProcessed' | 'pruneProcessed'> & {
    markProcessed(tx: Tx, handler: string, eventId: string): Promise<boolean>
  }
}

/** What an integration needs of an outbox; every outbox has it. */
export interface TransactionsOf {
  transactionsOf<Tx extends object, Options = unknown>(
    host: TransactionHost<Tx, Options>,
  ): HostedTransactions<Tx, Options>
}
