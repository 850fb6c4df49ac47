import { randomBytes } from 'node:crypto'
import type { Clock } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import { BROKER, connectionLost, NoResponderError } from './errors.js'

export interface NatsHeaders extends Iterable<[string, string[]]> {
  readonly code: number
  readonly description: string
  get(name: string): string
}

export interface NatsMessage {
  readonly subject: string
  readonly reply?: string
  readonly data: Uint8Array
  readonly headers?: NatsHeaders
}

export interface NatsSubscription {
  unsubscribe(): void
  drain(): Promise<void>
}

/** The members of a connection of `@nats-io/transport-node` that the bus uses. */
export interface NatsConnection {
  readonly info?: { readonly max_payload: number }
  publish(
    subject: string,
    payload?: Uint8Array | string,
    options?: { reply?: string; headers?: object },
  ): void
  subscribe(
    subject: string,
    options: { callback(error: Error | null, message: NatsMessage): void },
  ): NatsSubscription
  status(): AsyncIterable<{ readonly type: string }>
  isClosed(): boolean
}

export interface NatsRequest {
  readonly subject: string
  readonly payload: Uint8Array | string
  readonly headers?: object
}

export type NatsReply = NatsMessage | Error

/** Receives changes of the state of the connection. */
export interface ConnectionListener {
  onDown(error: Error): void
  onUp(): void
}

interface PendingRequest {
  readonly subject: string
  settle(reply: NatsReply): void
}

/**
 * Sends requests over a connection of NATS. Requests are pipelined and share one timer per call. Pending requests fail as
 * soon as the connection is lost, because the client of NATS would queue them. While there is no connection, requests fail
 * at once.
 */
export class NatsClient {
  readonly connection: NatsConnection
  readonly #clock: Clock
  readonly #inboxPrefix: string
  readonly #pending = new Map<string, PendingRequest>()
  readonly #listeners = new Set<ConnectionListener>()
  readonly #busy = new Set<Promise<unknown>>()
  #inbox = ''
  #count = 0
  #subscription: NatsSubscription | null = null
  #statuses: AsyncIterable<unknown> | null = null
  #isLost = false

  constructor(connection: NatsConnection, clock: Clock, inboxPrefix: string) {
    this.connection = connection
    this.#clock = clock
    this.#inboxPrefix = inboxPrefix
  }

  get isDown(): boolean {
    return this.#isLost || this.connection.isClosed()
  }

  newInbox(): string {
    return `${this.#inboxPrefix}.${randomBytes(12).toString('hex')}`
  }

  /** Reports changes to the listener. The connection is watched only while there are listeners or pending requests. */
  listen(listener: ConnectionListener): void {
    this.#open()
    this.#listeners.add(listener)
  }

  unlisten(listener: ConnectionListener): void {
    this.#listeners.delete(listener)
  }

  /** Sends all requests before it waits for the first reply. Never rejects: a failed request has an error as its reply. */
  requestAll(requests: readonly NatsRequest[], timeoutMs: number): Promise<readonly NatsReply[]> {
    const replies = new Promise<readonly NatsReply[]>((resolve) =>
      this.#requestAll(requests, timeoutMs, resolve),
    )
    this.#busy.add(replies)
    void replies.then(() => this.#busy.delete(replies))
    return replies
  }

  async request(request: NatsRequest, timeoutMs: number): Promise<NatsMessage> {
    const [reply] = await this.requestAll([request], timeoutMs)
    if (reply instanceof Error) throw reply
    return reply as NatsMessage
  }

  /**
   * Waits for the pending requests, then ends the subscription. If new requests were sent in the meantime, the subscription
   * stays open. The next request opens it again.
   */
  async close(): Promise<void> {
    await Promise.all(this.#busy)
    if (this.#pending.size > 0) return
    this.#subscription?.unsubscribe()
    this.#subscription = null
    const statuses = this.#statuses as { stop?(): void } | null
    this.#statuses = null
    this.#isLost = false
    statuses?.stop?.()
  }

  #requestAll(
    requests: readonly NatsRequest[],
    timeoutMs: number,
    done: (replies: readonly NatsReply[]) => void,
  ): void {
    const replies = new Array<NatsReply>(requests.length)
    const tokens: string[] = []
    let left = requests.length
    const late = () => {
      for (const token of tokens)
        this.#pending.get(token)?.settle(new BrokerUnavailableError(BROKER, 'has not answered in time'))
    }
    const timer = this.#clock.setTimer(late, timeoutMs)
    const finish = () => {
      timer.cancel()
      done(replies)
    }
    if (left === 0) finish()
    for (const [at, request] of requests.entries()) {
      const token = (this.#count++).toString(36)
      tokens.push(token)
      const settle = (reply: NatsReply) => {
        if (!this.#pending.delete(token)) return
        replies[at] = reply
        if (--left === 0) finish()
      }
      this.#pending.set(token, { subject: request.subject, settle })
      this.#send(request, token, settle)
    }
  }

  #send({ subject, payload, headers }: NatsRequest, token: string, settle: (reply: NatsReply) => void): void {
    try {
      if (this.isDown) throw connectionLost(this.connection.isClosed())
      this.#open()
      const reply = `${this.#inbox}.${token}`
      this.connection.publish(subject, payload, headers ? { reply, headers } : { reply })
    } catch (error) {
      settle(error instanceof Error ? error : new Error(String(error)))
    }
  }

  #open(): void {
    if (!this.#statuses) {
      this.#isLost = false
      const statuses = this.connection.status()
      this.#statuses = statuses
      void this.#watch(statuses)
    }
    if (this.#subscription || this.connection.isClosed()) return
    this.#inbox = this.newInbox()
    this.#subscription = this.connection.subscribe(`${this.#inbox}.*`, {
      callback: (error, message) => this.#onReply(error, message),
    })
  }

  #onReply(error: Error | null, message: NatsMessage): void {
    if (error) {
      this.#subscription = null
      this.#failAll(error)
      return
    }
    const pending = this.#pending.get(message.subject.slice(this.#inbox.length + 1))
    const isUnanswered = message.headers?.code === 503 && message.data.length === 0
    pending?.settle(isUnanswered ? new NoResponderError(pending.subject) : message)
  }

  async #watch(statuses: AsyncIterable<{ readonly type: string }>): Promise<void> {
    try {
      for await (const status of statuses) {
        if (this.#statuses !== statuses) return
        if (status.type === 'disconnect') this.#down(false)
        else if (status.type === 'reconnect') this.#up()
        else if (status.type === 'error') this.#refused((status as { error?: unknown }).error)
      }
    } catch {
      // The status iterator of the client has ended.
    }
    if (this.#statuses !== statuses) return
    this.#statuses = null
    this.#subscription = null
    this.#down(true)
  }

  #down(isClosed: boolean): void {
    this.#isLost = true
    const error = connectionLost(isClosed)
    this.#failAll(error)
    for (const listener of [...this.#listeners]) listener.onDown(error)
  }

  #up(): void {
    this.#isLost = false
    for (const listener of [...this.#listeners]) listener.onUp()
  }

  /**
   * Fails requests to a subject that the user may not publish to. The server sends such an error for the connection and no
   * reply. The permission may be granted later, so the message is not refused.
   */
  #refused(error: unknown): void {
    const { operation, subject } = (error ?? {}) as { operation?: unknown; subject?: unknown }
    if (operation !== 'publish') return
    const refusal = new BrokerUnavailableError(BROKER, `does not allow to publish to ${subject}`, error)
    for (const pending of [...this.#pending.values()])
      if (pending.subject === subject) pending.settle(refusal)
  }

  #failAll(error: Error): void {
    for (const pending of [...this.#pending.values()]) pending.settle(error)
  }
}
