import type { OutboxStore, StoreCapabilities } from '../../store.js'
import type { ConformanceRunner } from '../themes.js'

export type { ConformanceRunner }

/** A transaction that the caller began with its own means. */
export interface CallerTransaction<Client> {
  readonly client: Client
  commit(): Promise<void>
  rollback(): Promise<void>
}

/** Values by column name, for example `{ event_id: 'e-1', event_type: 'order.placed', payload: '{}' }`. */
export type InsertedRow = Readonly<Record<string, string | number | Uint8Array | null>>

export interface StoreUnderTest<Client> {
  /** Empty. It is migrated and opened before each test, and closed before `dispose`. */
  readonly store: OutboxStore<Client>
  dispose(): Promise<void>
  /** Lets the store's clock advance. Without it the suite waits for real time, some tens of milliseconds. */
  readonly advance?: ((ms: number) => Promise<void>) | undefined
  /**
   * Writes a row as a program in another language would: a plain INSERT of these columns, in a transaction of its own.
   * JSON columns are given as text. Rejects when the database refuses the row.
   */
  readonly insert?: ((row: InsertedRow) => Promise<void>) | undefined
  /** Begins a transaction as application code would, without the store. */
  readonly begin?: (() => Promise<CallerTransaction<Client>>) | undefined
}

export interface StoreConformanceOptions<Client> {
  readonly name: string
  readonly runner: ConformanceRunner
  /** Called before each test. */
  createStore(): Promise<StoreUnderTest<Client>>
  /** A statement that fails, where statements exist. Rejects when run inside a transaction. */
  failingStatement?(client: Client): Promise<unknown>
  /** How long to wait for what must happen sooner or later, before a test fails. Default 10,000. */
  readonly patienceMs?: number | undefined
  /** Told once per suite what is skipped and why; default standard output. */
  readonly print?: ((line: string) => void) | undefined
}

/** What a test may need: a capability of the store, or something that only the options can give. Nothing else. */
export type Need = keyof StoreCapabilities | 'begin' | 'insert' | 'failingStatement'
