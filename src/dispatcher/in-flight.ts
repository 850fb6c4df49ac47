import type { Delivery } from './delivery.js'

/**
 * Everything this process holds a lease of, and what still runs although its lease or its time is over. An event
 * id that is in here is not started a second time.
 */
export class InFlight {
  readonly #held = new Map<string, Delivery>()
  readonly #overdue = new Map<string, number>()
  readonly #abandoned = new Set<Delivery>()
  #waiting: (() => void)[] = []

  get size(): number {
    return this.#held.size
  }

  has(eventId: string): boolean {
    return this.#held.has(eventId) || this.#overdue.has(eventId)
  }

  holds(delivery: Delivery): boolean {
    return this.#held.get(delivery.event.eventId) === delivery
  }

  add(delivery: Delivery): void {
    this.#held.set(delivery.event.eventId, delivery)
  }

  /** Its outcome is written, or its lease is lost. */
  remove(delivery: Delivery): void {
    const id = delivery.event.eventId
    if (this.#held.get(id) === delivery) this.#held.delete(id)
    if (this.#held.size === 0) {
      const waiting = this.#waiting
      this.#waiting = []
      for (const resolve of waiting) resolve()
    }
  }

  values(): IterableIterator<Delivery> {
    return this.#held.values()
  }

  /** A handler that was given up runs on; until it ends the event is not run here again. */
  outlives(eventId: string, run: Promise<unknown>): void {
    this.#begin(eventId)
    const ended = () => this.#end(eventId)
    run.then(ended, ended)
  }

  /** The same for a whole delivery: its outcome is no longer wanted. */
  abandon(delivery: Delivery): void {
    this.#abandoned.add(delivery)
    this.#begin(delivery.event.eventId)
  }

  /** Its handlers have ended. True when it was abandoned. */
  ended(delivery: Delivery): boolean {
    if (!this.#abandoned.delete(delivery)) return false
    this.#end(delivery.event.eventId)
    return true
  }

  #begin(eventId: string): void {
    this.#overdue.set(eventId, (this.#overdue.get(eventId) ?? 0) + 1)
  }

  #end(eventId: string): void {
    const left = (this.#overdue.get(eventId) ?? 1) - 1
    if (left > 0) this.#overdue.set(eventId, left)
    else this.#overdue.delete(eventId)
  }

  /** Resolves when nothing is queued, running or waiting to be written. */
  idle(): Promise<void> {
    if (this.#held.size === 0) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push(resolve))
  }
}
