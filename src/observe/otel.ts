// entry: aftercommit/otel
import { InvalidSettingError } from '../core/errors.js'
import { readSettings } from '../core/settings.js'
import type {
  OtelApi,
  OtelAttributes,
  OtelContext,
  OtelLink,
  OtelMeter,
  OtelMetricsApi,
  OtelSpan,
  OtelSpanContext,
} from './otel-types.js'
import type { Span, SpanError, SpanPlan, TraceContext, TracedEvent, Tracer } from './tracing.js'

export { otelMetrics } from './otel-metrics.js'
export type { OtelApi, OtelMeter, OtelMetricsApi }

export interface OtelTracerOptions {
  /** The name of the tracer, by which backends tell instrumentations apart. Default 'aftercommit'. */
  readonly name?: string
}

const CLIENT = 2
const PRODUCER = 3
const CONSUMER = 4
const ERROR = 2

/**
 * A tracer for `createOutbox` and the buses. Spans go to whatever SDK the application has set up; without one nothing is
 * recorded. Spans are named and described by OpenTelemetry's conventions for messaging.
 *
 * @example
 * import * as api from '@opentelemetry/api'
 * const outbox = createOutbox({ store, tracer: otelTracer(api) })
 */
export function otelTracer(api: OtelApi, given: OtelTracerOptions = {}): Tracer {
  const options = readSettings('otelTracer()', given, ['name'])
  const { trace, context } = api ?? {}
  const isWhole = typeof trace?.getTracer === 'function' && typeof context?.with === 'function'
  if (!isWhole || api.ROOT_CONTEXT === undefined) {
    throw new InvalidSettingError(
      'api',
      "must be the whole module: import * as api from '@opentelemetry/api'; otelTracer(api)",
    )
  }
  return new OtelTracer(api, options.name ?? 'aftercommit')
}

class OtelTracer implements Tracer {
  readonly #api: OtelApi
  readonly #tracer: ReturnType<OtelApi['trace']['getTracer']>

  constructor(api: OtelApi, name: string) {
    this.#api = api
    this.#tracer = api.trace.getTracer(name)
  }

  start(plan: SpanPlan): Span {
    const options = { kind: kindOf(plan), attributes: attributesOf(plan), links: this.#links(plan.events) }
    const eventType = typeOf(plan.events)
    const name = eventType === undefined ? plan.operation : `${plan.operation} ${eventType}`
    const parent = this.#parentOf(plan)
    const span = this.#tracer.startSpan(name, options, parent)
    return new RunningSpan(this.#api, span, parent)
  }

  /** What surrounds the handlers is nothing of theirs: they begin anew, or where their event comes from. */
  #parentOf({ operation, events }: SpanPlan): OtelContext {
    const { trace, context, ROOT_CONTEXT } = this.#api
    if (operation === 'publish') return context.active()
    const from = events.length === 1 ? this.#read(events[0]?.from) : undefined
    return from ? trace.setSpan(ROOT_CONTEXT, trace.wrapSpanContext(from)) : ROOT_CONTEXT
  }

  #links(events: readonly TracedEvent[]): OtelLink[] {
    const isBatch = events.length > 1
    return events.flatMap((event) => {
      const context = this.#read(event.from)
      if (!context) return []
      return isBatch ? [{ context, attributes: messageOf(event) }] : [{ context }]
    })
  }

  /** Anybody can write events: what is no trace context is none. */
  #read(from: TraceContext | undefined): OtelSpanContext | undefined {
    const [, version, traceId, spanId, flags, more] = TRACEPARENT.exec(from?.traceparent ?? '') ?? []
    if (traceId === undefined || spanId === undefined || flags === undefined) return undefined
    if (version === 'ff' || (version === '00' && more) || ZEROS.test(traceId) || ZEROS.test(spanId)) {
      return undefined
    }
    const context = { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote: true }
    if (!from?.tracestate || !this.#api.createTraceState) return context
    return { ...context, traceState: this.#api.createTraceState(from.tracestate) }
  }
}

const TRACEPARENT = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/
const ZEROS = /^0+$/

class RunningSpan implements Span {
  readonly context: TraceContext | undefined
  readonly #api: OtelApi
  readonly #span: OtelSpan
  readonly #parent: OtelContext

  constructor(api: OtelApi, span: OtelSpan, parent: OtelContext) {
    this.#api = api
    this.#span = span
    this.#parent = parent
    this.context = contextOf(span.spanContext())
  }

  run<T>(work: () => T): T {
    const { trace, context } = this.#api
    return context.with(trace.setSpan(this.#parent, this.#span), work)
  }

  /** No exception is recorded: its stack would repeat the message as it was before `redact`. */
  end(error?: SpanError): void {
    if (error) {
      this.#span.setAttribute('error.type', error.name)
      this.#span.setStatus({ code: ERROR, message: error.message })
    }
    this.#span.end()
  }
}

/** Without an SDK there are no ids: nothing to store. */
function contextOf({ traceId, spanId, traceFlags, traceState }: OtelSpanContext): TraceContext | undefined {
  if (ZEROS.test(traceId) || ZEROS.test(spanId)) return undefined
  const traceparent = `00-${traceId}-${spanId}-${(traceFlags & 255).toString(16).padStart(2, '0')}`
  return { traceparent, tracestate: traceState?.serialize() || undefined }
}

/** A send whose own context travels with an event is its producer; one that passes events on is a client. */
function kindOf({ operation, events }: SpanPlan): number {
  if (operation === 'process') return CONSUMER
  return operation === 'publish' || events.some(({ from }) => from === undefined) ? PRODUCER : CLIENT
}

/** Undefined when there are several. */
function typeOf(events: readonly TracedEvent[]): string | undefined {
  const first = events[0]?.eventType
  return events.every(({ eventType }) => eventType === first) ? first : undefined
}

type Found = Readonly<Record<string, string | number | undefined>>

function attributesOf(plan: SpanPlan): OtelAttributes {
  const { operation, events, handler, group, broker, attempt } = plan
  const [only] = events.length === 1 ? events : []
  return present({
    'messaging.system': 'aftercommit',
    'messaging.operation.name': operation,
    'messaging.operation.type': operation === 'process' ? 'process' : 'send',
    'messaging.destination.name': typeOf(events),
    ...(only ? messageOf(only) : { 'messaging.batch.message_count': events.length }),
    'messaging.consumer.group.name': operation === 'process' ? (group ?? handler) : undefined,
    'aftercommit.handler': handler,
    'aftercommit.attempt': attempt,
    'aftercommit.broker': broker,
  })
}

/** Whoever starts a conversation has no correlation id: those that follow it carry its event id as theirs. */
function messageOf({ eventId, correlationId, causationId }: TracedEvent): OtelAttributes {
  return present({
    'messaging.message.id': eventId,
    'messaging.message.conversation_id': correlationId ?? eventId,
    'aftercommit.causation_id': causationId,
  })
}

function present(found: Found): OtelAttributes {
  const attributes: OtelAttributes = {}
  for (const name in found) {
    const value = found[name]
    if (value !== undefined) attributes[name] = value
  }
  return attributes
}
