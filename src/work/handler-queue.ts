import type { Clock, Timer } from '../core/clock.js'
import type { Delivery } from './delivery.js'
import { NotStarted } from './not-started.js'

/** Smallest capacity of a backlog, in events. */
const LEAST_CAPACITY = 100
/** Batches in a backlog. With one batch, the type would be excluded from claims before the batch is full. */
const BATCHES = 2
/** Most payload in a backlog. A batch with this much payload is full. */
const MAX_BYTES = 8 * 1_048_576
/** From this share of the capacity on, the type is not claimed: the next claim would not find capacity for all its rows. */
const PAUSE_CLAIMS_AT = 3 / 4
/** The type is claimed again at this share, because each small gap in the backlog would otherwise cost a claim. */
const RESUME_CLAIMS_AT = 1 / 4

/** Call of a handler for one event that waits for its turn. */
export interface QueuedCall {
  readonly delivery: Delivery
  /** Monotonic time. */
  readonly since: number
  succeed(result?: unknown): void
  fail(error: unknown): void
}

export interface HandlerQueueOptions {
  /** Calls at the same time. */
  readonly concurrency: number
  /** Most events per call; 1 for a handler without batches. */
  readonly batchSize: number
  /** How long an event waits until its batch is full. */
  readonly batchWaitMs: number
  readonly clock: Pick<Clock, 'monotonic' | 'setTimer'>
  /** Whether the delivery is neither paused nor lost, and nothing is stopping. */
  mayStart(delivery: Delivery): boolean
  /** Calls the handler. Resolves when the call has really ended, even if its timeout was over before. Never rejects. */
  call(calls: readonly QueuedCall[]): Promise<void>
  /** Called when `saturatedTypes` has changed. */
  onSaturationChange(): void
}

/** Concurrency, batches and backlog of one handler. Deliveries that wait here hold no worker slot. */
export class HandlerQueue {
  /** Most events in the backlog. */
  capacity: number
  readonly #options: HandlerQueueOptions
  /** Admitted deliveries whose call has not begun, including those still in the cold queue. */
  readonly #backlog = new Set<Delivery>()
  #backlogBytes = 0
  #isClosed = false
  #saturatedTypes: readonly string[] = []
  #waiting: QueuedCall[] = []
  #waitingBytes = 0
  /** Number of calls at the front of `#waiting` that no longer wait for a full batch. */
  #due = 0
  #running = 0
  #timer: Timer | null = null

  constructor(options: HandlerQueueOptions) {
    this.#options = options
    this.capacity = Math.max(options.batchSize * BATCHES, LEAST_CAPACITY)
  }

  // ── backlog ──────────────────────────────────────────────────────────────────────────────────────────────

  /** Event types that must not be claimed until the backlog is short again. */
  get saturatedTypes(): readonly string[] {
    return this.#saturatedTypes
  }

  /** Whether the delivery is in the backlog, or there is capacity for it. */
  accepts(delivery: Delivery): boolean {
    return !this.isFull || this.#backlog.has(delivery)
  }

  /**
   * Adds the delivery to the backlog. Repeated calls have no effect. Excludes the event type from claims if the backlog is three
   * quarters full.
   */
  admit(delivery: Delivery): void {
    if (!this.#backlog.has(delivery)) {
      this.#backlog.add(delivery)
      this.#backlogBytes += delivery.bytes
    }
    if (this.#isFilledTo(PAUSE_CLAIMS_AT)) this.exclude(delivery.event.eventType)
  }

  /** Removes the delivery from the backlog, because its call begins or will never begin. */
  leave(delivery: Delivery): void {
    if (!this.#backlog.delete(delivery)) return
    this.#backlogBytes -= delivery.bytes
    this.#resumeClaims()
  }

  /** Excludes the type from claims until the backlog is short again. */
  exclude(eventType: string): void {
    if (this.#saturatedTypes.includes(eventType)) return
    this.#saturatedTypes = [...this.#saturatedTypes, eventType]
    this.#options.onSaturationChange()
  }

  /** Refuses deliveries until `open()`, for example while the broker of a relay is down. */
  close(): void {
    this.#isClosed = true
  }

  open(): void {
    this.#isClosed = false
    this.#resumeClaims()
  }

  /** Whether the backlog accepts no further delivery. */
  get isFull(): boolean {
    return this.#isClosed || this.#isFilledTo(1)
  }

  #isFilledTo(share: number): boolean {
    return this.#backlog.size >= this.capacity * share || this.#backlogBytes >= MAX_BYTES * share
  }

  #resumeClaims(): void {
    if (this.#saturatedTypes.length === 0 || this.#isClosed) return
    if (
      this.#backlog.size > this.capacity * RESUME_CLAIMS_AT ||
      this.#backlogBytes > MAX_BYTES * RESUME_CLAIMS_AT
    )
      return
    this.#saturatedTypes = []
    this.#options.onSaturationChange()
  }

  // ── calls ────────────────────────────────────────────────────────────────────────────────────────────────

  /** Resolves when the handler has handled the event. Rejects with its error, or with NotStarted. */
  call(delivery: Delivery): Promise<unknown> {
    return new Promise((succeed, fail) => {
      if (!this.#options.mayStart(delivery)) {
        fail(new NotStarted())
        return
      }
      this.#waiting.push({ delivery, since: this.#options.clock.monotonic(), succeed, fail })
      this.#waitingBytes += delivery.bytes
      this.#start()
    })
  }

  /** Calls the handler with all waiting events now, even if their batch is not full. */
  flush(): void {
    this.#disarm()
    this.#due = this.#waiting.length
    this.#start()
  }

  /** Rejects the waiting calls that `isReleased` selects with NotStarted. */
  release(isReleased: (delivery: Delivery) => boolean): void {
    const stays = ({ delivery }: QueuedCall) => !isReleased(delivery)
    const released = this.#waiting.filter((call) => !stays(call))
    this.#due = this.#waiting.slice(0, this.#due).filter(stays).length
    this.#waiting = this.#waiting.filter(stays)
    for (const { delivery, fail } of released) {
      this.#waitingBytes -= delivery.bytes
      fail(new NotStarted())
    }
    this.#disarm()
    this.#arm()
  }

  /** Starts full and due batches, as far as the concurrency allows. */
  #start(): void {
    const { concurrency, batchSize } = this.#options
    const isBatchFull = () => this.#waiting.length >= batchSize || this.#waitingBytes >= MAX_BYTES
    while (this.#running < concurrency && (this.#due > 0 || isBatchFull())) {
      const batch = this.#takeBatch()
      this.#disarm()
      this.#due = Math.max(0, this.#due - batch.length)
      this.#running++
      void this.#run(batch).finally(() => {
        this.#running--
        this.#start()
      })
    }
    this.#arm()
  }

  #takeBatch(): QueuedCall[] {
    let [count, bytes] = [0, 0]
    for (const { delivery } of this.#waiting) {
      if (count === this.#options.batchSize || bytes >= MAX_BYTES) break
      count++
      bytes += delivery.bytes
    }
    this.#waitingBytes -= bytes
    return this.#waiting.splice(0, count)
  }

  async #run(batch: readonly QueuedCall[]): Promise<void> {
    const calls: QueuedCall[] = []
    for (const call of batch) {
      this.leave(call.delivery)
      if (this.#options.mayStart(call.delivery)) calls.push(call)
      else call.fail(new NotStarted())
    }
    if (calls.length > 0) await this.#options.call(calls)
  }

  /** Sets the timer of the first event whose batch is not full. */
  #arm(): void {
    const { clock, batchSize, batchWaitMs } = this.#options
    const first = this.#waiting[this.#due]
    if (!first || this.#timer || batchSize === 1) return
    const delay = Math.max(0, first.since + batchWaitMs - clock.monotonic())
    this.#timer = clock.setTimer(() => this.flush(), delay)
  }

  #disarm(): void {
    this.#timer?.cancel()
    this.#timer = null
  }
}
