import fs from 'node:fs'
import path from 'node:path'
import { expect, it } from 'vitest'
import { busesOf, countSuites, countThemes, integrationsOf, matrixOf } from '../../scripts/matrix.mjs'

const folder = path.resolve(import.meta.dirname, '../integrations')
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
    [],
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
      [],
    ).empty,
  ).toEqual(['store conformance of pg on Node v24.1.0'])
  const skipped = test('skipped', 'store conformance: pg')
  expect(matrixOf(new Map([['v20.1.0', report(skipped)]]), []).empty).toEqual([
    'store conformance of pg on Node v20.1.0',
  ])
})

it('misses a store that is expected, and one whose suites were skipped as a whole', () => {
  const runs = new Map([
    [
      'v20.1.0',
      report(
        test('passed', 'store conformance: MariaDB by mysql2'),
        test('skipped', 'store conformance: MySQL or MariaDB by mysql2'),
      ),
    ],
  ])
  expect(matrixOf(runs)).toEqual({
    lines: [
      'Suite  Subject                     Node v20.1.0',
      'store  MariaDB by mysql2           1 passed',
      'store  MySQL or MariaDB by mysql2  missing (0 passed, 1 skipped)',
    ],
    empty: ['store conformance of MySQL or MariaDB by mysql2 on Node v20.1.0'],
  })
  const without = new Map([['v20.1.0', report(test('passed', 'store conformance: MariaDB by mysql2'))]])
  expect(matrixOf(without).empty).toEqual(['store conformance of MySQL on Node v20.1.0'])
})

const orm = (title: string, status = 'passed') => test(status, `transaction conformance: ${title}`, 'theme')

it('prints which integration serves which database, over all drivers and versions of Node', () => {
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
      'Transactions  PostgreSQL          MySQL    MariaDB                        SQLite',
      'MyOrm         2 passed, 1 FAILED  missing  missing (0 passed, 1 skipped)  – (it cannot)',
      '  with a      2 passed',
      '  with b      0 passed, 1 FAILED',
    ],
    // A suite that was skipped as a whole shows nothing.
    empty: ['transaction conformance of MyOrm on MySQL', 'transaction conformance of MyOrm on MariaDB'],
  })
  expect(integrationsOf(runs, ['my-orm', 'other'], absent).empty).toEqual([
    'transaction conformance of MyOrm on MySQL',
    'transaction conformance of MyOrm on MariaDB',
    'transaction conformance of other on PostgreSQL',
    'transaction conformance of other on MySQL',
    'transaction conformance of other on MariaDB',
    'transaction conformance of other on SQLite',
  ])
})

it('misses a driver whose suite has vanished, or was skipped as a whole', () => {
  const drivers = { MyOrm: { PostgreSQL: ['a', 'b', 'c'], SQLite: ['better-sqlite3'], MariaDB: ['d'] } }
  const ran = [
    orm('MyOrm with a, PostgreSQL'),
    orm('MyOrm with c, PostgreSQL', 'skipped'),
    orm('MyOrm, SQLite'),
  ]
  const absent = ['MySQL', 'MariaDB'].map((database) => ({
    integration: 'my-orm',
    database,
    reason: 'not yet',
  }))
  expect(integrationsOf(new Map([['v20.1.0', report(...ran)]]), ['my-orm'], absent, drivers)).toEqual({
    lines: [
      'Transactions           PostgreSQL                     MySQL        MariaDB      SQLite',
      'MyOrm                  1 passed, 1 skipped            – (not yet)  – (not yet)  1 passed',
      '  with a               1 passed',
      '  with b               missing',
      '  with c               missing (0 passed, 1 skipped)',
      '  with better-sqlite3                                                           – (needs Node 22)',
      '  with d                                                           missing',
    ],
    empty: [
      'transaction conformance of MyOrm with b on PostgreSQL',
      'transaction conformance of MyOrm with c on PostgreSQL',
    ],
  })
  // It can run on the other Node, and so it must have.
  const runs = new Map([
    ['v20.1.0', report(...ran)],
    ['v24.1.0', report(...ran)],
  ])
  expect(integrationsOf(runs, ['my-orm'], absent, drivers).empty).toContain(
    'transaction conformance of MyOrm with better-sqlite3 on SQLite',
  )
})

it('expects drivers of each integration on each database where the suites name one', () => {
  const sources = fs
    .readdirSync(folder)
    .filter((name) => name.endsWith('.test.ts'))
    .map((name) => fs.readFileSync(path.join(folder, name), 'utf8'))
  const titles = sources.flatMap((text) =>
    [...text.matchAll(/name: ['`](\w+ with .+, (?:\w+|\$\{flavor\}))['`]/g)].map(
      (match) => match[1] as string,
    ),
  )
  // Of which nothing is absent.
  const ANY_NODE = 'v22.1.0'
  const ON_BOTH = /\$\{flavor\}$/
  const servers = ['MySQL', 'MariaDB']
  const sqlite = ['libsql', 'better-sqlite3']
  const subjects = titles.flatMap((title) => {
    if (ON_BOTH.test(title)) return servers.map((name) => title.replace(ON_BOTH, name))
    return title.includes('$') ? sqlite.map((name) => title.replace(/\$\{\w+\}/, name)) : [title]
  })
  expect(subjects.length).toBeGreaterThan(19)
  for (const subject of subjects) {
    const others = subjects.filter((other) => other !== subject).map((other) => orm(other))
    const [, name, driver, database] = /^(\w+) with (.+), (\w+)$/.exec(subject) ?? []
    const left = orm(`${name}, ${database}`)
    const { empty } = integrationsOf(new Map([[ANY_NODE, report(left, ...others)]]), [], [])
    expect(empty).toContain(`transaction conformance of ${name} with ${driver} on ${database}`)
  }
})

it('prints nothing when no suite was run', () => {
  expect(integrationsOf(new Map([['v20.1.0', report()]]), ['my-orm']).lines).toEqual([])
  expect(matrixOf(new Map([['v20.1.0', report()]])).lines).toEqual([])
})

const bus = (status: string, name: string, theme: string) =>
  countThemes([{ assertionResults: [test(status, 'outer', `bus conformance: ${name}`, theme)] }])

it('prints each bus with each theme, over all versions of Node', () => {
  const runs = [
    bus('passed', 'One', 'groups'),
    bus('skipped', 'One', 'groups'),
    bus('passed', 'One', 'order'),
    bus('failed', 'Two', 'order'),
    bus('skipped', 'Kafka', 'order'),
  ]
  expect(busesOf(runs, ['One', 'Two', 'Three'], /^Kafka/)).toEqual({
    lines: [
      'Bus    groups  order',
      'One    1/2     1/1',
      'Two    –       0/1, 1 FAILED',
      'Kafka  –       –',
      'Three  –       –',
    ],
    empty: ['bus conformance of Three'],
  })
  expect(busesOf([bus('skipped', 'One', 'order')], [], /^Kafka/).empty).toEqual(['bus conformance of One'])
  expect(busesOf([countThemes([])])).toEqual({ lines: [], empty: [] })
})
