import * as api from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import type { SpanError, SpanPlan, TraceContext, Tracer } from '../../src/index.js'

export interface RecordedSpans {
  /** What has ended so far, in the order in which it did. */
  all(): readonly ReadableSpan[]
  named(name: string): readonly ReadableSpan[]
  /** The only one of that name. */
  only(name: string): ReadableSpan
  clear(): void
}

/** OpenTelemetry's own SDK as an application sets it up, which keeps the spans in memory. Once for a test file. */
export function recordSpans(): RecordedSpans {
  const exporter = new InMemorySpanExporter()
  const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
  api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
  api.trace.setGlobalTracerProvider(provider)
  const named = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name)
  return {
    all: () => exporter.getFinishedSpans(),
    named,
    only: (name) => {
      const [span, ...more] = named(name)
      if (span && more.length === 0) return span
      const names = exporter.getFinishedSpans().map((other) => other.name)
      throw new Error(`${more.length + (span ? 1 : 0)} spans are called '${name}'; there are: ${names}`)
    },
    clear: () => exporter.reset(),
  }
}

/** Runs the body in a span of the application's own. */
export function inSpan<T>(name: string, body: () => Promise<T>): Promise<T> {
  return api.trace.getTracer('application').startActiveSpan(name, async (span) => {
    try {
      return await body()
    } finally {
      span.end()
    }
  })
}

export function activeSpanId(): string | undefined {
  return api.trace.getActiveSpan()?.spanContext().spanId
}

export function idOf(span: ReadableSpan): string {
  return span.spanContext().spanId
}

export function traceOf(span: ReadableSpan): string {
  return span.spanContext().traceId
}

export function parentOf(span: ReadableSpan): string | undefined {
  return span.parentSpanContext?.spanId
}

export function linksOf(span: ReadableSpan): string[] {
  return span.links.map((link) => link.context.spanId)
}

/** The spans as a tree, each indented below its parent, in the order in which they began. */
export function treeOf(spans: readonly ReadableSpan[]): string[] {
  const byStart = [...spans].sort(
    (a, b) => a.startTime[0] - b.startTime[0] || a.startTime[1] - b.startTime[1],
  )
  const below = (parent: string | undefined, depth: number): string[] =>
    byStart
      .filter((span) => parentOf(span) === parent)
      .flatMap((span) => [`${'  '.repeat(depth)}${span.name}`, ...below(idOf(span), depth + 1)])
  return below(undefined, 0)
}

export interface NotedSpan {
  readonly plan: SpanPlan
  error: SpanError | undefined
  ends: number
}

/** A tracer of the port itself, which notes what it is told. */
export function notingTracer(context?: TraceContext): Tracer & { readonly spans: NotedSpan[] } {
  const spans: NotedSpan[] = []
  return {
    spans,
    start: (plan) => {
      const span: NotedSpan = { plan, error: undefined, ends: 0 }
      spans.push(span)
      return {
        context,
        run: (work) => work(),
        end: (error) => {
          span.error = error
          span.ends++
        },
      }
    },
  }
}
