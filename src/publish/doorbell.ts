import { captureContext } from '../ambient.js'
import type { Clock, Timer } from '../core/clock.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { Doorbell } from '../ports.js'
import type { EventStore, Ring } from '../store.js'

/** Shortest and longest time between two rings. */
const REST_MS = 5
const LONGEST_REST_MS = 20
/** With this many requests per millisecond, the time between two rings doubles. */
const MANY_PER_MS = 3

/**
 * Rings other processes at once, then at most every few milliseconds, because one NOTIFY per transaction serialises the
 * commits of PostgreSQL. Under thousands of transactions per second it rings less often: the claimers are busy then anyway.
 */
export class DebouncedDoorbell implements Doorbell {
  readonly #store: Pick<EventStore, 'ring' | 'capabilities'>
  readonly #clock: Clock
  readonly #logger: Logger
  /** Rings run outside the async context of a publish, because a ring announces events of several traces. */
  readonly #inOwnContext = captureContext()
  #lowestSeq = Number.POSITIVE_INFINITY
  #ordered = false
  #needsFullScan = false
  /** Monotonic time of the last ring, and the number of requests since. */
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

  ring(ring: Ring): void {
    if (!this.#store.capabilities.doorbell) return
    if (ring === null) this.#needsFullScan = true
    else if (ring === 'ordered') this.#ordered = true
    else this.#lowestSeq = Math.min(this.#lowestSeq, ring)
    this.#calls++
    if (!this.#timer && !this.#ringing) this.#inOwnContext(() => this.#ring())
  }

  lend(): boolean {
    if (!this.#store.capabilities.doorbell || this.#timer || this.#ringing) return false
    this.#recordRing(REST_MS)
    this.#inOwnContext(() => this.#startPause())
    return true
  }

  /** Sends the pending rings. Resolves when they are sent. */
  async close(): Promise<void> {
    do {
      this.#disarm()
      if (this.#pending && !this.#ringing) this.#ring()
      await this.#ringing
    } while (this.#pending)
    this.#disarm()
  }

  get #pending(): boolean {
    return this.#needsFullScan || this.#ordered || this.#lowestSeq < Number.POSITIVE_INFINITY
  }

  /** Returns the pending requests as few rings, and forgets them. */
  #take(): Ring[] {
    const rings: Ring[] = []
    if (this.#needsFullScan) rings.push(null)
    else {
      if (this.#lowestSeq < Number.POSITIVE_INFINITY) rings.push(this.#lowestSeq)
      if (this.#ordered) rings.push('ordered')
    }
    this.#lowestSeq = Number.POSITIVE_INFINITY
    this.#ordered = false
    this.#needsFullScan = false
    return rings
  }

  #disarm(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  #ring(): void {
    const isMany = this.#calls >= MANY_PER_MS * (this.#clock.monotonic() - this.#rangAt)
    this.#recordRing(isMany ? Math.min(2 * this.#restMs, LONGEST_REST_MS) : REST_MS)
    const rings = this.#take().map((ring) => this.#store.ring(ring))
    this.#ringing = Promise.all(rings)
      .catch((error) => this.#logger.debug(errorFields(error), 'the doorbell could not be rung'))
      .then(() => {
        this.#ringing = null
        this.#startPause()
      })
  }

  #recordRing(ms: number): void {
    this.#restMs = ms
    this.#calls = 0
    this.#rangAt = this.#clock.monotonic()
  }

  #startPause(): void {
    this.#timer = this.#clock.setTimer(() => {
      this.#timer = null
      if (this.#pending) this.#ring()
    }, this.#restMs)
    this.#timer.unref?.()
  }
}
