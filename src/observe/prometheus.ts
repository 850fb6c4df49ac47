// entry: aftercommit/prometheus
import { integerSetting } from '../core/number-settings.js'
import { readSettings } from '../core/settings.js'
import type { CounterName, DurationName, GaugeName, MetricLabels, MetricsExporter } from './metrics.js'
import { COUNTERS, DURATIONS, entriesOf, GAUGES, mapOf } from './names.js'
import { MOST_SERIES, SeriesByLabels } from './series.js'

export interface PrometheusOptions {
  /**
   * Combinations of event type and handler that each metric tells apart. Further ones are counted together, under the
   * name `_other`, so that totals stay right. Default 1,000.
   */
  readonly maxSeries?: number
}

/** A MetricsExporter whose figures Prometheus can read. */
export interface PrometheusMetrics extends MetricsExporter {
  /** For the response that holds `text()`. */
  readonly contentType: string
  /** All metrics, in the text format 0.0.4. */
  text(): string
}

/** Upper bounds in seconds, of both histograms. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/**
 * Counts in memory; nothing is sent anywhere. Several outboxes of one process take one each, served on a path each.
 *
 * @example
 * const metrics = prometheusMetrics()
 * const outbox = createOutbox({ store, metrics })
 * app.get('/metrics', (_, response) => response.type(metrics.contentType).send(metrics.text()))
 */
export function prometheusMetrics(options: PrometheusOptions = {}): PrometheusMetrics {
  const { maxSeries } = readSettings('prometheusMetrics()', options, ['maxSeries'])
  return new Prometheus(integerSetting('maxSeries', maxSeries, { default: MOST_SERIES, min: 1 }))
}

class Prometheus implements PrometheusMetrics {
  readonly contentType = 'text/plain; version=0.0.4; charset=utf-8'
  readonly #counters: Record<CounterName, SeriesByLabels<Counter>>
  readonly #durations: Record<DurationName, SeriesByLabels<Histogram>>
  readonly #gauges: Record<GaugeName, SeriesByLabels<Counter>>

  constructor(maxSeries: number) {
    const counters = (name: CounterName) => new SeriesByLabels(maxSeries, KEYS[name] ?? labelsText, counter)
    const histograms = () => new SeriesByLabels(maxSeries, outcomeText, histogram)
    this.#counters = mapOf(COUNTERS, counters)
    this.#gauges = mapOf(GAUGES, () => new SeriesByLabels(maxSeries, labelsText, counter))
    this.#durations = mapOf(DURATIONS, histograms)
  }

  count(name: CounterName, by: number, labels: MetricLabels = NO_LABELS): void {
    this.#counters[name].of(labels).value += by
  }

  gauge(name: GaugeName, value: number, labels: MetricLabels = NO_LABELS): void {
    this.#gauges[name].of(labels).value = name === 'oldest_lag_ms' ? value / 1_000 : value
  }

  duration(name: DurationName, ms: number, labels: MetricLabels = NO_LABELS): void {
    const series = this.#durations[name].of(labels)
    const seconds = ms / 1_000
    let at = 0
    while (at < BUCKETS.length && seconds > (BUCKETS[at] as number)) at++
    series.counts[at] = (series.counts[at] as number) + 1
    series.sum += seconds
  }

  text(): string {
    const lines: string[] = []
    let family = ''
    const begin = (name: string, kind: string, help: string) => {
      if (name !== family) lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`)
      family = name
    }
    for (const [name, { prometheus, help }] of entriesOf(COUNTERS)) {
      begin(prometheus, 'counter', help)
      for (const { labels, value } of this.#counters[name].values()) {
        lines.push(`${prometheus}${braced(labels)} ${value}`)
      }
    }
    for (const [name, { prometheus, help }] of entriesOf(GAUGES)) {
      begin(prometheus, 'gauge', help)
      for (const { labels, value } of this.#gauges[name].values()) {
        lines.push(`${prometheus}${braced(labels)} ${value}`)
      }
    }
    for (const [name, { prometheus, help }] of entriesOf(DURATIONS)) {
      begin(prometheus, 'histogram', help)
      for (const histogram of this.#durations[name].values())
        lines.push(...histogramLines(prometheus, histogram))
    }
    return `${lines.join('\n')}\n`
  }
}

interface Counter {
  readonly labels: string
  value: number
}

interface Histogram {
  readonly labels: string
  /** Number of values per bucket. The last entry counts the values above the largest bound. */
  readonly counts: Float64Array
  sum: number
}

function counter(labels: string): Counter {
  return { labels, value: 0 }
}

function histogram(labels: string): Histogram {
  return { labels, counts: new Float64Array(BUCKETS.length + 1), sum: 0 }
}

function histogramLines(name: string, { labels, counts, sum }: Histogram): string[] {
  let below = 0
  const and = labels === '' ? '' : ','
  const buckets = [...BUCKETS.map(String), '+Inf'].map((bound, at) => {
    below += counts[at] as number
    return `${name}_bucket{${labels}${and}le="${bound}"} ${below}`
  })
  return [...buckets, `${name}_sum${braced(labels)} ${sum}`, `${name}_count${braced(labels)} ${below}`]
}

const NO_LABELS: MetricLabels = {}

/** Label text of each counter. The text is the key of a series, because two lines with the same labels make a page invalid. */
const KEYS: Partial<Record<CounterName, (labels: MetricLabels) => string>> = {
  success: (labels) => labelsText(labels, 'success'),
  failure: (labels) => labelsText(labels, 'failure'),
}

function outcomeText(labels: MetricLabels): string {
  if (labels.handler === undefined) return labelsText(labels)
  return labelsText(labels, labels.failed ? 'failure' : 'success')
}

function labelsText({ eventType, handler }: MetricLabels, outcome?: 'success' | 'failure'): string {
  const parts: string[] = []
  if (eventType !== undefined) parts.push(`event_type="${escaped(eventType)}"`)
  if (handler !== undefined) parts.push(`handler="${escaped(handler)}"`)
  if (outcome !== undefined) parts.push(`outcome="${outcome}"`)
  return parts.join(',')
}

/** Controls and halves of characters are spelled out, so that no name can break the page or a terminal. */
function escaped(value: string): string {
  const shown = value.replace(/[\p{Cc}\p{Cs}\u2028\u2029]/gu, spelled)
  return shown.replaceAll('\\', '\\\\').replaceAll('"', '\\"')
}

function spelled(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`
}

function braced(labels: string): string {
  return labels === '' ? '' : `{${labels}}`
}
