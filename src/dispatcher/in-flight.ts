import type { Delivery } from './delivery.js'

/** A call that was given up and runs on. */
export interface Overdue extends Pick<Delivery, 'event' | 'startedAt' | 'stuckReported' | 'detached'> {}

/** Emptied when it is removed: the tables that a Map has outgrown know each other, and keep what they held until V8 clears up. */
class Place {
  delivery: Delivery | null

  constructor(delivery: Delivery) {
    this.delivery = delivery
  }
}

/**
 * Everything this process holds a lease of, and what still runs although its lease or its time is over. An event
 * id that is in here is not started a second time, and nothing of an ordering key beside a run of it.
 */
export class InFlight {
  readonly #held = new Map<string, Place>()
  readonly #overdue = new Map<string, Set<Overdue>>()
  readonly #abandoned = new Map<Delivery, Overdue>()
  #waiting: (() => void)[] = []

  get size(): number {
    return this.#held.size
  }

  has(eventId: string): boolean {
    return this.#held.has(eventId) || (this.#overdue.size > 0 && this.#overdue.has(eventId))
  }

  /** The same of it and all that follow it in its run. */
  hasAny(delivery: Delivery): boolean {
    for (let one: Delivery | null = delivery; one; one = one.next)
      if (this.has(one.event.eventId)) return true
    return false
  }

  holds(delivery: Delivery): boolean {
    return this.#held.get(delivery.event.eventId)?.delivery === delivery
  }

  add(delivery: Delivery): void {
    this.#held.set(delivery.event.eventId, new Place(delivery))
  }

  /** Its outcome is written, or its lease is lost. */
  remove(delivery: Delivery): void {
    const id = delivery.event.eventId
    const place = this.#held.get(id)
    if (place?.delivery === delivery) {
      place.delivery = null
      this.#held.delete(id)
    }
    if (this.#held.size === 0) {
      const waiting = this.#waiting
      this.#waiting = []
      for (const resolve of waiting) resolve()
    }
  }

  *values(): IterableIterator<Delivery> {
    for (const { delivery } of this.#held.values()) if (delivery) yield delivery
  }

  /** Looks at everything that is held: once for a claim, not for each event. */
  runningKeys(): ReadonlySet<string> {
    const keys = new Set<string>()
    for (const { running, event } of this.values()) {
      if (running && event.orderingKey !== undefined) keys.add(event.orderingKey)
    }
    for (const { event } of this.#abandoned.values()) {
      if (event.orderingKey !== undefined) keys.add(event.orderingKey)
    }
    return keys
  }

  /** Calls that were given up and have not ended. */
  overdue(): Overdue[] {
    return [...this.#overdue.values()].flatMap((runs) => [...runs])
  }

  /** A handler that was given up runs on; until it ends the event is not run here again. */
  outlives({ event }: Pick<Delivery, 'event'>, startedAt: number, run: Promise<unknown>): void {
    const one = this.#begin(event, startedAt)
    const ended = () => this.#end(one)
    run.then(ended, ended)
  }

  /** The same for a whole delivery: its outcome is no longer wanted. */
  abandon(delivery: Delivery): void {
    this.#abandoned.set(delivery, this.#begin(delivery.event, delivery.startedAt))
  }

  /** Its handlers have ended. True when it was abandoned. */
  ended(delivery: Delivery): boolean {
    const one = this.#abandoned.get(delivery)
    if (!one) return false
    this.#abandoned.delete(delivery)
    this.#end(one)
    return true
  }

  #begin(event: Overdue['event'], startedAt: number): Overdue {
    const one: Overdue = { event, startedAt, stuckReported: false, detached: true }
    this.#overdue.set(event.eventId, (this.#overdue.get(event.eventId) ?? new Set()).add(one))
    return one
  }

  #end(one: Overdue): void {
    const { eventId } = one.event
    const runs = this.#overdue.get(eventId)
    runs?.delete(one)
    if (runs?.size === 0) this.#overdue.delete(eventId)
  }

  /** Resolves when nothing is queued, running or waiting to be written. */
  idle(): Promise<void> {
    if (this.#held.size === 0) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push(resolve))
  }
}
