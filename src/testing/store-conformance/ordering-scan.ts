import assert from 'node:assert/strict'
import type { ClaimedRow } from '../../store.js'
import { done, event, LONG_MS, NONE, noise, onlyType, retry } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const ODD_KEYS = [
  ...[
    'a',
    'A',
    'a ',
    ' a',
    'a!',
    'aa',
    'AA',
    'b',
    '0',
    '10',
    '9',
    '*',
    '%',
    '_',
    '\\',
    '\\\\',
    "'",
    "''",
    '"',
  ],
  ...[
    'é',
    'e\u0301',
    'É',
    'ß',
    'ss',
    'ı',
    'i',
    'İ',
    'ａ',
    '\u00a0',
    '\u200b',
    '\ufb01',
    'fi',
    '日本',
    '\uffee',
  ],
  ...['😀', '\u{10ffff}', 'null', '$1', '{a,b}', "'); drop table outbox_event; --", 'z'.repeat(255)],
  ...['ü'.repeat(255), '\\'.repeat(255), '😀'.repeat(127)],
]

/** As UTF-8 sorts; JavaScript sorts by UTF-16 units. */
const byBytes = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b))

const keysOf = (rows: readonly ClaimedRow[]) => rows.map((row) => row.orderingKey ?? '')

function appendKeys(h: Harness<unknown>, keys: readonly string[], init: Parameters<typeof event>[0] = {}) {
  return h.append(keys.map((orderingKey) => ({ event: event({ ...init, orderingKey }) })))
}

const numbered = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, index) => `${prefix} ${String(index).padStart(5, '0')}`)

export const orderingScan: Theme = {
  name: 'scan of ordering keys',
  define(test) {
    test('keys are what they are, and come in the order of their bytes', async (h) => {
      await appendKeys(h, [...ODD_KEYS].reverse())
      await appendKeys(h, ODD_KEYS)
      const results = await h.claimAllKeys({ keys: 1 })
      const runs = results.filter((result) => result.rows.length > 0).map((result) => keysOf(result.rows))
      assert.deepEqual(
        runs,
        [...ODD_KEYS].sort(byBytes).map((key) => [key, key]),
      )
    })

    test('a scan begins behind a key, also one that is gone', async (h) => {
      await appendKeys(h, ['a', 'c', 'd'])
      assert.deepEqual(keysOf(await h.claimOrdered({ afterKey: 'c' })), ['d'])
      assert.deepEqual(keysOf(await h.claimOrdered({ afterKey: 'b' })), ['c'])
      const { rows, afterKey } = await h.claimOrderedResult({ afterKey: 'x' })
      assert.deepEqual([rows, afterKey], [[], null])
      assert.deepEqual(keysOf(await h.claimOrdered()), ['a'])
    })

    test('takes at most so many keys, and says where to go on', async (h) => {
      await appendKeys(h, ['a', 'b', 'c', 'd', 'e'])
      assert.deepEqual(await h.claimOrdered({ keys: 0, suspects: 1 }), [])
      const first = await h.claimOrderedResult({ keys: 2 })
      assert.deepEqual([keysOf(first.rows), first.afterKey], [['a', 'b'], 'b'])
      const second = await h.claimOrderedResult({ keys: 2, afterKey: 'b' })
      assert.deepEqual([keysOf(second.rows), second.afterKey], [['c', 'd'], 'd'])
      const third = await h.claimOrderedResult({ keys: 2, afterKey: 'd' })
      assert.deepEqual([keysOf(third.rows), third.afterKey], [['e'], null])
    })

    test('keys that cannot be taken do not count', async (h) => {
      await appendKeys(h, ['a', 'b'], { eventType: 'foreign' })
      await appendKeys(h, ['c', 'd', 'e'])
      const { rows, afterKey } = await h.claimOrderedResult({ keys: 2, accept: onlyType('order.placed') })
      assert.deepEqual([keysOf(rows), afterKey], [['c', 'd'], 'd'])
    })

    // Of nine rows with 10,002 bytes of payload each.
    for (const [what, tooFew, enough, oneKey] of [
      ['bytes', { maxBytes: 59_999 }, { maxBytes: 64_000 }, { maxBytes: 1 }],
      ['places', { limit: 5 }, { limit: 6 }, { limit: 1 }],
    ] as const) {
      const append = async (h: Harness<unknown>) => {
        for (const key of ['a', 'b', 'c']) await appendKeys(h, [key, key, key], { payload: noise(10_000) })
      }

      test(`a run is taken whole or not at all when the ${what} are few`, async (h) => {
        await append(h)
        const first = await h.claimOrderedResult(tooFew)
        assert.deepEqual(keysOf(first.rows), ['a', 'a', 'a'])
        assert.ok(first.afterKey !== null)
        const second = await h.claimOrderedResult({ ...enough, afterKey: first.afterKey })
        assert.deepEqual(keysOf(second.rows), ['b', 'b', 'b', 'c', 'c', 'c'])
      })

      test(`the first key is taken whole, however few the ${what} are`, async (h) => {
        await append(h)
        assert.deepEqual(keysOf(await h.claimOrdered(oneKey)), ['a', 'a', 'a'])
        assert.deepEqual(keysOf(await h.claimOrdered(oneKey)), ['b', 'b', 'b'])
      })
    }

    test('a key that did not fit comes next, and not only after all the others', async (h) => {
      await appendKeys(h, ['a', 'c', 'd'])
      await appendKeys(h, ['b'], { payload: 'x'.repeat(10_000) })
      const first = await h.claimOrderedResult({ maxBytes: 1_000 })
      assert.deepEqual(keysOf(first.rows), ['a'])
      assert.ok(first.afterKey !== null && first.afterKey < 'b')
      const rest = await h.claimOrdered({ maxBytes: 1_000, afterKey: first.afterKey })
      assert.deepEqual(keysOf(rest)[0], 'b')
    })

    test('one walk over many keys takes each of them once', async (h) => {
      const keys = numbered('key', 250)
      await appendKeys(h, keys, { payload: 'x'.repeat(98) })
      await appendKeys(h, keys, { payload: 'x'.repeat(98) })
      const results = await h.claimAllKeys({ keys: 60, limit: 90, maxBytes: 10_000 })
      assert.deepEqual(
        results.flatMap((result) => keysOf(result.rows)),
        keys.flatMap((key) => [key, key]),
      )
      assert.deepEqual(await h.claimOrderedResult({ afterKey: '' }), {
        rows: [],
        afterKey: null,
        nextDueMs: null,
      })
    })

    test('a thousand keys that wait, are worked on or are not accepted do not hide those behind them', async (h) => {
      const waiting = numbered('1 waiting', 400).map((orderingKey) => event({ orderingKey }))
      const leased = numbered('2 leased', 400).map((orderingKey) => event({ orderingKey }))
      await h.append(waiting.map((envelope) => ({ event: envelope, delayMs: LONG_MS })))
      await h.append(leased.map((envelope) => ({ event: envelope, token: 'hot:1' })))
      await appendKeys(h, numbered('3 foreign', 400), { eventType: 'foreign' })
      await appendKeys(h, ['9 free'])
      const results = await h.claimAllKeys({ accept: onlyType('order.placed'), suspects: 1 })
      assert.deepEqual(
        results.flatMap((result) => keysOf(result.rows)),
        ['9 free'],
      )
      assert.ok(results.length <= 10, `${results.length} claims for 1,201 keys`)
      assert.ok((results[0]?.nextDueMs ?? 0) > 0)
    })

    test('a scan in which nothing can be taken comes to its end', async (h) => {
      await appendKeys(h, numbered('key', 1_100))
      const results = await h.claimAllKeys({ accept: NONE })
      assert.deepEqual(
        results.flatMap((result) => result.rows),
        [],
      )
      assert.ok(results.length <= 10, `${results.length} claims for 1,100 keys`)
    })

    test('rows that come into a key behind the cursor are seen by the next scan from the start', async (h) => {
      await appendKeys(h, ['a', 'b', 'c'])
      const { rows } = await h.claimOrderedResult({ keys: 2 })
      await h.settle(rows.map(done))
      await appendKeys(h, ['a'])
      assert.deepEqual(keysOf(await h.claimOrdered({ afterKey: 'b' })), ['c'])
      assert.deepEqual(keysOf(await h.claimOrdered({ afterKey: '' })), ['a'])
    })

    test('twenty thousand rows behind one that fails are not in the way of other keys', async (h) => {
      const poison = Array.from({ length: 1_000 }, () => 'a poison')
      for (let round = 0; round < 20; round++) await appendKeys(h, poison)
      const [head] = await h.claimOrdered({ runLength: 1 })
      assert.ok(head)
      await h.settle([retry(head, { delayMs: LONG_MS })])
      const keys = numbered('key', 100)
      await appendKeys(h, keys)
      for (let from = 0; from < keys.length; from += 10) {
        const { rows } = await h.claimOrderedResult({ keys: 10 })
        assert.deepEqual(keysOf(rows), keys.slice(from, from + 10))
        assert.equal((await h.settle(rows.map(done), false)).length, 10)
      }
      const last = await h.claimOrderedResult()
      assert.deepEqual([last.rows, last.afterKey], [[], null])
      assert.equal((await h.store.stats()).pending, 20_000)
    })
  },
}
