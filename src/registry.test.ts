import { describe, expect, it } from 'vitest'
import { seenInstance } from './registry.js'

const ROW = [
  'id',
  'host',
  1,
  '1.0.0',
  '{"a":["mail"]}',
  '{"names":["a"],"versions":[2],"prefixes":[]}',
  1,
  2,
  3,
  5,
  9,
  null,
]
const HANDLERS = 4
const ACCEPT = 5

function withColumns(columns: Readonly<Record<number, unknown>>): readonly unknown[] {
  return ROW.map((value, at) => (at in columns ? columns[at] : value))
}

/** Column values that other programs can write, in the forms in which drivers return them. */
const ODD = [
  '',
  'oops',
  '{"a":',
  '[1]',
  '"text"',
  '5',
  'null',
  null,
  undefined,
  7,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  1n,
  new Uint8Array([255]),
]

describe('seenInstance', () => {
  it('converts a row of the registry', () => {
    expect(seenInstance(ROW)).toEqual({
      id: 'id',
      host: 'host',
      pid: 1,
      version: '1.0.0',
      handlers: { a: ['mail'] },
      accept: { names: ['a'], versions: [2], prefixes: [] },
      counters: { done: 1, failed: 2, dead: 3 },
      startedAt: new Date(5),
      lastSeenAt: new Date(9),
      stoppedAt: null,
    })
  })

  it.each(ODD)('treats handlers and filters that are no JSON objects as empty: %s', (value) => {
    const seen = seenInstance(withColumns({ [HANDLERS]: value, [ACCEPT]: value }))
    expect(seen.handlers).toEqual({})
    expect(seen.accept).toEqual({ names: [], versions: [], prefixes: [] })
  })

  it.each(ODD)('returns texts, numbers and valid dates for a row in which every column holds %s', (value) => {
    const seen = seenInstance(ROW.map(() => value))
    for (const text of [seen.id, seen.host, seen.version]) expect(typeof text).toBe('string')
    for (const number of [seen.pid, ...Object.values(seen.counters)])
      expect(number).toSatisfy(Number.isFinite)
    for (const date of [seen.startedAt, seen.lastSeenAt]) expect(() => date.toISOString()).not.toThrow()
    expect(() => seen.stoppedAt?.toISOString()).not.toThrow()
  })
})
