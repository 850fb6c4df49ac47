import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { describe, expect, it, onTestFinished } from 'vitest'
import { samplesOf } from '../../test/support/observed-run.js'
import { createTestOutbox } from '../testing/index.js'
import { handlerLabels, type MetricsExporter, typeLabels, unfailingMetrics } from './metrics.js'
import { otelMetrics } from './otel.js'
import { type PrometheusOptions, prometheusMetrics } from './prometheus.js'

describe('the page for Prometheus', () => {
  it('names every metric before anything has happened', () => {
    const metrics = prometheusMetrics()
    expect(metrics.contentType).toBe('text/plain; version=0.0.4; charset=utf-8')
    expect(samplesOf(metrics.text()).size).toBe(0)
    expect(metrics.text().match(/^# TYPE /gm)).toHaveLength(18)
    expect(metrics.text().match(/^# HELP \w+ [A-Z].+\.$/gm)).toHaveLength(18)
  })

  it('puts durations into buckets, each with all that is below it', () => {
    const metrics = prometheusMetrics()
    for (const ms of [0, 1, 1.5, 70, 100, 59_999, 61_000]) metrics.duration('settle_ms', ms)
    const name = 'aftercommit_settle_duration_seconds'
    const samples = samplesOf(metrics.text())
    const bucket = (bound: string) => samples.get(`${name}_bucket{le="${bound}"}`)
    expect(['0.001', '0.0025', '0.05', '0.1', '30', '60', '+Inf'].map(bucket)).toEqual([2, 3, 3, 5, 5, 6, 7])
    expect(samples.get(`${name}_count`)).toBe(7)
    expect(samples.get(`${name}_sum`)).toBeCloseTo(121.1715)
  })

  it.each([
    ['quotes and backslashes', 'a"b\\c', 'a\\"b\\\\c'],
    ['a line of its own', 'x"} 1\naftercommit_pending 0', 'x\\"} 1\\\\u000aaftercommit_pending 0'],
    ['colours of a terminal', '\u001b[31mred\u009b', '\\\\u001b[31mred\\\\u009b'],
    ['line separators', 'a\u2028b', 'a\\\\u2028b'],
    ['half a character', 'a\ud800b', 'a\\\\ud800b'],
    ['other scripts', 'bestellung.größe 日本語 😀', 'bestellung.größe 日本語 😀'],
    ['nothing', '', ''],
  ])('survives a name with %s', (_title, name, shown) => {
    const metrics = prometheusMetrics()
    metrics.count('success', 2, { eventType: name, handler: name })
    const labels = `event_type="${shown}",handler="${shown}",outcome="success"`
    expect([...samplesOf(metrics.text())]).toEqual([[`aftercommit_handled_total{${labels}}`, 2]])
  })

  it('takes a count without labels', () => {
    const metrics = prometheusMetrics()
    metrics.count('success', 1)
    expect([...samplesOf(metrics.text())]).toEqual([['aftercommit_handled_total{outcome="success"}', 1]])
  })

  it('has one line for names that look the same once they are escaped', () => {
    const metrics = prometheusMetrics()
    for (const eventType of ['a\n', 'a\\u000a']) metrics.count('published', 1, { eventType })
    expect([...samplesOf(metrics.text()).values()]).toEqual([2])
  })

  it('counts together what is beyond its bound, so that totals stay right', () => {
    const metrics = prometheusMetrics({ maxSeries: 10 })
    for (let n = 0; n < 1_000; n++) {
      metrics.count('published', 1, typeLabels(`type ${n}`))
      metrics.count('published', 1, { eventType: `type ${n}` })
      for (const succeeded of [true, false]) {
        metrics.duration('handler_ms', 1, handlerLabels(`type ${n}`, `handler ${n}`, succeeded))
      }
    }
    const samples = samplesOf(metrics.text())
    const published = [...samples].filter(([name]) => name.startsWith('aftercommit_published_total'))
    expect(published).toHaveLength(11)
    expect(published.reduce((sum, [, value]) => sum + value, 0)).toBe(2_000)
    expect(samples.get('aftercommit_published_total{event_type="_other"}')).toBe(1_980)
    const other = 'event_type="_other",handler="_other"'
    for (const outcome of ['success', 'failure']) {
      const name = `aftercommit_handler_duration_seconds_count{${other},outcome="${outcome}"}`
      expect(samples.get(name)).toBe(995)
    }
    expect(metrics.text().length).toBeLessThan(100_000)
  })

  it.each([0, -1, 1.5, Number.NaN, '7'])('refuses %s as its bound', (maxSeries) => {
    expect(() => prometheusMetrics({ maxSeries } as PrometheusOptions)).toThrow(/maxSeries/)
  })
})

describe('labels', () => {
  it('are the same object for the same names', () => {
    expect(typeLabels('a')).toBe(typeLabels('a'))
    expect(handlerLabels('a', 'h', true)).toBe(handlerLabels('a', 'h', true))
    expect(handlerLabels('a', 'h', false)).toBe(handlerLabels('a', 'h', false))
    expect(typeLabels('a')).toEqual({ eventType: 'a' })
    expect(handlerLabels('a', 'h', true)).toEqual({ eventType: 'a', handler: 'h' })
    expect(handlerLabels('a', 'h', false)).toEqual({ eventType: 'a', handler: 'h', failed: true })
  })

  it('are not kept for ever, however many types there are', () => {
    const first = typeLabels('first of many')
    for (let n = 0; n < 20_000; n++) typeLabels(`many ${n}`)
    expect(typeLabels('first of many')).not.toBe(first)
    expect(typeLabels('first of many')).toEqual(first)
  })
})

describe('metrics', () => {
  it('that throw everywhere change nothing', async () => {
    const no = () => {
      throw new Error('no counting today')
    }
    const metrics = { count: no, gauge: no, duration: no }
    for (const call of Object.values(unfailingMetrics(metrics)))
      expect(() => call('published', 1)).not.toThrow()
    const outbox = createTestOutbox({ metrics })
    const handled: string[] = []
    outbox.on('a', 'h', (event) => void handled.push(event.eventId))
    await outbox.start()
    await outbox.transaction((tx) => tx.publish({ type: 'a', eventId: 'e' }))
    await outbox.drain()
    expect(handled).toEqual(['e'])
    const stopping = outbox.stop()
    await outbox.clock.advance(60_000)
    await stopping
  })

  it('of OpenTelemetry need a meter, and say so', () => {
    for (const wrong of [undefined, null, {}, { createCounter: () => {} }, 'meter']) {
      expect(() => otelMetrics(wrong as unknown as Parameters<typeof otelMetrics>[0])).toThrow(/getMeter/)
    }
  })

  it.each([
    ['cumulative', AggregationTemporality.CUMULATIVE, [8, 9]],
    ['delta', AggregationTemporality.DELTA, [8, 1]],
  ] as const)(
    'of OpenTelemetry add up for two outboxes on one meter: %s',
    async (_kind, temporality, sent) => {
      const exporter = new InMemoryMetricExporter(temporality)
      const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 600_000 })
      const provider = new MeterProvider({ readers: [reader] })
      onTestFinished(() => provider.shutdown())
      const [firstMetrics, otherMetrics] = ['one', 'other'].map(() => otelMetrics({ metrics: provider }))
      const collected = async () => {
        await provider.forceFlush()
        const { metrics } = exporter.getMetrics().at(-1)?.scopeMetrics[0] ?? {}
        return metrics?.find(({ descriptor }) => descriptor.name.endsWith('sent.messages'))?.dataPoints[0]
          ?.value
      }
      firstMetrics?.count('published', 3, typeLabels('a'))
      otherMetrics?.count('published', 5, typeLabels('a'))
      const first = await collected()
      firstMetrics?.count('published', 1, typeLabels('a'))
      expect([first, await collected()]).toEqual(sent)
    },
  )

  it('never see a payload, a header or a user id', async () => {
    const seen: unknown[] = []
    const note = (...args: unknown[]) => void seen.push(args)
    const metrics: MetricsExporter = { count: note, gauge: note, duration: note }
    const outbox = createTestOutbox({ metrics, retry: { maxAttempts: 1 } })
    outbox.on('a', 'h', () => {
      throw new Error('secret-error')
    })
    const metadata = { userId: 'secret-user', correlationId: 'secret-correlation' }
    const event = {
      type: 'a',
      eventId: 'secret-id',
      payload: 'secret-payload',
      headers: { h: 'secret-header' },
    }
    await outbox.transaction((tx) => tx.publish({ ...event, metadata }))
    await outbox.drain()
    expect(seen.length).toBeGreaterThan(3)
    expect(JSON.stringify(seen)).not.toContain('secret')
  })
})
