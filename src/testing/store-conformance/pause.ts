import assert from 'node:assert/strict'
import type { ClaimedRow, TypeFilter } from '../../store.js'
import { ANY, done, event, LONG_MS, NONE, onlyPrefix, onlyType, retry, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const ODD_TYPES = [
  'order.placed',
  'Order.Placed',
  'order.placed ',
  "x'); drop --",
  'a\\b "c" $1',
  'ünï 😀',
  '%',
  '_',
]

const except = (accept: TypeFilter, ...types: string[]): TypeFilter => ({ ...accept, excludedTypes: types })

const typesOf = (rows: readonly ClaimedRow[]) => rows.map((row) => row.eventType).sort()

async function appendTypes(
  h: Harness<unknown>,
  types: readonly string[],
  orderingKey?: string,
): Promise<void> {
  await h.append(types.map((eventType) => ({ event: event({ eventType, orderingKey }) })))
}

function claimFresh(h: Harness<unknown>, accept: TypeFilter) {
  const bounds = { limit: 100, maxBytes: 1_000_000, fromSeq: 0, suspects: 0, skipRecentMs: 0 }
  return h.store.claim({ token: h.token(), leaseMs: LONG_MS, accept, freshOnly: true, ...bounds })
}

export const pause: Theme = {
  name: 'pause',
  define(test) {
    test('nothing is paused at first', async (h) => {
      assert.deepEqual(await h.store.paused(), [])
    })

    test('what is paused is kept, exactly as it was written, until it is resumed', async (h) => {
      const types = [...ODD_TYPES, '*']
      for (const type of types) await h.store.pause(type)
      assert.deepEqual([...(await h.store.paused())].sort(), [...types].sort())
      assert.equal(await h.store.resume('order.placed'), true)
      assert.deepEqual(
        [...(await h.store.paused())].sort(),
        types.filter((type) => type !== 'order.placed').sort(),
      )
      for (const type of types) assert.equal(await h.store.resume(type), type !== 'order.placed')
      assert.deepEqual(await h.store.paused(), [])
    })

    test('pausing twice is pausing once', async (h) => {
      await h.store.pause('a')
      await h.store.pause('a')
      assert.deepEqual(await h.store.paused(), ['a'])
      assert.equal(await h.store.resume('a'), true)
      assert.equal(await h.store.resume('a'), false)
      await h.store.pause('a')
      assert.deepEqual(await h.store.paused(), ['a'])
    })

    test('what is not paused cannot be resumed', async (h) => {
      await h.store.pause('a')
      for (const type of ['b', '*', 'A', '']) assert.equal(await h.store.resume(type), false)
      assert.deepEqual(await h.store.paused(), ['a'])
    })

    test('pauses outlive the instance that made them', async (h) => {
      await h.store.pause('a')
      await h.store.close()
      await h.store.open({ onRing: () => {}, onWarning: () => {} })
      assert.deepEqual(await h.store.paused(), ['a'])
    })

    test('heartbeats and registrations of stopped consumers return what is paused', async (h) => {
      const instance = { id: 'i-1', host: 'h', pid: 1, version: '1', handlers: {}, accept: ANY }
      const beat = () => h.store.heartbeat({ ...instance, counters: { done: 0, failed: 0, dead: 0 } })
      assert.deepEqual(await beat(), [])
      await h.store.pause('a')
      await h.store.pause('*')
      assert.deepEqual([...(await beat())].sort(), ['*', 'a'])
      await h.store.resume('*')
      assert.deepEqual(await beat(), ['a'])
      const counters = { done: 0, failed: 0, dead: 0 }
      assert.deepEqual(await h.store.registerStopped({ ...instance, counters }, 'i-2'), ['a'])
    })

    test('many at the same time: each is paused once, and resumed by one of them', async (h) => {
      await Promise.all(['a', 'b', 'a', 'b', 'a', 'b'].map((type) => h.store.pause(type)))
      assert.deepEqual([...(await h.store.paused())].sort(), ['a', 'b'])
      const answers = await Promise.all(['a', 'a', 'a', 'a'].map((type) => h.store.resume(type)))
      assert.equal(answers.filter((answer) => answer).length, 1)
      assert.deepEqual(await h.store.paused(), ['b'])
    })

    test('a claim leaves excepted types alone, whatever else accepts them', async (h) => {
      await appendTypes(h, ['order.placed', 'order.shipped', 'user.created'])
      const wide = {
        names: ['order.placed', '__GLOBAL__\u001forder.placed'],
        versions: [9, 9],
        prefixes: ['order.', ''],
      }
      assert.deepEqual(typesOf(await h.claim({ accept: except(wide, 'order.placed', 'nobody') })), [
        'order.shipped',
        'user.created',
      ])
      assert.deepEqual(await h.claim({ accept: except(onlyType('order.placed'), 'order.placed') }), [])
      assert.deepEqual(await h.claim({ accept: except(onlyPrefix('order.'), 'order.placed') }), [])
      assert.deepEqual(typesOf(await h.claim({ accept: except(ANY) })), ['order.placed'])
    })

    test('an exception is a name and no pattern', async (h) => {
      await appendTypes(h, ODD_TYPES)
      const kept = ODD_TYPES.slice(1)
      const accept = except(ANY, 'order.placed', 'order.*', 'order', 'order.place_', '')
      assert.deepEqual(typesOf(await h.claim({ accept })), [...kept].sort())
      assert.deepEqual(await h.claim({ accept: except(ANY, ...ODD_TYPES) }), [])
    })

    test('each of many odd names can be excepted', async (h) => {
      await appendTypes(h, [...ODD_TYPES, 'other'])
      assert.deepEqual(typesOf(await h.claim({ accept: except(ANY, ...ODD_TYPES) })), ['other'])
    })

    test('a claim of fresh rows only heeds it too', async (h) => {
      await appendTypes(h, ['paused', 'other'])
      assert.deepEqual(typesOf((await claimFresh(h, except(ANY, '*'))).rows), [])
      assert.deepEqual(typesOf((await claimFresh(h, except(ANY, 'paused'))).rows), ['other'])
    })

    test('rows to be tried again, delayed rows and rows of lost leases are excepted too', async (h) => {
      await appendTypes(h, ['paused'])
      await h.settle([retry(await h.claimOne())])
      const rows = [{ delayMs: 1 }, { token: 'lost:1' }]
      await h.append(
        rows.map((row) => ({ ...row, event: event({ eventType: 'paused' }) })),
        { leaseMs: SHORT_MS },
      )
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claim({ suspects: 10, accept: except(ANY, 'paused') }), [])
      assert.deepEqual(await h.claim({ suspects: 10, accept: except(ANY, '*') }), [])
      assert.equal((await h.claim({ suspects: 10 })).length, 3)
    })

    test('paused rows in front do not hide what is not paused', async (h) => {
      await h.appendFree(300, { eventType: 'paused' })
      const [other] = await h.appendFree(1, { eventType: 'other' })
      assert.deepEqual(await h.claimIds({ limit: 10, accept: except(ANY, 'paused') }), [other])
    })

    test('an asterisk excepts everything', async (h) => {
      await appendTypes(h, ['a', 'b'])
      await appendTypes(h, ['a', 'b'], 'key')
      for (const accept of [except(ANY, '*'), except(onlyType('a'), 'x', '*'), except(NONE, '*')]) {
        assert.deepEqual(await h.claim({ accept }), [])
        assert.deepEqual(await h.claimOrdered({ accept }), [])
      }
    })

    test('an excepted row holds its ordering key: it is not passed over, and ends a run', async (h) => {
      await appendTypes(h, ['other', 'paused', 'other'], 'a')
      await appendTypes(h, ['paused', 'other'], 'b')
      await appendTypes(h, ['other'], 'c')
      const accept = except(ANY, 'paused')
      const rows = await h.claimOrdered({ accept })
      assert.deepEqual(
        rows.map((row) => [row.orderingKey, row.eventType]),
        [
          ['a', 'other'],
          ['c', 'other'],
        ],
      )
      await h.settle(rows.map(done))
      assert.deepEqual(await h.claimOrdered({ accept }), [])
      assert.deepEqual(
        (await h.claimOrdered()).map((row) => [row.orderingKey, row.eventType]),
        ['a', 'b'].flatMap((key) => ['paused', 'other'].map((type) => [key, type])),
      )
    })

    test('an excepted suspect of an ordering key is left alone', async (h) => {
      const lost = event({ eventType: 'paused', orderingKey: 'a' })
      await h.append([{ event: lost, token: 'lost:1' }], { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimOrdered({ suspects: 1, accept: except(ANY, 'paused') }), [])
      assert.deepEqual(await h.claimOrderedIds({ suspects: 1 }), [lost.eventId])
    })

    test('what is paused does not become unroutable', async (h) => {
      await appendTypes(h, ['known', 'unknown'])
      await appendTypes(h, ['known'], 'a')
      await appendTypes(h, ['unknown'], 'b')
      const request = { token: h.token(), leaseMs: LONG_MS, limit: 100, olderThanMs: 0 }
      for (const excepted of [['known', 'unknown'], ['*'], []]) {
        const rows = await h.store.claimUnroutable({
          ...request,
          known: except(onlyType('known'), ...excepted),
        })
        assert.deepEqual(typesOf(rows), ['unknown', 'unknown'])
        await h.settle(rows.map(({ eventId, token }) => ({ eventId, token, outcome: 'release', delayMs: 0 })))
      }
    })
  },
}
