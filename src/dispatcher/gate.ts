import type { Delivery } from './delivery.js'
import { NotStarted } from './outcome.js'
import { MOST_WAITING, WaitingRoom } from './waiting-room.js'

/** What a handler's calls go through when they cannot all run at once. */
export interface Lane {
  readonly room: WaitingRoom
  /** Of those that wait, these are not started any more. */
  giveBack(which: (delivery: Delivery) => boolean): void
  /** Starts what waits for company. */
  flush(): void
}

interface Waiting {
  readonly delivery: Delivery
  enter(): void
  refuse(error: Error): void
}

/** At most `limit` calls of one handler at a time; the others wait for their turn. */
export class Gate implements Lane {
  readonly room = new WaitingRoom(MOST_WAITING)
  readonly #limit: number
  #running = 0
  #waiting: Waiting[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  /** Somebody waits for a turn. */
  get isAwaited(): boolean {
    return this.#waiting.length > 0
  }

  /** True when the way was free; whoever got in has to leave. */
  tryEnter(): boolean {
    if (this.#running >= this.#limit) return false
    this.#running++
    return true
  }

  /** Null when the way is free. Rejects with NotStarted when the turn never comes. */
  enter(delivery: Delivery): Promise<void> | null {
    if (this.tryEnter()) return null
    return new Promise((enter, refuse) => this.#waiting.push({ delivery, enter, refuse }))
  }

  leave(): void {
    const next = this.#waiting.shift()
    if (next) next.enter()
    else this.#running--
  }

  giveBack(which: (delivery: Delivery) => boolean): void {
    const waiting = this.#waiting
    this.#waiting = waiting.filter(({ delivery }) => !which(delivery))
    for (const { delivery, refuse } of waiting) if (which(delivery)) refuse(new NotStarted())
  }

  flush(): void {}
}
