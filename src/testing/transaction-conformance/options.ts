import type { Outbox } from '../../outbox.js'
import type { OutboxStore } from '../../store.js'
import type { HostedTransactions } from '../../transaction.js'
import type { SuiteOptions } from '../themes.js'

/**
 * A database with an ORM on it, as an application has them. Made before each test, and handed back at its end; pools may
 * live longer. Business rows have a text as their id; those of earlier tests may be there, since no id comes twice.
 */
export interface TransactionWorld<Tx extends object, Options = unknown> {
  /** A new store in the ORM's database whose tables are named after `table`. The suite migrates and closes it. */
  createStore(table: string): OutboxStore<unknown>
  /** The integration under test. */
  transactionsOf(outbox: Outbox<unknown>): HostedTransactions<Tx, Options>
  /** How many transactions of the ORM can be open at the same time; 1 where they run one after the other. */
  readonly openAtOnce: number
  /** What the database does with the rest of a transaction in which a statement has failed. */
  readonly afterFailure: 'refuses the commit' | 'goes on'

  /** By the ORM's own means, in that transaction. */
  insert(tx: Tx, id: string): Promise<unknown>
  /** Runs a statement of the application's that the database refuses. */
  fail(tx: Tx): Promise<unknown>
  /** Runs this statement of the application's, as it is, in that transaction. */
  execute(tx: Tx, sql: string): Promise<unknown>
  /** Those of these rows that are committed, read outside of every transaction. */
  committed(ids: readonly string[]): Promise<readonly string[]>

  /** A savepoint by the ORM's own means; rolled back when the body throws. */
  readonly savepoint?: ((tx: Tx, body: (inner: Tx) => Promise<void>) => Promise<void>) | undefined
  /** Whether the integration can nest a transaction inside of such a savepoint. Default true. */
  readonly nestsInSavepoint?: boolean | undefined
  /** Options that the transaction can tell from inside whether it got. */
  readonly options?:
    | { readonly value: Options; readonly expected: string; read(tx: Tx): Promise<string> }
    | undefined
  /** From now on the connection of this transaction breaks as soon as it sends its COMMIT. */
  readonly loseCommit?: ((tx: Tx) => Promise<void>) | undefined
  dispose(): Promise<void>
}

export interface TransactionConformanceOptions<Tx extends object, Options = unknown> extends SuiteOptions {
  /** Called before each test. */
  createWorld(): Promise<TransactionWorld<Tx, Options>>
  /** How long to wait for what must happen sooner or later, before a test fails. Default 10,000. */
  readonly patienceMs?: number | undefined
}

/** What a test may need of the world. Nothing else decides what is skipped. */
export type TransactionNeed =
  | 'savepoint'
  /** The integration nests inside of a savepoint of the ORM. */
  | 'nests in savepoint'
  | 'options'
  | 'loseCommit'
  /** Two transactions can be open at the same time. */
  | 'two open at once'
  /** A failed statement fails its transaction. */
  | 'refuses the commit'
  /** A failed statement is undone, and its transaction goes on. */
  | 'goes on'
