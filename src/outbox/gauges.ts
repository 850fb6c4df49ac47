import type { InFlight } from '../dispatcher/in-flight.js'
import type { Routes } from '../dispatcher/routing.js'
import type { MetricsExporter } from '../observe/metrics.js'
import type { EventStore } from '../store.js'

interface Queue {
  readonly length: number
}

/** What is so at this moment. The table's part costs a statement, so only for those who want to see it. */
export async function gauge(
  metrics: MetricsExporter | undefined,
  hot: Queue,
  cold: Queue,
  inFlight: InFlight,
  routes: Routes,
  store: Pick<EventStore, 'stats'>,
): Promise<void> {
  if (!metrics) return
  metrics.gauge('hot_queue_depth', hot.length)
  metrics.gauge('cold_queue_depth', cold.length)
  metrics.gauge('in_flight', inFlight.size)
  metrics.gauge('paused', routes.pauses)
  const { oldestLagMs, pending, dead } = await store.stats()
  metrics.gauge('oldest_lag_ms', oldestLagMs)
  metrics.gauge('pending', pending)
  metrics.gauge('dead_letters', dead)
}
