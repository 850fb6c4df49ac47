import { describe, expect, it } from 'vitest'
import { compare, limit, type Row, reportOf, spreadTexts, tableOf } from '../../bench/lib/report.js'

const rates = (...values: number[]) => values.map((rate) => ({ rate }))
const millis = (value: number) => `${value} ms`
const results = { ours: rates(300, 100, 200), peer: rates(100, 50, 80) }

describe('a row that compares', () => {
  const row = compare(results, { what: 'drain', peer: 'peer', atLeast: 2.5 })

  it('has the medians, their ratio and a verdict', () => {
    expect(row).toMatchObject({ ours: '200 /s', peer: '80 /s', ratio: 2.5, must: '≥ 2.5 ×', holds: true })
    expect(compare(results, { what: 'drain', peer: 'peer', atLeast: 2.6 }).holds).toBe(false)
  })

  it('has the spread of both sides', () => {
    expect(row.measured?.ours).toMatchObject({ name: 'ours', lowest: 100, highest: 300, percent: 50 })
    expect(row.measured?.ours.range).toBe('100–300 /s')
    expect(row.measured?.peer).toMatchObject({ lowest: 50, highest: 100, percent: 37.5 })
  })

  it('takes the spread of the ratio within each round', () => {
    expect(row.measured?.ratio).toMatchObject({ lowest: 2, highest: 3, range: '2.00–3.00' })
    expect(spreadTexts(row)).toEqual(['±50 %', '±38 %', '2.00–3.00'])
  })

  it('says how much of the requirement that is', () => {
    expect(row.share).toEqual({ value: 1, low: 0.8, high: 1.2 })
  })

  it('turns the ratio where less is better, and is information without a requirement', () => {
    const slower = compare(
      { ours: [{ p50: 2 }], peer: [{ p50: 8 }] },
      { what: 'latency', peer: 'peer', field: 'p50', format: millis, less: true },
    )
    expect(slower).toMatchObject({ ours: '2 ms', peer: '8 ms', ratio: 4 })
    expect([slower.holds, slower.must, slower.share]).toEqual([undefined, undefined, undefined])
    expect(spreadTexts(slower)).toEqual([])
  })

  it('counts the rounds one by one where that is asked for', () => {
    const paired = { ours: rates(100, 90, 50), peer: rates(100, 100, 25) }
    expect(compare(paired, { what: 'drain', peer: 'peer' }).ratio).toBe(0.9)
    expect(compare(paired, { what: 'drain', peer: 'peer', paired: true }).ratio).toBe(1)
  })
})

describe('a row with a limit', () => {
  it('holds up to it', () => {
    const runs = [{ mb: 100 }, { mb: 200 }, { mb: 250 }]
    const row = limit(runs, { what: 'memory', field: 'mb', format: (mb) => `${mb} MB`, atMost: 200 })
    expect(row).toMatchObject({
      ours: '200 MB',
      must: '≤ 200 MB',
      holds: true,
      share: { value: 1, low: 0.8 },
    })
    expect(spreadTexts(row)).toEqual(['±50 %'])
  })

  it('or only below it', () => {
    const row = limit([{ took: 1 }], { what: 'bus', field: 'took', format: millis, below: 1 })
    expect(row).toMatchObject({ must: '< 1 ms', holds: false })
    const format = (value: number) => `${value.toFixed(2)} ms`
    expect(limit([{ took: 0.5 }], { what: 'bus', field: 'took', format, below: 1 }).must).toBe('< 1 ms')
  })
})

describe('the table', () => {
  const long: Row = {
    bar: 'B13',
    ...compare(
      { ours: rates(98_765, 123_456), peer: rates(45_678, 34_567) },
      { what: 'something '.repeat(20), peer: 'peer', atLeast: 2.5 },
    ),
  }

  it('fits in 160 columns', () => {
    const lines = tableOf([long, { bar: 'B7', what: 'broken', holds: false, error: 'it broke' }])
    expect(Math.max(...lines.map((line) => line.length))).toBe(160)
    expect(lines.at(-1)).toMatch(/^B7 .* ERROR$/)
  })

  it('holds as a whole when no row does not', () => {
    expect(reportOf([long, { what: 'information' }], { node: 'v24' })).toMatchObject({
      node: 'v24',
      holds: true,
    })
    expect(reportOf([long, { what: 'broken', holds: false }], {}).holds).toBe(false)
  })
})
