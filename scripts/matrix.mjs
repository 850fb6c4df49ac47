// The matrices of conformance suites: who passed what, on which Node, and which integration serves which database.
// Read from vitest's JSON reports; the names come from the titles of the suites.
import { ABSENT_INTEGRATIONS, ABSENT_ON_NODE, OPTIONAL_BUSES } from './absent.mjs'

const SUITE = /^(\w+) conformance: (.*)$/
/** `Drizzle with postgres.js, PostgreSQL`; without the driver where there is one only. */
const INTEGRATION = /^(\w+)(?: with (.+))?, (.+)$/
const DATABASES = ['PostgreSQL', 'MySQL', 'MariaDB', 'SQLite']

/** The stores whose suites must have run, by how their titles begin. */
const STORES = ['MySQL', 'MariaDB']

/** The drivers whose suites must have run, where the title of a suite names one. */
const DRIVERS = {
  Drizzle: {
    PostgreSQL: ['pg', 'postgres.js', 'PGlite'],
    MySQL: ['mysql2'],
    MariaDB: ['mysql2'],
    SQLite: ['@libsql/client', 'libsql', 'better-sqlite3'],
  },
  Kysely: {
    PostgreSQL: ['pg'],
    MySQL: ['mysql2'],
    MariaDB: ['mysql2'],
    SQLite: ['libsql', 'better-sqlite3'],
  },
  Knex: {
    PostgreSQL: ['pg'],
    MySQL: ['mysql2'],
    MariaDB: ['mysql2'],
    SQLite: ['libsql', 'better-sqlite3'],
  },
  Prisma: {
    PostgreSQL: ['adapter-pg'],
    MySQL: ['adapter-mariadb'],
    MariaDB: ['adapter-mariadb'],
    SQLite: ['adapter-libsql'],
  },
  TypeORM: { SQLite: ['libsql', 'better-sqlite3'] },
  MikroORM: { SQLite: ['libsql'] },
}

/** The buses whose suites must have run, by how their titles begin. */
const BUSES = [
  'InMemoryEventBus',
  'Redis Streams with node-redis',
  'Redis Streams with ioredis',
  'NATS JetStream',
  'RabbitMQ with amqplib',
  'RabbitMQ with amqplib, one active consumer',
  'Kafka with kafkajs',
  'Kafka with @platformatic/kafka',
]

/** @returns {Map<string, { passed: number, failed: number, skipped: number }>} by `suite\nsubject` */
export function countSuites(testResults) {
  const counts = new Map()
  for (const { assertionResults } of testResults) {
    for (const { ancestorTitles, status } of assertionResults) {
      const [, suite, subject] = ancestorTitles.map((title) => SUITE.exec(title)).find(Boolean) ?? []
      // Buses have their own table.
      if (suite === undefined || suite === 'bus') continue
      const count = countIn(counts, `${suite}\n${subject}`)
      count[status === 'passed' ? 'passed' : status === 'failed' ? 'failed' : 'skipped']++
    }
  }
  return counts
}

/** Counts the tests of the bus suite by `bus\ntheme`. */
export function countThemes(testResults) {
  const counts = new Map()
  for (const { assertionResults } of testResults) {
    for (const { ancestorTitles, status } of assertionResults) {
      const at = ancestorTitles.findIndex((title) => SUITE.exec(title)?.[1] === 'bus')
      if (at < 0) continue
      const bus = SUITE.exec(ancestorTitles[at])[2]
      const count = countIn(counts, `${bus}\n${ancestorTitles[at + 1]}`)
      count[status === 'passed' ? 'passed' : status === 'failed' ? 'failed' : 'skipped']++
    }
  }
  return counts
}

/**
 * Each bus with each theme of the suite, as `passed/all`, over all versions of Node. Empty is a bus that has not run; one
 * whose broker may be missing is excused.
 */
export function busesOf(runs, buses = BUSES, optional = OPTIONAL_BUSES) {
  const counts = new Map()
  for (const [key, count] of runs.flatMap((run) => [...run])) {
    const sum = countIn(counts, key)
    for (const name of Object.keys(sum)) sum[name] += count[name]
  }
  if (counts.size === 0) return { lines: [], empty: [] }
  const keys = [...counts.keys()].map((key) => key.split('\n'))
  const themes = [...new Set(keys.map(([, theme]) => theme))]
  const names = [...new Set(keys.map(([bus]) => bus))]
  const expected = buses.filter((bus) => !names.some((name) => name.startsWith(bus)))
  const countsOf = (bus) => themes.map((theme) => counts.get(`${bus}\n${theme}`))
  const missed = [...names, ...expected].filter((bus) => !countsOf(bus).some(hasRun))
  const cell = (count) => (hasRun(count) ? shortOf(count) : '–')
  const rows = [...names, ...expected].map((bus) => [bus, ...countsOf(bus).map(cell)])
  return {
    lines: linesOf([['Bus', ...themes], ...rows]),
    empty: missed.filter((bus) => !optional.test(bus)).map((bus) => `bus conformance of ${bus}`),
  }
}

function shortOf({ passed, failed, skipped }) {
  const text = `${passed}/${passed + failed + skipped}`
  return failed > 0 ? `${text}, ${failed} FAILED` : text
}

/**
 * Returns the lines to print, and the cells that are empty without a reason. `runs` has the counts of each version of Node,
 * `stores` the titles that are expected: a store none of whose suites has run is an empty row.
 */
export function matrixOf(runs, stores = STORES) {
  const versions = [...runs.keys()]
  const ran = [...runs.values()].flatMap((counts) => [...counts.keys()])
  const expected =
    ran.length === 0 ? [] : stores.filter((store) => !ran.some((key) => key.startsWith(`store\n${store}`)))
  const keys = [...new Set([...ran, ...expected.map((store) => `store\n${store}`)])].sort(bySuite)
  const empty = []
  const cell = (key, version) => {
    const count = runs.get(version)?.get(key)
    if (hasRun(count)) return textOf(count)
    const [suite, subject] = key.split('\n')
    const known = ABSENT_ON_NODE.find((absence) => absence.subject.test(subject) && absence.run.test(version))
    if (!known) empty.push(`${suite} conformance of ${subject} on Node ${version}`)
    return known ? `– (${known.reason})` : missing(count)
  }
  const rows = keys.map((key) => [...key.split('\n'), ...versions.map((version) => cell(key, version))])
  const heading = ['Suite', 'Subject', ...versions.map((version) => `Node ${version}`)]
  return { lines: rows.length > 0 ? linesOf([heading, ...rows]) : [], empty }
}

/**
 * For each of `names` (files of src/transactions: `mikro-orm`) and whatever else has run: the sums over drivers and versions
 * of Node, and below them each driver. A cell in which nothing has passed is empty.
 */
export function integrationsOf(runs, names, absent = ABSENT_INTEGRATIONS, drivers = DRIVERS) {
  const titles = new Map(names.map((name) => [plain(name), name]))
  const counts = countIntegrations(runs, titles)
  if (counts.size === 0) return { lines: [], empty: [] }
  const empty = []
  const cell = (name, database) => {
    const count = counts.get(`${name}\n${database}`)
    if (hasRun(count)) return textOf(count)
    const known = absent.find(
      (absence) => plain(absence.integration) === name && absence.database === database,
    )
    if (!known) empty.push(`transaction conformance of ${titles.get(name)} on ${database}`)
    return known ? `– (${known.reason})` : missing(count)
  }
  const driverCell = (name, driver, database, isExpected) => {
    const count = counts.get(`${name}\n${database}\n${driver}`)
    if (hasRun(count)) return textOf(count)
    if (!isExpected) return count ? missing(count) : ''
    const subject = `${titles.get(name)} with ${driver}`
    const reason = reasonOnEveryNode(`${subject}, ${database}`, [...runs.keys()])
    // Where the whole integration is missing, that is said once.
    const isNews = reason === undefined && hasRun(counts.get(`${name}\n${database}`))
    if (isNews) empty.push(`transaction conformance of ${subject} on ${database}`)
    return reason === undefined ? missing(count) : `– (${reason})`
  }
  const rows = [...titles].flatMap(([name, title]) => {
    const expected = Object.entries(drivers).find(([key]) => plain(key) === name)?.[1] ?? {}
    const isExpected = (driver, database) => expected[database]?.includes(driver) ?? false
    return [
      [title, ...DATABASES.map((database) => cell(name, database))],
      ...driversOf(name, expected, counts).map((driver) => [
        `  with ${driver}`,
        ...DATABASES.map((database) => driverCell(name, driver, database, isExpected(driver, database))),
      ]),
    ]
  })
  return { lines: linesOf([['Transactions', ...DATABASES], ...rows]), empty }
}

/** By `integration\ndatabase` and by `integration\ndatabase\ndriver`. Notes in `titles` how an integration spells itself. */
function countIntegrations(runs, titles) {
  const counts = new Map()
  for (const [key, count] of [...runs.values()].flatMap((run) => [...run])) {
    const [suite, subject] = key.split('\n')
    const [, integration, driver, database] = (suite === 'transaction' && INTEGRATION.exec(subject)) || []
    if (integration === undefined) continue
    titles.set(plain(integration), integration)
    const sumKey = `${plain(integration)}\n${database}`
    for (const target of driver === undefined ? [sumKey] : [sumKey, `${sumKey}\n${driver}`]) {
      const sum = countIn(counts, target)
      for (const name of Object.keys(sum)) sum[name] += count[name]
    }
  }
  return counts
}

/** Returns the expected drivers and all others that have run. */
function driversOf(name, expected, counts) {
  const seen = [...counts.keys()]
    .map((key) => key.split('\n'))
    .filter(([integration]) => integration === name)
  const drivers = [...Object.values(expected).flat(), ...seen.map(([, , driver]) => driver)]
  return [...new Set(drivers.filter((driver) => driver !== undefined))]
}

/** Why it could have run on none of them; undefined where it could on one. */
function reasonOnEveryNode(subject, versions) {
  const known = versions.map((version) =>
    ABSENT_ON_NODE.find((absence) => absence.subject.test(subject) && absence.run.test(version)),
  )
  return known.every(Boolean) ? known[0]?.reason : undefined
}

/** A suite that was skipped as a whole shows nothing; one that has failed is counted elsewhere too. */
function hasRun(count) {
  return count !== undefined && count.passed + count.failed > 0
}

function missing(count) {
  return count ? `missing (${textOf(count)})` : 'missing'
}

function countIn(counts, key) {
  const count = counts.get(key) ?? { passed: 0, failed: 0, skipped: 0 }
  counts.set(key, count)
  return count
}

/** Suites together, subjects as they came. */
function bySuite(first, other) {
  const [suite, otherSuite] = [first, other].map((key) => key.split('\n')[0])
  return suite < otherSuite ? -1 : suite > otherSuite ? 1 : 0
}

function plain(name) {
  return name.toLowerCase().replace(/[^a-z0-9]/g, '')
}

function textOf(count) {
  const parts = [`${count.passed} passed`]
  if (count.failed > 0) parts.push(`${count.failed} FAILED`)
  if (count.skipped > 0) parts.push(`${count.skipped} skipped`)
  return parts.join(', ')
}

function linesOf(table) {
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)))
  return table.map((row) =>
    row
      .map((text, n) => text.padEnd(widths[n]))
      .join('  ')
      .trimEnd(),
  )
}
