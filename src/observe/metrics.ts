export type CounterName =
  | 'hot_enqueued'
  | 'hot_dropped'
  | 'cold_enqueued'
  | 'success'
  | 'failure'
  | 'dead'
  | 'lease_lost'

export type GaugeName = 'hot_queue_depth' | 'cold_queue_depth' | 'in_flight' | 'oldest_lag_ms'
export type DurationName = 'handler_ms' | 'settle_ms'

/** Never holds ids or payloads: the event type and the handler name only. */
export interface MetricLabels {
  readonly eventType?: string
  readonly handler?: string
}

/** The metrics port. An implementation must not block; what it throws is swallowed. */
export interface MetricsExporter {
  count(name: CounterName, by: number, labels?: MetricLabels): void
  gauge(name: GaugeName, value: number): void
  duration(name: DurationName, ms: number, labels?: MetricLabels): void
}

/** What the outbox does must not depend on who counts it. */
export function unfailingMetrics(metrics: MetricsExporter): MetricsExporter {
  const quietly = (call: () => void) => {
    try {
      call()
    } catch {}
  }
  return {
    count: (name, by, labels) => quietly(() => metrics.count(name, by, labels)),
    gauge: (name, value) => quietly(() => metrics.gauge(name, value)),
    duration: (name, ms, labels) => quietly(() => metrics.duration(name, ms, labels)),
  }
}
