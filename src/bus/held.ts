import type { EventHandler } from '../bus.js'
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
  /** Resolves when nothing more happens to it here. Never rejects. */
  ended: Promise<void> = Promise.resolve()

  constructor(message: IncomingMessage, event: EventEnvelope, handlers: readonly EventHandler[]) {
    this.message = message
    this.event = event
    this.handlers = handlers
  }

  /** One after the other: events of one ordering key, and the same event again. */
  get lanes(): readonly string[] {
    const { eventId, orderingKey } = this.event
    return orderingKey === undefined ? [`id ${eventId}`] : [`id ${eventId}`, `key ${orderingKey}`]
  }

  /** It comes again while this process still works on it: what has succeeded by then need not be done twice. */
  inherit(former: Held): void {
    if (former.event.eventId === this.event.eventId) this.succeeded = former.succeeded
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

/** At most so many at a time; the others wait for their turn. */
export class Places {
  #free: number
  readonly #waiting: (() => void)[] = []

  constructor(limit: number) {
    this.#free = limit
  }

  async enter(): Promise<void> {
    if (this.#free > 0) this.#free--
    else await new Promise<void>((resolve) => this.#waiting.push(resolve))
  }

  leave(): void {
    const next = this.#waiting.shift()
    if (next) next()
    else this.#free++
  }
}
