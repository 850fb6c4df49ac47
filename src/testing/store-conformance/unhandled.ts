import assert from 'node:assert/strict'
import type { UnhandledRequest } from '../../store.js'
import { dead, done, event, LONG_MS, NONE, onlyPrefix, onlyType, retry, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

interface Looked {
  readonly types: readonly string[]
  readonly pages: number
}

/** Reads all pages. */
async function look(h: Harness<unknown>, request: Partial<UnhandledRequest> = {}): Promise<Looked> {
  const defaults = { known: onlyType('known'), olderThanMs: 0, limit: 1_000 }
  const found = new Set<string>()
  let after: string | null = null
  for (let pages = 1; ; pages++) {
    const page = await h.store.unhandled({ ...defaults, ...request, after })
    for (const type of page.eventTypes) found.add(type)
    after = page.after
    if (after === null) return { types: [...found].sort(), pages }
    assert.ok(pages < 1_000, 'the pages never come to an end')
  }
}

async function typesOf(h: Harness<unknown>, request: Partial<UnhandledRequest> = {}) {
  return (await look(h, request)).types
}

export const unhandled: Theme = {
  name: 'unhandled types',
  define(test) {
    test('an empty store has none, on one page', async (h) => {
      assert.deepEqual(await look(h), { types: [], pages: 1 })
    })

    test('finds the types that no filter accepts, each once per page', async (h) => {
      await h.appendFree(3, { eventType: 'known' })
      await h.appendFree(3, { eventType: 'b' })
      await h.appendFree(2, { eventType: 'a' })
      const { eventTypes } = await h.store.unhandled({
        known: onlyType('known'),
        olderThanMs: 0,
        limit: 100,
        after: null,
      })
      assert.deepEqual([...eventTypes].sort(), ['a', 'b'])
    })

    test('finds new, leased, delayed, failed and ordered events, also behind the first of a key', async (h) => {
      await h.append([
        { event: event({ eventType: 'new' }) },
        { event: event({ eventType: 'leased' }), token: 'hot:1' },
        { event: event({ eventType: 'delayed' }), delayMs: LONG_MS },
        { event: event({ eventType: 'known', orderingKey: 'k' }) },
        { event: event({ eventType: 'ordered', orderingKey: 'k' }) },
        { event: event({ eventType: 'failed' }) },
      ])
      await h.settle([retry(await h.claimOne({ accept: onlyType('failed') }), { delayMs: LONG_MS })])
      assert.deepEqual(await typesOf(h), ['delayed', 'failed', 'leased', 'new', 'ordered'])
    })

    test('does not see what is done or dead, halting its key or not', async (h) => {
      await h.append([
        { event: event({ eventType: 'a', orderingKey: 'k' }) },
        { event: event({ eventType: 'b', orderingKey: 'l' }) },
        { event: event({ eventType: 'c' }) },
      ])
      const keyed = await h.claimOrdered()
      await h.settle(keyed.map((row) => dead(row, { halts: row.orderingKey === 'k' })))
      await h.settle([done(await h.claimOne())], true)
      await h.makeDead({ eventType: 'd' })
      assert.deepEqual(await typesOf(h), [])
    })

    test('leaves out what is younger', async (h) => {
      await h.appendFree(1, { eventType: 'old' })
      await h.append([{ event: event({ eventType: 'old delayed' }), delayMs: LONG_MS }])
      await h.appendFree(1, { eventType: 'old keyed', orderingKey: 'k' })
      assert.deepEqual(await typesOf(h, { olderThanMs: LONG_MS }), [])
      await h.elapse(SHORT_MS)
      const types = await typesOf(h, { olderThanMs: SHORT_MS })
      assert.deepEqual(types, ['old', 'old delayed', 'old keyed'])
    })

    test('knows handlers of a prefix, of one aggregate type, and of a version', async (h) => {
      await h.appendFree(1, { eventType: 'order.placed' })
      await h.appendFree(1, { eventType: 'orders' })
      await h.appendFree(1, { eventType: 'bound', aggregateType: 'mine' })
      assert.deepEqual(await typesOf(h, { known: onlyPrefix('order.') }), ['bound', 'orders'])
      const known = { ...onlyType('mine\u001fbound'), prefixes: ['order'] }
      assert.deepEqual(await typesOf(h, { known }), [])
      await h.appendFree(1, { eventType: 'bound', aggregateType: 'other' })
      assert.deepEqual(await typesOf(h, { known }), ['bound'])
      await h.appendFree(1, { eventType: 'known', version: 2 })
      assert.deepEqual(await typesOf(h, { known: { ...onlyType('known'), prefixes: ['order', 'bound'] } }), [
        'known',
      ])
    })

    test('takes no notice of pauses', async (h) => {
      await h.appendFree(1, { eventType: 'known' })
      await h.appendFree(1, { eventType: 'a' })
      await h.store.pause('*')
      const known = { ...onlyType('known'), excludedTypes: ['*', 'known', 'a'] }
      assert.deepEqual(await typesOf(h, { known }), ['a'])
    })

    test('reads page by page, and meets every row in front of and behind known ones', async (h) => {
      const delayed = (eventType: string, delayMs: number) => ({ event: event({ eventType }), delayMs })
      const keyed = (eventType: string, orderingKey: string) => ({
        event: event({ eventType, orderingKey }),
      })
      await h.append([
        ...['first', ...Array(20).fill('known'), 'last'].map((eventType) => ({
          event: event({ eventType }),
        })),
        ...Array.from({ length: 20 }, (_, at) => delayed('known', LONG_MS + at)),
        delayed('sooner', LONG_MS - 1_000),
        delayed('later', LONG_MS + 1_000),
        keyed('head', 'a'),
        ...Array.from({ length: 20 }, () => keyed('known', 'b')),
        keyed('behind', 'b'),
        keyed('tail', 'b\u00e9'),
      ])
      const expected = ['behind', 'first', 'head', 'last', 'later', 'sooner', 'tail']
      for (const limit of [1, 2, 7, 21, 22, 1_000]) {
        const { types, pages } = await look(h, { limit })
        assert.deepEqual([limit, types], [limit, expected])
        assert.ok(pages <= 67 / limit + 1, `${pages} pages of ${limit} rows`)
        assert.ok(limit > 67 || pages >= 22 / limit, `${pages} pages of ${limit} rows`)
      }
    })

    test('comes to an end although many rows are due at one moment', async (h) => {
      const rows = Array.from({ length: 20 }, () => ({ event: event({ eventType: 'a' }), delayMs: LONG_MS }))
      await h.append(rows)
      assert.deepEqual(await typesOf(h, { limit: 3, known: NONE }), ['a'])
    })

    test('names of any kind come back as they are', async (h) => {
      const types = ["it's", 'a"b\\', 'z\u00fcrich', '\u{1f600}', 'x'.repeat(255)]
      await h.append(types.map((eventType) => ({ event: event({ eventType, orderingKey: eventType }) })))
      assert.deepEqual(await typesOf(h, { limit: 2 }), [...types].sort())
    })

    test('changes no row and leaves no lock', async (h) => {
      const [id = ''] = await h.appendFree(1, { eventType: 'a' })
      const before = await h.record(id)
      await typesOf(h)
      assert.deepEqual(await h.record(id), before)
      assert.equal((await h.claimOne()).eventId, id)
    })
  },
}
