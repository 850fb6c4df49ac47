import type { EventHandler } from '../bus.js'
import type { Clock } from '../core/clock.js'
import type { EventEnvelope } from '../core/envelope.js'
import type { IncomingMessage } from './transport.js'

/** A message that a consumer has and has not answered yet. */
export class Held {
  readonly message: IncomingMessage
  readonly event: EventEnvelope
  readonly handlers: readonly EventHandler[]
  /** Tries that have failed here. */
  attempts = 0
  /** They are not called again for this message. */
  succeeded: Set<string> = new Set()
  /** Another consumer may have it by now: it is not started, and not answered. */
  isLost = false
  isAnswered = false
  /** Name of the handler whose call has begun and not ended. */
  running: string | null = null
  /** Resolves when nothing more happens to it here. Never rejects. */
  ended: Promise<void> = Promise.resolve()

  constructor(message: IncomingMessage, event: EventEnvelope, handlers: readonly EventHandler[]) {
    this.message = message
    this.event = event
    this.handlers = handlers
  }

  /** One after the other: events of one ordering key, and the same event again. */
  get lanes(): readonly string[] {
    const { orderingKey } = this.event
    return orderingKey === undefined ? [this.#identity] : [this.#identity, `key ${orderingKey}`]
  }

  /** The broker hands it out again while this process still works on it: what has succeeded by then is not done twice. */
  inherit(former: Held): void {
    if (former.isLost && former.#identity === this.#identity) this.succeeded = former.succeeded
  }

  /** Ids are unique within their source. */
  get #identity(): string {
    return `event ${this.event.eventId} of ${this.message.attributes.source}`
  }
}

/** Lets messages begin one after the other within their lanes. */
export class Lanes {
  readonly #last = new Map<string, Held>()

  /** Runs the work when all who came before in its lanes have ended. */
  enter(held: Held, work: () => Promise<void>): void {
    const before: Held[] = []
    for (const lane of held.lanes) {
      const last = this.#last.get(lane)
      if (last) before.push(last)
      this.#last.set(lane, held)
    }
    held.ended = this.#run(held, before, work)
  }

  async #run(held: Held, before: readonly Held[], work: () => Promise<void>): Promise<void> {
    for (const former of before) {
      await former.ended
      held.inherit(former)
    }
    try {
      await work()
    } finally {
      for (const lane of held.lanes) if (this.#last.get(lane) === held) this.#last.delete(lane)
    }
  }
}

const GATHER_MS = 100

/** At most so many at a time; the others wait for their turn. One that may be deadly runs with nothing beside it. */
export class Places {
  readonly #limit: number
  readonly #clock: Clock
  #running = 0
  #isAlone = false
  #isGathering = false
  readonly #waiting: (() => void)[] = []
  readonly #suspects: (() => void)[] = []

  constructor(limit: number, clock: Clock) {
    this.#limit = limit
    this.#clock = clock
  }

  enter(): Promise<void> {
    return this.#wait(this.#waiting)
  }

  /** In no order: whoever came behind the deadly one gets a turn in front of it, in one life or the next. */
  enterAlone(): Promise<void> {
    if (this.#suspects.length === 0 && !this.#isAlone) this.#gather()
    return this.#wait(this.#suspects)
  }

  /** The others that were held together come in a moment. */
  #gather(): void {
    this.#isGathering = true
    const timer = this.#clock.setTimer(() => {
      this.#isGathering = false
      this.#admit()
    }, GATHER_MS)
    timer.unref?.()
  }

  leave(): void {
    this.#running--
    this.#isAlone = false
    this.#admit()
  }

  #wait(queue: (() => void)[]): Promise<void> {
    return new Promise((resolve) => {
      queue.push(resolve)
      this.#admit()
    })
  }

  #admit(): void {
    if (this.#isAlone || this.#isGathering) return
    if (this.#suspects.length > 0) {
      if (this.#running > 0) return
      const [next] = this.#suspects.splice(Math.floor(Math.random() * this.#suspects.length), 1)
      this.#isAlone = true
      this.#running++
      next?.()
      return
    }
    while (this.#running < this.#limit && this.#waiting.length > 0) {
      this.#running++
      this.#waiting.shift()?.()
    }
  }
}
