import type { ConfirmingPublisher, EventPublisher } from './bus.js'
import type { Clock, Timer } from './core/clock.js'
import type { EventDefinition } from './core/define-event.js'
import type { EventEnvelope } from './core/envelope.js'
import {
  AftercommitError,
  BrokerUnavailableError,
  InvalidSettingError,
  NotConfirmedError,
} from './core/errors.js'
import { isName, kindOfAny, nameReason } from './core/handler-checks.js'
import { integerSetting } from './core/number-settings.js'
import { hasMethod, readArray, readSettings, requireMethods } from './core/settings.js'
import { ignoreRejection, isA, read } from './core/unknown.js'
import type { BatchFunction, BatchResults } from './handler.js'
import { errorFields, type Logger, type Redact } from './observe/logger.js'
import { type Tracer, traced, tracedEvent, withTrace } from './observe/tracing.js'
import { NotStarted } from './work/not-started.js'

export interface RelayOptions {
  /** Events to relay, as definitions, names and patterns. By default the relay handles all events. */
  readonly events?: readonly (string | EventDefinition)[]
  /** Name of the relay among the handlers of an event. Two relays need two names. Default 'relay'. */
  readonly name?: string
  /** Maximum number of events per batch, 1 to 1,000. Default 500. */
  readonly batchSize?: number
}

/** Target of a relay: a bus on a broker, or any other publisher. */
export type RelayTarget = EventPublisher & Partial<ConfirmingPublisher>

/** Number of batches that are sent concurrently, so that the next batch is sent while the broker confirms the previous one. */
export const RELAY_CONCURRENCY = 4
/** Number of batches that wait behind the concurrent ones. */
const BATCHES_AHEAD = 8
/** Minimum capacity in events, so that small batches do not make claims small. */
const MIN_CAPACITY = 1_000
/** Time in milliseconds after which an outage releases the events, because other processes may still reach the broker. */
const RELEASE_AFTER_MS = 30_000
/** Time in milliseconds that a stop waits for pending confirmations. */
const CONFIRM_GRACE_MS = 1_000
const FIRST_PROBE_MS = 100
const MAX_PROBE_MS = 5_000

const NO_EVENTS = "must be an array of event types and patterns, such as ['order.*']"

export function relayOptionsOf(bus: RelayTarget, given: RelayOptions | undefined) {
  const of = 'relay()'
  const options = readSettings(of, given, ['events', 'name', 'batchSize'])
  if (!hasMethod(bus, 'publishAll')) {
    const reason = `must be a bus, not ${kindOfAny(bus)}. Call relay(redisBus(client), { events: ['order.*'] })`
    throw new InvalidSettingError('bus', reason, { of })
  }
  if (bus.send !== undefined) requireMethods('bus', bus, ['send', 'check'])
  const { name = 'relay' } = options
  if (!isName(name)) throw new InvalidSettingError('name', nameReason(name), { of })
  const events = readArray('events', options.events ?? ['*'], NO_EVENTS)
  if (events.length === 0) throw new InvalidSettingError('events', NO_EVENTS, { of })
  const size = integerSetting('batchSize', options.batchSize, { default: 500, min: 1, max: 1_000, of })
  return { events, name, size }
}

/** Queue of events that wait for the relay. No events are claimed for a closed queue. */
interface RelayQueue {
  capacity: number
  close(): void
  open(): void
  release(isReleased: () => boolean): void
}

interface RelayTracing {
  readonly name: string
  readonly tracer: Tracer | undefined
  readonly redact: Redact | undefined
}

/**
 * Publishes batches of events to a bus. An event is done when the broker has confirmed it. During an outage the relay keeps its
 * events, accepts no more events and probes the broker. An outage does not count as an attempt. If the broker refuses an event,
 * only this event fails.
 */
export class Relay {
  readonly #bus: RelayTarget
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #tracing: RelayTracing
  readonly #queues: RelayQueue[] = []
  /** Promise for the end of the current outage, or null. Resolves with whether the broker is available again. */
  #outage: Promise<boolean> | null = null
  #endOutage: (isBack: boolean) => void = () => {}
  #probing: Timer | null = null
  #probeMs = FIRST_PROBE_MS
  #outageSince = 0
  /** Start of the first of several outages without a successful send between them. Null after a successful send. */
  #downSince: number | null = null
  /** Functions that end the wait for a pending send. */
  readonly #sending = new Set<() => void>()
  #isStopping = false

  constructor(bus: RelayTarget, clock: Clock, logger: Logger, tracing: RelayTracing) {
    this.#bus = bus
    this.#clock = clock
    this.#logger = logger
    this.#tracing = tracing
  }

  /** The current outage, or null. */
  get waiting(): { readonly name: string; readonly sinceMs: number } | null {
    if (this.#downSince === null) return null
    // The broker answers again, and another process has taken the waiting events.
    if (!this.#outage && this.#sending.size === 0) return null
    return { name: this.#tracing.name, sinceMs: Math.round(this.#clock.monotonic() - this.#downSince) }
  }

  /** Registers a queue and sets its capacity to several batches, so that a batch does not wait for a claim. */
  watch(queue: RelayQueue, size: number): void {
    queue.capacity = Math.max(MIN_CAPACITY, size * BATCHES_AHEAD)
    this.#queues.push(queue)
  }

  /** Runs `work`, which stops the outbox. During this time nothing waits for the broker longer than CONFIRM_GRACE_MS. */
  async stopping<T>(work: () => Promise<T>): Promise<T> {
    this.#isStopping = true
    this.#end(false)
    this.#recovered()
    const late = this.#clock.setTimer(() => {
      for (const leave of [...this.#sending]) leave()
    }, CONFIRM_GRACE_MS)
    try {
      return await work()
    } finally {
      late.cancel()
      this.#isStopping = false
    }
  }

  readonly handle: BatchFunction = async (events, context) => {
    const results: (unknown | null)[] = events.map(() => null)
    let left = [...events.keys()]
    for (;;) {
      if (!this.#outage) left = await this.#send(events, left, results)
      if (left.length === 0) return results as BatchResults
      if (!(await this.#isBack(context.signal))) break
    }
    for (const at of left) results[at] = new NotStarted()
    return results as BatchResults
  }

  /** Sends the events at the given positions. Returns the positions that must be sent again after the outage. */
  async #send(
    events: readonly EventEnvelope[],
    which: readonly number[],
    results: (unknown | null)[],
  ): Promise<number[]> {
    const answers = await this.#answersOf(which.map((at) => events[at] as EventEnvelope))
    const left: number[] = []
    which.forEach((at, index) => {
      const answer = answers[index]
      if (isA(answer, BrokerUnavailableError)) left.push(at)
      // A bus may answer with a value that is not an Error.
      else results[at] = answer === null ? null : { status: 'rejected', reason: answer }
    })
    if (left.length > 0) this.#begin(answers.find((answer) => isA(answer, BrokerUnavailableError)))
    else if (this.#downSince !== null) {
      this.#recovered()
      this.#logger.info({ handler: this.#tracing.name }, 'the broker is available again, the relay continues')
    }
    return left
  }

  #recovered(): void {
    this.#probeMs = FIRST_PROBE_MS
    this.#downSince = null
  }

  /** Resolves with one answer per event. A stop ends the wait: events without a confirmation count as unavailable. */
  #answersOf(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]> {
    return new Promise((resolve) => {
      const leave = () => {
        const unknown = new BrokerUnavailableError(
          'The broker',
          'had not confirmed when the relay was stopped',
        )
        resolve(events.map(() => unknown))
      }
      this.#sending.add(leave)
      const sent = this.#traced(events).catch((error) => events.map(() => error ?? unanswered()))
      void sent.then((answers) => {
        this.#sending.delete(leave)
        resolve(answers)
      })
    })
  }

  /** Adds the trace context of the relay to events without a context, so that the spans of consumers have a parent. */
  #traced(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]> {
    const { name, tracer, redact } = this.#tracing
    if (tracer === undefined) return this.#published(events)
    const plan = { operation: 'relay', events: events.map(tracedEvent), handler: name } as const
    return traced(tracer, plan, { redact, failureOf }, (context) =>
      this.#published(context ? events.map((event) => withTrace(event, context)) : events),
    )
  }

  /** Resolves with one answer per event: null, or the reason why the event was not published. Never rejects. */
  async #published(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]> {
    try {
      if (this.#bus.send) return answersFor(events, await this.#bus.send(events))
      await this.#bus.publishAll(events)
      return events.map(() => null)
    } catch (error) {
      if (isA(error, NotConfirmedError)) return answersIn(error, events)
      if (this.#bus.send || events.length === 1 || isA(error, BrokerUnavailableError)) {
        return events.map(() => error ?? unanswered())
      }
      // A failed `publishAll` does not name the event that caused the failure, so each event is published separately.
      const answers = await Promise.all(events.map((event) => this.#published([event])))
      return answers.flat()
    }
  }

  /** Waits for the end of the outage. Resolves with false if the batch must be released instead. */
  async #isBack(signal: AbortSignal): Promise<boolean> {
    const outage = this.#outage
    if (signal.aborted || !outage) return false
    const releaseAt = this.#outageSince + RELEASE_AFTER_MS
    let release = () => {}
    let timer: Timer | undefined
    const over = new Promise<boolean>((resolve) => {
      release = () => {
        if (this.#outage === outage) this.#suspendQueues()
        resolve(false)
      }
      timer = this.#clock.setTimer(release, Math.max(0, releaseAt - this.#clock.monotonic()))
      signal.addEventListener('abort', release)
    })
    try {
      return await Promise.race([outage, over])
    } finally {
      timer?.cancel()
      signal.removeEventListener('abort', release)
    }
  }

  /** Closes the queues until the end of the outage, and releases the waiting events. */
  #suspendQueues(): void {
    for (const queue of this.#queues) {
      queue.close()
      queue.release(() => true)
    }
  }

  #begin(cause: unknown): void {
    if (this.#outage || this.#isStopping) return
    this.#outageSince = this.#clock.monotonic()
    if (this.#downSince === null) {
      this.#downSince = this.#outageSince
      const fields = { handler: this.#tracing.name, ...errorFields(cause) }
      this.#logger.warn(fields, 'the broker is unavailable, the relay waits for it')
    }
    this.#outage = new Promise((resolve) => {
      this.#endOutage = resolve
    })
    this.#probe()
  }

  #end(isBack: boolean): void {
    if (!this.#outage) return
    this.#probing?.cancel()
    this.#outage = null
    this.#endOutage(isBack)
    for (const queue of this.#queues) queue.open()
  }

  /**
   * Probes the broker with growing delays. Only a successful send resets the delay, because a broker may answer the probe and
   * still refuse all messages.
   */
  #probe(): void {
    const outage = this.#outage
    this.#probing = this.#clock.setTimer(async () => {
      const isAvailable = await this.#isAvailable()
      if (this.#outage !== outage) return
      if (isAvailable) this.#end(true)
      else this.#probe()
    }, this.#probeMs)
    this.#probing.unref?.()
    this.#probeMs = Math.min(MAX_PROBE_MS, this.#probeMs * 2)
  }

  async #isAvailable(): Promise<boolean> {
    try {
      await this.#bus.check?.()
      return true
    } catch {
      return false
    }
  }
}

/** Reads the answers of a bus. An event without an answer is not confirmed. */
function answersFor(events: readonly EventEnvelope[], answers: unknown): readonly (unknown | null)[] {
  return events.map((_, at) => {
    const answer = Array.isArray(answers) ? read(answers, at) : undefined
    ignoreRejection(answer)
    return answer === undefined ? unanswered() : answer
  })
}

function answersIn(
  { eventIds, errors }: NotConfirmedError,
  events: readonly EventEnvelope[],
): readonly (unknown | null)[] {
  const byId = new Map(eventIds.map((id, at) => [id, errors[at]]))
  return events.map(({ eventId }) => (byId.has(eventId) ? (byId.get(eventId) ?? unanswered()) : null))
}

function unanswered(): AftercommitError {
  return new AftercommitError(
    'NOT_CONFIRMED',
    'The bus gave no answer for the event. Let its send() return null or an error for each event.',
  )
}

/** Returns the first error among the answers. */
function failureOf(answers: readonly (unknown | null)[]): unknown {
  return answers.find((answer) => answer !== null)
}
