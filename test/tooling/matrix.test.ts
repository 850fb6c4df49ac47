import { expect, it } from 'vitest'
import { countSuites, matrixOf } from '../../scripts/matrix.mjs'

const test = (status: string, ...ancestorTitles: string[]) => ({ status, ancestorTitles })
const report = (...assertionResults: ReturnType<typeof test>[]) => countSuites([{ assertionResults }])

it('counts the tests of each suite, wherever it stands', () => {
  const counts = report(
    test('passed', 'on the newest server', 'store conformance: pg', 'append'),
    test('pending', 'store conformance: pg', 'claim'),
    test('failed', 'store conformance: memory', 'claim'),
    test('passed', 'something else'),
  )
  expect([...counts]).toEqual([
    ['store\npg', { passed: 1, failed: 0, skipped: 1 }],
    ['store\nmemory', { passed: 0, failed: 1, skipped: 0 }],
  ])
})

it('prints a row for each subject, and finds cells that are empty without a reason', () => {
  const pg = test('passed', 'store conformance: pg')
  const builtIn = test('passed', 'store conformance: SQLite by node:sqlite')
  const { lines, empty } = matrixOf(
    new Map([
      ['v20.1.0', report(pg)],
      ['v24.1.0', report(pg, test('skipped', 'store conformance: pg'), builtIn)],
    ]),
  )
  expect(lines).toEqual([
    'Conformance            Node v20.1.0       Node v24.1.0',
    'pg                     1 passed           1 passed, 1 skipped',
    'SQLite by node:sqlite  – (needs Node 22)  1 passed',
  ])
  expect(empty).toEqual([])
  expect(
    matrixOf(
      new Map([
        ['v20.1.0', report(pg)],
        ['v24.1.0', report()],
      ]),
    ).empty,
  ).toEqual(['pg on Node v24.1.0'])
})

it('prints nothing when no suite was run', () => {
  expect(matrixOf(new Map([['v20.1.0', report()]])).lines).toEqual([])
})
