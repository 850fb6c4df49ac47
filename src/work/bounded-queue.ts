/** First-in-first-out queue, bounded by count and bytes. Capacity can be reserved before the item exists. */
export class BoundedQueue<T extends { readonly weight: number; readonly runBytes: number }> {
  readonly capacity: number
  readonly maxBytes: number
  #items: (T | undefined)[] = []
  #head = 0
  /** Weight and bytes of the items and reservations. */
  #used = 0
  #usedBytes = 0

  constructor(capacity: number, maxBytes: number) {
    this.capacity = capacity
    this.maxBytes = maxBytes
  }

  get length(): number {
    return this.#items.length - this.#head
  }

  /** Capacity that is neither used nor reserved. */
  get free(): number {
    return Math.max(0, this.capacity - this.#used)
  }

  get freeBytes(): number {
    return Math.max(0, this.maxBytes - this.#usedBytes)
  }

  /** Returns false, without any change, if the queue is full. An empty queue accepts an item of any size. */
  reserve(bytes: number): boolean {
    if (this.#used >= this.capacity) return false
    if (this.#used > 0 && this.#usedBytes + bytes > this.maxBytes) return false
    this.#used++
    this.#usedBytes += bytes
    return true
  }

  cancelReservation(bytes: number): void {
    this.#used--
    this.#usedBytes -= bytes
  }

  /** Adds an item for which capacity is reserved. */
  addReserved(item: T): void {
    this.#items.push(item)
  }

  /** Adds an item that is already claimed, even if the queue is full. */
  add(item: T): void {
    this.#used += item.weight
    this.#usedBytes += item.runBytes
    this.#items.push(item)
  }

  take(): T | undefined {
    if (this.#head === this.#items.length) return undefined
    const item = this.#items[this.#head] as T
    this.#items[this.#head++] = undefined
    if (this.#head === this.#items.length || this.#head > 4096) {
      this.#items.splice(0, this.#head)
      this.#head = 0
    }
    this.#used -= item.weight
    this.#usedBytes -= item.runBytes
    return item
  }
}
