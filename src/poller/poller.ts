import { captureContext } from '../ambient.js'
import type { EventCatalog } from '../core/catalog.js'
import type { Clock, Timer } from '../core/clock.js'
import { EventEnvelope } from '../core/envelope.js'
import type { BoundedQueue } from '../dispatcher/bounded-queue.js'
import { Delivery } from '../dispatcher/delivery.js'
import type { Dispatcher } from '../dispatcher/dispatcher.js'
import type { Routes } from '../dispatcher/routing.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { ClaimedRow, EventStore } from '../store.js'
import { ScanFloor } from './scan-floor.js'

const RETRY_MS = [100, 500, 2_000, 5_000]

export interface PollerOptions {
  readonly store: Pick<EventStore, 'claim' | 'claimUnroutable'>
  readonly clock: Clock
  readonly catalog: EventCatalog
  readonly routes: Routes
  readonly cold: BoundedQueue<Delivery>
  readonly dispatcher: Dispatcher
  readonly pollIntervalMs: number
  readonly batchSize: number
  readonly leaseMs: number
  readonly skipRecentMs: number
  readonly logger: Logger
  /** A token that no other claim ever had. */
  newToken(): string
}

/** The cold path: claims what is due and hands it to the dispatcher, as far as the cold queue has room. */
export class Poller {
  readonly #options: PollerOptions
  readonly #inOwnContext = captureContext()
  readonly #floor: ScanFloor
  #running = false
  #loop: Promise<void> | null = null
  #claiming: Promise<unknown> = Promise.resolve()
  #woken = false
  #wakeSleeper: (() => void) | null = null
  #alarms = new Set<Timer>()
  #nextPollAt = 0
  #failures = 0
  #suspects = true
  #soloInFlight = 0
  #waitsForRoom = false
  #expectsMore = false
  /** Monotonic time of the last claim that worked. */
  lastClaimAt: number

  constructor(options: PollerOptions) {
    this.#options = options
    this.#floor = new ScanFloor(options.clock, options.pollIntervalMs)
    this.lastClaimAt = options.clock.monotonic()
  }

  start(): void {
    if (this.#running) return
    this.#running = true
    this.#floor.reset()
    this.#loop = this.#inOwnContext(() => this.#run())
  }

  /** Resolves when no claim is under way any more. */
  async stop(): Promise<void> {
    this.#running = false
    this.#wakeSleeper?.()
    for (const alarm of this.#alarms) alarm.cancel()
    this.#alarms.clear()
    await this.#loop
    await this.#claiming
  }

  /** There may be something new, from this `seq` on when it is known. */
  wake(lowestSeq: number | null): void {
    if (lowestSeq !== null) this.#floor.lower(lowestSeq)
    this.#woken = true
    if (!this.#waitsForRoom) this.#wakeSleeper?.()
  }

  /** Something will be due by then. */
  wakeIn(delayMs: number): void {
    if (!this.#running || delayMs > this.#options.pollIntervalMs) return
    const alarm = this.#options.clock.setTimer(() => {
      this.#alarms.delete(alarm)
      this.wake(null)
    }, delayMs)
    alarm.unref?.()
    this.#alarms.add(alarm)
  }

  /** Handlers changed: rows that were passed over may be ours now. */
  rescan(): void {
    this.#floor.reset()
    this.wake(null)
  }

  /** The cold queue has room for a batch again. */
  hasRoom(): void {
    if (this.#waitsForRoom && this.#roomForBatch()) this.#wakeSleeper?.()
  }

  /** A row whose former owner vanished is through; the next one may be tried. */
  soloEnded(): void {
    this.#soloInFlight--
    this.#suspects = true
    this.wake(null)
  }

  /** One claim by hand over everything that is due. Returns how many rows it brought. */
  async poll(limit = this.#options.batchSize): Promise<number> {
    this.#floor.reset()
    this.#suspects = true
    return (await this.#claim(limit)).taken
  }

  async #run(): Promise<void> {
    const { clock, pollIntervalMs, logger } = this.#options
    while (this.#running) {
      this.#woken = false
      let again = false
      try {
        if (clock.monotonic() >= this.#nextPollAt) this.#nextPollAt = clock.monotonic() + pollIntervalMs
        again = !(await this.#claim(this.#options.batchSize)).complete
        if (this.#failures > 0) logger.info({}, 'the database answers again')
        this.#failures = 0
      } catch (error) {
        if (this.#failures === 0) logger.warn(errorFields(error), 'events could not be claimed; trying again')
        await this.#sleep(RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)] as number)
        continue
      }
      if (!this.#running) return
      if (!this.#roomForBatch()) {
        this.#waitsForRoom = true
        await this.#sleep(null)
        this.#waitsForRoom = false
      } else if (!again && !this.#woken) await this.#sleep(Math.max(0, this.#nextPollAt - clock.monotonic()))
    }
  }

  #roomForBatch(): boolean {
    const { cold, batchSize } = this.#options
    return cold.length === 0 || (cold.room >= batchSize && cold.roomBytes >= cold.maxBytes / 4)
  }

  /** Until woken or, if given, until the time is over. */
  #sleep(ms: number | null): Promise<void> {
    return new Promise((resolve) => {
      let timer: Timer | null = null
      const wake = () => {
        timer?.cancel()
        this.#wakeSleeper = null
        resolve()
      }
      this.#wakeSleeper = wake
      if (ms !== null) timer = this.#options.clock.setTimer(wake, ms)
      if (!this.#running) wake()
    })
  }

  /** One claim at a time, whoever asks. */
  #claim(limit: number): Promise<{ taken: number; complete: boolean }> {
    const claim = this.#claiming.then(() => this.#claimNow(limit))
    this.#claiming = claim.catch(() => {})
    return claim
  }

  async #claimNow(limit: number): Promise<{ taken: number; complete: boolean }> {
    const { store, clock, routes, cold, dispatcher, leaseMs, skipRecentMs } = this.#options
    const accept = routes.filter()
    if (accept.names.length === 0 && accept.prefixes.length === 0) return { taken: 0, complete: true }
    const room = Math.min(limit, Math.max(1, cold.room))
    const scan = this.#floor.next()
    if (scan.sweep) this.#suspects = true
    const expectsMore = this.#expectsMore && !scan.trailing
    const asked = clock.monotonic()
    const result = await store.claim({
      token: this.#options.newToken(),
      leaseMs,
      limit: room,
      maxBytes: Math.max(1, cold.roomBytes),
      accept,
      fromSeq: scan.fromSeq,
      suspects: this.#suspects && this.#soloInFlight === 0 ? 1 : 0,
      skipRecentMs,
      expectsMore,
    })
    if (!expectsMore) this.#suspects = false
    this.lastClaimAt = clock.monotonic()
    this.#expectsMore = !result.complete && result.rows.length >= room
    this.#floor.scanned(result)
    dispatcher.cold(result.rows.map((row) => this.#delivery(row, asked + leaseMs, false)))
    return { taken: result.rows.length, complete: result.complete }
  }

  /** Claims what no instance can handle. Returns how many. */
  async claimUnroutable(known: ReturnType<Routes['filter']>, olderThanMs: number): Promise<number> {
    const { store, clock, dispatcher, batchSize, leaseMs } = this.#options
    const asked = clock.monotonic()
    const rows = await store.claimUnroutable({
      token: this.#options.newToken(),
      leaseMs,
      limit: batchSize,
      known,
      olderThanMs,
    })
    dispatcher.cold(rows.map((row) => this.#delivery(row, asked + leaseMs, true)))
    return rows.length
  }

  #delivery(row: ClaimedRow, leasedUntil: number, unroutable: boolean): Delivery {
    if (row.suspect) this.#soloInFlight++
    return new Delivery({
      event: EventEnvelope.fromStored(row, this.#options.catalog.decoderFor(row.eventType)),
      token: row.token,
      leasedUntil,
      attempts: row.attempts,
      handledBy: row.handledBy,
      source: 'cold',
      suspect: row.suspect,
      unroutable,
    })
  }
}
