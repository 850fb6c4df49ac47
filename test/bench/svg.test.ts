import { describe, expect, it } from 'vitest'
import { barChart, lineChart, shareChart } from '../../bench/lib/svg.js'

const line = (more = {}) =>
  lineChart({
    title: 'Cost <growth> & more',
    xLabel: 'backlog',
    yLabel: 'events/s',
    series: [
      {
        name: 'ours',
        points: [
          [1_000_000, 80_000, 70_000, 90_000],
          [10_000, 90_000],
          [100_000, 85_000],
        ],
      },
      {
        name: 'peer',
        points: [
          [10_000, 0],
          [100_000, 84_000],
        ],
      },
    ],
    logX: true,
    logY: true,
    ...more,
  })
const bars = (log = false) =>
  barChart({
    title: 'Latency',
    yLabel: 'ms',
    log,
    groups: [
      {
        label: 'B4',
        bars: [
          { name: 'ours', value: 0.05, low: 0.04, high: 0.2 },
          { name: 'peer', value: 5 },
        ],
      },
      {
        label: 'B13',
        bars: [
          { name: 'ours', value: 0.5 },
          { name: 'peer', value: -0.1, low: -0.2, high: 0.1 },
        ],
      },
    ],
  })
const shares = () =>
  shareChart({
    title: 'Bars',
    rows: [
      { label: 'B1 drain', value: 1.2, low: 1.1, high: 1.4, note: '3.0 ×' },
      { label: 'B2 drain', value: 0.9, note: '1.4 ×' },
    ],
  })

/** Every tag is closed by its own, and no attribute is unquoted: enough for what is generated. */
function openTags(text: string): string[] {
  const open: string[] = []
  for (const [tag, closing, name, empty] of text.matchAll(
    /<(\/?)([a-z]+)(?: [a-zA-Z:-]+="[^"<]*")*(\/?)>/g,
  )) {
    if (closing) expect(open.pop(), tag).toBe(name)
    else if (!empty) open.push(name as string)
  }
  return open
}

describe.each([
  ['lines', line()],
  ['lines, linear', line({ logX: false, logY: false })],
  ['lines without points', line({ series: [] })],
  ['bars', bars()],
  ['bars, logarithmic', bars(true)],
  ['shares', shares()],
])('%s', (_, text) => {
  it('are well-formed, with numbers for numbers', () => {
    expect(openTags(text)).toEqual([])
    expect(text.replace(/<[^<>]*>/g, '')).not.toMatch(/[<>]|&(?!amp;|lt;|gt;|quot;)/)
    expect(text).not.toMatch(/NaN|Infinity|undefined|e-\d/)
  })

  it('have a title, a description and a ground of their own', () => {
    expect(text).toMatch(/<svg [^>]*role="img"/)
    expect(text).toMatch(
      /<title id="title">.+<\/title>\n<desc id="description">.+<\/desc>\n<rect [^>]*fill="#fff"/,
    )
  })
})

describe('charts', () => {
  it('say the same twice', () => {
    expect([line(), bars(true), shares()]).toEqual([line(), bars(true), shares()])
  })

  it('draw lines from left to right, with names beside their ends and whiskers where runs differ', () => {
    const path =
      /<path d="M([\d.]+) [\d.]+L([\d.]+) [\d.]+L([\d.]+) /.exec(line())?.slice(1).map(Number) ?? []
    expect(path).toHaveLength(3)
    expect(path).toEqual([...path].sort((a, b) => a - b))
    expect(line()).toMatch(/>ours<\/text>/)
    expect(line().match(/V[\d.]+" stroke="#0b7285"/g)).toHaveLength(1)
  })

  it('leave out what a logarithmic axis cannot show', () => {
    expect(line().match(/<circle/g)).toHaveLength(4)
    expect(line({ logY: false }).match(/<circle/g)).toHaveLength(5)
  })

  it('tell bars that hold from others by more than a colour', () => {
    expect(shares()).toContain('3.0 ×')
    expect(shares()).toContain('B2 drain: 1.4 ×')
  })

  it('write numbers as people do', () => {
    expect(line({ logY: false })).toMatch(/>1M<\/text>/)
    expect(line({ logY: false })).toMatch(/>100,000<\/text>/)
    expect(bars()).toContain('ours 0.05 (0.04 to 0.2)')
  })
})
