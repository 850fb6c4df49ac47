import { ignoreRejection } from '../core/unknown.js'

export type CounterName =
  | 'published'
  | 'hot_enqueued'
  | 'hot_dropped'
  | 'cold_enqueued'
  | 'success'
  | 'failure'
  | 'retry'
  | 'dead'
  | 'lease_lost'

export type GaugeName =
  | 'hot_queue_depth'
  | 'cold_queue_depth'
  | 'in_flight'
  | 'oldest_lag_ms'
  | 'pending'
  | 'dead_letters'
  | 'paused'
  | 'unhandled'

export type DurationName = 'handler_ms' | 'settle_ms'

/** Never holds ids or payloads: the event type and the handler name only. */
export interface MetricLabels {
  readonly eventType?: string
  readonly handler?: string
  /** Of `handler_ms`: the call failed. */
  readonly failed?: true
}

/**
 * The metrics port. An implementation must not block; what it throws is swallowed. The outbox hands over the very same
 * object for the same labels, so that an implementation can know its series by it.
 */
export interface MetricsExporter {
  count(name: CounterName, by: number, labels?: MetricLabels): void
  /** Only `unhandled` has labels. */
  gauge(name: GaugeName, value: number, labels?: MetricLabels): void
  duration(name: DurationName, ms: number, labels?: MetricLabels): void
}

/** What the outbox does must not depend on who counts it. */
export function unfailingMetrics(metrics: MetricsExporter): MetricsExporter {
  return {
    count(name, by, labels) {
      try {
        ignoreRejection(metrics.count(name, by, labels))
      } catch {}
    },
    gauge(name, value, labels) {
      try {
        ignoreRejection(metrics.gauge(name, value, labels))
      } catch {}
    },
    duration(name, ms, labels) {
      try {
        ignoreRejection(metrics.duration(name, ms, labels))
      } catch {}
    },
  }
}

/** Types come from the table: their number has no bound. */
const MOST_TYPES = 10_000
const byType = new Map<string, MetricLabels>()
const byHandler = { done: new Map<string, HandlerLabels>(), failed: new Map<string, HandlerLabels>() }
type HandlerLabels = Map<string, MetricLabels>

export function typeLabels(eventType: string): MetricLabels {
  let labels = byType.get(eventType)
  if (!labels) {
    if (byType.size >= MOST_TYPES) byType.clear()
    labels = Object.freeze({ eventType })
    byType.set(eventType, labels)
  }
  return labels
}

export function handlerLabels(eventType: string, handler: string, succeeded: boolean): MetricLabels {
  const types = succeeded ? byHandler.done : byHandler.failed
  let handlers = types.get(eventType)
  if (!handlers) {
    if (types.size >= MOST_TYPES) types.clear()
    handlers = new Map()
    types.set(eventType, handlers)
  }
  let labels = handlers.get(handler)
  if (!labels) {
    labels = Object.freeze(succeeded ? { eventType, handler } : { eventType, handler, failed: true as const })
    handlers.set(handler, labels)
  }
  return labels
}
