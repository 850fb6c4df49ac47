export interface OtelContext {
  getValue(key: symbol): unknown
  setValue(key: symbol, value: unknown): OtelContext
  deleteValue(key: symbol): OtelContext
}

export interface OtelTraceState {
  set(key: string, value: string): OtelTraceState
  unset(key: string): OtelTraceState
  get(key: string): string | undefined
  serialize(): string
}

export interface OtelSpanContext {
  traceId: string
  spanId: string
  traceFlags: number
  isRemote?: boolean
  traceState?: OtelTraceState
}

export type OtelAttributes = Record<string, string | number>

export interface OtelLink {
  context: OtelSpanContext
  attributes?: OtelAttributes
}

export interface OtelSpan {
  spanContext(): OtelSpanContext
  setAttribute(key: string, value: string): unknown
  setStatus(status: { code: number; message?: string }): unknown
  end(): void
}

interface OtelSpanOptions {
  kind: number
  attributes: OtelAttributes
  links: OtelLink[]
}

/** What is called of @opentelemetry/api 1.x. The user's own copy is passed in, so that there is never a second one. */
export interface OtelApi {
  readonly trace: {
    getTracer(name: string): {
      startSpan(name: string, options: OtelSpanOptions, context: OtelContext): OtelSpan
    }
    setSpan(context: OtelContext, span: OtelSpan): OtelContext
    wrapSpanContext(context: OtelSpanContext): OtelSpan
  }
  readonly context: {
    active(): OtelContext
    with<T>(context: OtelContext, work: () => T): T
  }
  readonly ROOT_CONTEXT: OtelContext
  createTraceState?(text: string): OtelTraceState
}

interface OtelMetricOptions {
  description: string
  unit: string
  advice?: { explicitBucketBoundaries: number[] }
}

interface OtelObservable {
  addCallback(callback: (result: { observe(value: number, attributes: OtelAttributes): void }) => void): void
}

export interface OtelMeter {
  createObservableCounter(name: string, options: OtelMetricOptions): OtelObservable
  createObservableGauge(name: string, options: OtelMetricOptions): OtelObservable
  createHistogram(
    name: string,
    options: OtelMetricOptions,
  ): { record(value: number, attributes: OtelAttributes): void }
}

export interface OtelMetricsApi {
  readonly metrics: { getMeter(name: string): OtelMeter }
}
