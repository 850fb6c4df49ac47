import { captureContext } from '../ambient.js'
import type { Clock, Timer } from '../core/clock.js'
import type { EventEnvelope } from '../core/envelope.js'
import { HandlerTimeoutError, InvalidSettingError } from '../core/errors.js'
import type { Lane } from './gate.js'
import { NotStarted } from './outcome.js'
import type { HandlerContext } from './routing.js'

/** For each event what went wrong with it, null when nothing did; nothing at all when all went well. */
export type BatchResults = readonly (unknown | null | undefined)[]

/** Returns nothing, or BatchResults. Throwing fails every event of the batch. */
export type BatchFunction<T = unknown> = (
  events: readonly EventEnvelope<T>[],
  context: BatchContext,
) => unknown

export interface BatchContext {
  /** Fires on the shutdown deadline, the handler's timeout, or the lost lease of any of the events. */
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
  /** The handler was given up and runs on. */
  outlives(eventId: string, run: Promise<unknown>): void
}

interface Waiting {
  /** Monotonic time. */
  readonly since: number
  readonly event: EventEnvelope
  readonly context: HandlerContext
  done(): void
  fail(error: unknown): void
}

/** Collects events and hands them to a handler together. Those of one key come one by one: each waits for the last. */
export class Batcher implements Lane {
  readonly #options: BatchOptions
  #world: BatchWorld | null = null
  readonly #inOwnContext = captureContext()
  #waiting: Waiting[] = []
  /** How many of those, the first ones, wait for a free place only. */
  #due = 0
  #running = 0
  #timer: Timer | null = null
  #crowded: (() => void)[] = []

  constructor(options: BatchOptions) {
    this.#options = options
  }

  /** Before the first event comes. */
  use(world: BatchWorld): void {
    this.#world = world
  }

  /** Resolves when the batch that the event is part of went well for it. */
  add(event: EventEnvelope, context: HandlerContext): Promise<void> {
    return new Promise((done, fail) => {
      this.#waiting.push({ event, context, since: this.#now, done, fail })
      this.#start()
    })
  }

  flush(): void {
    this.#disarm()
    this.#due = this.#waiting.length
    this.#start()
  }

  giveBack(): void {
    this.#disarm()
    this.#due = 0
    for (const { fail } of this.#waiting.splice(0)) fail(new NotStarted())
    this.#relax()
  }

  room(): Promise<void> | null {
    if (this.#waiting.length < this.#options.size) return null
    return new Promise((resolve) => this.#crowded.push(resolve))
  }

  get #now(): number {
    return this.#world?.clock.monotonic() ?? 0
  }

  /** Whatever is full or due, as far as there are places. */
  #start(): void {
    const { size, concurrency } = this.#options
    while (this.#running < concurrency && (this.#due > 0 || this.#waiting.length >= size)) {
      const batch = this.#waiting.splice(0, size)
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
    this.#relax()
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

  #relax(): void {
    if (this.#waiting.length < this.#options.size) for (const resolve of this.#crowded.splice(0)) resolve()
  }

  async #run(collected: readonly Waiting[]): Promise<void> {
    const lost = collected.filter((one) => one.context.signal.aborted)
    for (const one of lost) one.fail(new NotStarted())
    const batch = collected.filter((one) => !lost.includes(one))
    if (batch.length === 0) return
    try {
      const results = await this.#call(batch)
      const errors = errorsOf(results, batch.length, this.#options.name)
      batch.forEach(({ done, fail }, at) => {
        const error = errors?.[at]
        if (error === null || error === undefined) done()
        else fail(error)
      })
    } catch (error) {
      for (const { fail } of batch) fail(error)
    }
  }

  async #call(batch: readonly Waiting[]): Promise<unknown> {
    const { handle, name, timeoutMs } = this.#options
    const timeout = new AbortController()
    const signal = AbortSignal.any([timeout.signal, ...batch.map((one) => one.context.signal)])
    const attempts = batch.map((one) => one.context.attempt)
    const events = batch.map((one) => one.event)
    const run = (async () => await handle(events, { signal, attempts }))()
    if (timeoutMs === 0) return run
    let timer: Timer | undefined
    const over = new Promise<never>((_, reject) => {
      timer = this.#world?.clock.setTimer(() => {
        const error = new HandlerTimeoutError(name, timeoutMs)
        timeout.abort(error)
        for (const { eventId } of events) this.#world?.outlives(eventId, run)
        reject(error)
      }, timeoutMs)
    })
    return Promise.race([run, over]).finally(() => timer?.cancel())
  }
}

function errorsOf(results: unknown, count: number, name: string): BatchResults | null {
  if (results === undefined || results === null) return null
  if (Array.isArray(results) && results.length === count) return results
  throw new InvalidSettingError(
    `batch handler ${name}`,
    `must return nothing, or an array with one entry for each of the ${count} events: null, or what went wrong`,
  )
}
