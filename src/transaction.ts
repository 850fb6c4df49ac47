import type { EventPublisher, PublishOptions } from './bus.js'
import type { PublishableEvent } from './core/domain-event.js'
import type { EventId } from './core/event-id.js'

/** An open transaction as a store or an integration gives it to the outbox. */
export interface TransactionSession<Client> {
  readonly client: Client
  /**
   * True when a `ROLLBACK TO` may have happened that nobody reported. The outbox then asks the database, before
   * the commit, which of its rows are still there; only those are handed to handlers from memory.
   */
  mayHaveLostRows(): boolean
  /**
   * Rings the doorbell right behind the commit, on the same connection, where the driver can: that is the shortest
   * way to another process. It is not part of the transaction, and its failure means nothing.
   */
  ringAfterCommit?(lowestSeq: number): void
  /**
   * Runs the body inside a savepoint; rolls back to it and rethrows when the body throws. Statements of the body go
   * through the session it is given, which for some drivers has a handle of its own.
   */
  savepoint<T>(body: (inner: TransactionSession<Client>) => Promise<T>): Promise<T>
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
