import { describe, expect, it } from 'vitest'
import { readOptions, USAGE } from '../../bench/lib/options.js'

const KNOWN = ['B1', 'B2', 'B13', 'O1', 'R1']
const read = (...argv: string[]) => readOptions(argv, KNOWN)

describe('options of the bench', () => {
  it('measures the bars of the plan, five times', () => {
    expect(read()).toMatchObject({ bars: ['B1', 'B2', 'B13'], repeat: 5, quick: false, json: false })
  })

  it('measures once when it is to be quick, unless told otherwise', () => {
    expect(read('--quick').repeat).toBe(1)
    expect(read('--quick', '--repeat', '3').repeat).toBe(3)
  })

  it('takes the others by name or all at once', () => {
    expect(read('--only', 'o1, b2,B2').bars).toEqual(['O1', 'B2'])
    expect(read('--all').bars).toEqual(KNOWN)
    for (const name of ['O1', 'R1', 'S1', '--out', '--all']) expect(USAGE).toContain(name)
  })

  it.each([
    [['--onyl', 'B1'], "Unknown option '--onyl'; --help lists the options"],
    [['B1'], "Unexpected argument 'B1'; --help lists the options"],
    [['--out'], "Option '--out <value>' argument missing; --help lists the options"],
    [['--out', ''], '--out wants a folder'],
    [['--repeat', '0'], "--repeat wants a whole number, at least 1; it got '0'"],
    [['--repeat', 'x'], "--repeat wants a whole number, at least 1; it got 'x'"],
    [['--rows', '1.5'], "--rows wants a whole number, at least 1; it got '1.5'"],
    [['--only', 'B99'], "no bar 'B99'; there are B1, B2, B13, O1, R1"],
    [['--only', ''], "no bar ''; there are B1, B2, B13, O1, R1"],
    [['--all', '--only', 'B1'], '--all and --only exclude each other'],
  ])('refuses %j in one line', (argv, message) => {
    expect(() => read(...argv)).toThrow(new Error(message))
  })
})
