import { describe, expect, it } from 'vitest'
import { cpuCosts, type Frame, heapCosts, summarise } from '../../bench/profile/summary.js'

const root = new URL('../../', import.meta.url).href
const frame = (functionName: string, url = '', lineNumber = 0): Frame => ({ functionName, url, lineNumber })

const FRAMES = [
  frame('(root)'),
  frame('(idle)'),
  frame('(garbage collector)'),
  frame('#executeOne', `${root}dist/work/dispatcher.js`, 135),
  frame('add', `${root}dist/work/settler.js`, 9),
  frame('claim', `${root}dist/stores/postgres/claim.js`),
  frame('#decodeText', `${root}dist/core/envelope.js`),
  frame('parseRow', `${root}bench/node_modules/pg-protocol/dist/parser.js`, 227),
  frame('writev'),
  frame('nextTick', 'node:internal/process/task_queues'),
  frame('constructor', `${root}dist/outbox.js`),
  frame('', `${root}bench/roles/drain.js`),
  frame('post', 'node:inspector'),
]

describe('a CPU profile', () => {
  const nodes = FRAMES.map((callFrame, id) => ({ id, callFrame }))
  const samples = [1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
  const timeDeltas = [900, 40, 10, 20, 5, 5, 5, 5, 5, 3, 1, 1, 700]
  const { perEvent, areas, functions } = summarise(cpuCosts({ nodes, samples, timeDeltas }), 10)

  it('counts what was worked, and neither idling nor the sampling itself', () => {
    expect(perEvent).toBe(10)
  })

  it('is summed by area', () => {
    const shares = Object.fromEntries(areas.map(({ name, share }) => [name, Math.round(share * 100)]))
    expect(shares).toEqual({
      'garbage collector': 40,
      'ours: work': 30,
      'ours: settler': 5,
      'ours: store': 5,
      'JSON.parse': 5,
      'driver pg': 5,
      'socket writes': 5,
      'node internals': 3,
      'ours: outbox': 1,
      bench: 1,
    })
  })

  it('names functions with their place in the package, most first', () => {
    const names = functions.map(({ name }) => name)
    expect(names.slice(0, 2)).toEqual(['(garbage collector)', '#executeOne  dist/work/dispatcher.js:136'])
    expect(names).toContain('parseRow  pg-protocol/dist/parser.js:228')
    expect(names).toContain('(anonymous)  bench/roles/drain.js:1')
  })
})

it('sums the allocations of a function over all places that call it', () => {
  const leaf = (selfSize: number) => ({
    callFrame: frame('add', `${root}dist/work/settler.js`),
    selfSize,
    children: [],
  })
  const middle = { callFrame: frame('Map'), selfSize: 60, children: [leaf(30)] }
  const head = { callFrame: frame('(root)'), selfSize: 0, children: [middle, leaf(10)] }
  const { perEvent, functions } = summarise(heapCosts({ head }), 2)
  expect(perEvent).toBe(50)
  expect(functions).toEqual([
    { name: 'Map', share: 0.6, perEvent: 30 },
    { name: 'add  dist/work/settler.js:1', share: 0.4, perEvent: 20 },
  ])
})
