import { AftercommitError, causedBy, nameErrors } from './base.js'

/** `publish` was called where no transaction is active. Nothing was written. */
export class NoActiveTransactionError extends AftercommitError {
  static {
    nameErrors(NoActiveTransactionError, 'NoActiveTransactionError')
  }

  constructor() {
    super(
      'NO_ACTIVE_TRANSACTION',
      'publish() needs an active transaction: call it inside outbox.transaction() or, with an ORM, inside the function that drizzleTransactions(outbox, db) and its like give, pass { tx }, or use outbox.enqueue() to write in a transaction of its own.',
    )
  }
}

/** The transaction has committed or rolled back already. Nothing was written. */
export class TransactionEndedError extends AftercommitError {
  static {
    nameErrors(TransactionEndedError, 'TransactionEndedError')
  }

  constructor() {
    super(
      'TRANSACTION_ENDED',
      'This transaction has already ended. Await every publish() inside the transaction callback.',
    )
  }
}

/**
 * The call needs a session of the database besides the open transaction that surrounds it, and there is none: it would
 * wait for the end of the transaction, which waits for the call. Nothing was done; the transaction is still usable.
 */
export class NestedTransactionError extends AftercommitError {
  static {
    nameErrors(NestedTransactionError, 'NestedTransactionError')
  }

  /** Method that was called, for example `stats()`. */
  readonly method: string | undefined
  /** Why there is no other session. */
  readonly reason: string

  constructor(reason: string, method?: string) {
    const advice =
      method === 'enqueue()'
        ? 'To write the event in this transaction, call publish() instead. To write it independently, call enqueue()'
        : `Call ${method ?? 'it'}`
    super(
      'NESTED_TRANSACTION',
      `${method ?? 'This call'} cannot run inside the open transaction: ${reason}. ${advice} before the transaction begins or after its commit.`,
    )
    this.method = method
    this.reason = reason
  }
}

/** COMMIT was answered by ROLLBACK, because a statement had failed and its error was swallowed. Nothing was written. */
export class TransactionRolledBackError extends AftercommitError {
  static {
    nameErrors(TransactionRolledBackError, 'TransactionRolledBackError')
  }

  constructor(cause?: unknown) {
    super(
      'TRANSACTION_ROLLED_BACK',
      'The database rolled the transaction back instead of committing it, because a statement in it had failed. Let that error reach the transaction, or use a savepoint around the statement.',
      causedBy(cause),
    )
  }
}

/** The reply to COMMIT was lost: committed or not, nobody knows yet. A committed event is still delivered by a poller. */
export class CommitUnknownError extends AftercommitError {
  static {
    nameErrors(CommitUnknownError, 'CommitUnknownError')
  }

  constructor(cause?: unknown) {
    super(
      'COMMIT_UNKNOWN',
      'The connection was lost while committing, so the outcome is unknown. Read your own data back before you repeat the work.',
      causedBy(cause),
    )
  }
}
