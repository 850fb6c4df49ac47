import assert from 'node:assert/strict'
import { claimOf, done, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

/** Rows whose owner vanished with several in its hands. */
async function loseTogether(h: Harness<unknown>, count: number): Promise<string[]> {
  const ids = await h.appendFree(count)
  assert.equal((await h.claim({ leaseMs: SHORT_MS })).length, count)
  await h.elapse(SHORT_MS)
  return ids
}

export const suspects: Theme = {
  name: 'suspects',
  define(test) {
    test('a row whose lease ran out is taken only by a claim that asks for suspects', async (h) => {
      const [lost] = await loseTogether(h, 1)
      assert.deepEqual(await h.claim({ suspects: 0 }), [])
      assert.deepEqual(await h.claimIds({ suspects: 1 }), [lost])
    })

    test('a suspect is marked, and its token says that it is tried alone', async (h) => {
      await loseTogether(h, 1)
      const row = await h.claimOne({ token: 'worker:7', suspects: 1 })
      assert.equal(row.suspect, true)
      assert.equal(row.token, 'worker:7:solo')
      assert.deepEqual(await h.settle([{ ...claimOf(row), token: 'worker:7', outcome: 'done' }]), [])
      assert.deepEqual(await h.settle([done(row)]), [row.eventId])
    })

    test('takes at most so many suspects, and new rows beside them', async (h) => {
      const lost = await loseTogether(h, 3)
      const [fresh] = await h.appendFree(1)
      const rows = await h.claim({ suspects: 1 })
      assert.equal(rows.filter((row) => row.suspect && lost.includes(row.eventId)).length, 1)
      assert.equal(rows.find((row) => !row.suspect)?.eventId, fresh)
      assert.equal(rows.length, 2)
      assert.equal((await h.claim({ suspects: 2 })).length, 2)
    })

    test('suspects count towards the limit', async (h) => {
      await loseTogether(h, 3)
      await h.appendFree(3)
      assert.equal((await h.claim({ suspects: 10, limit: 2 })).length, 2)
    })

    test('neighbours of a crash are not charged', async (h) => {
      await loseTogether(h, 3)
      for (const row of await h.claim({ suspects: 3 })) assert.equal(row.attempts, 0)
    })

    test('a row that was alone is charged for each lease it loses', async (h) => {
      await loseTogether(h, 1)
      for (const attempts of [0, 1, 2]) {
        const row = await h.claimOne({ suspects: 1, leaseMs: SHORT_MS })
        assert.equal(row.attempts, attempts)
        assert.equal((await h.record(row.eventId)).attempts, attempts)
        await h.elapse(SHORT_MS)
      }
    })

    test('several are a group: none is charged when it dies, and then each is tried alone', async (h) => {
      const lost = await loseTogether(h, 3)
      const group = await h.claim({ token: 'worker:8', suspects: 3, leaseMs: SHORT_MS })
      const told = group.map(({ token, suspect, attempts }) => [token, suspect, attempts])
      assert.deepEqual(told, Array(3).fill(['worker:8:some', true, 0]))
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claim({ suspects: 3 }), [])
      const alone: string[] = []
      for (const _ of lost) {
        const row = await h.claimOne({ token: 'worker:9', suspects: 1 })
        assert.deepEqual([row.token, row.suspect, row.attempts], ['worker:9:solo', true, 0])
        alone.push(row.eventId)
      }
      assert.deepEqual(alone.sort(), [...lost].sort())
    })

    test('a row that was alone comes into no group, and others do', async (h) => {
      const [bad] = await loseTogether(h, 1)
      assert.equal((await h.claimOne({ suspects: 1, leaseMs: SHORT_MS })).eventId, bad)
      const lost = await loseTogether(h, 2)
      assert.deepEqual((await h.claimIds({ suspects: 5 })).sort(), [...lost].sort())
      const row = await h.claimOne({ suspects: 1 })
      assert.deepEqual([row.eventId, row.attempts], [bad, 1])
    })

    test('a group can be settled, and one that was given back is as any other', async (h) => {
      await loseTogether(h, 2)
      const [first, second] = await h.claim({ suspects: 2 })
      if (!first || !second) throw new Error('two were expected')
      assert.deepEqual(await h.settle([done(first)]), [first.eventId])
      await h.settle([{ ...claimOf(second), outcome: 'release', delayMs: 0 }])
      const row = await h.claimOne()
      assert.deepEqual([row.eventId, row.attempts, row.suspect], [second.eventId, 0, false])
    })

    test('a row that was given back after it was alone is not charged', async (h) => {
      const [id] = await loseTogether(h, 1)
      const alone = await h.claimOne({ suspects: 1 })
      await h.settle([{ ...claimOf(alone), outcome: 'release', delayMs: 0 }])
      const row = await h.claimOne()
      assert.deepEqual([row.eventId, row.attempts, row.suspect], [id, 0, false])
    })

    test('two claims at the same time do not share a suspect', async (h) => {
      await loseTogether(h, 4)
      const claims = await Promise.all([1, 2, 3, 4].map(() => h.claimIds({ suspects: 2 })))
      const ids = claims.flat()
      assert.equal(new Set(ids).size, ids.length)
      assert.ok(ids.length >= 2)
    })
  },
}
