import type { ConsumeOptions, Consumption, DeadLetterReason, IncomingMessage } from '../../bus.js'
import { atMost, type Clock, type Timer } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import type { ConnectionListener, NatsMessage, NatsSubscription } from './client.js'
import { BROKER } from './errors.js'
import type { JetStream } from './jetstream.js'
import { headersOf, incomingOf, type NatsIncomingMessage, subjectOf } from './message.js'

/** Times of a pull request. The server sends a heartbeat at this interval while the request is pending. */
const TIMES = { expiresMs: 30_000, heartbeatMs: 5_000 }
const SILENCE_MS = TIMES.heartbeatMs * 2.5
const FIRST_DELAY_MS = 100
const MAX_DELAY_MS = 5_000
const MAX_STOP_MS = 2_000
/** NATS cannot store a message with longer headers. */
const MAX_HEADER_BYTES = 65_535

export interface NatsNames {
  readonly stream: string
  readonly consumer: string
  readonly dead: string
}

/**
 * Receives messages from a durable pull consumer, and requests at most `maxUnacked` of them. The server confirms each
 * acknowledgement, so that a stop can wait for it. Acknowledgements that were lost with a connection are sent again after the
 * reconnect. A lost connection does not end the lease of a message. The lease ends when the server may have delivered the
 * message to another consumer, because it was not extended in time.
 */
export class NatsConsumption implements Consumption, ConnectionListener {
  readonly #jetstream: JetStream
  readonly #names: NatsNames
  readonly #leaseMs: number
  readonly #options: ConsumeOptions
  readonly #clock: Clock
  /** Messages by their sequence in the stream. */
  readonly #leased = new Map<number, NatsIncomingMessage>()
  /** Handled messages whose acknowledgement the server has not confirmed. */
  readonly #unconfirmed = new Map<number, NatsIncomingMessage>()
  /** Messages that arrived after the stop of the delivery. */
  readonly #undelivered: NatsIncomingMessage[] = []
  /** Number of requested messages that have not arrived yet. */
  #requested = 0
  #requests = 0
  #inbox = ''
  #subscription: NatsSubscription | null = null
  #lastSeenAt = 0
  #silenceTimer: Timer | null = null
  #isRenewing = false
  #isDeliveryStopped = false

  constructor(
    jetstream: JetStream,
    names: NatsNames,
    leaseMs: number,
    options: ConsumeOptions,
    clock: Clock,
  ) {
    this.#jetstream = jetstream
    this.#names = names
    this.#leaseMs = leaseMs
    this.#options = options
    this.#clock = clock
  }

  start(): void {
    this.#subscribe()
    this.#client.listen(this)
    this.#checkSilenceLater()
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    const leased = this.#untrack(messages)
    for (const message of leased) this.#unconfirmed.set(message.sequence, message)
    const confirmed = this.#confirmAcks(leased)
    this.#pull()
    await confirmed
  }

  async release(messages: readonly IncomingMessage[]): Promise<void> {
    const leased = this.#untrack(messages).sort((a, b) => a.sequence - b.sequence)
    this.#throwFirst(await this.#reply(leased, '-NAK'))
  }

  async extendLeases(messages: readonly IncomingMessage[]): Promise<void> {
    const leased = messages.filter((message) => this.#isLeased(message)) as NatsIncomingMessage[]
    const toldAt = this.#clock.monotonic()
    const replies = await this.#reply(leased, '+WPI', this.#leaseMs / 3)
    for (const [at, message] of leased.entries()) {
      if (!(replies[at] instanceof Error)) message.leasedUntil = toldAt + this.#leaseMs
    }
    this.#loseLeases(leased.filter((message) => message.leasedUntil <= this.#clock.monotonic()))
    this.#throwFirst(replies)
  }

  async deadLetter(message: IncomingMessage, reason: DeadLetterReason): Promise<void> {
    if (!this.#isLeased(message)) return
    const { dead } = this.#names
    const request = this.#deadLetterRequest(message as NatsIncomingMessage, reason)
    const [reply] = await this.#client.requestAll([request], this.#jetstream.timeoutMs)
    const error = this.#jetstream.publishResult(dead, reply)
    if (error) {
      // The stream of dead letters may have been deleted.
      await this.#jetstream.ensureStream(dead)
      throw error
    }
    await this.ack([message])
  }

  /** Messages that the server has already sent still arrive, and are released. */
  async stopDelivery(): Promise<void> {
    this.#isDeliveryStopped = true
    this.#silenceTimer?.cancel()
    const subscription = this.#subscription
    this.#subscription = null
    if (this.#client.isDown) subscription?.unsubscribe()
    else if (subscription)
      await atMost(this.#clock, Math.min(MAX_STOP_MS, this.#jetstream.timeoutMs), this.#end(subscription))
  }

  /** Never rejects. */
  async #end(subscription: NatsSubscription): Promise<void> {
    const { stream, consumer } = this.#names
    try {
      await subscription.drain()
      await this.#jetstream.dropDeadRequests(stream, consumer)
    } catch {
      // The connection is lost, and the server drops its requests.
    }
    await this.#reply(this.#untrack(this.#undelivered), '-NAK')
  }

  /** Releases all unsettled messages. */
  async close(): Promise<void> {
    this.#isDeliveryStopped = true
    this.#client.unlisten(this)
    this.#unsubscribe()
    await this.#reply(this.#untrack([...this.#leased.values()]), '-NAK')
  }

  onDown(error: Error): void {
    this.#unsubscribe()
    this.#options.onError(error)
  }

  onUp(): void {
    void this.#renew()
    const unconfirmed = [...this.#unconfirmed.values()]
    if (unconfirmed.length > 0) this.#confirmAcks(unconfirmed).catch((error) => this.#options.onError(error))
  }

  get #client() {
    return this.#jetstream.client
  }

  // ── receiving ────────────────────────────────────────────────────────────────────────────────────────

  #subscribe(): void {
    this.#inbox = this.#client.newInbox()
    this.#requested = 0
    this.#lastSeenAt = this.#clock.monotonic()
    const inbox = this.#inbox
    this.#subscription = this.#client.connection.subscribe(`${inbox}.*`, {
      callback: (error, message) => this.#receive(inbox, error, message),
    })
    this.#pull()
  }

  /** Also ends the pending requests, because the server sends nothing to an inbox without a subscriber. */
  #unsubscribe(): void {
    this.#subscription?.unsubscribe()
    this.#subscription = null
    this.#requested = 0
  }

  /** Requests messages in portions, because one request per acknowledgement would cost more than the messages. */
  #pull(): void {
    const { maxUnacked } = this.#options
    const capacity = maxUnacked - this.#leased.size - this.#requested
    if (!this.#subscription || this.#isDeliveryStopped || this.#client.isDown) return
    if (capacity < 1 || (this.#requested > 0 && capacity < maxUnacked / 4)) return
    this.#requested += capacity
    const { stream, consumer } = this.#names
    const reply = `${this.#inbox}.${this.#requests++}`
    try {
      this.#jetstream.pull(stream, consumer, reply, capacity, TIMES)
    } catch (error) {
      this.#options.onError(error)
    }
  }

  #receive(inbox: string, error: Error | null, message: NatsMessage): void {
    if (error) {
      this.#failed(error)
      return
    }
    const isCurrent = inbox === this.#inbox
    const now = this.#clock.monotonic()
    if (isCurrent) this.#lastSeenAt = now
    const incoming = incomingOf(message, now + this.#leaseMs)
    if (!incoming) {
      if (isCurrent) this.#status(message)
      return
    }
    if (isCurrent) this.#requested = Math.max(0, this.#requested - 1)
    this.#take(incoming)
    this.#pull()
  }

  #take(incoming: NatsIncomingMessage): void {
    const done = this.#unconfirmed.get(incoming.sequence)
    if (done?.storedAt === incoming.storedAt) {
      this.#unconfirmed.set(incoming.sequence, incoming)
      this.#confirmAcks([incoming]).catch((error) => this.#options.onError(error))
      return
    }
    const former = this.#leased.get(incoming.sequence)
    if (former) this.#loseLeases([former])
    this.#leased.set(incoming.sequence, incoming)
    if (this.#isDeliveryStopped) this.#undelivered.push(incoming)
    else this.#options.onMessage(incoming)
  }

  /** Handles the status message of a request. */
  #status({ headers }: NatsMessage): void {
    const code = headers?.code ?? 0
    if (code === 100 || this.#isDeliveryStopped) return
    const left = Number(headers?.get('Nats-Pending-Messages') || Number.NaN)
    if (code === 408 && left >= 0) {
      this.#requested = Math.max(0, this.#requested - left)
      this.#pull()
    } else
      this.#failed(new BrokerUnavailableError(BROKER, `delivers nothing: ${code} ${headers?.description}`))
  }

  #failed(error: Error): void {
    if (this.#isDeliveryStopped || this.#isRenewing) return
    this.#options.onError(error)
    void this.#renew()
  }

  /** Subscribes again after the consumer was found or created. Never rejects. */
  async #renew(): Promise<void> {
    if (this.#isRenewing) return
    this.#isRenewing = true
    // Messages on their way to the old inbox still arrive.
    this.#subscription?.drain().catch(() => {})
    this.#subscription = null
    const { stream, consumer } = this.#names
    for (let delayMs = FIRST_DELAY_MS; this.#mayReceive; delayMs = Math.min(MAX_DELAY_MS, delayMs * 2)) {
      try {
        await this.#jetstream.ensureConsumer(stream, consumer, this.#options.takeoverMs)
        if (this.#mayReceive) this.#subscribe()
        break
      } catch (error) {
        this.#options.onError(error)
        await new Promise<void>((resolve) => this.#clock.setTimer(resolve, delayMs).unref?.())
      }
    }
    this.#isRenewing = false
  }

  get #mayReceive(): boolean {
    return !this.#isDeliveryStopped && !this.#client.isDown
  }

  /** Renews the subscription if the connection is silent or the server has lost the request. */
  #checkSilenceLater(): void {
    this.#silenceTimer = this.#clock.setTimer(() => {
      if (this.#isDeliveryStopped) return
      const isSilent = this.#clock.monotonic() - this.#lastSeenAt > SILENCE_MS
      if (this.#subscription && this.#requested > 0 && isSilent)
        this.#failed(new BrokerUnavailableError(BROKER, 'is silent'))
      this.#checkSilenceLater()
    }, TIMES.heartbeatMs)
    this.#silenceTimer.unref?.()
  }

  // ── settling ───────────────────────────────────────────────────────────────────────────────────────────

  #isLeased(message: IncomingMessage): boolean {
    return this.#leased.get((message as NatsIncomingMessage).sequence) === message
  }

  #untrack(messages: readonly IncomingMessage[]): NatsIncomingMessage[] {
    const leased = messages.filter((message) => this.#isLeased(message)) as NatsIncomingMessage[]
    for (const { sequence } of leased) this.#leased.delete(sequence)
    return leased
  }

  #loseLeases(messages: readonly NatsIncomingMessage[]): void {
    const lost = this.#untrack(messages)
    if (lost.length > 0) this.#options.onLeaseLost(lost)
  }

  async #confirmAcks(messages: readonly NatsIncomingMessage[]): Promise<void> {
    const replies = await this.#reply(messages, '+ACK')
    for (const [at, message] of messages.entries()) {
      const isConfirmed = !(replies[at] instanceof Error)
      if (isConfirmed && this.#unconfirmed.get(message.sequence) === message)
        this.#unconfirmed.delete(message.sequence)
    }
    this.#forgetExpired()
    this.#throwFirst(replies)
  }

  /** Removes acknowledgements of expired leases, because the server has delivered these messages again. */
  #forgetExpired(): void {
    const before = this.#clock.monotonic() - this.#leaseMs
    for (const [sequence, { leasedUntil }] of this.#unconfirmed)
      if (leasedUntil < before) this.#unconfirmed.delete(sequence)
  }

  #reply(messages: readonly NatsIncomingMessage[], payload: string, timeoutMs = this.#jetstream.timeoutMs) {
    const requests = messages.map(({ reply }) => ({ subject: reply, payload }))
    return this.#client.requestAll(requests, Math.min(timeoutMs, this.#jetstream.timeoutMs))
  }

  #throwFirst(replies: readonly unknown[]): void {
    const failed = replies.find((reply) => reply instanceof Error)
    if (failed) throw failed
  }

  /** Shortens the reason until the message fits, because a message that cannot be dead-lettered would block its key. */
  #deadLetterRequest(
    { sequence, storedAt, contentType, attributes, body }: NatsIncomingMessage,
    reason: DeadLetterReason,
  ) {
    const maxBytes = (this.#client.connection.info?.max_payload ?? Number.POSITIVE_INFINITY) - body.length
    const added = (deaderror: string) => ({
      deadgroup: reason.group,
      deadhandlers: reason.handlers.join(','),
      deadattempts: String(reason.attempts),
      deaderror: deaderror.slice(0, 4_000),
    })
    const texts = [reason.error, reason.error.slice(0, 500), '']
    // The message id makes JetStream drop the copy that a repeated call sends.
    const write = (reasonAttributes: object) =>
      headersOf(`${sequence}:${storedAt}`, contentType, { ...attributes, ...reasonAttributes })
    const written = texts
      .map((text) => write(added(text)))
      .find(({ size }) => size <= Math.min(maxBytes, MAX_HEADER_BYTES))
    const subject = subjectOf(this.#names.dead, attributes.type ?? 'unknown')
    return { subject, payload: body, headers: written ?? write({}) }
  }
}
