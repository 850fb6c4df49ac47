import { describe, expect, it } from 'vitest'
import { readStudyOptions } from '../../bench/lib/study-options.js'
import { markdownTable, textTable } from '../../bench/lib/tables.js'

describe('the options of a study', () => {
  const growth = { name: 'growth', parts: ['backlog', 'keys'], repeat: 3 }

  it('measures everything, three times, when told nothing', () => {
    expect(readStudyOptions([], growth)).toMatchObject({
      only: ['backlog', 'keys'],
      repeat: 3,
      quick: false,
      json: false,
    })
  })

  it('takes parts, repetitions and a folder', () => {
    const argv = ['--only', 'Keys', '--repeat', '5', '--out', 'there', '--quick', '--json']
    const told = { only: ['keys'], repeat: 5, out: 'there', quick: true, json: true }
    expect(readStudyOptions(argv, growth)).toMatchObject(told)
  })

  it('refuses what it does not know', () => {
    expect(() => readStudyOptions(['--only', 'moon'], growth)).toThrow('no moon; there are backlog, keys')
    expect(() => readStudyOptions(['--repeat', '0'], growth)).toThrow('at least 1')
    expect(() => readStudyOptions(['--fast'], growth)).toThrow('--fast')
  })

  it('repeats once and has no --repeat where that says nothing', () => {
    const cost = { name: 'cost', parts: ['drain'] }
    expect(readStudyOptions([], cost).repeat).toBe(1)
    expect(() => readStudyOptions(['--repeat', '2'], cost)).toThrow('--repeat')
    expect(readStudyOptions([], cost).usage).not.toContain('--repeat')
  })
})

it('draws the same table for a terminal and for Markdown', () => {
  const head = ['what', 'a|b']
  const rows = [
    ['one', '1'],
    ['twelve', '12'],
  ]
  expect(textTable(head, rows).split('\n')).toEqual([
    'what    a|b',
    '──────  ───',
    'one       1',
    'twelve   12',
  ])
  expect(markdownTable(head, rows).split('\n')).toEqual([
    '| what | a\\|b |',
    '| --- | ---: |',
    '| one | 1 |',
    '| twelve | 12 |',
  ])
})
