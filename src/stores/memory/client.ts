import { AftercommitError, TransactionEndedError } from '../../core/errors.js'

/** Keys that open transactions have written, and by which one. */
export type Reservations = Map<string, MemoryTransaction>

/** A row or a mark, to be applied at the commit. Its key is the transaction's alone until then. */
export interface Write {
  readonly key: string
  /** Of a row. */
  readonly seq?: number
  apply(): void
}

/**
 * One session, as a connection would be: idle, or inside a transaction that its holder begins and ends. What a
 * transaction wrote is seen by nobody else before its commit, and is gone after a rollback.
 */
export class MemoryClient {
  readonly #reserved: Reservations
  #transaction: MemoryTransaction | undefined

  constructor(reserved: Reservations) {
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
    const writes = this.transaction.end()
    this.#transaction = undefined
    for (const write of writes) write.apply()
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
  #writes: Write[] = []
  #waiting: (() => void)[] = []
  #waitsFor: MemoryTransaction | undefined
  /** A `rollbackTo` happened that the outbox did not ask for. */
  hasUnseenRollback = false
  isOpen = true

  constructor(reserved: Reservations) {
    this.#reserved = reserved
  }

  holds(key: string): boolean {
    return this.#reserved.get(key) === this
  }

  seqOf(eventId: string): number | undefined {
    return this.#writes.find((write) => write.key === eventId)?.seq
  }

  write(write: Write): void {
    this.#writes.push(write)
    this.#reserved.set(write.key, this)
  }

  savepoint(): number {
    return this.#writes.length
  }

  rollbackTo(savepoint: number): void {
    this.#forget(this.#writes.splice(savepoint))
  }

  /** Returns what was written, and lets go of it. */
  end(): readonly Write[] {
    const writes = this.#writes
    this.#writes = []
    this.isOpen = false
    this.#forget(writes)
    return writes
  }

  /** Another open transaction that holds one of the keys. */
  otherHolder(keys: readonly string[]): MemoryTransaction | undefined {
    for (const key of keys) {
      const holder = this.#reserved.get(key)
      if (holder && holder !== this) return holder
    }
    return undefined
  }

  /**
   * Waits, as a unique index makes a database wait, until the other transaction lets go of keys. Rejects with
   * code DEADLOCK when that one waits for this one, and with TransactionEndedError when this one ends meanwhile.
   */
  async waitFor(holder: MemoryTransaction): Promise<void> {
    for (let at: MemoryTransaction | undefined = holder; at; at = at.#waitsFor) {
      if (at === this)
        throw new AftercommitError('DEADLOCK', 'Two transactions wait for what the other one wrote.')
    }
    this.#waitsFor = holder
    await new Promise<void>((resolve) => holder.#waiting.push(resolve))
    this.#waitsFor = undefined
    if (!this.isOpen) throw new TransactionEndedError()
  }

  #forget(writes: readonly Write[]): void {
    for (const write of writes) this.#reserved.delete(write.key)
    for (const wake of this.#waiting.splice(0)) wake()
  }
}
