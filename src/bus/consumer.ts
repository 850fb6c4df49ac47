import { captureContext, runHandling } from '../ambient.js'
import type { Consumption, EventHandler, IncomingMessage, Transport } from '../bus.js'
import type { RetryPolicy } from '../core/backoff.js'
import type { EventCatalog } from '../core/catalog.js'
import { atMost, type Clock, type Timer } from '../core/clock.js'
import { EventEnvelope } from '../core/envelope.js'
import { redactDriverError, redactError } from '../core/redact.js'
import { decideRetry } from '../core/retry-decision.js'
import { sanitizeText } from '../core/text.js'
import { errorFields, type Logger, type Redact } from '../observe/logger.js'
import { type Tracer, traced, tracedEvent } from '../observe/tracing.js'
import { ConsumerLog } from './consumer-log.js'
import { KeyChains } from './key-chains.js'
import { eventOf } from './message.js'
import { MessageSettler } from './message-settler.js'
import type { Subscriptions } from './subscriptions.js'
import { UnackedMessage } from './unacked-message.js'
import { WorkerSlots } from './worker-slots.js'

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

interface HandlerFailure {
  readonly handler: string
  readonly error: unknown
}

/** Maximum duration of each step of a stop that waits for the broker. */
const STOP_STEP_MS = 2_000

/** Unacknowledged messages per worker slot. Waiting messages keep the slots busy while a message of their key is retried. */
const UNACKED_PER_SLOT = 16

/**
 * Receives the messages of a group and runs their handlers. Messages with the same ordering key are handled sequentially.
 * Other messages are handled concurrently. A message is acknowledged when all its handlers have succeeded. A failed message is
 * retried in this consumer, and only with the handlers that have not succeeded. After `maxAttempts` failed attempts the message
 * is dead-lettered.
 */
export class Consumer {
  readonly #options: ConsumerOptions
  readonly #inOwnContext = captureContext()
  readonly #log: ConsumerLog
  readonly #slots: WorkerSlots
  readonly #chains = new KeyChains()
  readonly #unacked = new Set<UnackedMessage>()
  readonly #byMessage = new WeakMap<IncomingMessage, UnackedMessage>()
  readonly #backoffs = new Set<{ readonly timer: Timer; end(): void }>()
  #consumption: Consumption | null = null
  #settler: MessageSettler | null = null
  /** Messages that were delivered before `consume` resolved. Null afterwards. */
  #early: IncomingMessage[] | null = []
  #isStopping = false

  constructor(options: ConsumerOptions) {
    this.#options = options
    this.#log = new ConsumerLog(options)
    this.#slots = new WorkerSlots(options.concurrency, options.clock)
  }

  async start(): Promise<void> {
    const { transport, group, subscriptions, concurrency, takeoverMs, clock } = this.#options
    const onError = (error: unknown) => this.#logError(error)
    this.#consumption = await transport.consume({
      group,
      types: subscriptions.routes(),
      maxUnacked: concurrency * UNACKED_PER_SLOT,
      takeoverMs,
      onMessage: (message) => this.#inOwnContext(() => this.#receive(message)),
      onLeaseLost: (messages) => this.#loseLeases(messages),
      onError,
    })
    this.#settler = new MessageSettler({ clock, takeoverMs, onError }, this.#consumption, this.#unacked)
    const early = this.#early ?? []
    this.#early = null
    for (const message of early) this.#inOwnContext(() => this.#receive(message))
  }

  /** Stops the delivery, waits up to `drainTimeoutMs` for running handlers, then releases all remaining messages. */
  async stop(): Promise<void> {
    const { clock, drainTimeoutMs } = this.#options
    this.#isStopping = true
    await this.#limited(this.#consumption?.stopDelivery())
    for (const backoff of [...this.#backoffs]) backoff.end()
    await atMost(clock, drainTimeoutMs, Promise.all([...this.#unacked].map(({ ended }) => ended)))
    for (const { running, event, attempts } of this.#unacked)
      if (running) this.#log.stillRunning(event, running, attempts + 1)
    await this.#limited(this.#settler?.release([...this.#unacked]))
    await this.#limited(this.#settler?.flush())
    this.#settler?.close()
    await this.#limited(this.#consumption?.close())
  }

  /** Never rejects, and waits at most STOP_STEP_MS: a silent broker must not keep the process alive. */
  async #limited(step: Promise<void> | undefined): Promise<void> {
    const { clock, logger } = this.#options
    const done = step?.catch((error) => logger.warn(errorFields(error), 'stop step failed at the broker'))
    await atMost(clock, STOP_STEP_MS, done ?? Promise.resolve())
  }

  #receive(message: IncomingMessage): void {
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
      this.#accept(new UnackedMessage(message, event, handlers))
    } catch (error) {
      this.#rejectUnreadable(message, error)
    }
  }

  #accept(unacked: UnackedMessage): void {
    this.#track(unacked)
    if (unacked.handlers.length > 0) this.#chains.append(unacked, () => this.#handle(unacked))
    else {
      // Brokers that do not filter deliver types that this group has not subscribed to.
      this.#unacked.delete(unacked)
      this.#settler?.ack(unacked)
    }
  }

  #track(unacked: UnackedMessage): void {
    this.#unacked.add(unacked)
    this.#byMessage.set(unacked.message, unacked)
  }

  #rejectUnreadable(message: IncomingMessage, error: unknown): void {
    this.#log.unreadable(error)
    const unacked = new UnackedMessage(message, UNREADABLE, [])
    this.#track(unacked)
    const deadLettered = this.#deadLetter(unacked, [], this.#textOf(error))
    unacked.ended = deadLettered.then(() => void this.#unacked.delete(unacked))
  }

  /** Never rejects. After an unexpected error the message is released, and the broker delivers it again. */
  async #handle(unacked: UnackedMessage): Promise<void> {
    try {
      await this.#handleUntilSettled(unacked)
    } catch (error) {
      this.#log.unexpected(unacked.event, error)
      this.#unacked.delete(unacked)
      await this.#settler?.release([unacked])
    }
  }

  async #handleUntilSettled(unacked: UnackedMessage): Promise<void> {
    const { deliveryCount } = unacked.message
    if (deliveryCount > this.#options.maxDeliveries) {
      this.#log.consumersCrashed(unacked.event)
      const error = `The message was delivered ${deliveryCount} times, and its consumers crashed or lost it each time.`
      await this.#deadLetter(unacked, [], error)
    }
    while (!this.#isOver(unacked)) {
      const failures = await this.#attempt(unacked)
      const decision = this.#decide(unacked, failures)
      unacked.attempts = decision.attempts
      if (decision.action === 'release') break
      if (decision.action === 'deadLetter') {
        await this.#deadLetterFailed(unacked, failures)
        break
      }
      await this.#backoff(decision.delayMs)
    }
    // `stop()` releases the messages that are not settled, all in one call.
    if (unacked.isSettled || unacked.isLeaseLost) this.#unacked.delete(unacked)
  }

  #decide({ attempts }: UnackedMessage, failures: readonly HandlerFailure[]) {
    const { retryPolicy: policy, maxAttempts } = this.#options
    const calls = failures.map(({ error }) => ({ error, policy, maxAttempts }))
    return decideRetry({ attempts, failures: calls, isComplete: true })
  }

  /** Whether the consumer must not work on the message any more. */
  #isOver(unacked: UnackedMessage): boolean {
    return unacked.isLeaseLost || unacked.isSettled || this.#isStopping
  }

  async #attempt(unacked: UnackedMessage): Promise<readonly HandlerFailure[]> {
    const isCrashSuspect = unacked.message.deliveryCount > this.#options.maxAttempts
    await (isCrashSuspect ? this.#slots.acquireAll() : this.#slots.acquire())
    try {
      if (this.#isOver(unacked)) return []
      const failures = await this.#callAll(unacked)
      if (failures.length === 0) this.#settler?.ack(unacked)
      return failures
    } finally {
      this.#slots.release()
    }
  }

  /** Calls the handlers in the order of registration. A failed handler does not prevent the calls of the others. */
  async #callAll(unacked: UnackedMessage): Promise<readonly HandlerFailure[]> {
    const failures: HandlerFailure[] = []
    for (const handler of unacked.handlers) {
      if (unacked.succeeded.has(handler.name)) continue
      const call = this.#log.startCall(unacked.event, handler.name, unacked.attempts + 1)
      unacked.running = handler.name
      try {
        await this.#call(unacked, handler)
        unacked.succeeded.add(handler.name)
        call.succeeded()
      } catch (error) {
        failures.push({ handler: handler.name, error })
        call.failed(error)
      }
      unacked.running = null
    }
    return failures
  }

  #call({ event, attempts }: UnackedMessage, handler: EventHandler): unknown {
    const { tracer, redact, group, transport } = this.#options
    const attempt = attempts + 1
    const context = this.#log.contextOf(event, handler.name, attempt)
    const call = () => runHandling(event, (handled) => handler.handle(handled), context)
    if (tracer === undefined) return call()
    const about = { handler: handler.name, attempt, group, broker: transport.broker }
    const plan = { operation: 'process', events: [tracedEvent(event)], ...about } as const
    return traced(tracer, plan, { redact }, call)
  }

  async #deadLetterFailed(unacked: UnackedMessage, failures: readonly HandlerFailure[]): Promise<void> {
    const text = failures.map(({ handler, error }) => `${handler}: ${this.#textOf(error)}`).join('\n')
    this.#log.handlersFailed(unacked.event, unacked.attempts, text)
    const handlers = failures.map(({ handler }) => handler)
    await this.#deadLetter(unacked, handlers, text)
  }

  async #deadLetter(unacked: UnackedMessage, handlers: readonly string[], error: string): Promise<void> {
    const { group } = this.#options
    const reason = { group, handlers, attempts: unacked.attempts, error: sanitizeText(error, 4_000) }
    await this.#settler?.deadLetter(unacked, reason, () => this.#isOver(unacked))
  }

  /** Ends early when the bus stops. */
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

  #loseLeases(messages: Iterable<IncomingMessage>): void {
    for (const message of messages) {
      this.#early = this.#early?.filter((early) => early !== message) ?? null
      const unacked = this.#byMessage.get(message)
      if (unacked) unacked.isLeaseLost = true
    }
  }

  #textOf(error: unknown): string {
    const { name, message } = redactError(error, this.#options.redact)
    return `${name}: ${message}`
  }

  #logError(error: unknown): void {
    const { logger, transport } = this.#options
    if (this.#isStopping) return
    logger.warn(errorFields(redactDriverError(error)), `${transport.broker}: operation failed, will retry`)
  }
}

/** Placeholder for the event of a message that cannot be read. */
const UNREADABLE = EventEnvelope.create({ eventType: 'unreadable' })
