import { captureContext } from '../ambient.js'
import type { EventCatalog } from '../core/catalog.js'
import type { Clock } from '../core/clock.js'
import { EventEnvelope } from '../core/envelope.js'
import type { BoundedQueue } from '../dispatcher/bounded-queue.js'
import { Delivery } from '../dispatcher/delivery.js'
import type { Dispatcher } from '../dispatcher/dispatcher.js'
import type { Routes } from '../dispatcher/routing.js'
import { errorFields, type Logger } from '../observe/logger.js'
import { acceptsNothing, type ClaimedRow, type EventStore, type TypeFilter } from '../store.js'
import { Alarm } from './alarm.js'
import { linkRuns, OrderedScan, RUN_LENGTH } from './ordered-scan.js'
import { ScanFloor } from './scan-floor.js'
import { Trials } from './trials.js'

const RETRY_MS = [100, 500, 2_000, 5_000]
/** Rows that come due one after the other are not claimed more often than this. */
const MIN_WAIT_MS = 20
/** Without a doorbell it looks again after this part of the time in which nothing came. */
const PATIENCE = 1 / 4
/**
 * While a backlog is being worked off, looking at everything may take this part of the time: dead rows that cannot be
 * vacuumed make it slow. So many poll intervals are the most that it is put off.
 */
const SWEEPING = { share: 1 / 20, mostIntervals: 4 }
/** A row may commit a little after it came due. */
const DUE_MARGIN_MS = 2_000

export interface PollerOptions {
  readonly store: Pick<EventStore, 'claim' | 'claimOrdered' | 'claimUnroutable' | 'capabilities'>
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
  readonly #alarm: Alarm
  #running = false
  #loop: Promise<void> | null = null
  #claiming: Promise<unknown> = Promise.resolve()
  #woken = false
  #waitsForRoom = false
  /** A delayed row has come due. */
  #due = false
  /** There was a look around while event types were left out, or should have been. */
  #passedOver = false
  #sweepAt = 0
  /** When everything that was due had been looked at. */
  #dueSeenAt = Number.NEGATIVE_INFINITY
  #failures = 0
  /** When a claim brought something, by the monotonic clock. */
  #broughtAt: number
  readonly #trials: Trials
  /** There is reason to look for events without a key. */
  #plain = true
  readonly #ordered = new OrderedScan()
  /** Events without a key have left it nothing last time. */
  #orderedTurn = false
  /** Monotonic time of the last claim that worked, or was not needed. */
  lastClaimAt: number
  #turnedAt: number

  constructor(options: PollerOptions) {
    this.#options = options
    this.#floor = new ScanFloor(options.clock, options.store.capabilities.doorbell)
    this.#alarm = new Alarm(options.clock)
    this.#trials = new Trials(options.leaseMs)
    this.lastClaimAt = options.clock.monotonic()
    this.#broughtAt = this.lastClaimAt
    this.#turnedAt = this.lastClaimAt
  }

  /** When it last went round, whatever came of it; null while it waits for room, which takes as long as handlers do. */
  get turnedAt(): number | null {
    return this.#waitsForRoom ? null : this.#turnedAt
  }

  start(): void {
    if (this.#running) return
    this.#running = true
    this.#sweepAt = 0
    this.#loop = this.#inOwnContext(() => this.#run())
  }

  /** Resolves when no claim is under way any more. */
  async stop(): Promise<void> {
    this.#running = false
    this.#alarm.ring()
    await this.#loop
    await this.#claiming
  }

  /** There may be something new, from this `seq` on when it is known. */
  wake(lowestSeq: number | null): void {
    if (lowestSeq !== null) this.#floor.lower(lowestSeq)
    this.#plain = true
    this.#wake()
  }

  /** There is something new in an ordering key. */
  wakeOrdered(): void {
    this.#ordered.want()
    this.#wake()
  }

  #wake(): void {
    this.#woken = true
    if (!this.#waitsForRoom) this.#alarm.ring()
  }

  /** Something will be due by then. */
  wakeIn(delayMs: number): void {
    this.#alarm.set(this.#options.clock.monotonic() + delayMs)
  }

  /** Handlers changed: rows that were passed over may be ours now. */
  rescan(): void {
    this.#sweepAt = 0
    this.#ordered.want()
    this.wake(null)
  }

  /** Event types that were left out can be taken again. Scans that took others have passed them. */
  takesMore(): void {
    if (this.#passedOver) this.rescan()
    else this.wake(null)
    this.#passedOver &&= this.#options.routes.isLeavingOut
  }

  /** The cold queue may have room for a batch again. */
  hasRoom(): void {
    if (this.#waitsForRoom && this.#roomForBatch()) this.#alarm.ring()
  }

  /** A row whose former owner vanished is through; when all of them are, the next ones may be tried. */
  triedEnded(delivery: Delivery): void {
    if (!this.#trials.end(delivery, this.#options.clock.monotonic())) return
    this.#ordered.want()
    this.wake(null)
  }

  /** One claim by hand over everything that is due. Returns how many rows it brought. */
  async poll(limit = this.#options.batchSize): Promise<number> {
    this.#sweepAt = 0
    // Nobody looks again when a group finds nothing.
    this.#trials.oneByOne()
    this.#ordered.want()
    return (await this.#claim(limit)).taken
  }

  async #run(): Promise<void> {
    const { batchSize, logger, clock } = this.#options
    while (this.#running) {
      this.#woken = false
      this.#turnedAt = clock.monotonic()
      try {
        const { taken, complete } = await this.#claim(batchSize)
        if (taken > 0) this.#broughtAt = this.lastClaimAt
        if (this.#failures > 0) logger.info({}, 'the database answers again')
        this.#failures = 0
        if (!this.#roomForBatch()) await this.#room()
        else if (this.#running && complete && !this.#woken) await this.#sleep()
      } catch (error) {
        if (this.#failures === 0) logger.warn(errorFields(error), 'events could not be claimed; trying again')
        this.#sweepAt = 0
        await this.#pause(RETRY_MS[Math.min(this.#failures++, RETRY_MS.length - 1)] as number)
      }
    }
  }

  #roomForBatch(): boolean {
    const { cold, batchSize } = this.#options
    return cold.length === 0 || (cold.room >= batchSize && cold.roomBytes >= cold.maxBytes / 4)
  }

  /** Until the cold queue has room again, whatever comes due meanwhile. */
  async #room(): Promise<void> {
    this.#waitsForRoom = true
    while (this.#running && !this.#roomForBatch()) {
      if (this.#alarm.rang()) this.#due = true
      await this.#alarm.sleep()
    }
    this.#waitsForRoom = false
  }

  /** Until woken, until something is due, or until the next poll: soon, where nobody rings and there was work just now. */
  #sleep(): Promise<void> {
    const { store, clock } = this.#options
    this.#alarm.set(this.#sweepAt)
    if (!store.capabilities.doorbell) {
      const quietMs = clock.monotonic() - this.#broughtAt
      this.wakeIn(Math.max(MIN_WAIT_MS, quietMs * PATIENCE))
    }
    return this.#alarm.sleep()
  }

  /** A moment in which nothing is tried, however often the doorbell rings. */
  async #pause(ms: number): Promise<void> {
    const until = this.#options.clock.monotonic() + ms
    while (this.#running && this.#options.clock.monotonic() < until) {
      this.#alarm.set(until)
      await this.#alarm.sleep()
      this.#alarm.rang()
    }
  }

  /** One claim at a time, whoever asks. */
  #claim(limit: number): Promise<{ taken: number; complete: boolean }> {
    const claim = this.#claiming.then(() => this.#claimNow(limit))
    this.#claiming = claim.catch(() => {})
    return claim
  }

  /** Events without a key and those with one, as far as there is reason to look for either; neither starves. */
  async #claimNow(limit: number): Promise<{ taken: number; complete: boolean }> {
    const { clock, routes, pollIntervalMs } = this.#options
    const now = clock.monotonic()
    const sweep = now >= this.#sweepAt
    if (sweep) this.#sweepAt = now + pollIntervalMs
    const due = this.#alarm.rang() || this.#due
    this.#due = false
    if (sweep) this.#trials.want()
    const accept = routes.filter()
    const nothing = acceptsNothing(accept)
    if (routes.isLeavingOut && (!nothing || sweep)) this.#passedOver = true
    if (nothing) {
      this.#due = due
      this.lastClaimAt = now
      return { taken: 0, complete: true }
    }
    const orderedFirst = this.#ordered.wanted && this.#orderedTurn
    let taken = orderedFirst ? await this.#claimOrdered(limit, accept) : 0
    let complete = true
    const plain = sweep || due || this.#plain
    if (plain && taken < limit) {
      const claimed = await this.#claimPlain(limit - taken, accept, sweep, due)
      taken += claimed.taken
      complete = claimed.complete
    } else if (plain) {
      this.#due = due
      if (sweep) this.#sweepAt = 0
      complete = false
    }
    if (this.#ordered.wanted && !orderedFirst && taken < limit) {
      taken += await this.#claimOrdered(limit - taken, accept)
    }
    this.#orderedTurn = this.#ordered.wanted && !orderedFirst
    return { taken, complete: complete && !this.#ordered.wanted }
  }

  async #claimPlain(
    limit: number,
    accept: TypeFilter,
    sweep: boolean,
    due: boolean,
  ): Promise<{ taken: number; complete: boolean }> {
    const { store, clock, cold, dispatcher, leaseMs, skipRecentMs, pollIntervalMs } = this.#options
    const asked = clock.monotonic()
    const scan = this.#floor.next(sweep)
    // Delayed rows are looked at when one is due, and once a second; in between only new ones.
    const suspects = this.#trials.wanted
    const suspected = suspects.plain ? this.#trials.room(asked) : 0
    const freshOnly = !scan.trailing && !suspects.plain && !due
    this.#plain = false
    const result = await store
      .claim({
        token: this.#options.newToken(),
        leaseMs,
        limit: Math.min(limit, Math.max(1, cold.room)),
        maxBytes: Math.max(1, cold.roomBytes),
        accept,
        fromSeq: scan.fromSeq,
        dueWithinMs: sweep || this.#dueSeenAt < 0 ? null : asked - this.#dueSeenAt + DUE_MARGIN_MS,
        suspects: suspected,
        skipRecentMs,
        freshOnly,
      })
      .catch((error) => {
        this.#plain = true
        throw error
      })
    suspects.plain = suspected > 1 && !result.rows.some((row) => row.suspect)
    if (suspects.plain) this.#tryAlone()
    this.lastClaimAt = clock.monotonic()
    // Unless somebody asked for another look meanwhile.
    if (sweep && !result.complete && this.#sweepAt > 0) {
      const took = (this.lastClaimAt - asked) / SWEEPING.share
      this.#sweepAt = Math.max(this.#sweepAt, asked + Math.min(took, pollIntervalMs * SWEEPING.mostIntervals))
    }
    this.#floor.scanned(result)
    if (result.hasOrdered ?? (sweep || due)) this.#ordered.want()
    if (!result.complete) this.#plain = true
    if (!freshOnly) this.#lookedAtDue(result.dueComplete ?? result.complete, sweep, asked)
    if (result.nextDueMs !== null) this.wakeIn(Math.max(MIN_WAIT_MS, result.nextDueMs))
    dispatcher.cold(result.rows.map((row) => this.#delivery(row, asked + leaseMs, false)))
    return { taken: result.rows.length, complete: result.complete }
  }

  /** What was due and found no room is looked for by the next claim; after a sweep, however long ago its time was. */
  #lookedAtDue(isComplete: boolean, isSweep: boolean, asked: number): void {
    if (isComplete) this.#dueSeenAt = asked
    else {
      this.#due = true
      if (isSweep) this.#dueSeenAt = Number.NEGATIVE_INFINITY
    }
  }

  /** Goes on behind the last key until something is claimed or all keys have been looked at. */
  async #claimOrdered(limit: number, accept: TypeFilter): Promise<number> {
    const { store, clock, cold, dispatcher, leaseMs, skipRecentMs } = this.#options
    while (this.#ordered.wanted) {
      const asked = clock.monotonic()
      const suspects = this.#trials.wanted
      const result = await store
        .claimOrdered({
          ...this.#ordered.next(Math.min(limit, cold.room)),
          token: this.#options.newToken(),
          leaseMs,
          runLength: RUN_LENGTH,
          maxBytes: Math.max(1, cold.roomBytes),
          accept,
          suspects: suspects.ordered ? Math.min(1, this.#trials.room(asked)) : 0,
          skipRecentMs,
        })
        .catch((error) => {
          this.#ordered.failed()
          throw error
        })
      if (result.afterKey === null) suspects.ordered = false
      this.lastClaimAt = clock.monotonic()
      this.#ordered.scanned(result)
      if (result.nextDueMs !== null) this.wakeIn(Math.max(MIN_WAIT_MS, result.nextDueMs))
      if (result.rows.length === 0) continue
      const runs = linkRuns(result.rows.map((row) => this.#delivery(row, asked + leaseMs, false)))
      const rest = limit === 1 ? (runs[0] as Delivery).cut() : []
      dispatcher.cold(runs)
      dispatcher.giveBack(rest)
      return result.rows.length - rest.length
    }
    return 0
  }

  /** No more for a group: what is left was in one that died, or alone when its process did. */
  #tryAlone(): void {
    this.#trials.oneByOne()
    this.#plain = true
    this.#wake()
  }

  /** Claims what no instance can handle. Returns how many. */
  async claimUnroutable(known: TypeFilter, olderThanMs: number): Promise<number> {
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
    const delivery = new Delivery({
      event: EventEnvelope.fromStored(row, this.#options.catalog.decoderFor(row.eventType)),
      token: row.token,
      seq: row.seq,
      leasedUntil,
      attempts: row.attempts,
      handledBy: row.handledBy,
      source: 'cold',
      suspect: row.suspect,
      unroutable,
      bytes: row.bytes,
      invalid: row.invalid,
    })
    if (row.suspect) this.#trials.begin(delivery)
    return delivery
  }
}
