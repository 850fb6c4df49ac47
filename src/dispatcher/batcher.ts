import { captureContext } from '../ambient.js'
import type { Clock, Timer } from '../core/clock.js'
import type { EventEnvelope } from '../core/envelope.js'
import { HandlerTimeoutError } from '../core/errors.js'
import { describeError } from '../core/unknown.js'
import type { Redact } from '../observe/logger.js'
import { type Tracer, traced, tracedEvent } from '../observe/tracing.js'
import { type BatchErrors, type BatchResults, errorsOf } from './batch-results.js'
import type { Delivery } from './delivery.js'
import type { Lane } from './gate.js'
import type { InFlight } from './in-flight.js'
import { NotStarted } from './outcome.js'
import { MOST_BYTES, MOST_WAITING, WaitingRoom } from './waiting-room.js'

export type { BatchResults } from './batch-results.js'

/** Returns nothing, or BatchResults. Throwing fails every event of the batch. */
export type BatchFunction<T = unknown> = (
  events: readonly EventEnvelope<T>[],
  context: BatchContext,
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler that returns nothing is one, async or not
) => void | BatchResults | Promise<void | BatchResults>

export interface BatchContext {
  /** Fires on the shutdown deadline, the handler's timeout, or when the leases of all the events are lost. */
  readonly signal: AbortSignal
  /** Of each event, 1 for the first try. */
  readonly attempts: readonly number[]
}

export interface BatchOptions {
  readonly name: string
  readonly size: number
  /** An event waits this long for company. */
  readonly waitMs: number
  /** Batches at a time. */
  readonly concurrency: number
  readonly timeoutMs: number
  readonly handle: BatchFunction
}

interface BatchWorld {
  readonly clock: Clock
  readonly inFlight: Pick<InFlight, 'outlives'>
  readonly tracer?: Tracer | undefined
  readonly redact?: Redact | undefined
  /** Neither paused nor lost, and nothing is stopping. */
  mayStart(delivery: Delivery): boolean
}

interface Waiting {
  /** Monotonic time. */
  readonly since: number
  readonly delivery: Delivery
  done(): void
  fail(error: unknown): void
}

/** Collects events and hands them to a handler together. Those of one key come one by one: each waits for the last. */
export class Batcher implements Lane {
  readonly room: WaitingRoom
  readonly name: string
  readonly #options: BatchOptions
  #world: BatchWorld | null = null
  readonly #inOwnContext = captureContext()
  #waiting: Waiting[] = []
  #bytes = 0
  /** How many of those, the first ones, wait for a free place only. */
  #due = 0
  #running = 0
  #timer: Timer | null = null

  constructor(options: BatchOptions) {
    this.#options = options
    this.name = options.name
    this.room = new WaitingRoom(Math.max(options.size, MOST_WAITING))
  }

  /** Before the first event comes. */
  use(world: BatchWorld): void {
    this.#world = world
  }

  /** Resolves when the batch that the event is part of went well for it; rejects with NotStarted when it is not to run. */
  add(delivery: Delivery): Promise<void> {
    return new Promise((done, fail) => {
      const one = { delivery, since: this.#now, done, fail }
      if (!this.#mayStart(one)) {
        fail(new NotStarted())
        return
      }
      this.#waiting.push(one)
      this.#bytes += delivery.bytes
      this.#start()
    })
  }

  flush(): void {
    this.#disarm()
    this.#due = this.#waiting.length
    this.#start()
  }

  giveBack(which: (delivery: Delivery) => boolean): void {
    const isLeft = ({ delivery }: Waiting) => !which(delivery)
    const refused = this.#waiting.filter((one) => !isLeft(one))
    this.#due = this.#waiting.slice(0, this.#due).filter(isLeft).length
    this.#waiting = this.#waiting.filter(isLeft)
    for (const { delivery, fail } of refused) {
      this.#bytes -= delivery.bytes
      fail(new NotStarted())
    }
    this.#disarm()
    this.#arm()
  }

  get #now(): number {
    return this.#world?.clock.monotonic() ?? 0
  }

  #mayStart({ delivery }: Waiting): boolean {
    return this.#world?.mayStart(delivery) ?? false
  }

  get #isFull(): boolean {
    return this.#waiting.length >= this.#options.size || this.#bytes >= MOST_BYTES
  }

  /** Whatever is full or due, as far as there are places. */
  #start(): void {
    while (this.#running < this.#options.concurrency && (this.#due > 0 || this.#isFull)) {
      const batch = this.#take()
      this.#disarm()
      this.#due = Math.max(0, this.#due - batch.length)
      this.#running++
      // Not in the context of one of its events: what the handler publishes is not caused by that one.
      void this.#inOwnContext(() => this.#run(batch)).finally(() => {
        this.#running--
        this.#start()
      })
    }
    this.#arm()
  }

  /** The first ones, as many as make a batch full. */
  #take(): Waiting[] {
    let [count, bytes] = [0, 0]
    for (const { delivery } of this.#waiting) {
      if (count === this.#options.size || bytes >= MOST_BYTES) break
      count++
      bytes += delivery.bytes
    }
    this.#bytes -= bytes
    return this.#waiting.splice(0, count)
  }

  /** For the first one that waits for company. */
  #arm(): void {
    const first = this.#waiting[this.#due]
    if (!first || this.#timer) return
    const delay = Math.max(0, first.since + this.#options.waitMs - this.#now)
    this.#timer = this.#world?.clock.setTimer(() => this.flush(), delay) ?? null
  }

  #disarm(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  async #run(collected: readonly Waiting[]): Promise<void> {
    const batch: Waiting[] = []
    for (const one of collected) {
      this.room.leave(one.delivery)
      if (this.#mayStart(one)) batch.push(one)
      else one.fail(new NotStarted())
    }
    if (batch.length > 0) await this.#call(batch)
  }

  /** Until the call has ended; its timeout fails those that have no key right away, and the others with its end. */
  async #call(batch: readonly Waiting[]): Promise<void> {
    const { handle, name, timeoutMs } = this.#options
    const deliveries = batch.map((one) => one.delivery)
    const timeout = new AbortController()
    let signal: AbortSignal | undefined
    // Its own copies: what the handler does with them concerns nobody.
    const events = deliveries.map((one) => one.event)
    const attempts = deliveries.map((one) => one.attempts + 1)
    const since = this.#now
    const context = {
      attempts,
      /** Made when the handler first looks at it: there is one behind it for each event. */
      get signal() {
        signal ??= AbortSignal.any([timeout.signal, whenAll(deliveries.map((one) => one.signal))])
        return signal
      },
    }
    const run = this.#traced(deliveries, timeout.signal, async () =>
      errorsOf(name, await handle(events, context), batch.length),
    )
    let late: Error | null = null
    const giveUp = () => {
      late = new HandlerTimeoutError(name, timeoutMs)
      timeout.abort(late)
      for (const { delivery, fail } of batch) {
        if (delivery.isOrdered) continue
        this.#world?.inFlight.outlives(delivery, since, run)
        fail(late)
      }
    }
    const timer = timeoutMs === 0 ? undefined : this.#world?.clock.setTimer(giveUp, timeoutMs)
    try {
      const errors = await run
      batch.forEach(({ done, fail }, at) => {
        const error = late ? { thrown: late } : errors[at]
        if (error) fail(error.thrown)
        else done()
      })
    } catch (error) {
      for (const { fail } of batch) fail(late ?? error)
    } finally {
      timer?.cancel()
    }
  }

  #traced(
    deliveries: readonly Delivery[],
    until: AbortSignal,
    work: () => Promise<BatchErrors>,
  ): Promise<BatchErrors> {
    const { tracer, redact } = this.#world ?? {}
    if (tracer === undefined) return work()
    const events = deliveries.map((one) => tracedEvent(one.event))
    const plan = { operation: 'process', events, handler: this.#options.name } as const
    return traced(tracer, plan, { redact, until, failureOf }, work)
  }
}

/** Of a batch that did not go well for all; undefined when it did. */
function failureOf(errors: BatchErrors): unknown {
  const failed = errors.filter((one) => one !== null)
  if (failed.length === 0 || errors.length === 1) return failed[0]?.thrown
  const { name, message } = describeError(failed[0]?.thrown)
  return { name, message: `${failed.length} of ${errors.length} events failed, the first: ${message}` }
}

/** Fires when the last of them has. */
function whenAll(signals: readonly AbortSignal[]): AbortSignal {
  const all = new AbortController()
  const left = new Set(signals.filter((one) => !one.aborted))
  for (const one of left) {
    const fired = () => {
      left.delete(one)
      if (left.size === 0) all.abort(one.reason)
    }
    one.addEventListener('abort', fired, { once: true })
  }
  if (left.size === 0) all.abort(signals[0]?.reason)
  return all.signal
}
