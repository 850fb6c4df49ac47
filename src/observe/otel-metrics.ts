import { InvalidSettingError } from '../core/errors.js'
import type { CounterName, DurationName, GaugeName, MetricLabels, MetricsExporter } from './metrics.js'
import { COUNTERS, DURATIONS, entriesOf, GAUGES, mapOf } from './names.js'
import type { OtelAttributes, OtelMeter, OtelMetricsApi } from './otel-types.js'
import { MOST_SERIES, SeriesByLabels } from './series.js'

/** In seconds: those that the conventions for messaging ask for. */
const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]

/**
 * A MetricsExporter for OpenTelemetry: a meter, or the whole API, whose global meter provider must be set by then.
 * Counters are kept here and read when the SDK collects, so that an event costs next to nothing. Outboxes on the same meter
 * are counted together, and the gauges are those of the last to speak: give each a meter of another name.
 *
 * @example
 * import { metrics } from '@opentelemetry/api'
 * const outbox = createOutbox({ store, metrics: otelMetrics(metrics.getMeter('orders')) })
 */
export function otelMetrics(source: OtelMeter | OtelMetricsApi): MetricsExporter {
  const api = source as Partial<OtelMetricsApi> | null | undefined
  const meter = typeof api?.metrics?.getMeter === 'function' ? api.metrics.getMeter('aftercommit') : source
  if (typeof (meter as Partial<OtelMeter> | null | undefined)?.createObservableCounter !== 'function') {
    throw new InvalidSettingError(
      'meter',
      "must be a meter of OpenTelemetry: otelMetrics(api.metrics.getMeter('orders'))",
    )
  }
  const known = exporters.get(meter as object)
  if (known) return known
  const exporter = new OtelExporter(meter as OtelMeter)
  exporters.set(meter as object, exporter)
  return exporter
}

/**
 * Exporter of each meter. Two outboxes on the same meter share an exporter, because the SDK keeps only the last of two
 * observations of a counter.
 */
const exporters = new WeakMap<object, MetricsExporter>()

class OtelExporter implements MetricsExporter {
  readonly #counters = mapOf(COUNTERS, (name) => new SeriesByLabels<Total>(MOST_SERIES, keyOf, TOTALS[name]))
  readonly #attributes = new SeriesByLabels(MOST_SERIES, keyOf, (_key, labels) => processOf(labels))
  readonly #gauges = mapOf(
    GAUGES,
    () => new SeriesByLabels<Total>(MOST_SERIES, keyOf, (_key, labels) => totalOf(plainOf(labels))),
  )
  readonly #histograms: Record<DurationName, ReturnType<OtelMeter['createHistogram']>>

  constructor(meter: OtelMeter) {
    this.#observeCounters(meter)
    for (const [name, { otel, help, unit }] of entriesOf(GAUGES)) {
      meter.createObservableGauge(otel, { description: help, unit }).addCallback((result) => {
        for (const { value, attributes } of this.#gauges[name].values()) result.observe(value, attributes)
      })
    }
    this.#histograms = mapOf(DURATIONS, (name) => {
      const { otel, help, unit } = DURATIONS[name]
      const advice = { explicitBucketBoundaries: BUCKETS }
      return meter.createHistogram(otel, { description: help, unit, advice })
    })
  }

  /** Two of them are one metric, which must not be made twice. */
  #observeCounters(meter: OtelMeter): void {
    const made = new Map<string, ReturnType<OtelMeter['createObservableCounter']>>()
    for (const [name, { otel, help, unit }] of entriesOf(COUNTERS)) {
      const counter = made.get(otel) ?? meter.createObservableCounter(otel, { description: help, unit })
      made.set(otel, counter)
      counter.addCallback((result) => {
        for (const { value, attributes } of this.#counters[name].values()) result.observe(value, attributes)
      })
    }
  }

  count(name: CounterName, by: number, labels: MetricLabels = NO_LABELS): void {
    this.#counters[name].of(labels).value += by
  }

  gauge(name: GaugeName, value: number, labels: MetricLabels = NO_LABELS): void {
    this.#gauges[name].of(labels).value = name === 'oldest_lag_ms' ? value / 1_000 : value
  }

  duration(name: DurationName, ms: number, labels: MetricLabels = NO_LABELS): void {
    const attributes = name === 'handler_ms' ? this.#attributes.of(labels) : SYSTEM
    this.#histograms[name].record(ms / 1_000, attributes)
  }
}

interface Total {
  value: number
  readonly attributes: OtelAttributes
}

const NO_LABELS: MetricLabels = {}
const SYSTEM: OtelAttributes = { 'messaging.system': 'aftercommit' }
/** Which errors a handler throws is in the spans and logs: names of errors have no bound. */
const FAILED = { 'error.type': '_OTHER' }

const TOTALS: Record<CounterName, (key: string, labels: MetricLabels) => Total> = {
  ...mapOf(COUNTERS, () => (_key: string, labels: MetricLabels) => totalOf(plainOf(labels))),
  published: (_key, labels) => totalOf({ ...plainOf(labels), 'messaging.operation.name': 'publish' }),
  success: (_key, { failed: _, ...labels }) => totalOf(processOf(labels)),
  failure: (_key, labels) => totalOf(processOf({ ...labels, failed: true })),
}

function totalOf(attributes: OtelAttributes): Total {
  return { value: 0, attributes }
}

function plainOf({ eventType, handler }: MetricLabels): OtelAttributes {
  return {
    ...SYSTEM,
    ...(eventType === undefined ? {} : { 'messaging.destination.name': eventType }),
    ...(handler === undefined ? {} : { 'messaging.consumer.group.name': handler }),
  }
}

function processOf(labels: MetricLabels): OtelAttributes {
  const attributes = { ...plainOf(labels), 'messaging.operation.name': 'process' }
  return inOrder(labels.failed ? { ...attributes, ...FAILED } : attributes)
}

/** The SDK sorts them for each value that it records: so it is soon done. */
function inOrder(attributes: OtelAttributes): OtelAttributes {
  return Object.fromEntries(Object.entries(attributes).sort(([first], [other]) => (first < other ? -1 : 1)))
}

function keyOf({ eventType, handler, failed }: MetricLabels): string {
  return JSON.stringify([eventType, handler, failed])
}
