import { isPending, isQueued, type Row } from './row.js'
import { SortedList } from './sorted-list.js'

/** The rows of one ordering key that are pending, or dead and in the way of the others. Never empty. */
export interface KeyQueue {
  readonly key: string
  readonly bytes: Buffer
  readonly rows: SortedList<Row>
}

const bySeq = (a: Row, b: Row) => a.seq - b.seq
const byTime = (a: Row, b: Row) => a.availableAt - b.availableAt || a.seq - b.seq

/**
 * The committed rows and the lists that claims read. A pending row is in exactly one of `fresh`, `timed`, `leased`
 * and `ordered`, its home.
 */
export class MemoryDatabase {
  readonly rows = new Map<string, Row>()
  readonly all = new SortedList<Row>(bySeq)
  /** Never tried, not delayed, not ordered, not leased. */
  readonly fresh = new SortedList<Row>(bySeq)
  readonly timed = new SortedList<Row>(byTime)
  readonly leased = new SortedList<Row>((a, b) => a.lockedUntil - b.lockedUntil || a.seq - b.seq)
  /** Those with an ordering key, leased or not. */
  readonly ordered = new SortedList<Row>(byTime)
  readonly dead = new SortedList<Row>(bySeq)
  readonly done = new SortedList<Row>((a, b) => (a.doneAt ?? 0) - (b.doneAt ?? 0) || a.seq - b.seq)
  readonly #queues = new Map<string, KeyQueue>()
  /** By the bytes of their keys, as databases sort them; JavaScript's own order differs beyond U+D7FF. */
  readonly #keys = new SortedList<KeyQueue>((a, b) => Buffer.compare(a.bytes, b.bytes))
  #highSeq = 0
  #pending = 0

  /** The highest `seq` drawn so far, committed or not. */
  get highSeq(): number {
    return this.#highSeq
  }

  get pendingCount(): number {
    return this.#pending
  }

  drawSeq(): number {
    return ++this.#highSeq
  }

  insert(row: Row): void {
    this.rows.set(row.event.eventId, row)
    this.all.add(row)
    this.#enter(row)
  }

  delete(row: Row): void {
    this.rows.delete(row.event.eventId)
    this.all.delete(row)
    this.#leave(row)
  }

  /** Writes to a row and moves it to the lists where it belongs then. */
  change(row: Row, changes: Partial<Omit<Row, 'event' | 'createdAt' | 'home'>>): void {
    this.#leave(row)
    if (changes.seq !== undefined) this.all.delete(row)
    Object.assign(row, changes)
    if (changes.seq !== undefined) this.all.add(row)
    this.#enter(row)
  }

  /** In their order. Rows must not be changed meanwhile. */
  keysBehind(key: string): Iterable<KeyQueue> {
    const bytes = Buffer.from(key)
    return this.#keys.from((queue) => Buffer.compare(queue.bytes, bytes) > 0)
  }

  /** Whether it is the first row of its ordering key. */
  isHead(row: Row): boolean {
    return this.#queueOf(row)?.rows.first() === row
  }

  #enter(row: Row): void {
    if (isPending(row)) this.#pending++
    row.home = this.#homeOf(row)
    row.home.add(row)
    const key = row.event.orderingKey
    if (key === null || !isQueued(row)) return
    let queue = this.#queues.get(key)
    if (!queue) {
      queue = { key, bytes: Buffer.from(key), rows: new SortedList<Row>(bySeq) }
      this.#queues.set(key, queue)
      this.#keys.add(queue)
    }
    queue.rows.add(row)
  }

  #leave(row: Row): void {
    if (isPending(row)) this.#pending--
    row.home?.delete(row)
    row.home = null
    const queue = this.#queueOf(row)
    if (!queue) return
    queue.rows.delete(row)
    if (queue.rows.size > 0) return
    this.#queues.delete(queue.key)
    this.#keys.delete(queue)
  }

  #queueOf(row: Row): KeyQueue | undefined {
    return row.event.orderingKey === null ? undefined : this.#queues.get(row.event.orderingKey)
  }

  #homeOf(row: Row): SortedList<Row> {
    if (row.status === 'DONE') return this.done
    if (row.status === 'DEAD') return this.dead
    if (row.event.orderingKey !== null) return this.ordered
    if (row.lockedBy !== null) return this.leased
    return row.isTimed ? this.timed : this.fresh
  }
}
