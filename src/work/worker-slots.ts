import type { Delivery } from './delivery.js'
import { NotStarted } from './not-started.js'

interface WaitingDelivery {
  readonly delivery: Delivery
  proceed(): void
  refuse(error: Error): void
}

/**
 * Limits how many deliveries run handlers at the same time. A delivery holds one slot while it runs handlers or
 * interceptors, and none while it only waits in handler queues.
 */
export class WorkerSlots {
  readonly capacity: number
  #used = 0
  #waiting: WaitingDelivery[] = []

  constructor(capacity: number) {
    this.capacity = capacity
  }

  get used(): number {
    return this.#used
  }

  /** Returns false if all slots are used. */
  tryAcquire(delivery: Delivery): boolean {
    if (this.#used >= this.capacity) return false
    this.#used++
    delivery.hasSlot = true
    return true
  }

  /**
   * Resolves when the delivery has a slot. Deliveries that already run come before deliveries that have not started.
   * Rejects with NotStarted if the delivery is released while it waits.
   */
  acquire(delivery: Delivery): Promise<void> | undefined {
    if (delivery.hasSlot || this.tryAcquire(delivery)) return undefined
    return new Promise((proceed, refuse) => this.#waiting.push({ delivery, proceed, refuse }))
  }

  /** Does nothing if the delivery has no slot. Returns true if the slot is free for another delivery. */
  release(delivery: Delivery): boolean {
    if (!delivery.hasSlot) return false
    delivery.hasSlot = false
    const next = this.#waiting.shift()
    if (!next) {
      this.#used--
      return true
    }
    next.delivery.hasSlot = true
    next.proceed()
    return false
  }

  /** Passes the slot, if there is one, to the next delivery of a run. */
  pass(from: Delivery, to: Delivery): void {
    to.hasSlot = from.hasSlot
    from.hasSlot = false
  }

  /** Refuses a slot to the waiting deliveries that `isReleased` selects. */
  refuse(isReleased: (delivery: Delivery) => boolean): void {
    const waiting = this.#waiting
    this.#waiting = waiting.filter(({ delivery }) => !isReleased(delivery))
    for (const { delivery, refuse } of waiting) if (isReleased(delivery)) refuse(new NotStarted())
  }
}
