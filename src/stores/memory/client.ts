import { AftercommitError, TransactionEndedError } from '../../core/errors.js'
import type { MemoryDatabase } from './database.js'
import type { Row } from './row.js'

/** Ids that open transactions have written, and by which one. */
export type Reservations = Map<string, MemoryTransaction>

/**
 * One session, as a connection would be: idle, or inside a transaction that its holder begins and ends. What a
 * transaction wrote is seen by nobody else before its commit, and is gone after a rollback.
 */
export class MemoryClient {
  readonly #database: MemoryDatabase
  readonly #reserved: Reservations
  #transaction: MemoryTransaction | undefined

  constructor(database: MemoryDatabase, reserved: Reservations) {
    this.#database = database
    this.#reserved = reserved
  }

  get isInTransaction(): boolean {
    return this.#transaction !== undefined
  }

  /** The open transaction; throws TransactionEndedError when there is none. */
  get transaction(): MemoryTransaction {
    if (!this.#transaction) throw new TransactionEndedError()
    return this.#transaction
  }

  begin(): void {
    if (this.#transaction)
      throw new AftercommitError('TRANSACTION_OPEN', 'This client is inside a transaction.')
    this.#transaction = new MemoryTransaction(this.#reserved)
  }

  commit(): void {
    const rows = this.transaction.end()
    this.#transaction = undefined
    for (const row of rows) this.#database.insert(row)
  }

  rollback(): void {
    this.transaction.end()
    this.#transaction = undefined
  }

  /** A mark to roll back to. */
  savepoint(): number {
    return this.transaction.savepoint()
  }

  rollbackTo(savepoint: number): void {
    this.transaction.rollbackTo(savepoint)
    this.transaction.hasUnseenRollback = true
  }
}

/** What one transaction has written so far, in order. */
export class MemoryTransaction {
  readonly #reserved: Reservations
  #rows: Row[] = []
  #waiting: (() => void)[] = []
  #waitsFor: MemoryTransaction | undefined
  /** A `rollbackTo` happened that the outbox did not ask for. */
  hasUnseenRollback = false
  isOpen = true

  constructor(reserved: Reservations) {
    this.#reserved = reserved
  }

  holds(eventId: string): boolean {
    return this.#reserved.get(eventId) === this
  }

  seqOf(eventId: string): number | undefined {
    return this.#rows.find((row) => row.event.eventId === eventId)?.seq
  }

  write(row: Row): void {
    this.#rows.push(row)
    this.#reserved.set(row.event.eventId, this)
  }

  savepoint(): number {
    return this.#rows.length
  }

  rollbackTo(savepoint: number): void {
    this.#forget(this.#rows.splice(savepoint))
  }

  /** Returns what was written, and lets go of it. */
  end(): readonly Row[] {
    const rows = this.#rows
    this.#rows = []
    this.isOpen = false
    this.#forget(rows)
    return rows
  }

  /** Another open transaction that holds one of the ids. */
  otherHolder(eventIds: Iterable<string>): MemoryTransaction | undefined {
    for (const id of eventIds) {
      const holder = this.#reserved.get(id)
      if (holder && holder !== this) return holder
    }
    return undefined
  }

  /**
   * Waits, as a unique index makes a database wait, until the other transaction lets go of ids. Rejects with
   * code DEADLOCK when that one waits for this one, and with TransactionEndedError when this one ends meanwhile.
   */
  async waitFor(holder: MemoryTransaction): Promise<void> {
    for (let at: MemoryTransaction | undefined = holder; at; at = at.#waitsFor) {
      if (at === this)
        throw new AftercommitError('DEADLOCK', 'Two transactions wait for ids that the other one wrote.')
    }
    this.#waitsFor = holder
    await new Promise<void>((resolve) => holder.#waiting.push(resolve))
    this.#waitsFor = undefined
    if (!this.isOpen) throw new TransactionEndedError()
  }

  #forget(rows: readonly Row[]): void {
    for (const row of rows) this.#reserved.delete(row.event.eventId)
    for (const wake of this.#waiting.splice(0)) wake()
  }
}
