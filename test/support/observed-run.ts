import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import type pg from 'pg'
import type { MetricsExporter, OutboxStore } from '../../src/index.js'
import { otelMetrics } from '../../src/observe/otel.js'
import { prometheusMetrics } from '../../src/observe/prometheus.js'
import { until } from './until.js'
import type { World } from './world.js'

/** What really happened in the run below, and what the two exporters say of it. */
export interface ObservedRun {
  /** Prometheus' page: each sample by its name and labels. */
  readonly samples: ReadonlyMap<string, number>
  readonly text: string
  /** What OpenTelemetry collects: each value by its name and attributes; histograms by how many they hold. */
  readonly points: ReadonlyMap<string, number>
  readonly calls: { ok: number; failed: number; batched: number }
}

/** One of everything: hot and cold, full queues, failures, a dead event, a rollback, a pause, a batch, a lost lease, a missing handler. */
export async function observedRun(world: World): Promise<ObservedRun> {
  const prometheus = prometheusMetrics()
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 })
  const provider = new MeterProvider({ readers: [reader] })
  const metrics = both(prometheus, otelMetrics(provider.getMeter('test')))
  const calls = { ok: 0, failed: 0, batched: 0 }
  const leases = { lose: false }
  const outbox = world.outbox({
    metrics,
    wrap: (store) => losing(store, leases),
    dispatcher: { hotQueueSize: 3 },
    retry: { maxAttempts: 2 },
    poller: { pollIntervalMs: 100 },
  })
  outbox.on('order', 'charge', (event, { attempt }) => {
    const fails = event.payload === 'bad' || (event.payload === 'once' && attempt === 1)
    calls[fails ? 'failed' : 'ok']++
    if (fails) throw new Error('no')
  })
  outbox.onBatch('row', 'index', { size: 10 }, (events) => {
    calls.batched += events.length
  })
  const publish = (type: string, ...payloads: string[]) =>
    outbox.transaction((tx) => tx.publishAll(payloads.map((payload) => ({ type, payload }))))
  const settled = () =>
    until(async () => (await world.rows()).every((row) => row.status !== 'NEW' && row.status !== 'RETRY'))

  await publish('order', 'cold', 'cold')
  await outbox.start()
  await settled()
  await publish('order', 'once')
  await settled()
  await publish('order', 'bad')
  await settled()
  await publish('order', 'hot', 'hot', 'hot', 'full', 'full')
  await settled()
  await publish('row', 'a', 'b', 'c')
  await settled()
  await outbox
    .transaction(async (tx) => {
      await tx.publish({ type: 'order', payload: 'never' })
      throw new Error('rolled back')
    })
    .catch(() => {})
  leases.lose = true
  await publish('order', 'lost')
  await until(() => !leases.lose)
  await outbox.pause('row')
  await publish('row', 'waits')
  await world.pool.query(
    `insert into ${world.table} (event_id, event_type, payload, created_at, available_at)
     select 'missing', 'missing', '{}', t, t from (select now() - interval '2 minutes' as t) s`,
  )
  await until(() => prometheus.text().includes('aftercommit_unhandled{'))
  await outbox.stop()
  await provider.forceFlush()
  const points = pointsOf(exporter)
  await provider.shutdown()
  return { samples: samplesOf(prometheus.text()), text: prometheus.text(), points, calls }
}

function both(one: MetricsExporter, other: MetricsExporter): MetricsExporter {
  return {
    count: (...args) => [one.count(...args), other.count(...args)],
    gauge: (...args) => [one.gauge(...args), other.gauge(...args)],
    duration: (...args) => [one.duration(...args), other.duration(...args)],
  }
}

/** Writes the outcome, and denies it once when it is told to. */
function losing(store: OutboxStore<pg.PoolClient>, leases: { lose: boolean }): OutboxStore<pg.PoolClient> {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target)
      if (typeof value !== 'function') return value
      if (name !== 'settleIfLeased') return value.bind(target)
      return async (...args: unknown[]): Promise<unknown> => {
        const settled: unknown = await value.apply(target, args)
        if (!leases.lose) return settled
        leases.lose = false
        return new Set()
      }
    },
  })
}

const SAMPLE = /^([a-z_]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\\\|\\"|\\n)*",?)*\})? (\S+)$/
const COMMENT = /^# (HELP [a-z_]+ \S.*|TYPE [a-z_]+ (counter|gauge|histogram))$/

/** Reads the text format, and is strict: what Prometheus would refuse throws. */
export function samplesOf(text: string): Map<string, number> {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const samples = new Map<string, number>()
  const families = new Set<string>()
  for (const line of text.slice(0, -1).split('\n')) {
    if (line.startsWith('#')) {
      if (!COMMENT.test(line)) throw new Error(`no comment: ${line}`)
      if (line.startsWith('# TYPE')) {
        const family = line.split(' ')[2] as string
        if (families.has(family)) throw new Error(`twice: ${line}`)
        families.add(family)
      }
      continue
    }
    const [, name = '', labels = '', value] = SAMPLE.exec(line) ?? []
    const family = [name, name.replace(/_(bucket|sum|count)$/, '')].find((one) => families.has(one))
    if (!family || [...families].at(-1) !== family) throw new Error(`no sample of its family: ${line}`)
    if (samples.has(`${name}${labels}`)) throw new Error(`twice: ${line}`)
    samples.set(`${name}${labels}`, Number(value))
  }
  return samples
}

function pointsOf(exporter: InMemoryMetricExporter): Map<string, number> {
  const points = new Map<string, number>()
  const last = exporter.getMetrics().at(-1)
  for (const { descriptor, dataPoints } of last?.scopeMetrics.flatMap((scope) => scope.metrics) ?? []) {
    for (const { attributes, value } of dataPoints) {
      const labels = Object.entries(attributes)
        .filter(([name]) => name !== 'messaging.system')
        .map(([name, text]) => `${name}=${String(text)}`)
      points.set(
        [descriptor.name, ...labels.sort()].join(' '),
        typeof value === 'number' ? value : value.count,
      )
    }
  }
  return points
}
