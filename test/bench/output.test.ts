import { describe, expect, it } from 'vitest'
import { chartsOf } from '../../bench/lib/charts.js'
import { toMarkdown } from '../../bench/lib/markdown.js'
import { peersOf } from '../../bench/lib/peers.js'
import { compare, type Row } from '../../bench/lib/report.js'

const PEER = 'graphile-worker'
const runs = (field: string, ...values: number[]) => values.map((value) => ({ [field]: value }))

const drain: Row = {
  bar: 'B1',
  ...compare(
    { ours: runs('rate', 90_000, 100_000, 95_000), [PEER]: runs('rate', 30_000, 33_000, 31_000) },
    { what: 'drain', peer: PEER, atLeast: 2.5 },
  ),
}
const latency: Row = {
  bar: 'B4',
  ...compare(
    { ours: runs('p50', 0.03), [PEER]: runs('p50', 0.8) },
    { what: 'commit → handler, p50', peer: PEER, field: 'p50', less: true, format: (ms) => `${ms} ms` },
  ),
}
const relay = (batch: number): Row => ({
  bar: 'B10',
  ...compare(
    { ours: runs('rate', 20_000), bare: runs('rate', 25_000) },
    { what: `redis by ${batch}`, peer: 'bare', details: { broker: 'redis', batch } },
  ),
})
const broken: Row = { bar: 'B6', what: 'drain while vacuum is pinned', holds: false, error: 'Error: no room' }

describe('charts of a report', () => {
  it('are those of what was measured', () => {
    expect(Object.keys(chartsOf([drain]))).toEqual(['ratios.svg', 'drain.svg'])
    expect(Object.keys(chartsOf([latency, broken]))).toEqual(['latency.svg'])
    expect(Object.keys(chartsOf([relay(10), relay(500)]))).toEqual(['relay-throughput.svg'])
    expect(chartsOf([relay(500), { bar: 'B10', what: 'kafka: not measured' }])).toEqual({})
  })

  it('show each side once, with its spread', () => {
    const { 'drain.svg': text } = chartsOf([drain, drain])
    expect(text).toContain('ours 95,000 (90,000 to 100,000), graphile-worker 31,000 (30,000 to 33,000).')
  })
})

describe('the page of a report', () => {
  const page = toMarkdown(
    {
      date: '2030-01-01T00:00:00.000Z',
      seconds: 754,
      node: 'v24.0.0',
      machine: { cpu: 'Some CPU', cores: 2, memoryGb: 8, kernel: 'Linux 6', loadAtStart: [0.1, 0.2, 0.3] },
      postgres: { version: '18.4', settings: { shared_buffers: '256MB' } },
      versions: { 'pg-boss': '12.30.0' },
      peers: peersOf(['B1']),
      durations: { B1: 61.4 },
      options: { repeat: 3, quick: false },
      bars: [drain, broken],
    },
    ['ratios.svg'],
  )

  it('has the verdicts with their spread, and what went wrong', () => {
    expect(page).toContain('# Bench: 1 of 2 hold')
    expect(page).toContain(
      '| B1 | drain | 95,000 /s (90,000–100,000 /s, ±5.3 %) | 31,000 /s (30,000–33,000 /s, ±6.5 %) | 3.06 × (3.00–3.06; 3.03) | ≥ 2.5 × | yes |',
    )
    expect(page).toContain('| ERROR |')
    expect(page).toContain('Error: no room')
  })

  it('says on what, for how long and against whom', () => {
    expect(page).toContain('2030-01-01T00:00:00.000Z, 12 min 34 s, 3 runs of each side in turns.')
    for (const part of [
      'Some CPU, 2 cores',
      '8 GB',
      'Linux 6',
      '0.1, 0.2, 0.3',
      'B1 61 s',
      'pg-boss: 12.30.0',
    ])
      expect(page).toContain(part)
    expect(page).toContain('its settings that are not the defaults: shared_buffers 256MB')
    expect(page).toMatch(/\| graphile-worker \| B1, B2, .* \| concurrentJobs 24,.*localQueue \{"size":500\}/)
    expect(page).not.toContain('bare INSERT')
    expect(page).toContain('](ratios.svg)')
  })
})
