import { captureContext, runHandling } from '../ambient.js'
import type { EventHandler } from '../bus.js'
import type { RetryPolicy } from '../core/backoff.js'
import type { EventCatalog } from '../core/catalog.js'
import { atMost, type Clock, type Timer } from '../core/clock.js'
import { EventEnvelope } from '../core/envelope.js'
import { RetryAfter, Unrecoverable } from '../core/errors.js'
import { redactDriverError, redactError } from '../core/redact.js'
import { sanitizeText } from '../core/text.js'
import { ignoreRejection, isA } from '../core/unknown.js'
import { errorFields, type Logger, type Redact } from '../observe/logger.js'
import { type Tracer, traced, tracedEvent } from '../observe/tracing.js'
import { Answers } from './answers.js'
import { Held, Lanes, Places } from './held.js'
import { eventOf } from './message.js'
import { Notes } from './notes.js'
import type { Subscriptions } from './subscriptions.js'
import type { Consumption, IncomingMessage, Transport } from './transport.js'

export interface ConsumerOptions {
  readonly group: string
  readonly transport: Transport
  readonly catalog: EventCatalog
  readonly subscriptions: Subscriptions
  readonly concurrency: number
  readonly maxAttempts: number
  readonly maxDeliveries: number
  readonly retryPolicy: RetryPolicy
  readonly drainTimeoutMs: number
  readonly takeoverMs: number
  readonly clock: Clock
  readonly logger: Logger
  readonly redact: Redact | undefined
  readonly tracer: Tracer | undefined
}

interface Failure {
  readonly handler: string
  readonly error: unknown
}

/** So long each step of a stop may take. */
const FAREWELL_MS = 2_000

/** Beyond those that run some wait here: for their turn, and behind an event of their key that is tried again. */
const AHEAD = 16

/**
 * Takes the messages of a group and runs their handlers: one after the other within an ordering key, the others side by
 * side. A message is acknowledged when all its handlers have succeeded; one that fails is tried again here, after a
 * while, and only the handlers that have not succeeded. After `maxAttempts` it goes to the dead letters.
 */
export class Consumer {
  readonly #options: ConsumerOptions
  readonly #inOwnContext = captureContext()
  readonly #notes: Notes
  readonly #places: Places
  readonly #lanes = new Lanes()
  readonly #held = new Set<Held>()
  readonly #byMessage = new WeakMap<IncomingMessage, Held>()
  readonly #backoffs = new Set<{ readonly timer: Timer; end(): void }>()
  #consumption: Consumption | null = null
  #answers: Answers | null = null
  /** Messages that come while `consume` has not resolved. */
  #early: IncomingMessage[] | null = []
  #isStopping = false

  constructor(options: ConsumerOptions) {
    this.#options = options
    this.#notes = new Notes(options)
    this.#places = new Places(options.concurrency, options.clock)
  }

  async start(): Promise<void> {
    const { transport, group, subscriptions, concurrency, takeoverMs } = this.#options
    this.#consumption = await transport.consume({
      group,
      types: subscriptions.routes(),
      maxUnanswered: concurrency * AHEAD,
      takeoverMs,
      onMessage: (message) => this.#inOwnContext(() => this.#take(message)),
      onLost: (messages) => this.#lose(messages),
      onProblem: (error) => this.#problem(error),
    })
    const options = { ...this.#options, onProblem: (error: unknown) => this.#problem(error) }
    this.#answers = new Answers(options, this.#consumption, this.#held)
    const early = this.#early ?? []
    this.#early = null
    for (const message of early) this.#inOwnContext(() => this.#take(message))
  }

  /** Nothing new; handlers under way have `drainTimeoutMs`, then everything that is left is given back. */
  async stop(): Promise<void> {
    const { clock, drainTimeoutMs } = this.#options
    this.#isStopping = true
    await this.#inTime(this.#consumption?.pause())
    for (const backoff of [...this.#backoffs]) backoff.end()
    await atMost(clock, drainTimeoutMs, Promise.all([...this.#held].map((held) => held.ended)))
    for (const held of this.#held)
      if (held.running) this.#notes.abandoned(held.event, held.running, held.attempts + 1)
    await this.#inTime(this.#answers?.release([...this.#held]))
    await this.#inTime(this.#answers?.flush())
    this.#answers?.close()
    await this.#inTime(this.#consumption?.close())
  }

  /** Never rejects: a broker that does not answer must not keep the process from ending. */
  async #inTime(step: Promise<void> | undefined): Promise<void> {
    const { clock, logger } = this.#options
    const done = step?.catch((error) => logger.warn(errorFields(error), 'the broker was left in a hurry'))
    await atMost(clock, FAREWELL_MS, done ?? Promise.resolve())
  }

  #take(message: IncomingMessage): void {
    if (this.#early) {
      this.#early.push(message)
      return
    }
    const { catalog, subscriptions } = this.#options
    try {
      const raw = eventOf(message)
      const handlers = subscriptions.of(raw.eventType)
      const decode = catalog.decoderFor(raw.eventType)
      const event = decode ? raw.withDecoder(decode) : raw
      if (handlers.length > 0) event.decodePayload()
      this.#hold(new Held(message, event, handlers))
    } catch (error) {
      this.#unreadable(message, error)
    }
  }

  #hold(held: Held): void {
    this.#remember(held)
    if (held.handlers.length > 0) this.#lanes.enter(held, () => this.#handle(held))
    else {
      // The stream has more types than this group is interested in.
      this.#held.delete(held)
      this.#answers?.ack(held)
    }
  }

  #remember(held: Held): void {
    this.#held.add(held)
    this.#byMessage.set(held.message, held)
  }

  #unreadable(message: IncomingMessage, error: unknown): void {
    this.#notes.unreadable(error)
    const held = new Held(message, UNREAD, [])
    this.#remember(held)
    held.ended = this.#bury(held, [], this.#textOf(error)).then(() => void this.#held.delete(held))
  }

  /** Never rejects: after an unexpected error the message goes back to the broker, which delivers it again. */
  async #handle(held: Held): Promise<void> {
    try {
      await this.#finish(held)
    } catch (error) {
      this.#notes.unexpected(held.event, error)
      this.#held.delete(held)
      await this.#answers?.release([held])
    }
  }

  async #finish(held: Held): Promise<void> {
    const { maxAttempts, maxDeliveries } = this.#options
    if (held.message.deliveries > maxDeliveries) {
      this.#notes.killing(held.event)
      await this.#bury(
        held,
        [],
        `It was handed out ${held.message.deliveries} times: its consumers do not survive it.`,
      )
    }
    while (!this.#isOver(held)) {
      const failures = await this.#try(held)
      if (failures.length === 0) break
      const isHopeless = failures.some(({ error }) => isA(error, Unrecoverable))
      if (held.attempts >= maxAttempts || isHopeless) {
        await this.#giveUp(held, failures)
        break
      }
      await this.#backoff(this.#delayOf(held, failures))
    }
    // What a stop leaves unanswered is given back together.
    if (held.isAnswered || held.isLost) this.#held.delete(held)
  }

  /** Given back while stopping: by whoever stops, in one call. */
  #isOver(held: Held): boolean {
    return held.isLost || held.isAnswered || this.#isStopping
  }

  async #try(held: Held): Promise<readonly Failure[]> {
    const { deliveries } = held.message
    await (deliveries > this.#options.maxAttempts ? this.#places.enterAlone() : this.#places.enter())
    try {
      if (this.#isOver(held)) return []
      const failures = await this.#callAll(held)
      if (failures.length === 0) this.#answers?.ack(held)
      else if (failures.some(({ error }) => !isA(error, RetryAfter))) held.attempts++
      return failures
    } finally {
      this.#places.leave()
    }
  }

  /** In the order of registration; what one throws does not stop the others. */
  async #callAll(held: Held): Promise<readonly Failure[]> {
    const failures: Failure[] = []
    for (const handler of held.handlers) {
      if (held.succeeded.has(handler.name)) continue
      const call = this.#notes.calling(held.event, handler.name, held.attempts + 1)
      held.running = handler.name
      try {
        await this.#call(held, handler)
        held.succeeded.add(handler.name)
        call.succeeded()
      } catch (error) {
        failures.push({ handler: handler.name, error })
        call.failed(error)
      }
      held.running = null
    }
    return failures
  }

  #call(held: Held, handler: EventHandler): unknown {
    const { tracer, redact, group, transport } = this.#options
    const context = this.#notes.contextOf(held.event, handler.name, held.attempts + 1)
    const call = () => runHandling(held.event, (event) => handler.handle(event), context)
    if (tracer === undefined) return call()
    const about = { handler: handler.name, attempt: held.attempts + 1, group, broker: transport.broker }
    const plan = { operation: 'process', events: [tracedEvent(held.event)], ...about } as const
    return traced(tracer, plan, { redact }, call)
  }

  async #giveUp(held: Held, failures: readonly Failure[]): Promise<void> {
    const error = failures.map((one) => `${one.handler}: ${this.#textOf(one.error)}`).join('\n')
    this.#notes.gaveUp(held.event, held.attempts, error)
    await this.#bury(
      held,
      failures.map(({ handler }) => handler),
      error,
    )
  }

  async #bury(held: Held, handlers: readonly string[], error: string): Promise<void> {
    const { group } = this.#options
    const burial = { group, handlers, attempts: held.attempts, error: sanitizeText(error, 4_000) }
    await this.#answers?.bury(held, burial, () => this.#isOver(held))
  }

  /** A policy that throws or answers nonsense must not lose the message. */
  #delayOf(held: Held, failures: readonly Failure[]): number {
    const { retryPolicy } = this.#options
    try {
      const delays = failures.map(({ error }): unknown =>
        isA(error, RetryAfter) ? error.delayMs : retryPolicy.delayMs(Math.max(1, held.attempts), error),
      )
      delays.forEach(ignoreRejection)
      const longest = Math.max(0, ...(delays as number[]))
      return Number.isFinite(longest) ? longest : LONGEST_BACKOFF_MS
    } catch {
      return LONGEST_BACKOFF_MS
    }
  }

  /** Ends at once when the bus stops. */
  #backoff(delayMs: number): Promise<void> {
    if (this.#isStopping) return Promise.resolve()
    return new Promise((resolve) => {
      const end = () => {
        backoff.timer.cancel()
        this.#backoffs.delete(backoff)
        resolve()
      }
      const backoff = { timer: this.#options.clock.setTimer(end, delayMs), end }
      this.#backoffs.add(backoff)
    })
  }

  #lose(messages: Iterable<IncomingMessage>): void {
    for (const message of messages) {
      this.#early = this.#early?.filter((one) => one !== message) ?? null
      const held = this.#byMessage.get(message)
      if (held) held.isLost = true
    }
  }

  #textOf(error: unknown): string {
    const { name, message } = redactError(error, this.#options.redact)
    return `${name}: ${message}`
  }

  #problem(error: unknown): void {
    const { logger, transport } = this.#options
    if (this.#isStopping) return
    logger.warn(errorFields(redactDriverError(error)), `${transport.broker}: trying again`)
  }
}

const LONGEST_BACKOFF_MS = 60_000
/** Stands for the event of a message that holds none. */
const UNREAD = EventEnvelope.create({ eventType: 'unreadable' })
