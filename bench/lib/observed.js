// Our side with somebody who watches, or with a build that tells nothing.
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { open as openOurs } from './ours.js'

const DIST = path.resolve(import.meta.dirname, '../../dist')
/** As often as nobody would collect: what that costs is in the figures. */
const COLLECT_MS = 1_000

export const side = { open }

/** What is added to the options of the outbox. */
const WATCHERS = {
  nobody: async () => ({}),
  prometheus: async (load) => {
    const { prometheusMetrics } = await load('observe/prometheus.js')
    const metrics = prometheusMetrics()
    setInterval(() => metrics.text(), COLLECT_MS).unref()
    return { metrics }
  },
  'otel-metrics': async (load) => {
    const { otelMetrics } = await load('observe/otel.js')
    const { MeterProvider, PeriodicExportingMetricReader } = await import('@opentelemetry/sdk-metrics')
    const reader = new PeriodicExportingMetricReader({
      exporter: NOWHERE,
      exportIntervalMillis: COLLECT_MS,
      exportTimeoutMillis: COLLECT_MS / 2,
    })
    return { metrics: otelMetrics(new MeterProvider({ readers: [reader] }).getMeter('bench')) }
  },
  tracing: async (load) => {
    const { otelTracer } = await load('observe/otel.js')
    const api = await import('@opentelemetry/api')
    const { AsyncLocalStorageContextManager } = await import('@opentelemetry/context-async-hooks')
    const { BasicTracerProvider, BatchSpanProcessor } = await import('@opentelemetry/sdk-trace-base')
    api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())
    const spanProcessors = [new BatchSpanProcessor(NOWHERE)]
    api.trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors }))
    return { tracer: otelTracer(api) }
  },
}

/** Takes everything and keeps nothing. */
const NOWHERE = {
  export: (_batch, done) => done({ code: 0 }),
  forceFlush: async () => {},
  shutdown: async () => {},
}

async function open(url, { watcher, dist = DIST, tuning, ...options }) {
  const load = (file) => import(pathToFileURL(path.join(dist, file)).href)
  const { createOutbox, silentLogger } = await load('index.js')
  const { postgresStore } = await load('stores/postgres/index.js')
  const watching = await WATCHERS[watcher](load)
  const library = { createOutbox, silentLogger, postgresStore }
  return openOurs(url, { ...options, tuning: { ...tuning, ...watching } }, library)
}
