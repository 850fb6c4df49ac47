import assert from 'node:assert/strict'
import { done, LONG_MS, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

async function makeDone(h: Harness<unknown>, count: number): Promise<void> {
  await h.appendFree(count)
  await h.settle((await h.claim()).map(done))
}

export const prune: Theme = {
  name: 'prune',
  define(test) {
    test('done rows stay as long as they should', async (h) => {
      await makeDone(h, 3)
      assert.equal(await h.store.pruneDone(LONG_MS, 100), 0)
      assert.equal((await h.store.list({ status: 'DONE' })).length, 3)
    })

    test('old ones go, at most so many at a time', async (h) => {
      await makeDone(h, 5)
      await h.elapse(SHORT_MS)
      assert.equal(await h.store.pruneDone(10, 2), 2)
      assert.equal(await h.store.pruneDone(10, 2), 2)
      assert.equal(await h.store.pruneDone(10, 2), 1)
      assert.equal(await h.store.pruneDone(10, 2), 0)
      assert.deepEqual(await h.store.list({}), [])
    })

    test('nothing but done rows goes', async (h) => {
      await h.makeDead()
      await h.append([{}, { token: 'hot:1' }, { delayMs: LONG_MS }])
      await h.elapse(SHORT_MS)
      assert.equal(await h.store.pruneDone(0, 100), 0)
      assert.equal((await h.store.list({})).length, 4)
    })

    test('two instances that prune at the same time delete each row once', async (h) => {
      await makeDone(h, 20)
      await h.elapse(SHORT_MS)
      let pruned = 0
      for (let round = 0; pruned < 20 && round < 20; round++) {
        const counts = await Promise.all([h.store.pruneDone(10, 5), h.store.pruneDone(10, 5)])
        pruned += counts[0] + counts[1]
      }
      assert.equal(pruned, 20)
      assert.deepEqual(await h.store.list({}), [])
    })
  },
}
