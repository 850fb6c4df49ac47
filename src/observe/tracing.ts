/** The W3C trace context of a span, as it travels with an event. */
export interface TraceContext {
  readonly traceparent: string
  readonly tracestate?: string | undefined
}

/** What a span is about. Never holds payloads, headers or user ids. */
export interface SpanPlan {
  /** `publish` into the outbox, `process` by a handler, `relay` to a broker. */
  readonly operation: 'publish' | 'process' | 'relay'
  /** Undefined when a batch has several types. */
  readonly eventType: string | undefined
  /** Undefined for a batch. */
  readonly eventId?: string | undefined
  readonly correlationId?: string | undefined
  readonly causationId?: string | undefined
  readonly handler?: string | undefined
  readonly attempt?: number | undefined
  /** How many events it is about. */
  readonly count: number
  /** Where they come from. The only one becomes the parent; several are links, so that no trace swallows the others. */
  readonly from: readonly TraceContext[]
}

/** The tracing port. `aftercommit/otel` has one for OpenTelemetry. */
export interface Tracer {
  /**
   * Calls `work` once, inside a span that ends when what it returns has settled, and returns that. `context` is the
   * span's own, to be stored with events; undefined when nobody records it.
   */
  span<T>(plan: SpanPlan, work: (context: TraceContext | undefined) => T): T
}
