import type { EventEnvelope } from '../core/envelope.js'

/** Part of a handler that its deliveries need. */
interface DeliveryHandler {
  readonly name: string
  /** Null for a handler without batches. */
  readonly batch: object | null
}

/** Queue of a handler, which counts the deliveries that wait for it. */
interface DeliveryQueue {
  readonly isFull: boolean
  leave(delivery: Delivery): void
}

export interface DeliveryInit {
  readonly event: EventEnvelope
  readonly token: string
  /** Known for claimed events only. */
  readonly seq?: number | undefined
  /** Monotonic time of this process, counted from before the lease was requested. */
  readonly leasedUntil: number
  readonly attempts: number
  readonly handledBy: readonly string[]
  readonly source: 'hot' | 'cold'
  /** Whether the previous lease expired because its process died or lost it. */
  readonly suspect: boolean
  readonly unroutable: boolean
  /** Bytes that the event takes in a queue. Default: the size of its payload. */
  readonly bytes?: number | undefined
  /** Reason why the stored event cannot be handled. */
  readonly invalid?: string | undefined
}

/** One event whose lease this process holds, from the queue until its outcome is written. */
export class Delivery implements DeliveryInit {
  readonly event: EventEnvelope
  readonly token: string
  readonly seq: number | undefined
  leasedUntil: number
  readonly attempts: number
  readonly handledBy: readonly string[]
  readonly source: 'hot' | 'cold'
  readonly suspect: boolean
  readonly unroutable: boolean
  readonly bytes: number
  readonly invalid: string | undefined
  /** Monotonic time at which its handlers were started; 0 while it waits in a queue. */
  startedAt = 0
  running = false
  /** Whether it holds a worker slot. It holds none while it only waits in handler queues. */
  hasSlot = false
  stuckReported = false
  /** Handlers that the current attempt calls; null before the first call. */
  handlers: readonly DeliveryHandler[] | null = null
  /** Names of the handlers that have succeeded in this attempt; null unless there are several handlers. */
  succeeded: string[] | null = null
  /** Names of the handlers that have failed in this attempt; null unless there are several handlers. */
  failed: string[] | null = null
  /** Handler queues that admitted the delivery. It may have left them already. */
  queues: readonly DeliveryQueue[] = NO_QUEUES
  /** Next event of its ordering key in the same claim. It starts when this event is done, otherwise it is released. */
  next: Delivery | null = null
  #lost = false
  #controller: AbortController | undefined

  constructor(init: DeliveryInit) {
    this.event = init.event
    this.token = init.token
    this.seq = init.seq
    this.leasedUntil = init.leasedUntil
    this.attempts = init.attempts
    this.handledBy = init.handledBy
    this.source = init.source
    this.suspect = init.suspect
    this.unroutable = init.unroutable
    this.bytes = init.bytes ?? init.event.payloadSize
    this.invalid = init.invalid
  }

  /**
   * This delivery and all that follow it in its run. A run is the events of one ordering key from one claim, linked by `next`.
   */
  get run(): Delivery[] {
    const run: Delivery[] = []
    for (let delivery: Delivery | null = this; delivery; delivery = delivery.next) run.push(delivery)
    return run
  }

  /** Removes the deliveries that follow this delivery in its run, and returns them. */
  cut(): Delivery[] {
    const rest = this.next?.run ?? []
    this.next = null
    return rest
  }

  /** Number of events that the run takes in a queue. */
  get weight(): number {
    return this.next === null ? 1 : 1 + this.next.weight
  }

  get runBytes(): number {
    return this.next === null ? this.bytes : this.bytes + this.next.runBytes
  }

  /** Whether the event has an ordering key: no other event of the key may start before its handlers have ended. */
  get isOrdered(): boolean {
    return this.event.orderingKey !== undefined
  }

  isOfKey(keys: ReadonlySet<string>): boolean {
    const { orderingKey } = this.event
    return keys.size > 0 && orderingKey !== undefined && keys.has(orderingKey)
  }

  /** Handlers whose calls have begun and not ended. */
  get runningHandlers(): readonly DeliveryHandler[] {
    const { handlers, succeeded, failed } = this
    if (!this.running || handlers === null) return []
    return handlers.filter(({ name }) => !succeeded?.includes(name) && !failed?.includes(name))
  }

  /** Whether another instance may work on the event. */
  get lost(): boolean {
    return this.#lost
  }

  /** Abort signal for the handlers. Created on first access, because most handlers do not read it. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    return this.#controller.signal
  }

  lose(reason: Error): void {
    this.#lost = true
    this.abort(reason)
  }

  abort(reason: Error): void {
    if (!this.running) return
    this.#controller ??= new AbortController()
    this.#controller.abort(reason)
  }
}

const NO_QUEUES: readonly DeliveryQueue[] = []
