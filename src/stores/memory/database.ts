import { isPending, type Row } from './row.js'
import { SortedList } from './sorted-list.js'

/** The pending rows of one ordering key, and those of them that carry a lease. */
interface KeyQueue {
  readonly pending: SortedList<Row>
  readonly leased: Set<Row>
}

const bySeq = (a: Row, b: Row) => a.seq - b.seq

/**
 * The committed rows and the lists that claims read. A pending row is in exactly one of `fresh`, `timed` and
 * `leased`, except that rows behind the first one of their ordering key wait in no list.
 */
export class MemoryDatabase {
  readonly rows = new Map<string, Row>()
  readonly all = new SortedList<Row>(bySeq)
  /** Never tried, not delayed, not ordered, not leased. */
  readonly fresh = new SortedList<Row>(bySeq)
  readonly timed = new SortedList<Row>((a, b) => a.availableAt - b.availableAt || a.seq - b.seq)
  readonly leased = new SortedList<Row>((a, b) => a.lockedUntil - b.lockedUntil || a.seq - b.seq)
  readonly dead = new SortedList<Row>(bySeq)
  readonly done = new SortedList<Row>((a, b) => (a.doneAt ?? 0) - (b.doneAt ?? 0) || a.seq - b.seq)
  readonly #keys = new Map<string, KeyQueue>()
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
    this.#move(row, () => {
      this.all.add(row)
      this.#enter(row)
    })
  }

  delete(row: Row): void {
    this.rows.delete(row.event.eventId)
    this.#move(row, () => {
      this.all.delete(row)
      this.#leave(row)
    })
  }

  /** Writes to a row and moves it to the list where it belongs then. */
  change(row: Row, changes: Partial<Omit<Row, 'event' | 'createdAt' | 'home'>>): void {
    this.#move(row, () => {
      this.#leave(row)
      if (changes.seq !== undefined) this.all.delete(row)
      Object.assign(row, changes)
      if (changes.seq !== undefined) this.all.add(row)
      this.#enter(row)
    })
  }

  /** False while an earlier row of its ordering key is pending, or any other one is being worked on. */
  isHead(row: Row, now: number): boolean {
    const queue = this.#queueOf(row)
    if (!queue) return true
    if (queue.pending.first() !== row) return false
    for (const other of queue.leased) if (other !== row && other.lockedUntil >= now) return false
    return true
  }

  /** Runs a step that may change who is first of the row's ordering key, and files the old and the new first row. */
  #move(row: Row, step: () => void): void {
    const before = this.#queueOf(row)?.pending.first()
    step()
    const after = this.#queueOf(row)?.pending.first()
    if (before === after) return
    if (before && before !== row) this.#file(before)
    if (after && after !== row) this.#file(after)
  }

  #enter(row: Row): void {
    const key = row.event.orderingKey
    if (isPending(row)) {
      this.#pending++
      if (key !== null) {
        const queue = this.#keys.get(key) ?? { pending: new SortedList<Row>(bySeq), leased: new Set<Row>() }
        this.#keys.set(key, queue)
        queue.pending.add(row)
        if (row.lockedBy !== null) queue.leased.add(row)
      }
    }
    this.#file(row)
  }

  #leave(row: Row): void {
    row.home?.delete(row)
    row.home = null
    if (!isPending(row)) return
    this.#pending--
    const queue = this.#queueOf(row)
    queue?.leased.delete(row)
    queue?.pending.delete(row)
    if (queue?.pending.size === 0) this.#keys.delete(row.event.orderingKey ?? '')
  }

  #file(row: Row): void {
    row.home?.delete(row)
    row.home = this.#homeOf(row)
    row.home?.add(row)
  }

  #homeOf(row: Row): SortedList<Row> | null {
    if (row.status === 'DONE') return this.done
    if (row.status === 'DEAD') return this.dead
    if (row.lockedBy !== null) return this.leased
    const queue = this.#queueOf(row)
    if (!queue) return row.isTimed ? this.timed : this.fresh
    // A row may become the first of its key long after a scan went past its seq: found by time instead.
    return queue.pending.first() === row ? this.timed : null
  }

  #queueOf(row: Row): KeyQueue | undefined {
    return row.event.orderingKey === null ? undefined : this.#keys.get(row.event.orderingKey)
  }
}
