import { captureContext } from '../ambient.js'
import type { Clock, Timer } from '../core/clock.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { EventStore, Ring } from '../store.js'

/** The rest after a ring, and the longest: it grows while so many calls come in a millisecond. */
const REST_MS = 5
const LONGEST_REST_MS = 20
const MANY = 3

/**
 * Rings other processes at once, then at most every few milliseconds: one NOTIFY a transaction serialises commits. Thousands
 * of transactions a second are announced less often: those who hear it have more to do than wait for the next one.
 */
export class DebouncedDoorbell {
  readonly #store: Pick<EventStore, 'ring' | 'capabilities'>
  readonly #clock: Clock
  readonly #logger: Logger
  /** A ring tells of many events: it belongs to the span of none of them. */
  readonly #inOwnContext = captureContext()
  #lowest = Number.POSITIVE_INFINITY
  #ordered = false
  #all = false
  /** When it rang, and how often it was asked to since. */
  #rangAt = Number.NEGATIVE_INFINITY
  #calls = 0
  #restMs = REST_MS
  #timer: Timer | null = null
  #ringing: Promise<void> | null = null

  constructor(store: Pick<EventStore, 'ring' | 'capabilities'>, clock: Clock, logger: Logger) {
    this.#store = store
    this.#clock = clock
    this.#logger = logger
  }

  /** Never throws; a ring that fails costs one poll interval. */
  ring(ring: Ring): void {
    if (!this.#store.capabilities.doorbell) return
    if (ring === null) this.#all = true
    else if (ring === 'ordered') this.#ordered = true
    else this.#lowest = Math.min(this.#lowest, ring)
    this.#calls++
    if (!this.#timer && !this.#ringing) this.#inOwnContext(() => this.#ring())
  }

  /** True when somebody else may ring now in our place; it then counts as rung. */
  lend(): boolean {
    if (!this.#store.capabilities.doorbell || this.#timer || this.#ringing) return false
    this.#restFor(REST_MS)
    this.#inOwnContext(() => this.#rest())
    return true
  }

  /** Rings what is waiting and resolves when it is out. */
  async close(): Promise<void> {
    do {
      this.#disarm()
      if (this.#pending && !this.#ringing) this.#ring()
      await this.#ringing
    } while (this.#pending)
    this.#disarm()
  }

  get #pending(): boolean {
    return this.#all || this.#ordered || this.#lowest < Number.POSITIVE_INFINITY
  }

  /** What waits, in as few rings as say all of it. */
  #take(): Ring[] {
    const rings: Ring[] = []
    if (this.#all) rings.push(null)
    else {
      if (this.#lowest < Number.POSITIVE_INFINITY) rings.push(this.#lowest)
      if (this.#ordered) rings.push('ordered')
    }
    this.#lowest = Number.POSITIVE_INFINITY
    this.#ordered = false
    this.#all = false
    return rings
  }

  #disarm(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  #ring(): void {
    const isMany = this.#calls >= MANY * (this.#clock.monotonic() - this.#rangAt)
    this.#restFor(isMany ? Math.min(2 * this.#restMs, LONGEST_REST_MS) : REST_MS)
    const rings = this.#take().map((ring) => this.#store.ring(ring))
    this.#ringing = Promise.all(rings)
      .catch((error) => this.#logger.debug(errorFields(error), 'the doorbell could not be rung'))
      .then(() => {
        this.#ringing = null
        this.#rest()
      })
  }

  #restFor(ms: number): void {
    this.#restMs = ms
    this.#calls = 0
    this.#rangAt = this.#clock.monotonic()
  }

  #rest(): void {
    this.#timer = this.#clock.setTimer(() => {
      this.#timer = null
      if (this.#pending) this.#ring()
    }, this.#restMs)
    this.#timer.unref?.()
  }
}
