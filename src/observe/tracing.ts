import type { EventEnvelope } from '../core/envelope.js'
import { type Redact, redactError } from '../core/redact.js'
import { ignoreRejection, isA, isThenable, read, settled } from '../core/unknown.js'

/** The W3C trace context of a span, as it travels with an event. */
export interface TraceContext {
  readonly traceparent: string
  readonly tracestate?: string | undefined
}

/** What a span may know of an event: never payloads, headers or user ids. */
export interface TracedEvent {
  readonly eventId: string
  readonly eventType: string
  readonly correlationId: string | undefined
  readonly causationId: string | undefined
  /** The context that it carries: as a rule that of the span which published it. Not checked: anybody can write events. */
  readonly from: TraceContext | undefined
}

/** What a span is about. */
export interface SpanPlan {
  /**
   * `publish`: below the span in which the caller is. `process` by a handler, and `relay` to a broker: below the context of
   * the event, or, of several, below none, so that no trace swallows the others. All have a link to each context.
   */
  readonly operation: 'publish' | 'process' | 'relay'
  /** One or more. */
  readonly events: readonly TracedEvent[]
  /** Of `process`; the name of the relay for `relay`. */
  readonly handler?: string | undefined
  /** 1 for the first try; of a single event. */
  readonly attempt?: number | undefined
  /** The broker's name and the consumer group, on a bus. */
  readonly broker?: string | undefined
  readonly group?: string | undefined
}

/** Why a span ends in failure: the name of the error, and at most 500 characters of its message after `redact`. */
export interface SpanError {
  readonly name: string
  readonly message: string
}

export interface Span {
  /** Its own, to be stored with events; undefined when there is none. */
  readonly context: TraceContext | undefined
  /** Calls `work` once, at once, with this span as the current one, and returns what it returns. */
  run<T>(work: () => T): T
  end(error?: SpanError): void
}

/** The tracing port; `aftercommit/otel` has one for OpenTelemetry. It must not block; what it throws is swallowed. */
export interface Tracer {
  /** Begins a span; undefined when nobody records it. */
  start(plan: SpanPlan): Span | undefined
}

export interface TracedOptions<T> {
  readonly redact: Redact | undefined
  /** When it fires the span ends, with the reason as its error, whether or not the work does. */
  readonly until?: AbortSignal | undefined
  /** What came back may tell of a failure too. */
  failureOf?(result: Awaited<T>): unknown
}

/** Runs `work` in a span that ends when it has, and returns, throws or rejects with whatever it does. */
export function traced<T>(
  tracer: Tracer,
  plan: SpanPlan,
  options: TracedOptions<T>,
  work: (context: TraceContext | undefined) => T,
): T {
  const span = tracer.start(plan)
  if (!span) return work(undefined)
  const { redact, until, failureOf } = options
  const fail = (error: unknown) => span.end(spanError(error, redact))
  until?.addEventListener('abort', () => fail(until.reason), { once: true })
  const succeed = (result: Awaited<T>) => {
    const failure = failureOf?.(result)
    if (failure === undefined || failure === null) span.end()
    else fail(failure)
  }
  try {
    const result = span.run(() => once(work(span.context)))
    if (isA(result, Promise)) (result as Promise<Awaited<T>>).then(succeed).catch(fail)
    else succeed(result as Awaited<T>)
    return result
  } catch (error) {
    fail(error)
    throw error
  }
}

/** Some thenables do their work each time somebody waits for them. */
function once<T>(result: T): T {
  return isThenable(result) ? (settled(result) as T) : result
}

function spanError(thrown: unknown, redact: Redact | undefined): SpanError {
  return redactError(thrown, redact)
}

export function tracedEvent(event: Pick<EventEnvelope, 'eventId' | 'eventType' | 'metadata'>): TracedEvent {
  const { correlationId, causationId, traceparent, tracestate } = event.metadata
  const from = traceparent === undefined ? undefined : { traceparent, tracestate }
  return { eventId: event.eventId, eventType: event.eventType, correlationId, causationId, from }
}

/**
 * Returns the event with this context, unless it carries its own. Stored metadata that is not valid stays as it is: the
 * trace of one event must not fail the events that are traced together with it.
 */
export function withTrace(event: EventEnvelope, context: TraceContext | undefined): EventEnvelope {
  if (context === undefined || event.metadata.traceparent !== undefined) return event
  try {
    return event.withMetadata(context)
  } catch {
    return event
  }
}

/** What the outbox does must not depend on who traces it. */
export function unfailingTracer(tracer: Tracer): Tracer {
  return {
    start(plan) {
      try {
        const span = tracer.start(plan)
        ignoreRejection(span)
        return span && new UnfailingSpan(span)
      } catch {
        return undefined
      }
    },
  }
}

class UnfailingSpan implements Span {
  readonly #span: Span
  readonly context: TraceContext | undefined
  #isOver = false

  constructor(span: Span) {
    this.#span = span
    this.context = storable(span.context)
  }

  /** However often the tracer calls it, or whether at all. */
  run<T>(work: () => T): T {
    let outcome: Outcome<T> | undefined
    const run = () => {
      outcome ??= outcomeOf(work)
    }
    try {
      ignoreRejection(this.#span.run(run))
    } catch {}
    outcome ??= outcomeOf(work)
    if (outcome.thrown) throw outcome.thrown.error
    return outcome.value as T
  }

  end(error?: SpanError): void {
    if (this.#isOver) return
    this.#isOver = true
    try {
      ignoreRejection(this.#span.end(error))
    } catch {}
  }
}

interface Outcome<T> {
  readonly value?: T
  readonly thrown?: { readonly error: unknown }
}

function outcomeOf<T>(work: () => T): Outcome<T> {
  try {
    return { value: work() }
  } catch (error) {
    return { thrown: { error } }
  }
}

const TRACEPARENT = /^[\da-f]{2}-[\da-f]{32}-[\da-f]{16}-[\da-f]{2}$/
const TRACESTATE = /^[ -~]{1,512}$/

/** Nothing that an event could be refused for. */
function storable(context: TraceContext | undefined): TraceContext | undefined {
  ignoreRejection(context)
  const [traceparent, tracestate] = [read(context, 'traceparent'), read(context, 'tracestate')]
  if (typeof traceparent !== 'string' || !TRACEPARENT.test(traceparent)) return undefined
  return typeof tracestate === 'string' && TRACESTATE.test(tracestate)
    ? { traceparent, tracestate }
    : { traceparent }
}
