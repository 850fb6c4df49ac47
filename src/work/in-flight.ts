import type { Delivery } from './delivery.js'

/** Handler call whose delivery has ended, for example by its timeout, but that is still running. */
export interface OverrunningCall
  extends Pick<Delivery, 'event' | 'startedAt' | 'stuckReported' | 'hasSlot'> {}

/** V8 keeps outgrown tables of a Map alive. The entry is emptied when it is removed, so that they keep no delivery. */
class InFlightEntry {
  delivery: Delivery | null

  constructor(delivery: Delivery) {
    this.delivery = delivery
  }
}

/**
 * All events whose lease this process holds, and all calls that are still running although their lease or timeout has
 * ended. No event in here is started a second time, and no event of an ordering key is started beside a running one.
 */
export class InFlight {
  readonly #entries = new Map<string, InFlightEntry>()
  readonly #overrunning = new Map<string, Set<OverrunningCall>>()
  readonly #aborted = new Map<Delivery, OverrunningCall>()
  #waiting: (() => void)[] = []

  get size(): number {
    return this.#entries.size
  }

  hasEvent(eventId: string): boolean {
    return this.#entries.has(eventId) || (this.#overrunning.size > 0 && this.#overrunning.has(eventId))
  }

  /** Whether any event of the run is in flight. */
  hasAnyOf(run: Delivery): boolean {
    for (let delivery: Delivery | null = run; delivery; delivery = delivery.next)
      if (this.hasEvent(delivery.event.eventId)) return true
    return false
  }

  has(delivery: Delivery): boolean {
    return this.#entries.get(delivery.event.eventId)?.delivery === delivery
  }

  add(delivery: Delivery): void {
    this.#entries.set(delivery.event.eventId, new InFlightEntry(delivery))
  }

  /** Removes a delivery whose outcome is written or whose lease is lost. */
  remove(delivery: Delivery): void {
    const id = delivery.event.eventId
    const entry = this.#entries.get(id)
    if (entry?.delivery === delivery) {
      entry.delivery = null
      this.#entries.delete(id)
    }
    if (this.#entries.size === 0) {
      const waiting = this.#waiting
      this.#waiting = []
      for (const resolve of waiting) resolve()
    }
  }

  *deliveries(): IterableIterator<Delivery> {
    for (const { delivery } of this.#entries.values()) if (delivery) yield delivery
  }

  /** Number of worker slots that deliveries hold. */
  countSlots(): number {
    let slots = 0
    for (const { hasSlot } of this.deliveries()) if (hasSlot) slots++
    for (const delivery of this.#aborted.keys()) if (delivery.hasSlot && !this.has(delivery)) slots++
    return slots
  }

  /** Reads all entries: call it once per claim, not per event. */
  runningKeys(): ReadonlySet<string> {
    const keys = new Set<string>()
    for (const { running, event } of this.deliveries()) {
      if (running && event.orderingKey !== undefined) keys.add(event.orderingKey)
    }
    for (const { event } of this.#aborted.values()) {
      if (event.orderingKey !== undefined) keys.add(event.orderingKey)
    }
    return keys
  }

  overrunningCalls(): OverrunningCall[] {
    return [...this.#overrunning.values()].flatMap((calls) => [...calls])
  }

  /** Records a call that continues after its timeout. Until it ends, the event is not started here again. */
  overruns({ event }: Pick<Delivery, 'event'>, startedAt: number, ended: Promise<unknown>): void {
    const call = this.#overrun(event, startedAt)
    const end = () => this.#endOverrun(call)
    ended.then(end, end)
  }

  /** Records a delivery whose handlers continue although its lease was released. */
  abort(delivery: Delivery): void {
    this.#aborted.set(delivery, this.#overrun(delivery.event, delivery.startedAt))
  }

  /** Call when the handlers of a delivery have ended. Returns true if the delivery was aborted. */
  endAborted(delivery: Delivery): boolean {
    const call = this.#aborted.get(delivery)
    if (!call) return false
    this.#aborted.delete(delivery)
    this.#endOverrun(call)
    return true
  }

  #overrun(event: OverrunningCall['event'], startedAt: number): OverrunningCall {
    const call: OverrunningCall = { event, startedAt, stuckReported: false, hasSlot: false }
    this.#overrunning.set(event.eventId, (this.#overrunning.get(event.eventId) ?? new Set()).add(call))
    return call
  }

  #endOverrun(call: OverrunningCall): void {
    const { eventId } = call.event
    const calls = this.#overrunning.get(eventId)
    calls?.delete(call)
    if (calls?.size === 0) this.#overrunning.delete(eventId)
  }

  /** Resolves when no event is queued, running or waiting to be settled. */
  idle(): Promise<void> {
    if (this.#entries.size === 0) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push(resolve))
  }
}
