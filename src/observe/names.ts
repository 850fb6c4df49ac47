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

const EVENTS = '{event}'

function named(otel: string, prometheus: string, help: string, unit = EVENTS): MetricNames {
  return { otel, prometheus, help, unit }
}

const HANDLED = named(
  'messaging.client.consumed.messages',
  'aftercommit_handled_total',
  'Handler calls that ended.',
  '{message}',
)

export const COUNTERS: Readonly<Record<CounterName, MetricNames>> = {
  published: named(
    'messaging.client.sent.messages',
    'aftercommit_published_total',
    'Events published, counted after the commit where the outbox tracks the transaction.',
    '{message}',
  ),
  hot_enqueued: named(
    'aftercommit.hot.enqueued',
    'aftercommit_hot_enqueued_total',
    'Events that went from the commit to this process from memory.',
  ),
  hot_dropped: named(
    'aftercommit.hot.dropped',
    'aftercommit_hot_dropped_total',
    'Events that found the hot queue full and were left to a poller.',
  ),
  cold_enqueued: named(
    'aftercommit.cold.enqueued',
    'aftercommit_cold_enqueued_total',
    'Events that this process has claimed from the table.',
  ),
  success: HANDLED,
  failure: HANDLED,
  retry: named('aftercommit.retries', 'aftercommit_retries_total', 'Failed attempts that are tried again.'),
  dead: named('aftercommit.dead', 'aftercommit_dead_total', 'Events that were given up.'),
  lease_lost: named(
    'aftercommit.lease.lost',
    'aftercommit_lease_lost_total',
    'Events whose lease was over before their outcome was written.',
  ),
}

export const GAUGES: Readonly<Record<GaugeName, MetricNames>> = {
  hot_queue_depth: named(
    'aftercommit.hot_queue.depth',
    'aftercommit_hot_queue_depth',
    'Events in memory, straight from their commit, that wait for a handler.',
  ),
  cold_queue_depth: named(
    'aftercommit.cold_queue.depth',
    'aftercommit_cold_queue_depth',
    'Claimed events in memory that wait for a handler.',
  ),
  in_flight: named(
    'aftercommit.in_flight',
    'aftercommit_in_flight',
    'Events that this process holds: queued, running, or waiting for their outcome to be written.',
  ),
  oldest_lag_ms: named(
    'aftercommit.oldest_lag',
    'aftercommit_oldest_lag_seconds',
    'Age of the oldest event of the table that is due.',
    's',
  ),
  pending: named(
    'aftercommit.pending',
    'aftercommit_pending',
    'Events of the table that are not settled: new, being handled, or waiting for a retry.',
  ),
  dead_letters: named('aftercommit.dead_letters', 'aftercommit_dead_letters', 'Dead events in the table.'),
  paused: named(
    'aftercommit.paused',
    'aftercommit_paused',
    'Pauses in force: paused event types, and one more when everything is.',
    '{pause}',
  ),
  unhandled: named(
    'aftercommit.unhandled',
    'aftercommit_unhandled',
    'Event types for which no consumer has registered a handler: 1 while events older than a minute wait, 0 afterwards.',
    '{type}',
  ),
}

export const DURATIONS: Readonly<Record<DurationName, MetricNames>> = {
  handler_ms: named(
    'messaging.process.duration',
    'aftercommit_handler_duration_seconds',
    'Time from the start of an attempt to the end of the handler.',
    's',
  ),
  settle_ms: named(
    'aftercommit.settle.duration',
    'aftercommit_settle_duration_seconds',
    'Time of one statement that writes outcomes, for up to 1,000 events.',
    's',
  ),
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
