import { currentEvent } from '../ambient.js'
import type {
  ConfirmingPublisher,
  EventBus,
  EventHandler,
  OutgoingMessage,
  PublishOptions,
  Transport,
} from '../bus.js'
import { EventCatalog } from '../core/catalog.js'
import { atMost, type Timer } from '../core/clock.js'
import type { EventDefinition } from '../core/define-event.js'
import { type PublishableEvent, readEvents } from '../core/domain-event.js'
import type { EventEnvelope } from '../core/envelope.js'
import {
  AftercommitError,
  BrokerUnavailableError,
  InvalidSettingError,
  NotConfirmedError,
} from '../core/errors.js'
import type { EventId } from '../core/event-id.js'
import { redactDriverErrors } from '../core/redact.js'
import { isA } from '../core/unknown.js'
import { traced, tracedEvent, withTrace } from '../observe/tracing.js'
import { type ReadPublishOptions, readPublishOptions } from '../publish-options.js'
import { Consumer } from './consumer.js'
import { messageOf } from './message.js'
import type { BusSettings } from './settings.js'
import { checkTypes, Subscriptions, type TypeOrDefinition } from './subscriptions.js'

/** Maximum number of messages per call of `Transport.send`. */
const CHUNK = 1_000
/** Maximum time in milliseconds that a stop waits for the broker. */
const STOP_MS = 2_000

/**
 * A bus on a broker. `publish` resolves after the broker has confirmed the event. A message is acknowledged after its handlers
 * have succeeded, so every message is either handled at least once or dead-lettered.
 */
export class BrokerBus implements EventBus, ConfirmingPublisher, AsyncDisposable {
  readonly #transport: Transport
  readonly #settings: BusSettings
  readonly #catalog: EventCatalog
  readonly #subscriptions: Subscriptions
  #consumer: Consumer | null = null
  #isSubscribed = false
  /** Functions that reject a pending start. */
  readonly #aborts = new Set<(reason: Error) => void>()
  #changing: Promise<void> = Promise.resolve()

  constructor(transport: Transport, settings: BusSettings) {
    this.#transport = transport
    this.#settings = settings
    this.#catalog = new EventCatalog(settings.events)
    this.#subscriptions = new Subscriptions(this.#catalog, { keepsProgress: true })
  }

  /** Rejects with NotConfirmedError if the broker does not confirm the event in time. */
  async publish(event: PublishableEvent, options?: PublishOptions): Promise<EventId> {
    const [id] = await this.publishAll([event], options)
    return id as EventId
  }

  /**
   * Sends the events in order, without waiting for one confirmation before the next event. If one event is invalid, no event is
   * sent. If the broker does not confirm some events, the others are published all the same.
   */
  async publishAll(events: readonly PublishableEvent[], options?: PublishOptions): Promise<EventId[]> {
    refuseOptions(readPublishOptions(options))
    const parent = currentEvent()
    const envelopes = readEvents(events, this.#catalog).envelopes.map((envelope) =>
      parent && envelope.metadata.causationId === undefined ? envelope.causedBy(parent) : envelope,
    )
    const { tracer, redact } = this.#settings
    if (tracer === undefined || envelopes.length === 0) return this.#publish(envelopes)
    const { broker } = this.#transport
    const plan = { operation: 'publish', events: envelopes.map(tracedEvent), broker } as const
    return traced(tracer, plan, { redact }, (context) =>
      this.#publish(envelopes.map((event) => withTrace(event, context))),
    )
  }

  async #publish(envelopes: readonly EventEnvelope[]): Promise<EventId[]> {
    const answers = await this.send(envelopes)
    const failed = envelopes.flatMap(({ eventId }, at) =>
      answers[at] === null ? [] : [{ eventId, error: answers[at] }],
    )
    if (failed.length > 0) throw new NotConfirmedError(this.#transport.broker, failed)
    return envelopes.map((envelope) => envelope.eventId)
  }

  async send(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]> {
    const answers: (unknown | null)[] = []
    for (let from = 0; from < events.length; from += CHUNK) {
      // After an outage the remaining events would overtake the failed ones, which are sent again later.
      const [failed] = answers.filter((answer) => isA(answer, BrokerUnavailableError))
      const chunk = events.slice(from, from + CHUNK)
      answers.push(...(failed ? chunk.map(() => failed) : await this.#sendChunk(chunk)))
    }
    return answers
  }

  async check(): Promise<void> {
    await this.#limited(this.#transport.check(), 'does not answer')
  }

  /** Subscribes a handler. Call it before `start`. The handler's name appears in logs, dead letters and the marks of an inbox. */
  subscribe<T>(type: string | EventDefinition<T>, handler: EventHandler<T>): void {
    this.subscribeAll([type as TypeOrDefinition], handler as EventHandler)
  }

  /** Calls `subscribe()` for each type. Subscribes to none of them if one is refused. */
  subscribeAll(types: readonly TypeOrDefinition[], handler: EventHandler): void {
    if (this.#settings.group === undefined) {
      throw new InvalidSettingError(
        'group',
        "is needed to subscribe: give the bus a group, for example { group: 'billing' }",
      )
    }
    if (this.#isSubscribed) throw new InvalidSettingError('subscribe', 'must be called before start()')
    this.#subscriptions.add(checkTypes(types), handler)
  }

  /** Starts to consume the subscribed types. Rejects if the broker cannot be used. Safe to call twice. */
  start(): Promise<void> {
    this.#isSubscribed = true
    let abort = (_reason: Error) => {}
    const stopped = new Promise<never>((_, reject) => {
      abort = reject
    })
    stopped.catch(() => {})
    this.#aborts.add(abort)
    return this.#serialized(async () => {
      try {
        await this.#start(stopped)
      } finally {
        this.#aborts.delete(abort)
        this.#isSubscribed = this.#consumer !== null
      }
    })
  }

  async #start(stopped: Promise<never>): Promise<void> {
    const { group } = this.#settings
    if (this.#consumer || group === undefined || this.#subscriptions.routes().length === 0) return
    const consumer = new Consumer({
      ...this.#settings,
      group,
      transport: this.#transport,
      catalog: this.#catalog,
      subscriptions: this.#subscriptions,
    })
    const starting = consumer.start()
    try {
      await Promise.race([starting, stopped])
      this.#consumer = consumer
    } catch (error) {
      // The pending start may still succeed, and its consumer must not stay open.
      void starting.then(() => consumer.stop()).catch(() => {})
      throw error
    }
  }

  /** Stops the delivery, waits for running handlers and releases the other messages. The client stays open. Safe to call twice. */
  stop(): Promise<void> {
    // A pending start has STOP_MS to end by itself.
    const late = this.#settings.clock.setTimer(() => {
      const reason = new AftercommitError('STOPPED', 'The bus was stopped while it was starting.')
      for (const abort of this.#aborts) abort(reason)
    }, STOP_MS)
    return this.#serialized(async () => {
      late.cancel()
      await this.#consumer?.stop()
      this.#consumer = null
      this.#isSubscribed = false
      await atMost(
        this.#settings.clock,
        STOP_MS,
        this.#transport.close().catch(() => {}),
      )
    })
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  #serialized(change: () => Promise<void>): Promise<void> {
    const changed = this.#changing.then(change)
    this.#changing = changed.catch(() => {})
    return changed
  }

  /** If an event cannot be converted to a message, only this event fails. */
  async #sendChunk(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]> {
    const answers: (unknown | null)[] = []
    const messages: OutgoingMessage[] = []
    const sent: number[] = []
    events.forEach((event, at) => {
      try {
        messages.push(messageOf(event, this.#settings.source))
        sent.push(at)
        answers.push(null)
      } catch (error) {
        answers.push(error)
      }
    })
    const confirmed = messages.length === 0 ? [] : await this.#sendMessages(messages, events)
    sent.forEach((at, index) => {
      answers[at] = confirmed[index]
    })
    return answers
  }

  async #sendMessages(
    messages: readonly OutgoingMessage[],
    events: readonly EventEnvelope[],
  ): Promise<readonly (unknown | null)[]> {
    let answers: readonly (unknown | null)[]
    let isRejected = false
    try {
      answers = await this.#limited(this.#transport.send(messages), 'has not confirmed in time')
    } catch (error) {
      answers = messages.map(() => error)
      isRejected = true
    }
    const thrown = [...new Set(answers.filter((answer) => answer !== null))]
    // The errors of some clients contain the command, and with it the payload.
    const errors = redactDriverErrors(thrown, events)
    const isDown = await this.#isDown(errors)
    // The error does not name the message that caused it, so smaller parts are sent.
    if (isRejected && !isDown && messages.length > 1) return this.#sendHalves(messages, events)
    return answers.map((answer) => {
      if (answer === null) return null
      const error = errors[thrown.indexOf(answer)]
      return isDown ? this.#unavailable(error) : error
    })
  }

  async #sendHalves(
    messages: readonly OutgoingMessage[],
    events: readonly EventEnvelope[],
  ): Promise<readonly (unknown | null)[]> {
    const middle = Math.ceil(messages.length / 2)
    const answers = await this.#sendMessages(messages.slice(0, middle), events)
    const rest = messages.slice(middle)
    // After an outage the remaining messages would overtake the failed ones, which are sent again later.
    const down = answers.find((answer) => isA(answer, BrokerUnavailableError))
    return [...answers, ...(down ? rest.map(() => down) : await this.#sendMessages(rest, events))]
  }

  /** Returns whether the errors mean an outage. For unknown errors, `check` decides: if it succeeds, the message is the cause. */
  async #isDown(errors: readonly unknown[]): Promise<boolean> {
    if (errors.length === 0) return false
    const isOutage = (error: unknown) =>
      isA(error, BrokerUnavailableError) || this.#transport.isUnavailable(error)
    if (errors.some(isOutage)) return true
    return this.check().then(
      () => false,
      () => true,
    )
  }

  #unavailable(error: unknown): BrokerUnavailableError {
    if (isA(error, BrokerUnavailableError)) return error
    return new BrokerUnavailableError(
      this.#transport.broker,
      'cannot be reached, or takes nothing now',
      error,
    )
  }

  async #limited<T>(answer: Promise<T>, otherwise: string): Promise<T> {
    const { clock, confirmTimeoutMs } = this.#settings
    let timer: Timer | undefined
    const over = new Promise<never>((_, reject) => {
      const late = () => reject(new BrokerUnavailableError(this.#transport.broker, otherwise))
      timer = clock.setTimer(late, confirmTimeoutMs)
    })
    try {
      return await Promise.race([answer, over])
    } finally {
      timer?.cancel()
    }
  }
}

function refuseOptions(options: ReadPublishOptions): void {
  for (const name of ['delayMs', 'deliverAt', 'onDuplicate'] as const) {
    if (options[name] === undefined) continue
    throw new AftercommitError(
      'UNSUPPORTED',
      `Buses on a broker do not support ${name}. Publish the event with an outbox, and relay it to the broker.`,
    )
  }
}
