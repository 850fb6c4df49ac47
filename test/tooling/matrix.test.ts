import { expect, it } from 'vitest'
import { countSuites, integrationsOf, matrixOf } from '../../scripts/matrix.mjs'

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
    'Suite  Subject                Node v20.1.0       Node v24.1.0',
    'store  pg                     1 passed           1 passed, 1 skipped',
    'store  SQLite by node:sqlite  – (needs Node 22)  1 passed',
  ])
  expect(empty).toEqual([])
  expect(
    matrixOf(
      new Map([
        ['v20.1.0', report(pg)],
        ['v24.1.0', report()],
      ]),
    ).empty,
  ).toEqual(['store conformance of pg on Node v24.1.0'])
  const skipped = test('skipped', 'store conformance: pg')
  expect(matrixOf(new Map([['v20.1.0', report(skipped)]])).empty).toEqual([
    'store conformance of pg on Node v20.1.0',
  ])
})

it('prints which integration serves which database, over all drivers and versions of Node', () => {
  const orm = (title: string, status = 'passed') => test(status, `transaction conformance: ${title}`, 'theme')
  const runs = new Map([
    ['v20.1.0', report(orm('MyOrm with a, PostgreSQL'), orm('MyOrm with b, PostgreSQL', 'failed'))],
    [
      'v24.1.0',
      report(orm('MyOrm with a, PostgreSQL'), orm('MyOrm, MariaDB', 'skipped'), orm('a plain host')),
    ],
  ])
  const absent = [{ integration: 'my-orm', database: 'SQLite', reason: 'it cannot' }]
  expect(integrationsOf(runs, ['my-orm'], absent)).toEqual({
    lines: [
      'Transactions  PostgreSQL          MariaDB                        SQLite',
      'MyOrm         2 passed, 1 FAILED  missing (0 passed, 1 skipped)  – (it cannot)',
    ],
    // It was skipped as a whole: nothing is known about it.
    empty: ['transaction conformance of MyOrm on MariaDB'],
  })
  expect(integrationsOf(runs, ['my-orm', 'other'], absent).empty).toEqual([
    'transaction conformance of MyOrm on MariaDB',
    'transaction conformance of other on PostgreSQL',
    'transaction conformance of other on MariaDB',
    'transaction conformance of other on SQLite',
  ])
})

it('prints nothing when no suite was run', () => {
  expect(integrationsOf(new Map([['v20.1.0', report()]]), ['my-orm']).lines).toEqual([])
  expect(matrixOf(new Map([['v20.1.0', report()]])).lines).toEqual([])
})
