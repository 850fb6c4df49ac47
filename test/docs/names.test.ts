import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import * as aftercommit from '../../src/index.js'
import { COUNTERS, DURATIONS, GAUGES } from '../../src/observe/names.js'
import { createTestOutbox } from '../../src/testing/index.js'
import { documentedLines, undocumentedIn } from '../support/log-lines.js'
import { type Found, findIn, findInPages, read } from './pages.js'
import { ROOT, snippetsOf } from './snippets.js'

const SOURCES = fs
  .readdirSync(path.join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))
  .map((file) => read(`src/${file.split(path.sep).join('/')}`))
const SOURCE = SOURCES.join('\n')

function unknownIn(found: readonly Found[], isKnown: (name: string) => boolean): string[] {
  return found
    .filter(({ groups: [, name = ''] }) => !isKnown(name))
    .map(({ place, groups }) => `${place} names ${groups[1]}, which the code does not have`)
}

describe('the pages', () => {
  it('name metrics that the exporters have', () => {
    const metrics = Object.values({ ...COUNTERS, ...GAUGES, ...DURATIONS })
    const prometheus = new Set(metrics.map((metric) => metric.prometheus))
    const otel = new Set(metrics.map((metric) => metric.otel))
    const samples = findInPages(/\b(aftercommit_[a-z_]+)/g)
    expect(samples.length).toBeGreaterThan(20)
    expect(
      unknownIn(samples, (name) => prometheus.has(name.replace(/(_seconds)_(bucket|sum|count)$/, '$1'))),
    ).toEqual([])
    const instruments = findInPages(/`(aftercommit\.[a-z_.]+)`/g)
    expect(unknownIn(instruments, (name) => otel.has(name) || SOURCE.includes(`'${name}'`))).toEqual([])
  })

  it('name error codes and other constants that the code or a database has', () => {
    const codes = findInPages(/`([A-Z]+(?:_[A-Z]+)+)`/g).filter(({ place }) => !place.startsWith('examples/'))
    expect(codes.length).toBeGreaterThan(40)
    const ofOthers =
      /^(SQLITE_\w+|EMPTY_STRING_IS_NULL|SIMULATION_SEED|SMALL_HEAP_ROWS|MYSQL_URL|MARIADB_URL)$/
    expect(
      unknownIn(
        codes,
        (name) => new RegExp(`['"\`.]${name}\\b|^  ${name}:`, 'm').test(SOURCE) || ofOthers.test(name),
      ),
    ).toEqual([])
  })

  it('name error classes that exist', () => {
    const classes = findInPages(/`(?:new )?([A-Z]\w+Error)\b/g)
    expect(classes.length).toBeGreaterThan(20)
    const isKnown = (name: string) =>
      name in aftercommit || name in globalThis || SOURCE.includes(`class ${name} `)
    expect(unknownIn(classes, isKnown)).toEqual([])
  })

  it('name methods of the outbox that exist', () => {
    // A test outbox has the members of every outbox, and those that docs/testing.md describes.
    const outbox = createTestOutbox()
    const members = findInPages(/`(?:await )?outbox\.(?!ts`)([a-zA-Z]+)/g)
    expect(members.length).toBeGreaterThan(30)
    expect(unknownIn(members, (name) => name in outbox)).toEqual([])
    const letters = findInPages(/`(?:await )?(?:outbox\.)?deadLetters\.([a-zA-Z]+)/g)
    expect(unknownIn(letters, (name) => name in outbox.deadLetters)).toEqual([])
  })

  it('name entries of the package that exist', () => {
    const { exports } = JSON.parse(read('package.json')) as { exports: Readonly<Record<string, unknown>> }
    const entries = findInPages(/['`]aftercommit\/([a-z-]+)['`]/g)
    expect(entries.length).toBeGreaterThan(30)
    expect(unknownIn(entries, (name) => `./${name}` in exports)).toEqual([])
  })

  it('quote log lines that docs/logging.md lists', () => {
    const known = new Set(documentedLines().map(({ level, message }) => `${level} ${message}`))
    const quoted = findInPages(/`([^`\n]+)` \((debug|info|warn|error)\)/g)
    expect(quoted.length).toBeGreaterThan(1)
    const unknown = quoted.filter(({ groups: [, message, level] }) => !known.has(`${level} ${message}`))
    expect(unknown.map(({ place, groups }) => `${place} quotes "${groups[1]}" (${groups[2]})`)).toEqual([])
  })
})

describe('docs/logging.md', () => {
  it('shows lines with the fields that its tables list', () => {
    const lines = snippetsOf('docs/logging.md')
      .filter(({ language }) => language === 'json')
      .flatMap(({ code }) => code.trim().split('\n'))
    expect(lines.length).toBeGreaterThan(1)
    expect(undocumentedIn(lines)).toEqual([])
  })

  it('lists fields that the code writes', () => {
    const fields = new Set(documentedLines().flatMap(({ fields }) => [...fields]))
    const unknown = [...fields].filter((name) => !new RegExp(`\\b${name}\\b[,:]|[ {]${name}\\b`).test(SOURCE))
    expect(unknown).toEqual([])
  })
})

describe('docs/security.md', () => {
  const library = fs
    .readdirSync(path.join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })
    .map((file) => file.split(path.sep).join('/'))
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts'))

  /** Dynamic imports of a source. An import of a type is erased. */
  const importsIn = (file: string) =>
    findIn(`src/${file}`, /(?<!typeof )(?<![:|<&] )\bimport\(/g).filter(
      ({ place }) => !/^\s*(\*|\/\/)/.test(lineOf(place)),
    )

  it('is right that only the command line tool imports dynamically, the handlers and the drivers', () => {
    const places = library.flatMap(importsIn).map(({ place }) => place.replace(/:\d+$/, ''))
    expect(places.sort()).toEqual(['src/cli/drivers.ts', 'src/cli/handlers.ts'])
  })

  it('is right that nothing is evaluated', () => {
    const places = library.flatMap((file) => findIn(`src/${file}`, /\beval\(|\bnew Function\(/g))
    expect(places.map(({ place }) => place)).toEqual([])
  })
})

function lineOf(place: string): string {
  const [file = '', line = ''] = place.split(':')
  return read(file).split('\n')[Number(line) - 1] ?? ''
}

describe('CONTRIBUTING.md', () => {
  it('names the doors of the package that check-exports.mjs knows', () => {
    const [sentence] = findIn('CONTRIBUTING.md', /of a store, of a bus, of `(\w+)` and of `(\w+)` is a door/g)
    const [doors] = findIn('scripts/check-exports.mjs', /const DOORS = .*\[\^\/\]\+\|([\w|]+)\)/g)
    expect(sentence?.groups.slice(1).sort(), sentence?.place).toEqual(doors?.groups[1]?.split('|').sort())
    for (const door of sentence?.groups.slice(1) ?? []) {
      expect(
        fs.existsSync(path.join(ROOT, 'src', door, 'index.ts')),
        `${sentence?.place} names ${door}`,
      ).toBe(true)
    }
  })
})

it('docs/dependencies.md lists every development dependency, and no other', () => {
  const { devDependencies } = JSON.parse(read('package.json')) as { devDependencies: object }
  const rows = findIn('docs/dependencies.md', /^\| (`.*?) \|/gm)
  const named = rows.flatMap(({ place, groups }) =>
    [...String(groups[1]).matchAll(/`([^`]+)`/g)].map((match) => ({ place, name: String(match[1]) })),
  )
  const installed = Object.keys(devDependencies)
  expect(installed.filter((name) => !named.some((one) => one.name === name))).toEqual([])
  const others = ['bench/package.json', 'scripts/binaries/package.json'].flatMap((file) => {
    const { dependencies, optionalDependencies } = JSON.parse(read(file))
    return Object.keys({ ...dependencies, ...optionalDependencies })
  })
  const known = [...installed, ...others, 'vite']
  expect(
    named
      .filter(({ name }) => !known.includes(name))
      .map(({ place, name }) => `${place} names ${name}, which is not installed`),
  ).toEqual([])
})
