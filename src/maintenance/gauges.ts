import type { MetricsExporter } from '../observe/metrics.js'
import type { StoreAdmin } from '../store.js'

/** Numbers of this process. */
export interface ProcessGauges {
  readonly hotQueue: number
  readonly coldQueue: number
  readonly inFlight: number
  readonly paused: number
}

/** Reports the gauges of the process and of the table. Without an exporter, no statement is sent. */
export async function reportGauges(
  metrics: MetricsExporter | undefined,
  process: () => ProcessGauges,
  store: Pick<StoreAdmin, 'stats'>,
): Promise<void> {
  if (!metrics) return
  const { hotQueue, coldQueue, inFlight, paused } = process()
  metrics.gauge('hot_queue_depth', hotQueue)
  metrics.gauge('cold_queue_depth', coldQueue)
  metrics.gauge('in_flight', inFlight)
  metrics.gauge('paused', paused)
  const { oldestLagMs, pending, dead } = await store.stats()
  metrics.gauge('oldest_lag_ms', oldestLagMs)
  metrics.gauge('pending', pending)
  metrics.gauge('dead_letters', dead)
}
