import fs from 'node:fs'
import path from 'node:path'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { COUNTERS, DURATIONS, GAUGES } from '../../src/observe/names.js'
import { freshDatabase } from '../support/database.js'
import { observedRun } from '../support/observed-run.js'
import { openWorld } from '../support/world.js'
import { ROOT } from './snippets.js'

const PAGE = fs.readFileSync(path.join(ROOT, 'docs/metrics.md'), 'utf8')
const DASHBOARD = 'docs/grafana/aftercommit.json'

/** What Prometheus reads after a real run: the names of samples, and of the labels that each has. */
const exposed = new Map<string, Set<string>>()
const families = new Set<string>()

it('there is a run that shows every metric', async () => {
  const database = await freshDatabase(inject('postgresUrl'))
  onTestFinished(() => database.drop())
  const { text, samples } = await observedRun(await openWorld(database.url))
  for (const match of text.matchAll(/^# TYPE (\w+)/gm)) families.add(match[1] as string)
  for (const sample of samples.keys()) {
    const [name = ''] = sample.split('{')
    const labels = [...sample.matchAll(/[{,]([a-z_]+)="/g)].map((match) => match[1] as string)
    exposed.set(name, new Set([...(exposed.get(name) ?? []), ...labels]))
  }
  const named = [...exposed.keys()].map((name) => name.replace(/_seconds_(bucket|sum|count)$/, '_seconds'))
  expect(new Set(named)).toEqual(families)
})

describe('the table in docs/metrics.md', () => {
  const rows = [...PAGE.matchAll(/^\| `(\w+)` \| `(\S+)` \| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$/gm)]

  it('has every metric by both its names, its kind and what it means', () => {
    const kinds = { counter: COUNTERS, gauge: GAUGES, histogram: DURATIONS }
    const known = Object.entries(kinds).flatMap(([kind, metrics]) =>
      Object.entries(metrics).map(([name, { otel, prometheus, help }]) => [
        name,
        otel,
        prometheus,
        kind,
        help,
      ]),
    )
    expect(
      rows.map(([, name, otel, prometheus, kind, , help]) => [name, otel, prometheus, kind, help]),
    ).toEqual(known)
  })

  it('has the labels that the metrics have', () => {
    for (const [, , , prometheus = '', kind, labels = ''] of rows) {
      const sample = kind === 'histogram' ? `${prometheus}_count` : prometheus
      const documented = labels
        .replace(/ = \w+/, '')
        .split(', ')
        .filter(Boolean)
      expect([prometheus, ...documented]).toEqual([prometheus, ...(exposed.get(sample) ?? [])])
    }
  })

  it('and the alerts below it name metrics that exist', () => {
    const names = [...PAGE.slice(PAGE.indexOf('## Alerts')).matchAll(/aftercommit_\w+/g)].map(
      ([name]) => name,
    )
    expect(names.length).toBeGreaterThan(3)
    expect(names.filter((name) => !exposed.has(name))).toEqual([])
  })
})

interface Panel {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly gridPos: { readonly h: number; readonly w: number; readonly x: number; readonly y: number }
  readonly datasource?: object
  readonly targets?: readonly {
    readonly refId: string
    readonly expr: string
    readonly legendFormat: string
  }[]
}

describe('the dashboard for Grafana', () => {
  const dashboard = JSON.parse(fs.readFileSync(path.join(ROOT, DASHBOARD), 'utf8'))
  const panels: readonly Panel[] = dashboard.panels
  const drawn = panels.filter(({ type }) => type !== 'row')
  const variables: readonly { name: string; type: string; query: string | { query: string } }[] =
    dashboard.templating.list
  const expressions = [
    ...drawn.flatMap(({ targets }) => targets?.map(({ expr }) => expr) ?? []),
    ...variables.map(({ query }) => (typeof query === 'string' ? query : query.query)),
  ]

  it('names metrics and labels that a real run shows, and all of them', () => {
    const named = new Set<string>()
    for (const expr of expressions) {
      for (const [, name = '', selector = ''] of expr.matchAll(/\b(aftercommit_\w+)(\{[^}]*\})?/g)) {
        named.add(name.replace(/_seconds_(bucket|sum|count)$/, '_seconds'))
        expect([...exposed.keys()]).toContain(name)
        const labels = [...selector.matchAll(/(\w+)=/g)].map((match) => match[1] as string)
        expect([expr, labels.filter((label) => !isLabelOf(name, label))]).toEqual([expr, []])
      }
      const [, by = ''] = /\bby \(([^)]*)\)/.exec(expr) ?? []
      const [, name = ''] = /\b(aftercommit_\w+)/.exec(expr) ?? []
      expect([expr, by.split(', ').filter((label) => label && !isLabelOf(name, label))]).toEqual([expr, []])
    }
    expect(named).toEqual(families)
  })

  /** The first two come from Prometheus itself. */
  function isLabelOf(name: string, label: string): boolean {
    return ['job', 'instance'].includes(label) || exposed.get(name)?.has(label) === true
  }

  it('has what Grafana needs to import and draw it', () => {
    expect(dashboard).toMatchObject({
      uid: 'aftercommit',
      title: expect.any(String),
      schemaVersion: expect.any(Number),
      time: { from: expect.any(String), to: expect.any(String) },
    })
    expect(dashboard.id).toBeUndefined()
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    for (const panel of drawn) {
      expect(panel).toMatchObject({
        title: expect.stringMatching(/\S/),
        datasource: { type: 'prometheus', uid: expect.stringMatching(/^\$\{datasource\}$/) },
        fieldConfig: { defaults: { unit: expect.any(String) }, overrides: [] },
        options: expect.any(Object),
      })
      expect(['stat', 'timeseries']).toContain(panel.type)
      expect(panel.targets?.length).toBeGreaterThan(0)
      expect(new Set(panel.targets?.map(({ refId }) => refId)).size).toBe(panel.targets?.length)
    }
    expect(variables[0]).toMatchObject({ name: 'datasource', type: 'datasource', query: 'prometheus' })
  })

  it('uses the variables that it defines, and closes what it opens', () => {
    const known = new Set([...variables.map(({ name }) => name), '__rate_interval', '__all'])
    for (const expr of expressions) {
      const used = [...expr.matchAll(/\$(\w+)/g)].map((match) => match[1] as string)
      expect(used.filter((name) => !known.has(name))).toEqual([])
      for (const [open, close] of ['()', '{}', '[]']) {
        expect([expr, expr.split(open as string).length]).toEqual([expr, expr.split(close as string).length])
      }
    }
  })

  it('has no two panels in one place, and none beyond the edge', () => {
    const taken = new Set<string>()
    for (const { title, gridPos } of panels) {
      expect([title, gridPos.x + gridPos.w <= 24]).toEqual([title, true])
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++) {
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect([title, taken.has(`${x} ${y}`)]).toEqual([title, false])
          taken.add(`${x} ${y}`)
        }
      }
    }
  })
})
