import { Batcher } from './batcher.js'
import type { Delivery } from './delivery.js'
import { Gate } from './gate.js'
import { type InvokeOptions, invoke } from './invoke.js'
import { NotStarted } from './outcome.js'
import type { Registration, Routes } from './routing.js'

interface CallsOptions extends InvokeOptions {
  readonly routes: Routes
  /** One for each worker, and for what a detached delivery does outside of its lanes. */
  readonly places: Gate
  onFreePlace(): void
}

/** Calls handlers, each in its lane. What has none takes a worker's place. */
export class Calls {
  readonly #options: CallsOptions
  #eager = 0
  #flushing = false

  constructor(options: CallsOptions) {
    this.#options = options
  }

  connect({ lane, isRaw }: Registration): void {
    if (!(lane instanceof Batcher)) return
    // A relay has its own spans.
    lane.use(isRaw ? { ...this.#options, tracer: undefined } : this.#options)
  }

  /** Rejects with what the handler throws, or with NotStarted. */
  call(handler: Registration, delivery: Delivery): unknown {
    const lane = handler.lane ?? (delivery.detached ? this.#options.places : undefined)
    if (lane instanceof Gate) return this.#inLane(handler, lane, delivery)
    const result = invoke(handler, delivery, this.#options)
    if (lane && this.#eager > 0) this.#flushSoon()
    return result
  }

  /** False, and nothing was done, when there was no place and none will come. */
  async inPlace(delivery: Delivery, work: () => Promise<void>): Promise<boolean> {
    const { places } = this.#options
    if (!delivery.detached) {
      await work()
      return true
    }
    try {
      await places.enter(delivery)
    } catch {
      return false
    }
    await work()
    this.#leave(places)
    return true
  }

  /** While `work` runs batches do not wait for company. */
  async eagerly<T>(work: () => Promise<T>): Promise<T> {
    this.#eager++
    this.#flushSoon()
    try {
      return await work()
    } finally {
      this.#eager--
    }
  }

  /** NotStarted when its turn never came, or came too late. */
  async #inLane(handler: Registration, lane: Gate, delivery: Delivery): Promise<void> {
    await lane.enter(delivery)
    lane.room.leave(delivery)
    if (!this.#options.mayStart(delivery)) {
      this.#leave(lane)
      throw new NotStarted()
    }
    let isInside = true
    const leave = () => {
      if (isInside) this.#leave(lane)
      isInside = false
    }
    // A worker's place is free at the timeout, that of a handler with a limit when the call has really ended.
    const overdue = lane === this.#options.places ? leave : () => {}
    await invoke(handler, delivery, this.#options, { overdue, ended: leave })
  }

  #leave(lane: Gate): void {
    lane.leave()
    if (lane === this.#options.places) this.#options.onFreePlace()
  }

  /** When everything that is at hand has come to its lane. */
  #flushSoon(): void {
    if (this.#flushing) return
    this.#flushing = true
    setImmediate(() => {
      this.#flushing = false
      for (const lane of this.#options.routes.lanes) lane.flush()
    })
  }
}
