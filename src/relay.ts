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
import { integerSetting } from './core/number-settings.js'
import { hasMethod, readArray, readSettings, requireMethods } from './core/settings.js'
import { ignoreRejection, isA, read } from './core/unknown.js'
import type { BatchFunction, BatchResults } from './dispatcher/batcher.js'
import { NotStarted } from './dispatcher/outcome.js'
import { errorFields, type Logger, type Redact } from './observe/logger.js'
import { type Tracer, traced, tracedEvent, withTrace } from './observe/tracing.js'

export interface RelayOptions {
  /** Which events: definitions, names and patterns. Default all. */
  readonly events?: readonly (string | EventDefinition)[]
  /** Identifies the relay among the handlers of an event; two brokers need two names. Default 'relay'. */
  readonly name?: string
  /** Events that are sent together, 1 to 1,000. Default 500. */
  readonly batchSize?: number
}

/** What an outbox relays to: a bus on a broker, or anything that publishes. */
export type RelayTarget = EventPublisher & Partial<ConfirmingPublisher>

/** Batches under way at a time: while the broker confirms one, the next is on its way. */
export const RELAY_CONCURRENCY = 4
/** Beside those. */
const BATCHES_AHEAD = 8
/** A claim should find room, however small the batches are. */
const LEAST_ROOM = 1_000
/** A broker that only this process cannot reach must not keep the events from the others for ever. */
const HOLD_MS = 30_000
/** So long a stop waits for what is on its way to the broker. */
const CONFIRM_GRACE_MS = 1_000
const FIRST_PROBE_MS = 100
const LONGEST_PROBE_MS = 5_000

const NO_EVENTS = "must be an array of event types and patterns, such as ['order.*']"

export function relayOptionsOf(bus: RelayTarget, given: RelayOptions | undefined) {
  const options = readSettings('relay()', given, ['events', 'name', 'batchSize'])
  if (!hasMethod(bus, 'publishAll'))
    throw new InvalidSettingError(
      'bus',
      "must be a bus: outbox.relay(redisBus(client), { events: ['order.*'] })",
    )
  if (bus.send !== undefined) requireMethods('bus', bus, ['send', 'check'])
  const { name = 'relay' } = options
  const events = readArray('events', options.events ?? ['*'], NO_EVENTS)
  if (events.length === 0) throw new InvalidSettingError('events', NO_EVENTS)
  const size = integerSetting('batchSize', options.batchSize, { default: 500, min: 1, max: 1_000 })
  return { events, name, size }
}

/** Where events wait for the relay; nothing is claimed for a room that is closed. */
interface WaitingLane {
  readonly room: { most: number; close(): void; open(): void }
  giveBack(which: () => boolean): void
}

interface RelayTracing {
  readonly name: string
  readonly tracer: Tracer | undefined
  readonly redact: Redact | undefined
}

/**
 * Publishes batches of events to a bus. An event is done when the broker has confirmed it. While the broker cannot be
 * reached the relay keeps what it has, takes no more, and asks now and then; no attempt is counted. What the broker
 * refuses counts as a failure of that event alone.
 */
export class Relay {
  readonly #bus: RelayTarget
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #tracing: RelayTracing
  readonly #lanes: WaitingLane[] = []
  /** Resolves when it is over: true when the broker is back. Null while it is there. */
  #outage: Promise<boolean> | null = null
  #endOutage: (isBack: boolean) => void = () => {}
  #probing: Timer | null = null
  #probeMs = FIRST_PROBE_MS
  #outageSince = 0
  /** Since when nothing could be sent, through outages in a row; null when the last send went well. */
  #downSince: number | null = null
  /** Each gives up a send that is under way. */
  readonly #sending = new Set<() => void>()
  #isStopping = false

  constructor(bus: RelayTarget, clock: Clock, logger: Logger, tracing: RelayTracing) {
    this.#bus = bus
    this.#clock = clock
    this.#logger = logger
    this.#tracing = tracing
  }

  /** Null unless the broker cannot be reached. */
  get waiting(): { readonly name: string; readonly sinceMs: number } | null {
    if (this.#downSince === null) return null
    // It answers, and what had waited was taken by somebody else.
    if (!this.#outage && this.#sending.size === 0) return null
    return { name: this.#tracing.name, sinceMs: Math.round(this.#clock.monotonic() - this.#downSince) }
  }

  /** Several batches wait here, so that none waits for a claim. */
  watch(lane: WaitingLane, size: number): void {
    lane.room.most = Math.max(LEAST_ROOM, size * BATCHES_AHEAD)
    this.#lanes.push(lane)
  }

  /** While `work`, a stop, is under way nothing waits for the broker. */
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

  /** Returns those that have to be sent again. */
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
      // The answer of a bus need not be an Error.
      else results[at] = answer === null ? null : { status: 'rejected', reason: answer }
    })
    if (left.length > 0) this.#begin(answers.find((one) => isA(one, BrokerUnavailableError)))
    else if (this.#downSince !== null) {
      this.#recovered()
      this.#logger.info({ handler: this.#tracing.name }, 'the broker is back: the relay goes on')
    }
    return left
  }

  #recovered(): void {
    this.#probeMs = FIRST_PROBE_MS
    this.#downSince = null
  }

  /** A stop does not wait for a confirm that does not come. */
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

  /** What carries no context gets that of the relay, so that its consumers hang below something. */
  #traced(events: readonly EventEnvelope[]): Promise<readonly (unknown | null)[]> {
    const { name, tracer, redact } = this.#tracing
    if (tracer === undefined) return this.#published(events)
    const plan = { operation: 'relay', events: events.map(tracedEvent), handler: name } as const
    return traced(tracer, plan, { redact, failureOf }, (context) =>
      this.#published(context ? events.map((event) => withTrace(event, context)) : events),
    )
  }

  /** Returns one answer per event: null, or why the event was not published. Never rejects. */
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
      // A failed `publishAll` does not say which event is the reason: each one is published on its own.
      const answers = await Promise.all(events.map((event) => this.#published([event])))
      return answers.flat()
    }
  }

  /** False when the batch should be given back instead: then nothing is taken until the broker is back. */
  async #isBack(signal: AbortSignal): Promise<boolean> {
    const outage = this.#outage
    if (signal.aborted || !outage) return false
    const heldUntil = this.#outageSince + HOLD_MS
    let giveBack = () => {}
    let timer: Timer | undefined
    const over = new Promise<boolean>((resolve) => {
      giveBack = () => {
        if (this.#outage === outage) this.#takeNoMore()
        resolve(false)
      }
      timer = this.#clock.setTimer(giveBack, Math.max(0, heldUntil - this.#clock.monotonic()))
      signal.addEventListener('abort', giveBack)
    })
    try {
      return await Promise.race([outage, over])
    } finally {
      timer?.cancel()
      signal.removeEventListener('abort', giveBack)
    }
  }

  /** What waits for its turn goes back too. */
  #takeNoMore(): void {
    for (const lane of this.#lanes) {
      lane.room.close()
      lane.giveBack(() => true)
    }
  }

  #begin(cause: unknown): void {
    if (this.#outage || this.#isStopping) return
    this.#outageSince = this.#clock.monotonic()
    if (this.#downSince === null) {
      this.#downSince = this.#outageSince
      const fields = { handler: this.#tracing.name, ...errorFields(cause) }
      this.#logger.warn(fields, 'the broker cannot be reached: the relay waits for it')
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
    for (const { room } of this.#lanes) room.open()
  }

  /** Less and less often, until something was sent: some brokers answer and take nothing. */
  #probe(): void {
    const outage = this.#outage
    this.#probing = this.#clock.setTimer(async () => {
      const isThere = await this.#isThere()
      if (this.#outage !== outage) return
      if (isThere) this.#end(true)
      else this.#probe()
    }, this.#probeMs)
    this.#probing.unref?.()
    this.#probeMs = Math.min(LONGEST_PROBE_MS, this.#probeMs * 2)
  }

  async #isThere(): Promise<boolean> {
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

/** The first that was not confirmed. */
function failureOf(answers: readonly (unknown | null)[]): unknown {
  return answers.find((answer) => answer !== null)
}
