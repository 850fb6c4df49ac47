import type { CounterName, DurationName, GaugeName } from './metrics.js'

/** How a metric of the port is called outside. */
interface MetricNames {
  /** Those with a convention for messaging follow it. */
  readonly otel: string
  readonly prometheus: string
  readonly help: string
  /** As OpenTelemetry writes it. */
  readonly unit: string
}

export interface CounterNames extends MetricNames {
  readonly labels: 'event_type' | 'event_type, handler, outcome'
}

export interface DurationNames extends MetricNames {
  readonly labels: 'event_type, handler, outcome' | ''
}

const EVENTS = '{event}'
const HANDLED = {
  otel: 'messaging.client.consumed.messages',
  prometheus: 'aftercommit_handled_total',
  help: 'Handler calls that ended.',
  unit: '{message}',
  labels: 'event_type, handler, outcome',
} as const

function counter(name: string, prometheus: string, help: string, unit = EVENTS): CounterNames {
  return { otel: name, prometheus, help, unit, labels: 'event_type' }
}

export const COUNTERS: Readonly<Record<CounterName, CounterNames>> = {
  published: counter(
    'messaging.client.sent.messages',
    'aftercommit_published_total',
    'Events whose transaction has committed.',
    '{message}',
  ),
  hot_enqueued: counter(
    'aftercommit.hot.enqueued',
    'aftercommit_hot_enqueued_total',
    'Events that went from the commit to this process from memory.',
  ),
  hot_dropped: counter(
    'aftercommit.hot.dropped',
    'aftercommit_hot_dropped_total',
    'Events that found the hot queue full and were left to a poller.',
  ),
  cold_enqueued: counter(
    'aftercommit.cold.enqueued',
    'aftercommit_cold_enqueued_total',
    'Events that this process has claimed from the table.',
  ),
  success: HANDLED,
  failure: HANDLED,
  retry: counter('aftercommit.retries', 'aftercommit_retries_total', 'Failed attempts that are tried again.'),
  dead: counter('aftercommit.dead', 'aftercommit_dead_total', 'Events that were given up.'),
  lease_lost: counter(
    'aftercommit.lease.lost',
    'aftercommit_lease_lost_total',
    'Events whose lease was over before their outcome was written.',
  ),
}

function gauge(otel: string, prometheus: string, help: string, unit = EVENTS): MetricNames {
  return { otel, prometheus, help, unit }
}

export const GAUGES: Readonly<Record<GaugeName, MetricNames>> = {
  hot_queue_depth: gauge(
    'aftercommit.hot_queue.depth',
    'aftercommit_hot_queue_depth',
    'Events in memory, straight from their commit, that wait for a handler.',
  ),
  cold_queue_depth: gauge(
    'aftercommit.cold_queue.depth',
    'aftercommit_cold_queue_depth',
    'Claimed events in memory that wait for a handler.',
  ),
  in_flight: gauge(
    'aftercommit.in_flight',
    'aftercommit_in_flight',
    'Events that this process holds: queued, running, or waiting for their outcome to be written.',
  ),
  oldest_lag_ms: gauge(
    'aftercommit.oldest_lag',
    'aftercommit_oldest_lag_seconds',
    'Age of the oldest event of the table that is due.',
    's',
  ),
  pending: gauge(
    'aftercommit.pending',
    'aftercommit_pending',
    'Events of the table that are not settled: new, being handled, or waiting for a retry.',
  ),
  dead_letters: gauge('aftercommit.dead_letters', 'aftercommit_dead_letters', 'Dead events in the table.'),
  paused: gauge(
    'aftercommit.paused',
    'aftercommit_paused',
    'Pauses in force: paused event types, and one more when everything is.',
    '{pause}',
  ),
}

export const DURATIONS: Readonly<Record<DurationName, DurationNames>> = {
  handler_ms: {
    otel: 'messaging.process.duration',
    prometheus: 'aftercommit_handler_duration_seconds',
    help: 'Time from the start of an attempt to the end of the handler.',
    unit: 's',
    labels: 'event_type, handler, outcome',
  },
  settle_ms: {
    otel: 'aftercommit.settle.duration',
    prometheus: 'aftercommit_settle_duration_seconds',
    help: 'Time of one statement that writes outcomes, for up to 500 events.',
    unit: 's',
    labels: '',
  },
}

export function entriesOf<Name extends string, T>(record: Readonly<Record<Name, T>>): [Name, T][] {
  return Object.entries(record) as [Name, T][]
}

export function mapOf<Name extends string, T>(
  record: Readonly<Record<Name, unknown>>,
  make: (name: Name) => T,
): Record<Name, T> {
  return Object.fromEntries(entriesOf(record).map(([name]) => [name, make(name)])) as Record<Name, T>
}
