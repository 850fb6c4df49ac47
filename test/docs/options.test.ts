import { describe, expect, it } from 'vitest'
import { readBusOptions } from '../../src/bus/settings.js'
import { kafkaBus } from '../../src/buses/kafka/index.js'
import { natsBus } from '../../src/buses/nats/index.js'
import { rabbitmqBus } from '../../src/buses/rabbitmq/index.js'
import { redisBus } from '../../src/buses/redis/index.js'
import { createOutbox, defineEvent } from '../../src/index.js'
import { relayOptionsOf } from '../../src/relay.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { mysqlStore } from '../../src/stores/mysql/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { sqliteStore } from '../../src/stores/sqlite/index.js'
import { commentedDefaults } from './options.js'
import { differing, findIn, numberOf, type Row, read, tableOf } from './pages.js'

/** Names that a function knows, as its error says when it is given another one. */
function namesOf(call: (options: never) => unknown): string[] {
  try {
    call({ bogus: 1 } as never)
  } catch (error) {
    const names = /Known (?:settings|fields): (.*)\.$/.exec((error as Error).message)?.[1]
    if (names !== undefined) return names.split(', ')
    throw error
  }
  throw new Error('An option that does not exist was accepted.')
}

const target = { publishAll: async () => {} }
const outbox = createOutbox({ store: memoryStore() })
/** Enough for a constructor that has not connected yet. */
const client = {} as never

/** Options of every bus, which docs/consuming.md lists. */
const OF_EVERY_BUS = Object.keys({ ...readBusOptions({}), retry: null }).filter(
  (name) => !['maxAttempts', 'maxDeliveries', 'retryPolicy'].includes(name),
)
const ownOf = (names: string[]) => names.filter((name) => !OF_EVERY_BUS.includes(name))

interface Table {
  readonly page: string
  readonly header: string
  readonly source: string
  readonly names: () => string[]
}

const TABLES: readonly Table[] = [
  {
    page: 'docs/relay.md',
    header: '| Option |',
    source: 'src/relay.ts',
    names: () => namesOf((given) => relayOptionsOf(target as never, given)),
  },
  {
    page: 'docs/tuning.md',
    header: '| Option |',
    source: 'src/stores/postgres/index.ts',
    names: () => namesOf((given) => postgresStore(client, given)),
  },
  {
    page: 'docs/mysql.md',
    header: '| Setting |',
    source: 'src/stores/mysql/index.ts',
    names: () => namesOf((given) => mysqlStore(client, given)),
  },
  {
    page: 'docs/brokers/redis.md',
    header: '| Option |',
    source: 'src/buses/redis/index.ts',
    names: () => ownOf(namesOf((given) => redisBus(client, given))),
  },
  {
    page: 'docs/brokers/nats.md',
    header: '| Option |',
    source: 'src/buses/nats/index.ts',
    names: () => ownOf(namesOf((given) => natsBus(client, given))),
  },
  {
    page: 'docs/brokers/rabbitmq.md',
    header: '| Option |',
    source: 'src/buses/rabbitmq/index.ts',
    names: () => ownOf(namesOf((given) => rabbitmqBus((() => {}) as never, given))),
  },
  {
    page: 'docs/brokers/kafka.md',
    header: '| Option |',
    source: 'src/buses/kafka/index.ts',
    names: () => ownOf(namesOf((given) => kafkaBus(client, given))),
  },
]

const nameIn = (row: Row) => row.cells.Option ?? row.cells.Setting ?? ''

/** The value behind `options.name ??` in a source, or the default of `whole('name', …)` or of a destructured option. */
function defaultIn(source: string, name: string): string | undefined {
  const patterns = [
    new RegExp(`\\.${name} \\?\\? ('[^']*'|\\[[^\\]]*\\]|[\\w.]+)`),
    new RegExp(`whole\\('(?:\\w+\\.)?${name}', [\\w.]+, ([\\d_]+),`),
    new RegExp(`[{,] ${name} = ('[^']*'|[\\w.]+)`),
  ]
  return patterns.map((pattern) => pattern.exec(read(source))?.[1]).find((value) => value !== undefined)
}

describe.each(TABLES)('the table of options in $page', ({ page, header, source, names }) => {
  const rows = tableOf(page, header)

  it('lists every option, and no other', () => {
    expect(rows.map(nameIn).sort()).toEqual(names().sort())
  })

  it('gives the defaults that the code has', () => {
    const pairs = rows.flatMap((row) => {
      const code = defaultIn(source, nameIn(row))
      const says = row.cells.Default ?? ''
      if (code === undefined || !isLiteral(code) || !isLiteral(says)) return []
      return [
        { place: row.place, says: numeric(says), code: numeric(code), what: `the default of ${nameIn(row)}` },
      ]
    })
    expect(differing(pairs)).toEqual([])
  })

  it('agrees with the doc comments', () => {
    const comments = commentedDefaults(source)
    const pairs = rows.flatMap((row) => {
      const commented = comments.get(nameIn(row))
      if (!commented || !isLiteral(commented.text)) return []
      const what = `the default of ${nameIn(row)} in ${commented.place}`
      return [
        { place: row.place, says: numeric(row.cells.Default ?? ''), code: numeric(commented.text), what },
      ]
    })
    expect(differing(pairs)).toEqual([])
  })
})

/** Text, a number, a list or a boolean. The page describes other defaults in words: `none`, `the broker's`. */
function isLiteral(text: string): boolean {
  return /^['[\d]|^(true|false)$/.test(text)
}

/** Numbers without separators, and everything else as it is. */
function numeric(text: string): string {
  return /^[\d,_]+$/.test(text) ? String(numberOf(text)) : text
}

describe('the table of options in docs/consuming.md', () => {
  const rows = tableOf('docs/consuming.md', '| Option |')
  const settings: Readonly<Record<string, unknown>> = { ...readBusOptions({}) }

  it('lists options that every bus has', () => {
    const known = namesOf((given) => redisBus(client, given))
    expect(
      rows.map((row) => nameIn(row).split('.')[0]).filter((name) => !known.includes(name as string)),
    ).toEqual([])
  })

  it('gives the defaults that the code has', () => {
    const pairs = rows.flatMap((row) => {
      const name = nameIn(row).split('.').at(-1) as string
      const code = settings[name]
      if (typeof code !== 'number') return []
      const says = (row.cells.Default ?? '').replace(/^maxAttempts \+ (\d+)$/, (_, more) =>
        String(Number(settings.maxAttempts) + Number(more)),
      )
      return [{ place: row.place, says: numberOf(says), code, what: `the default of ${nameIn(row)}` }]
    })
    expect(pairs.length).toBeGreaterThan(5)
    expect(differing(pairs)).toEqual([])
  })
})

it('docs/handling.md lists the options of a handler, and no other', () => {
  const known = namesOf((given) => outbox.on('a.b', 'c', () => {}, given))
  const rows = tableOf('docs/handling.md', '| Option |')
  expect(rows.map((row) => nameIn(row).replace(/:.*/, '')).sort()).toEqual(known.sort())
})

it('docs/events.md lists what the second argument of a factory sets, and nothing else', () => {
  const known = namesOf((given) => defineEvent('a.b')({}, given))
  const [sentence] = findIn(
    'docs/events.md',
    /The second argument of a definition's factory sets [^:]*:([^.]*)\./g,
  )
  const named = [...(sentence?.groups[1] ?? '').matchAll(/`(\w+)`/g)].map((match) => String(match[1]))
  expect(named.sort(), sentence?.place).toEqual(known.sort())
})

it('sqliteStore() has the options that docs/sqlite.md names', () => {
  const known = namesOf((given) => sqliteStore((() => {}) as never, given))
  const page = read('docs/sqlite.md')
  expect(known.filter((name) => !page.includes(name))).toEqual([])
})
