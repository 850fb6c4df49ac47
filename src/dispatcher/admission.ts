import type { Delivery } from './delivery.js'
import type { Lane } from './gate.js'
import type { Outcomes } from './outcome.js'
import type { Registration, Routes } from './routing.js'
import type { WaitingRoom } from './waiting-room.js'

const NO_LANES: readonly Lane[] = []

/** Lets deliveries wait for their handlers as far as there is room. A type for which there is little is not claimed until there is more. */
export class Admission {
  readonly #routes: Routes
  readonly #outcomes: Pick<Outcomes, 'left'>
  readonly #onRoom: () => void
  /** By event type, what has no room. */
  readonly #full = new Map<string, Set<WaitingRoom>>()
  /** Of handlers that were asked for before. */
  readonly #lanes = new WeakMap<readonly Registration[], readonly Lane[]>()

  constructor(routes: Routes, outcomes: Pick<Outcomes, 'left'>, onRoom: () => void) {
    this.#routes = routes
    this.#outcomes = outcomes
    this.#onRoom = onRoom
  }

  /** False, and nothing changed but what is claimed, when one of its lanes has no room. It may be admitted twice. */
  admit(delivery: Delivery): boolean {
    const lanes = this.#lanesOf(delivery)
    let hasRoom = true
    for (const { room } of lanes) {
      if (!room.isFull || room.has(delivery)) continue
      this.#leaveOut(delivery.event.eventType, room)
      hasRoom = false
    }
    if (!hasRoom) return false
    for (const { room } of lanes) {
      room.enter(delivery)
      if (room.isCrowded) this.#leaveOut(delivery.event.eventType, room)
    }
    return true
  }

  dismiss(delivery: Delivery): void {
    for (const { room } of this.#lanesOf(delivery)) room.leave(delivery)
  }

  /** Where it is going to wait. */
  #lanesOf(delivery: Delivery): readonly Lane[] {
    if (this.#routes.lanes.length === 0 || delivery.unroutable) return NO_LANES
    const handlers = this.#outcomes.left(this.#routes.handlersOf(delivery.event), delivery)
    let lanes = this.#lanes.get(handlers)
    if (!lanes) {
      lanes = handlers.flatMap(({ lane }) => lane ?? [])
      this.#lanes.set(handlers, lanes)
    }
    return lanes
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
