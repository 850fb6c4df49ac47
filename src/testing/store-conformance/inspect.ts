import assert from 'node:assert/strict'
import { done, event, LONG_MS, retry, SHORT_MS } from './fixtures.js'
import type { Theme } from './suite.js'

export const inspect: Theme = {
  name: 'stats and list',
  define(test) {
    test('an empty store has nothing to tell', async (h) => {
      const counters = { done: 0, failed: 0, dead: 0 }
      assert.deepEqual(await h.store.stats(), { pending: 0, dead: 0, counters, oldestLagMs: 0 })
      assert.deepEqual(await h.store.list({}), [])
    })

    test('pending counts new, leased, delayed and failed rows', async (h) => {
      await h.appendFree(1)
      await h.settle([retry(await h.claimOne(), { delayMs: LONG_MS })])
      await h.append([{}, { token: 'hot:1' }, { delayMs: LONG_MS }])
      await h.makeDead()
      await h.append([{ token: 'hot:2' }])
      const [last] = await h.store.list({ afterSeq: (await h.claimResult({ limit: 0 })).highSeq - 1 })
      await h.settle([done({ eventId: last?.eventId ?? '', token: 'hot:2' })])
      const { pending, dead } = await h.store.stats()
      assert.deepEqual([pending, dead], [4, 1])
    })

    test('the lag is the age of the oldest due event, leased or not', async (h) => {
      await h.appendFree(1)
      await h.elapse(SHORT_MS)
      assert.ok((await h.store.stats()).oldestLagMs >= SHORT_MS)
      const row = await h.claimOne()
      assert.ok((await h.store.stats()).oldestLagMs >= SHORT_MS)
      await h.settle([done(row)])
      assert.equal((await h.store.stats()).oldestLagMs, 0)
    })

    test('rows of ordering keys count and lag, also those behind the first', async (h) => {
      await h.append([
        { event: event({ orderingKey: 'a' }), delayMs: LONG_MS },
        { event: event({ orderingKey: 'a' }) },
      ])
      await h.elapse(SHORT_MS)
      const { pending, oldestLagMs } = await h.store.stats()
      assert.equal(pending, 2)
      assert.ok(oldestLagMs >= SHORT_MS && oldestLagMs < LONG_MS)
    })

    test('events that are not due yet do not lag', async (h) => {
      await h.append([{ delayMs: LONG_MS }])
      await h.elapse(SHORT_MS)
      assert.equal((await h.store.stats()).oldestLagMs, 0)
    })

    test('lists in the order of seq, page by page', async (h) => {
      const ids = await h.appendFree(5)
      const first = await h.store.list({ limit: 2 })
      assert.deepEqual(
        first.map((row) => row.eventId),
        ids.slice(0, 2),
      )
      const rest = await h.store.list({ afterSeq: first[1]?.seq, limit: 10 })
      assert.deepEqual(
        rest.map((row) => row.eventId),
        ids.slice(2),
      )
    })

    test('lists by status', async (h) => {
      await h.appendFree(3)
      const [first, other] = await h.claim({ limit: 2 })
      assert.ok(first && other)
      await h.settle([done(first), retry(other)])
      const dead = await h.makeDead({ eventType: 'other' })
      const expected = { DONE: first.eventId, DEAD: dead }
      for (const status of ['DONE', 'DEAD'] as const) {
        const rows = await h.store.list({ status })
        assert.deepEqual(
          rows.map((row) => [row.status, row.eventId]),
          [[status, expected[status]]],
        )
      }
      const statuses = (await h.store.list({})).map((row) => row.status)
      assert.deepEqual(statuses.sort(), ['DEAD', 'DONE', 'NEW', 'RETRY'])
    })

    test('lists by id and by type, and both', async (h) => {
      const [a] = await h.appendFree(1, { eventType: 'a' })
      const [b, otherB] = await h.appendFree(2, { eventType: 'b' })
      const ids = async (filter: Parameters<typeof h.store.list>[0]) =>
        (await h.store.list(filter)).map((row) => row.eventId)
      assert.deepEqual(await ids({ eventType: 'b' }), [b, otherB])
      assert.deepEqual(await ids({ eventIds: [b ?? '', a ?? '', 'nobody'] }), [a, b])
      assert.deepEqual(await ids({ eventIds: [a ?? '', b ?? ''], eventType: 'b' }), [b])
      assert.deepEqual(await ids({ eventIds: [] }), [])
      assert.deepEqual(await ids({ eventType: 'nobody' }), [])
    })

    test('a record of a new row has its times and nothing else', async (h) => {
      const [id] = await h.appendFree(1)
      const record = await h.record(id ?? '')
      assert.deepEqual([record.status, record.attempts, record.lastError], ['NEW', 0, null])
      assert.deepEqual([record.handledBy, record.failures], [[], []])
      assert.deepEqual([record.lockedBy, record.lockedUntil, record.doneAt], [null, null, null])
      assert.ok(record.createdAt instanceof Date && record.availableAt instanceof Date)
    })
  },
}
