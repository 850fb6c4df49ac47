import { describe, expect, it } from 'vitest'
import type { InstanceRecord, SeenInstance, TypeFilter, UnhandledRequest } from './store.js'
import { VirtualClock } from './testing/virtual-clock.js'
import { pageOver, UnhandledTypes } from './unhandled.js'

const only = (...names: string[]): TypeFilter => ({ names, versions: names.map(() => 1), prefixes: [] })

/** A store whose pages, registrations and duration the test sets. */
function world(pages: (readonly string[])[]) {
  const clock = new VirtualClock()
  const state = { pages, accept: only('known'), takesMs: 0, requests: [] as UnhandledRequest[] }
  const instance = (): SeenInstance => {
    const counters: InstanceRecord['counters'] = { done: 0, failed: 0, dead: 0 }
    const times = { startedAt: new Date(0), lastSeenAt: new Date(0), stoppedAt: null }
    return {
      id: 'a',
      host: 'h',
      pid: 1,
      version: '1',
      handlers: {},
      accept: state.accept,
      counters,
      ...times,
    }
  }
  const store = {
    instances: async () => [instance()],
    async unhandled(request: UnhandledRequest) {
      state.requests.push(request)
      if (state.takesMs > 0) await new Promise<void>((done) => clock.setTimer(done, state.takesMs))
      const at = Number(request.after ?? 0)
      const after = at + 1 < state.pages.length ? String(at + 1) : null
      return { eventTypes: state.pages[at] ?? [], after }
    },
  }
  return { clock, state, types: new UnhandledTypes(store, clock) }
}

describe('UnhandledTypes', () => {
  it('has what one page shows, and forgets what the next look does not show', async () => {
    const { state, types } = world([['b', 'a', 'b']])
    expect(await types.look()).toEqual(['a', 'b'])
    state.pages = [['b']]
    expect(await types.look()).toEqual(['b'])
    state.pages = [[]]
    expect(await types.look()).toEqual([])
    expect(state.requests.map(({ after }) => after)).toEqual([null, null, null])
  })

  it('goes on behind the last page, and keeps a type until a pass over all pages has not met it', async () => {
    const { state, types } = world([['a'], [], ['b']])
    expect(await types.look()).toEqual(['a'])
    expect(await types.look()).toEqual(['a'])
    expect(await types.look()).toEqual(['a', 'b'])
    state.pages = [[], [], ['b']]
    expect(await types.look()).toEqual(['a', 'b'])
    expect(await types.look()).toEqual(['a', 'b'])
    expect(await types.look()).toEqual(['b'])
    expect(state.requests.map(({ after }) => after)).toEqual([null, '1', '2', null, '1', '2'])
  })

  it('begins anew when registrations change, and drops types that have a handler now', async () => {
    const { state, types } = world([['a', 'order.placed'], ['b'], []])
    await types.look()
    expect(await types.look()).toEqual(['a', 'b', 'order.placed'])
    state.accept = { names: ['known', 'a'], versions: [1, 1], prefixes: ['order.'] }
    state.pages = [[], ['b'], []]
    expect(await types.look()).toEqual(['b'])
    expect(state.requests.at(-1)?.after).toBe(null)
  })

  it('keeps a thousand types at most', async () => {
    const { types } = world([Array.from({ length: 1_500 }, (_, n) => `t${n}`)])
    expect(await types.look()).toHaveLength(1_000)
  })

  it('shares one page among calls at the same time, and repeats the page after a failure', async () => {
    const { state, types } = world([['a'], ['b']])
    await Promise.all([types.look(), types.look(), types.look()])
    expect(state.requests).toHaveLength(1)
    const broken = new UnhandledTypes(
      {
        instances: async () => [],
        unhandled: async (request) => {
          state.requests.push(request)
          throw new Error('down')
        },
      },
      new VirtualClock(),
    )
    await expect(broken.look()).rejects.toThrow('down')
    await expect(broken.look()).rejects.toThrow('down')
    expect(broken.types).toEqual([])
    expect(state.requests.map(({ after }) => after)).toEqual([null, null, null])
  })

  it('takes a twentieth of the time at most, however slow the database is', async () => {
    const { clock, state, types } = world([['a']])
    state.takesMs = 500
    const look = async () => {
      const looked = types.look()
      await clock.advance(500)
      return looked
    }
    expect(await look()).toEqual(['a'])
    state.pages = [[]]
    for (let n = 0; n < 19; n++) expect(await look()).toEqual(['a'])
    expect(state.requests).toHaveLength(1)
    expect(await look()).toEqual([])
    expect(state.requests).toHaveLength(2)
  })
})

describe('pageOver', () => {
  const source = (rows: readonly string[], limit: number) => ({
    start: [-1],
    async read([after = -1]: readonly (string | number)[]) {
      const page = rows.slice(Number(after) + 1, Number(after) + 1 + limit)
      return { eventTypes: page, end: page.length < limit ? null : [Number(after) + page.length] }
    },
  })

  it('reads each source to its own end', async () => {
    const sources = [source(['a', 'b', 'c', 'd'], 2), source(['e'], 2), source(['f', 'g'], 2)]
    const seen: string[] = []
    let after: string | null = null
    for (let pages = 0; pages === 0 || after !== null; pages++) {
      const page = await pageOver(sources, after)
      seen.push(page.eventTypes.join(''))
      after = page.after
    }
    expect(seen).toEqual(['abefg', 'cd', ''])
  })
})
