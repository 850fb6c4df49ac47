import type { Delivery } from './delivery.js'
import type { Lane } from './gate.js'
import type { Routes } from './routing.js'
import type { WaitingRoom } from './waiting-room.js'

/** Lets deliveries wait for their handlers as far as there is room. A type that found none is not claimed until there is. */
export class Admission {
  readonly #routes: Routes
  readonly #onRoom: () => void
  /** By event type, what has no room. */
  readonly #full = new Map<string, Set<WaitingRoom>>()

  constructor(routes: Routes, onRoom: () => void) {
    this.#routes = routes
    this.#onRoom = onRoom
  }

  /** False, and nothing changed but what is claimed, when one of the lanes has no room. It may be admitted twice. */
  admit(delivery: Delivery, lanes: readonly Lane[]): boolean {
    if (lanes.length === 0) return true
    const full = lanes.filter(({ room }) => room.isFull && !room.has(delivery))
    for (const { room } of full) this.#leaveOut(delivery.event.eventType, room)
    if (full.length > 0) return false
    for (const { room } of lanes) room.enter(delivery)
    return true
  }

  dismiss(delivery: Delivery, lanes: readonly Lane[]): void {
    for (const { room } of lanes) room.leave(delivery)
  }

  #leaveOut(eventType: string, room: WaitingRoom): void {
    const rooms = this.#full.get(eventType) ?? new Set()
    if (rooms.has(room)) return
    this.#full.set(eventType, rooms.add(room))
    this.#routes.leaveOut([...this.#full.keys()])
    room.whenRoomy(() => {
      rooms.delete(room)
      if (rooms.size > 0) return
      this.#full.delete(eventType)
      this.#routes.leaveOut([...this.#full.keys()])
      this.#onRoom()
    })
  }
}
