import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { planted } from '../../faults/planted/index.js'
import { CURRENT_PAGES, differing, findIn, findInPages, numberOf, type Row, read, tableOf } from './pages.js'
import { ROOT } from './snippets.js'

const PAGE = 'docs/performance.md'
const REPORT = 'docs/performance/bench.md'

/** `84,998 /s (72,160–100,713 /s, ±18.5 %)` without the spread, and `≥ 2.5 ×` without its signs. */
const plain = (cell = '') =>
  cell
    .replace(/ \(.*/, '')
    .replaceAll(/[≥≤<×]/g, '')
    .trim()

/** Rows of every table of a page, whatever its header. */
function rowsOf(page: string): string[][] {
  const lines = read(page)
    .split('\n')
    .filter((line) => line.startsWith('|'))
  return lines.map((line) =>
    line
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  )
}

describe('docs/performance.md', () => {
  const bars = rowsOf(REPORT).filter(([bar = '']) => /^B\d+$/.test(bar))

  /** The row of the report that has the same figures. The first figure of the report is the median. */
  function isReported(
    bar: string,
    [ours = '', peer = '', ratio = '', least = '']: readonly string[],
  ): boolean {
    const wanted = [ours, peer, ratio, least].map(plain)
    return bars.some(
      ([name, , ...figures]) =>
        name === bar && figures.slice(0, 4).every((cell, at) => plain(cell) === wanted[at]),
    )
  }

  it('has the figures of the bars that the report has', () => {
    const rows = tableOf(PAGE, '| | what | ours |')
    expect(rows.length).toBeGreaterThan(12)
    const wrong = rows.filter(({ values: [bar = '', , ...figures] }) => !isReported(bar, figures))
    expect(
      wrong.map(({ place, values }) => `${place} says ${values.join(' | ')}, which is no row of ${REPORT}`),
    ).toEqual([])
  })

  it('has the figures of the relay that the report has', () => {
    const rows = tableOf(PAGE, '| B10 |')
    expect(rows).toHaveLength(4)
    const wrong = rows.filter(({ values: [, broker = '', ...figures] }) => {
      const name = (broker.split(' ')[0] as string).toLowerCase()
      const reported = bars.find(
        ([bar, what = '']) => bar === 'B10' && what.startsWith(`${name}: relay in batches of 500`),
      )
      return !figures.slice(0, 4).every((cell, at) => plain(cell) === plain(reported?.[at + 2]))
    })
    expect(
      wrong.map(({ place, values }) => `${place} says ${values.join(' | ')}, which is not in ${REPORT}`),
    ).toEqual([])
  })

  it('has rates and factors in its text that the report has', () => {
    const [text] = findIn(PAGE, /With the default logger on[\s\S]*?\n\n/g)
    const figures = [
      ...(text?.groups[0] ?? '').matchAll(/[\d,]{4,}(?= \/s)|[\d.]+(?= ×)|[\d,]{4,}(?=\n\()/g),
    ].map(([figure]) => figure)
    expect(figures.length).toBeGreaterThan(2)
    const report = bars.flat().map(plain)
    const wrong = figures.filter((figure) => !report.some((cell) => cell.replace(' /s', '') === figure))
    expect(wrong.map((figure) => `${text?.place} says ${figure}, which ${REPORT} does not`)).toEqual([])
  })

  it('has the sizes, rates and exponents of docs/performance/growth.md', () => {
    const growth = rowsOf('docs/performance/growth.md')
    const text = read('docs/performance/growth.md')
    const wrong = tableOf(PAGE, '| | sizes |').flatMap(
      ({ place, values: [, sizes = '', rates = '', exponent = ''] }) => {
        const shown = rates.split(' · ')
        const missing = sizes.split(' · ').flatMap((size, at) => {
          const amount = numberOf(size.replace(/ k?B$/, '')) * (size.endsWith('kB') ? 1_000 : 1)
          const rate = shown[at] as string
          const isThere = growth.some((row) => numberOf(row[0] as string) === amount && row[1] === rate)
          return isThere ? [] : [`${place} says ${rate} at ${size}`]
        })
        return text.includes(`largest sizes: ${exponent}`)
          ? missing
          : [...missing, `${place} says ${exponent}`]
      },
    )
    expect(wrong).toEqual([])
  })

  it('has the costs of docs/performance/cost.md', () => {
    const columns = ['WAL bytes', 'buffers', 'left dead', 'statements', 'transactions']
    const [drain, transaction] = ['20,000 events', '5,000 events'].map((title) => costsOf(title))
    let part = drain
    const wrong = tableOf(PAGE, '| | WAL |').flatMap(({ place, values: [name = '', ...cells] }) => {
      if (name.startsWith('**')) {
        part = name.includes('transaction') ? transaction : drain
        return []
      }
      const costs = part?.get(name) ?? {}
      const pairs = columns.map((what, at) => ({
        place,
        says: numberOf((cells[at] ?? '').replace(/ B$| \+ \d+$/g, '')),
        code: numberOf(costs[what] ?? 'none'),
        what: `${what} of ${name} in docs/performance/cost.md`,
      }))
      return differing(pairs)
    })
    expect(wrong).toEqual([])
  })

  /** Cells by column, by the name of the row, in the table below a heading. */
  function costsOf(title: string): ReadonlyMap<string, Readonly<Record<string, string>>> {
    const text = read('docs/performance/cost.md')
    const lines = text
      .slice(text.indexOf(`## ${title}`))
      .split('\n')
      .filter((line) => line.startsWith('|'))
    const [head = [], , ...rows] = lines.map((line) =>
      line
        .split('|')
        .slice(1, -1)
        .map((cell) => cell.trim()),
    )
    const end = rows.findIndex(([name]) => name === head[0])
    return new Map(
      rows
        .slice(0, end < 0 ? undefined : end)
        .map((row) => [
          row[0] as string,
          Object.fromEntries(head.map((name, at) => [name, row[at] as string])),
        ]),
    )
  }
})

describe('charts', () => {
  const CHARTS = 'docs/performance'
  /** Drawings without figures. */
  const DIAGRAMS = ['docs/architecture/event-path.svg']
  const embedded = findInPages(/!\[[^\]]*\]\(([^)]+\.svg)\)/g).map(({ place, groups: [, file = ''] }) => {
    const page = place.replace(/:\d+$/, '')
    return { place, page, file: path.posix.join(path.posix.dirname(page), file) }
  })
  const files = [...new Set(embedded.map(({ file }) => file))].sort()
  const charts = files.filter((file) => !DIAGRAMS.includes(file))
  const describedIn = (file: string) => /<desc[^>]*>([^<]*)/.exec(read(file))?.[1] ?? ''
  const bars = rowsOf(REPORT).filter(([bar = '']) => /^B\d+$/.test(bar))

  it('that pages embed are those beside the reports, and each file is embedded', () => {
    const isKnown = (file: string) => path.posix.dirname(file) === CHARTS || DIAGRAMS.includes(file)
    const others = embedded.filter(({ file }) => !isKnown(file))
    expect(others.map(({ place, file }) => `${place} embeds ${file}, which no report has`)).toEqual([])
    const docs = fs.readdirSync(path.join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    const all = docs.filter((name) => name.endsWith('.svg')).map((name) => path.posix.join('docs', name))
    expect(files).toEqual(all.sort())
  })

  it('have figures in their descriptions', () => {
    expect(charts.filter((file) => !/\d/.test(describedIn(file)))).toEqual([])
  })

  it('of the relay have the rates of docs/performance/bench.md', () => {
    const description = describedIn(`${CHARTS}/relay-throughput.svg`)
    const series = [...description.matchAll(/(\w+): ((?:\d[\d,]*\d at \d(?:[\d,]*\d)?(?:, )?)+)/g)]
    expect(series).toHaveLength(4)
    const pairs = series.flatMap(([, broker = '', points = '']) =>
      [...points.matchAll(/(\d[\d,]*\d) at (\d(?:[\d,]*\d)?)/g)].map(([, rate = '', size = '']) => {
        const what = `${broker}: relay in batches of ${numberOf(size)}, vs the bare client`
        const row = bars.find(([bar, name]) => bar === 'B10' && name === what)
        return {
          place: `${CHARTS}/relay-throughput.svg`,
          says: rate,
          code: plain(row?.[2]).replace(' /s', ''),
          what,
        }
      }),
    )
    expect(pairs.length).toBeGreaterThan(15)
    expect(differing(pairs)).toEqual([])
  })

  it('of the bars have the ratios of docs/performance/bench.md', () => {
    const bullets = describedIn(`${CHARTS}/ratios.svg`).split(/\. (?=B\d)/)
    const ratios = bullets.flatMap((text) => [...text.matchAll(/^(B\d+) +(.+): ([\d.]+) × \(/g)])
    expect(ratios.length).toBeGreaterThan(10)
    const pairs = ratios.map(([, bar = '', what = '', ratio = '']) => {
      const row = bars.find(([name, text]) => name === bar && text === what)
      return { place: `${CHARTS}/ratios.svg`, says: ratio, code: plain(row?.[4]), what: `${bar} ${what}` }
    })
    expect(differing(pairs)).toEqual([])
  })

  it.each([
    ['drain.svg', ['B1', 'B2']],
    ['latency.svg', ['B4', 'B13']],
  ])('%s has the figures of its bars in docs/performance/bench.md', (name, shown) => {
    const cells = bars.filter(([bar = '']) => shown.includes(bar)).flatMap((row) => row.slice(2, 4))
    const reported = cells.flatMap((cell) => cell.match(/[\d,.]*\d/g) ?? []).map(numberOf)
    const figures = [
      ...describedIn(`${CHARTS}/${name}`).matchAll(/([\d,.]*\d) \(([\d,.]*\d) to ([\d,.]*\d)\)/g),
    ]
    expect(figures.length).toBeGreaterThan(5)
    const wrong = figures
      .flatMap(([, ...numbers]) => numbers)
      // Charts show at least two digits.
      .filter((figure) => {
        const value = numberOf(figure)
        const half = value >= 100 ? 0 : 0.051 * 10 ** Math.floor(Math.log10(value))
        return !reported.some((one) => Math.abs(one - value) <= half)
      })
    expect(wrong.map((figure) => `${name} shows ${figure}, which ${REPORT} does not`)).toEqual([])
  })

  it.each(files.filter((file) => file.includes('/growth-')))(
    '%s has the figures of its table in docs/performance/growth.md',
    (file) => {
      const sections = read(`${CHARTS}/growth.md`).split('\n## ')
      const section = sections.find((text) => text.includes(`(${path.posix.basename(file)})`)) ?? ''
      const rows = section
        .split('\n')
        .filter((line) => line.startsWith('| '))
        .map((line) => line.split('|').map((cell) => numberOf(cell.trim())))
      const points = [...describedIn(file).matchAll(/([\d,.]+) at ([\d,.]*\d)(M?)/g)]
      expect(points.length).toBeGreaterThan(1)
      const wrong = points.filter(([, rate = '', size = '', mega]) => {
        const at = numberOf(size) * (mega ? 1_000_000 : 1)
        // The table shows whole numbers.
        return !rows.some((row) => row[1] === at && Math.abs((row[2] ?? 0) - numberOf(rate)) <= 0.5)
      })
      expect(wrong.map(([point]) => `${file} shows ${point}, which the table does not`)).toEqual([])
    },
  )
})

it('only the pages of the bench state rates and ratios of the bench', () => {
  const pages = CURRENT_PAGES.filter((page) => !/^bench\/|docs\/performance/.test(page))
  const pattern =
    /\b\d[\d,]{3,} \/s\b|\b(?:Redis|NATS|RabbitMQ|Kafka)(?: Streams| JetStream)? \d\.\d\d\b|\bB\d+\b[^|\n]{0,30}\d\.\d\d/g
  const figures = pages.flatMap((page) => findIn(page, pattern))
  expect(figures.map(({ place, groups }) => `${place} states ${groups[0]}; link to ${PAGE} instead`)).toEqual(
    [],
  )
})

describe('docs/reliability.md', () => {
  const report = read('docs/fault-campaign.md')
  const figure = (pattern: RegExp) => numberOf(pattern.exec(report)?.[1] ?? '')
  const seconds = (pattern: RegExp) => Math.round(figure(pattern) / 100) / 10
  const FIGURES: Readonly<Record<string, number>> = {
    rounds: figure(/(\d+) rounds in/),
    'rounds that failed': figure(/rounds in \d+ s, (\d+) failed/),
    'events committed': figure(/(\d+) events committed/),
    handled: figure(/(\d+) handled/),
    'dead, all of them poison': figure(/(\d+) dead/),
    'transactions rolled back': figure(/(\d+) transactions rolled back/),
    'commits whose answer was lost': figure(/(\d+) of unknown outcome/),
    SIGKILLs: figure(/(\d+) kills/),
    'connections cut': figure(/(\d+) cuts/),
    'of them behind COMMIT and before its answer': figure(/\((\d+) after COMMIT\)/),
    'server restarts and crashes': figure(/(\d+) restarts/),
    'zombies (SIGSTOP past the lease)': figure(/(\d+) zombies/),
    'strikes that missed their step': figure(/(\d+) missed their step/),
    'runs of handlers': figure(/(\d+) runs of handlers/),
    'of them duplicates, each with its cause': figure(/(\d+) of them duplicates/),
    'recovery after a strike, median': seconds(/recovery p50 (\d+) ms/),
    'recovery after a strike, at most': seconds(/recovery p50 \d+ ms, max (\d+) ms/),
  }

  it('has the figures of docs/fault-campaign.md', () => {
    const rows: readonly Row[] = tableOf('docs/reliability.md', '| | this run |')
    const pairs = rows.map(({ place, values: [name = '', value = ''] }) => ({
      place,
      says: numberOf(value.replace(/ s$/, '')),
      code: FIGURES[name] ?? 'unknown to this test',
      what: `"${name}" in docs/fault-campaign.md`,
    }))
    expect(pairs).toHaveLength(Object.keys(FIGURES).length)
    expect(differing(pairs)).toEqual([])
  })

  it('names the command that wrote docs/fault-campaign.md', () => {
    const command = /Written by `(npm run faults .*?) --markdown FILE`/.exec(report)?.[1]
    expect(read('docs/reliability.md')).toContain(`\`${command}\``)
  })

  it('states the number of planted bugs, known bugs, falsifications and seeds', () => {
    const WORDS: Readonly<Record<string, number>> = { Ten: 10, Eleven: 11, Twelve: 12, Thirteen: 13 }
    const count = (pattern: RegExp) => {
      const [found] = findIn('docs/reliability.md', pattern)
      const says = found?.groups[1] ?? ''
      return {
        place: found?.place ?? `docs/reliability.md (${pattern})`,
        says: WORDS[says] ?? numberOf(says),
      }
    }
    const listed = read('test/field-bugs/list.test.ts')
    const bugs = listed.slice(listed.indexOf('const BUGS'), listed.indexOf('\n]\n')).match(/'[^']+'/g)
    const mutations = findIn('test/faults/checker-mutations.test.ts', /^ {2}(?:'[^']+'|\w+): \[\n? *'I\d+'/gm)
    const [, seeds = ''] =
      /SIMULATION_SEEDS \?\? ([\d_]+)/.exec(read('test/support/simulation-seeds.ts')) ?? []
    const pairs = [
      {
        ...count(/(\w+) bugs are planted/g),
        code: Object.keys(planted).length,
        what: 'the number of planted bugs',
      },
      {
        ...count(/(\d+) bugs that other queues had/g),
        code: bugs?.length,
        what: 'the number of bugs in test/field-bugs/list.test.ts',
      },
      {
        ...count(/(\d+) kinds of small falsifications/g),
        code: mutations.length,
        what: 'the number of checker mutations',
      },
      {
        ...count(/([\d,]+) seeds with calls that fail/g),
        code: numberOf(seeds),
        what: 'the number of seeds',
      },
    ]
    expect(differing(pairs)).toEqual([])
  })
})
