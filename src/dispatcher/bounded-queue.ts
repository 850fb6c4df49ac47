/** First in, first out, bounded by count and by bytes. A place is reserved first and filled, or cancelled, later. */
export class BoundedQueue<T extends { readonly weight: number; readonly runBytes: number }> {
  readonly capacity: number
  readonly maxBytes: number
  #items: (T | undefined)[] = []
  #head = 0
  #taken = 0
  #takenBytes = 0

  constructor(capacity: number, maxBytes: number) {
    this.capacity = capacity
    this.maxBytes = maxBytes
  }

  get length(): number {
    return this.#items.length - this.#head
  }

  /** Places left, reserved ones not counted as free. */
  get room(): number {
    return Math.max(0, this.capacity - this.#taken)
  }

  get roomBytes(): number {
    return Math.max(0, this.maxBytes - this.#takenBytes)
  }

  /** False when the queue is full; then nothing changed. An empty queue takes one item of any size. */
  reserve(bytes: number): boolean {
    if (this.#taken >= this.capacity) return false
    if (this.#taken > 0 && this.#takenBytes + bytes > this.maxBytes) return false
    this.#taken++
    this.#takenBytes += bytes
    return true
  }

  cancel(bytes: number): void {
    this.#taken--
    this.#takenBytes -= bytes
  }

  /** Fills a reserved place. */
  put(item: T): void {
    this.#items.push(item)
  }

  /** Reserves and fills, whatever the room; for what was already claimed. */
  add(item: T): void {
    this.#taken += item.weight
    this.#takenBytes += item.runBytes
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
    this.#taken -= item.weight
    this.#takenBytes -= item.runBytes
    return item
  }
}
