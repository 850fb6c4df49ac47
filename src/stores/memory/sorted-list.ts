const CHUNK = 512

/** Kept in order, in small chunks: add and delete move a few hundred items at most, however long the list is. */
export class SortedList<T> {
  readonly #compare: (a: T, b: T) => number
  readonly #chunks: T[][] = []
  #size = 0

  /** Two items must never compare as equal. */
  constructor(compare: (a: T, b: T) => number) {
    this.#compare = compare
  }

  get size(): number {
    return this.#size
  }

  first(): T | undefined {
    return this.#chunks[0]?.[0]
  }

  add(item: T): void {
    this.#size++
    const at = Math.min(this.#chunkOf(item), this.#chunks.length - 1)
    const chunk = this.#chunks[at]
    if (!chunk) {
      this.#chunks.push([item])
      return
    }
    chunk.splice(this.#position(chunk, item), 0, item)
    if (chunk.length > 2 * CHUNK) this.#chunks.splice(at + 1, 0, chunk.splice(CHUNK))
  }

  /** Nothing happens when the item is not in the list. */
  delete(item: T): void {
    const at = this.#chunkOf(item)
    const chunk = this.#chunks[at]
    if (!chunk) return
    const position = this.#position(chunk, item)
    if (chunk[position] !== item) return
    chunk.splice(position, 1)
    this.#size--
    if (chunk.length === 0) this.#chunks.splice(at, 1)
  }

  [Symbol.iterator](): Generator<T, void, undefined> {
    return this.from()
  }

  /** In order, from the first item for which `reached` is true (it must stay true from there on). */
  *from(reached: (item: T) => boolean = () => true): Generator<T, void, undefined> {
    let at = search(this.#chunks.length, (index) => reached(last(this.#chunks[index])))
    let position = search(this.#chunks[at]?.length ?? 0, (index) => reached(this.#chunks[at]?.[index] as T))
    for (; at < this.#chunks.length; at++, position = 0) {
      const chunk = this.#chunks[at] as T[]
      for (; position < chunk.length; position++) yield chunk[position] as T
    }
  }

  /** The first chunk whose last item is not below `item`. */
  #chunkOf(item: T): number {
    return search(this.#chunks.length, (index) => this.#compare(last(this.#chunks[index]), item) >= 0)
  }

  #position(chunk: readonly T[], item: T): number {
    return search(chunk.length, (index) => this.#compare(chunk[index] as T, item) >= 0)
  }
}

function last<T>(chunk: readonly T[] | undefined): T {
  return chunk?.[chunk.length - 1] as T
}

/** The lowest index below `length` for which `found` is true; `length` when there is none. */
function search(length: number, found: (index: number) => boolean): number {
  let low = 0
  let high = length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (found(middle)) high = middle
    else low = middle + 1
  }
  return low
}
