import type { Burial, ConsumeOptions, Consumption, IncomingMessage } from '../../bus/transport.js'
import { atMost, type Clock, type Timer } from '../../core/clock.js'
import { BrokerUnavailableError } from '../../core/errors.js'
import type { JetStream } from './jetstream.js'
import { BROKER, type LineListener, type NatsMessage, type NatsSubscription } from './line.js'
import { type Delivered, deliveredOf, headersOf, subjectOf } from './message.js'

/** The server says at least every heartbeat that a request for messages still stands. */
const TIMES = { expiresMs: 30_000, heartbeatMs: 5_000 }
const SILENCE_MS = TIMES.heartbeatMs * 2.5
const FIRST_WAIT_MS = 100
const LONGEST_WAIT_MS = 5_000
const LONGEST_PAUSE_MS = 2_000
/** Headers of a stored message cannot be longer. */
const LONGEST_HEADERS = 65_535

export interface Names {
  readonly stream: string
  readonly consumer: string
  readonly dead: string
}

/**
 * Takes messages from a durable pull consumer. It asks for as many as may be unanswered, and never for more. Answers are
 * confirmed by the server, for a stop must not end before they have arrived, and one that a lost connection has
 * swallowed is given again on the next, so that it costs no redelivery. A message stays with this process over a
 * lost connection; it is lost when the server has had no sign for so long that it may have given it to another one.
 */
export class NatsConsumption implements Consumption, LineListener {
  readonly #jetstream: JetStream
  readonly #names: Names
  readonly #leaseMs: number
  readonly #options: ConsumeOptions
  readonly #clock: Clock
  /** By their sequence in the stream. */
  readonly #held = new Map<number, Delivered>()
  /** Handled here, but the server has not said that it knows. */
  readonly #unconfirmed = new Map<number, Delivered>()
  /** Came after the pause, and were not handed out. */
  readonly #late: Delivered[] = []
  /** So many may still come. */
  #requested = 0
  #requests = 0
  #inbox = ''
  #subscription: NatsSubscription | null = null
  #lastSign = 0
  #watch: Timer | null = null
  #isRenewing = false
  #isPaused = false

  constructor(jetstream: JetStream, names: Names, leaseMs: number, options: ConsumeOptions, clock: Clock) {
    this.#jetstream = jetstream
    this.#names = names
    this.#leaseMs = leaseMs
    this.#options = options
    this.#clock = clock
  }

  start(): void {
    this.#subscribe()
    this.#line.listen(this)
    this.#watchLater()
  }

  async ack(messages: readonly IncomingMessage[]): Promise<void> {
    const ours = this.#takeOut(messages)
    for (const message of ours) this.#unconfirmed.set(message.sequence, message)
    const confirmed = this.#confirmAcks(ours)
    this.#pull()
    await confirmed
  }

  async release(messages: readonly IncomingMessage[]): Promise<void> {
    const ours = this.#takeOut(messages).sort((a, b) => a.sequence - b.sequence)
    this.#throwFirst(await this.#tell(ours, '-NAK'))
  }

  async extend(messages: readonly IncomingMessage[]): Promise<void> {
    const ours = messages.filter((message) => this.#isOurs(message)) as Delivered[]
    const toldAt = this.#clock.monotonic()
    const answers = await this.#tell(ours, '+WPI', this.#leaseMs / 3)
    for (const [at, message] of ours.entries()) {
      if (!(answers[at] instanceof Error)) message.safeUntil = toldAt + this.#leaseMs
    }
    this.#lose(ours.filter((message) => message.safeUntil <= this.#clock.monotonic()))
    this.#throwFirst(answers)
  }

  async bury(message: IncomingMessage, burial: Burial): Promise<void> {
    if (!this.#isOurs(message)) return
    const { dead } = this.#names
    const question = this.#deadLetter(message as Delivered, burial)
    const [answer] = await this.#line.askAll([question], this.#jetstream.timeoutMs)
    const problem = this.#jetstream.verdict(dead, answer)
    if (problem) {
      // Somebody may have deleted it.
      await this.#jetstream.ensureStream(dead)
      throw problem
    }
    await this.ack([message])
  }

  /** What the server has sent by now still arrives, and goes back. */
  async pause(): Promise<void> {
    this.#isPaused = true
    this.#watch?.cancel()
    const subscription = this.#subscription
    this.#subscription = null
    if (this.#line.isDown) subscription?.unsubscribe()
    else if (subscription)
      await atMost(
        this.#clock,
        Math.min(LONGEST_PAUSE_MS, this.#jetstream.timeoutMs),
        this.#end(subscription),
      )
  }

  /** Never rejects. */
  async #end(subscription: NatsSubscription): Promise<void> {
    const { stream, consumer } = this.#names
    try {
      await subscription.drain()
      await this.#jetstream.forgetRequests(stream, consumer)
    } catch {
      // The connection is lost, and the requests with it.
    }
    await this.#tell(this.#takeOut(this.#late), '-NAK')
  }

  /** Whatever nobody has answered goes back to the group. */
  async close(): Promise<void> {
    this.#isPaused = true
    this.#line.unlisten(this)
    this.#unsubscribe()
    await this.#tell(this.#takeOut([...this.#held.values()]), '-NAK')
  }

  onDown(error: Error): void {
    this.#unsubscribe()
    this.#options.onProblem(error)
  }

  onUp(): void {
    void this.#renew()
    const late = [...this.#unconfirmed.values()]
    if (late.length > 0) this.#confirmAcks(late).catch((error) => this.#options.onProblem(error))
  }

  get #line() {
    return this.#jetstream.line
  }

  // ── messages come ────────────────────────────────────────────────────────────────────────────────────────

  #subscribe(): void {
    this.#inbox = this.#line.newInbox()
    this.#requested = 0
    this.#lastSign = this.#clock.monotonic()
    const inbox = this.#inbox
    this.#subscription = this.#line.connection.subscribe(`${inbox}.*`, {
      callback: (error, message) => this.#receive(inbox, error, message),
    })
    this.#pull()
  }

  /** Requests that the server still has end with it: it sends nothing where nobody listens. */
  #unsubscribe(): void {
    this.#subscription?.unsubscribe()
    this.#subscription = null
    this.#requested = 0
  }

  /** In portions: a request for each answer would cost more than the messages. */
  #pull(): void {
    const { maxUnanswered } = this.#options
    const room = maxUnanswered - this.#held.size - this.#requested
    if (!this.#subscription || this.#isPaused || this.#line.isDown) return
    if (room < 1 || (this.#requested > 0 && room < maxUnanswered / 4)) return
    this.#requested += room
    const { stream, consumer } = this.#names
    const reply = `${this.#inbox}.${this.#requests++}`
    try {
      this.#jetstream.pull(stream, consumer, reply, room, TIMES)
    } catch (error) {
      this.#options.onProblem(error)
    }
  }

  #receive(inbox: string, error: Error | null, message: NatsMessage): void {
    if (error) {
      this.#failed(error)
      return
    }
    const isCurrent = inbox === this.#inbox
    const now = this.#clock.monotonic()
    if (isCurrent) this.#lastSign = now
    const delivered = deliveredOf(message, now + this.#leaseMs)
    if (!delivered) {
      if (isCurrent) this.#status(message)
      return
    }
    if (isCurrent) this.#requested = Math.max(0, this.#requested - 1)
    this.#take(delivered)
    this.#pull()
  }

  #take(delivered: Delivered): void {
    const done = this.#unconfirmed.get(delivered.sequence)
    if (done?.storedAt === delivered.storedAt) {
      this.#unconfirmed.set(delivered.sequence, delivered)
      this.#confirmAcks([delivered]).catch((error) => this.#options.onProblem(error))
      return
    }
    const former = this.#held.get(delivered.sequence)
    if (former) this.#lose([former])
    this.#held.set(delivered.sequence, delivered)
    if (this.#isPaused) this.#late.push(delivered)
    else this.#options.onMessage(delivered)
  }

  /** What the server says about a request. */
  #status({ headers }: NatsMessage): void {
    const code = headers?.code ?? 0
    if (code === 100 || this.#isPaused) return
    const left = Number(headers?.get('Nats-Pending-Messages') || Number.NaN)
    if (code === 408 && left >= 0) {
      this.#requested = Math.max(0, this.#requested - left)
      this.#pull()
    } else
      this.#failed(new BrokerUnavailableError(BROKER, `hands out nothing: ${code} ${headers?.description}`))
  }

  #failed(error: Error): void {
    if (this.#isPaused || this.#isRenewing) return
    this.#options.onProblem(error)
    void this.#renew()
  }

  /** Begins anew, with a consumer that is there. Never rejects. */
  async #renew(): Promise<void> {
    if (this.#isRenewing) return
    this.#isRenewing = true
    // What is on its way to the old inbox still comes.
    this.#subscription?.drain().catch(() => {})
    this.#subscription = null
    const { stream, consumer } = this.#names
    for (let waitMs = FIRST_WAIT_MS; this.#isWanted; waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2)) {
      try {
        await this.#jetstream.ensureConsumer(stream, consumer, this.#options.takeoverMs)
        if (this.#isWanted) this.#subscribe()
        break
      } catch (error) {
        this.#options.onProblem(error)
        await new Promise<void>((resolve) => this.#clock.setTimer(resolve, waitMs).unref?.())
      }
    }
    this.#isRenewing = false
  }

  get #isWanted(): boolean {
    return !this.#isPaused && !this.#line.isDown
  }

  /** A connection that has gone silent, or a request that the server has forgotten. */
  #watchLater(): void {
    this.#watch = this.#clock.setTimer(() => {
      if (this.#isPaused) return
      const isSilent = this.#clock.monotonic() - this.#lastSign > SILENCE_MS
      if (this.#subscription && this.#requested > 0 && isSilent)
        this.#failed(new BrokerUnavailableError(BROKER, 'is silent'))
      this.#watchLater()
    }, TIMES.heartbeatMs)
    this.#watch.unref?.()
  }

  // ── answers go ───────────────────────────────────────────────────────────────────────────────────────────

  #isOurs(message: IncomingMessage): boolean {
    return this.#held.get((message as Delivered).sequence) === message
  }

  #takeOut(messages: readonly IncomingMessage[]): Delivered[] {
    const ours = messages.filter((message) => this.#isOurs(message)) as Delivered[]
    for (const { sequence } of ours) this.#held.delete(sequence)
    return ours
  }

  #lose(messages: readonly Delivered[]): void {
    const lost = this.#takeOut(messages)
    if (lost.length > 0) this.#options.onLost(lost)
  }

  async #confirmAcks(messages: readonly Delivered[]): Promise<void> {
    const answers = await this.#tell(messages, '+ACK')
    for (const [at, message] of messages.entries()) {
      const isConfirmed = !(answers[at] instanceof Error)
      if (isConfirmed && this.#unconfirmed.get(message.sequence) === message)
        this.#unconfirmed.delete(message.sequence)
    }
    this.#forgetOld()
    this.#throwFirst(answers)
  }

  /** By then they have come again, here or elsewhere. */
  #forgetOld(): void {
    const before = this.#clock.monotonic() - this.#leaseMs
    for (const [sequence, { safeUntil }] of this.#unconfirmed)
      if (safeUntil < before) this.#unconfirmed.delete(sequence)
  }

  #tell(messages: readonly Delivered[], payload: string, timeoutMs = this.#jetstream.timeoutMs) {
    const questions = messages.map(({ reply }) => ({ subject: reply, payload }))
    return this.#line.askAll(questions, Math.min(timeoutMs, this.#jetstream.timeoutMs))
  }

  #throwFirst(answers: readonly unknown[]): void {
    const failed = answers.find((answer) => answer instanceof Error)
    if (failed) throw failed
  }

  /** With as much of the story as fits: a message that cannot be buried would never end. */
  #deadLetter({ sequence, storedAt, contentType, attributes, body }: Delivered, burial: Burial) {
    const most = (this.#line.connection.info?.max_payload ?? Number.POSITIVE_INFINITY) - body.length
    const story = (deaderror: string) => ({
      deadgroup: burial.group,
      deadhandlers: burial.handlers.join(','),
      deadattempts: String(burial.attempts),
      deaderror: deaderror.slice(0, 4_000),
    })
    const stories = [story(burial.error), story(burial.error.slice(0, 500)), story('')]
    // By its place in the stream: a burial that is repeated is one.
    const write = (told: object) =>
      headersOf(`${sequence}:${storedAt}`, contentType, { ...attributes, ...told })
    const written = stories.map(write).find(({ size }) => size <= Math.min(most, LONGEST_HEADERS))
    const subject = subjectOf(this.#names.dead, attributes.type ?? 'unknown')
    return { subject, payload: body, headers: written ?? write({}) }
  }
}
