import type { EventEnvelope } from '../core/envelope.js'
import type { Registration } from './routing.js'

export interface DeliveryInit {
  readonly event: EventEnvelope
  readonly token: string
  /** Of what a claim brought. */
  readonly seq?: number | undefined
  /** By this process's monotonic clock, counted from before the lease was asked for. */
  readonly leasedUntil: number
  readonly attempts: number
  readonly handledBy: readonly string[]
  readonly source: 'hot' | 'cold'
  readonly suspect: boolean
  readonly unroutable: boolean
  /** Bytes that the event takes in a queue. Default: the size of its payload. */
  readonly bytes?: number | undefined
  /** Reason why the stored event cannot be handled. */
  readonly invalid?: string | undefined
}

/** One event that this process holds the lease of, from the queue until its outcome is written. */
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
  /** It keeps no worker while it waits in a lane; what it does elsewhere takes the place of one. */
  detached = false
  stuckReported = false
  /** Handlers that the current attempt calls; null before the first call. */
  handlers: readonly Registration[] | null = null
  /** Of several handlers those that have succeeded in this attempt. */
  succeeded: string[] | null = null
  /** Names of the handlers that have failed in this attempt; null unless there are several handlers. */
  failed: string[] | null = null
  /** The next event of its ordering key in the same claim: started when this one is done, otherwise given back. */
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

  /** It and all that follow it in its run. */
  get run(): Delivery[] {
    const run: Delivery[] = []
    for (let one: Delivery | null = this; one; one = one.next) run.push(one)
    return run
  }

  /** Parts with what follows it, and returns that. */
  cut(): Delivery[] {
    const rest = this.next?.run ?? []
    this.next = null
    return rest
  }

  /** Places that it takes in a queue, with those that follow it. */
  get weight(): number {
    return this.next === null ? 1 : 1 + this.next.weight
  }

  get runBytes(): number {
    return this.next === null ? this.bytes : this.bytes + this.next.runBytes
  }

  /** It has an ordering key: nothing of that key may start before its handlers have really ended. */
  get isOrdered(): boolean {
    return this.event.orderingKey !== undefined
  }

  isOfKey(keys: ReadonlySet<string>): boolean {
    const { orderingKey } = this.event
    return keys.size > 0 && orderingKey !== undefined && keys.has(orderingKey)
  }

  /** Handlers whose calls have begun and not ended. */
  get runningHandlers(): readonly Registration[] {
    const { handlers, succeeded, failed } = this
    if (!this.running || handlers === null) return []
    return handlers.filter(({ name }) => !succeeded?.includes(name) && !failed?.includes(name))
  }

  /** Somebody else may work on the event by now. */
  get lost(): boolean {
    return this.#lost
  }

  /** Made when a handler first looks at it. */
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
