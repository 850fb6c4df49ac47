import assert from 'node:assert/strict'
import { done, retry } from './fixtures.js'
import type { Theme } from './suite.js'

export const deadLetters: Theme = {
  name: 'dead letters',
  define(test) {
    test('a dead row is due again with a fresh attempt count', async (h) => {
      const id = await h.makeDead()
      assert.deepEqual(await h.store.retryDead({ eventIds: [id] }), [id])
      const { pending, dead } = await h.store.stats()
      assert.deepEqual([pending, dead], [1, 0])
      const row = await h.claimOne()
      assert.deepEqual([row.eventId, row.attempts, row.suspect], [id, 0, false])
      assert.deepEqual(await h.settle([done(row)]), [id])
    })

    test('a dead row that is retried is found whatever the floor', async (h) => {
      const id = await h.makeDead()
      const { highSeq } = await h.claimResult()
      await h.store.retryDead({ eventIds: [id] })
      assert.deepEqual(await h.claimIds({ fromSeq: highSeq + 1 }), [id])
    })

    test('handlers that had succeeded are still known', async (h) => {
      await h.appendFree(1)
      await h.settle([retry(await h.claimOne(), { handledBy: ['mail'] })])
      const row = await h.claimOne()
      const died = {
        outcome: 'dead',
        error: 'x',
        failures: [],
        handledBy: ['mail'],
        delayMs: 0,
        attempts: 1,
      } as const
      await h.settle([{ eventId: row.eventId, token: row.token, ...died }])
      await h.store.retryDead({})
      assert.deepEqual((await h.claimOne()).handledBy, ['mail'])
    })

    for (const method of ['retryDead', 'discardDead'] as const) {
      test(`${method} by id takes those only`, async (h) => {
        const ids = [await h.makeDead(), await h.makeDead(), await h.makeDead()]
        assert.deepEqual(
          [...(await h.store[method]({ eventIds: ids.slice(0, 2) }))].sort(),
          ids.slice(0, 2).sort(),
        )
        assert.deepEqual(
          (await h.store.list({ status: 'DEAD' })).map((row) => row.eventId),
          ids.slice(2),
        )
      })

      test(`${method} by type takes those only`, async (h) => {
        const wanted = await h.makeDead({ eventType: 'wanted' })
        const other = await h.makeDead({ eventType: 'other' })
        assert.deepEqual(await h.store[method]({ eventType: 'wanted' }), [wanted])
        assert.deepEqual(
          (await h.store.list({ status: 'DEAD' })).map((row) => row.eventId),
          [other],
        )
      })

      test(`${method} without a filter takes all, and bounded by a limit that many`, async (h) => {
        const ids = [await h.makeDead(), await h.makeDead(), await h.makeDead()]
        assert.equal((await h.store[method]({ limit: 1 })).length, 1)
        assert.equal((await h.store[method]({})).length, 2)
        assert.equal((await h.store.stats()).dead, 0)
        assert.equal((await h.store[method]({ eventIds: ids })).length, 0)
      })

      test(`${method} touches dead rows only`, async (h) => {
        await h.appendFree(4)
        const [kept, retried] = await h.claim({ limit: 2 })
        assert.ok(kept && retried)
        await h.settle([done(kept), retry(retried)])
        await h.claim({ limit: 1 })
        const before = await h.store.list({})
        assert.deepEqual(await h.store[method]({}), [])
        assert.deepEqual(await h.store[method]({ eventIds: before.map((row) => row.eventId) }), [])
        assert.deepEqual(await h.store[method]({ eventIds: [] }), [])
        assert.deepEqual(await h.store.list({}), before)
      })
    }

    test('an empty list of ids means none of them, not all', async (h) => {
      await h.makeDead()
      assert.deepEqual(await h.store.retryDead({ eventIds: [] }), [])
      assert.deepEqual(await h.store.discardDead({ eventIds: [] }), [])
      assert.equal((await h.store.stats()).dead, 1)
    })

    test('a discarded row is gone, and its id is free', async (h) => {
      const id = await h.makeDead()
      assert.deepEqual(await h.store.discardDead({ eventIds: [id] }), [id])
      assert.equal(await h.find(id), undefined)
    })

    test('a retry and a discard at the same time: one of them', async (h) => {
      const ids = [await h.makeDead(), await h.makeDead(), await h.makeDead()]
      const [retried, discarded] = await Promise.all([h.store.retryDead({}), h.store.discardDead({})])
      assert.deepEqual([...retried, ...discarded].sort(), [...ids].sort())
      assert.equal((await h.store.stats()).pending, retried.length)
    })
  },
}
