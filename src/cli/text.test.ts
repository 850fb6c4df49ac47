import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Column, cut, duration, safe, table, widthOf } from './text.js'

describe('safe', () => {
  it('shows what a terminal would obey, and leaves all else alone', () => {
    const hostile = 'a\u001b[2J\u009b31m\r\n\t\u0000\u007fb\u202ec\u2066\u2028\u061c'
    expect(safe(hostile)).toBe(
      'a\\u001b[2J\\u009b31m\\u000d\\u000a\\u0009\\u0000\\u007fb\\u202ec\\u2066\\u2028\\u061c',
    )
    expect(safe('Grüße 日本語 😀 e\u0301')).toBe('Grüße 日本語 😀 e\u0301')
  })

  it('leaves JSON with the same meaning', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(0xffff)), (units) => {
        const text = String.fromCharCode(...units)
        expect(JSON.parse(safe(JSON.stringify({ [text]: text })))).toEqual({ [text]: text })
      }),
    )
  })
})

describe('cut', () => {
  it('never takes more cells than it may, and no half of a character', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('a', 'é', '日', '😀', '\u0301')), fc.nat(30), (chars, width) => {
        const text = chars.join('')
        const short = cut(text, width)
        expect(widthOf(short)).toBeLessThanOrEqual(width)
        expect(short.isWellFormed?.() ?? true).toBe(true)
        if (widthOf(text) <= width) expect(short).toBe(text)
      }),
    )
  })

  it('counts wide characters twice', () => {
    expect(cut('日本語です', 5)).toBe('日本…')
    expect(cut('😀😀😀', 4)).toBe('😀…')
    expect(cut('abcdef', 4)).toBe('abc…')
    expect(cut('abc', 0)).toBe('')
  })

  it('does not look through megabytes', () => {
    expect(cut('\u0301'.repeat(1_000_000), 10)).toHaveLength(201)
  })
})

it.each([
  [0, '0 ms'],
  [12.4, '12 ms'],
  [3_440, '3.4 s'],
  [59_000, '59 s'],
  [7_200_000, '2 h'],
  [864_000_000, '10 d'],
])('duration of %d ms is %s', (ms, text) => {
  expect(duration(ms)).toBe(text)
})

describe('table', () => {
  interface Row {
    readonly id: string
    readonly count: number
    readonly text: string
  }
  const columns: Column<Row>[] = [
    { title: 'ID', cell: ({ id }) => id },
    { title: 'N', right: true, cell: ({ count }) => String(count) },
    { title: 'TEXT', flexible: true, cell: ({ text }) => text },
  ]
  const rows = [
    { id: 'a', count: 1, text: 'short' },
    { id: '日本', count: 1_000, text: 'a long one that has to go\u001b[2J' },
  ]

  it('has equal columns, whatever the rows hold', () => {
    expect(table(columns, rows)).toEqual([
      'ID       N  TEXT',
      'a        1  short',
      '日本  1000  a long one that has to go\\u001b[2J',
    ])
  })

  it('cuts the flexible column, and the line when that is not enough', () => {
    expect(table(columns, rows, 24).at(-1)).toBe('日本  1000  a long one …')
    expect(table(columns, rows, 10).map(widthOf)).toEqual([10, 10, 10])
  })

  it('has its titles when there are no rows, and takes ten thousand', () => {
    expect(table(columns, [])).toEqual(['ID  N  TEXT'])
    const many = Array.from({ length: 10_000 }, (_, count) => ({ id: 'x', count, text: '' }))
    expect(table(columns, many, 80)).toHaveLength(10_001)
  })

  it('takes from the widest flexible column first', () => {
    const two: Column<Row>[] = [
      { title: 'ID', flexible: true, cell: ({ id }) => id },
      { title: 'TEXT', flexible: true, cell: ({ text }) => text },
    ]
    const row = { id: 'i'.repeat(20), count: 0, text: 't'.repeat(60) }
    expect(table(two, [row], 52)[1]).toBe(`${'i'.repeat(20)}  ${'t'.repeat(29)}…`)
    expect(table(two, [row], 22)[1]).toBe(`${'i'.repeat(9)}…  ${'t'.repeat(9)}…`)
  })
})
