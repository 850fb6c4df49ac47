import assert from 'node:assert/strict'
import { dead, done, LONG_MS, release, retry, SHORT_MS } from './fixtures.js'
import type { Theme } from './suite.js'

export const settle: Theme = {
  name: 'settle',
  define(test) {
    test('done: the row is kept with its time, or deleted', async (h) => {
      await h.appendFree(2)
      const [kept, deleted] = await h.claim()
      assert.ok(kept && deleted)
      assert.deepEqual(await h.settle([done(kept)], true), [kept.eventId])
      assert.deepEqual(await h.settle([done(deleted)], false), [deleted.eventId])
      const record = await h.record(kept.eventId)
      assert.equal(record.status, 'DONE')
      assert.ok(record.doneAt && record.doneAt >= record.createdAt)
      assert.deepEqual([record.lockedBy, record.lockedUntil, record.attempts], [null, null, 0])
      assert.equal(await h.find(deleted.eventId), undefined)
      assert.equal((await h.store.stats()).pending, 0)
    })

    test('retry: counts attempts, keeps the reason, waits for its time', async (h) => {
      const [id] = await h.appendFree(1)
      const first = await h.claimOne()
      await h.settle([retry(first, { error: 'no luck', attempts: 1, handledBy: ['mail'], delayMs: LONG_MS })])
      const record = await h.record(first.eventId)
      assert.deepEqual([record.status, record.attempts, record.lastError], ['RETRY', 1, 'no luck'])
      assert.deepEqual(record.handledBy, ['mail'])
      assert.deepEqual([record.lockedBy, record.lockedUntil, record.doneAt], [null, null, null])
      assert.ok(record.availableAt > record.createdAt)
      assert.deepEqual(await h.claim({ suspects: 10 }), [], `${id} waits`)
    })

    test('retry: due again after its delay, with what is known of it', async (h) => {
      const [id] = await h.appendFree(1)
      await h.settle([retry(await h.claimOne(), { attempts: 2, handledBy: ['mail'], delayMs: SHORT_MS })])
      await h.elapse(SHORT_MS)
      const again = await h.claimOne()
      assert.deepEqual([again.eventId, again.attempts, again.suspect], [id, 2, false])
      assert.deepEqual(again.handledBy, ['mail'])
      await h.settle([retry(again, { attempts: 0, handledBy: ['mail', 'audit'] })])
      const third = await h.claimOne()
      assert.equal(third.attempts, 2)
      assert.deepEqual([...third.handledBy].sort(), ['audit', 'mail'])
    })

    test('dead: counts, keeps the reason, is not pending any more', async (h) => {
      await h.appendFree(1)
      const row = await h.claimOne()
      assert.deepEqual(await h.settle([dead(row, { error: 'gave up', attempts: 1 })]), [row.eventId])
      const record = await h.record(row.eventId)
      assert.deepEqual([record.status, record.attempts, record.lastError], ['DEAD', 1, 'gave up'])
      assert.deepEqual([record.lockedBy, record.lockedUntil], [null, null])
      const { pending, dead: deadCount } = await h.store.stats()
      assert.deepEqual([pending, deadCount], [0, 1])
      assert.deepEqual(await h.claim({ suspects: 10 }), [])
    })

    test('release: no attempt is counted, and it may wait', async (h) => {
      await h.appendFree(1)
      const row = await h.claimOne()
      await h.settle([release(row, LONG_MS)])
      const record = await h.record(row.eventId)
      assert.deepEqual(
        [record.status, record.attempts, record.lockedBy, record.lastError],
        ['NEW', 0, null, null],
      )
      assert.deepEqual(await h.claim(), [])
    })

    test('release: claimable after its delay, whatever the floor', async (h) => {
      const [id] = await h.appendFree(1)
      await h.settle([release(await h.claimOne(), SHORT_MS)])
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimIds({ fromSeq: 1_000_000 }), [id])
    })

    test('release: a row that was tried before keeps its state', async (h) => {
      await h.appendFree(1)
      await h.settle([retry(await h.claimOne(), { attempts: 3, error: 'before' })])
      await h.settle([release(await h.claimOne())])
      const again = await h.claimOne()
      const record = await h.record(again.eventId)
      assert.deepEqual([record.status, record.attempts, record.lastError], ['RETRY', 3, 'before'])
    })

    test('many outcomes of all kinds in one call', async (h) => {
      await h.appendFree(1_000)
      const rows = await h.claim({ limit: 1_000 })
      const outcomes = [done, retry, dead, release]
      const settled = await h.settle(rows.map((row, index) => (outcomes[index % 4] ?? done)(row)))
      assert.equal(settled.length, 1_000)
      const statuses = new Map<string, number>()
      for (const { status } of await h.store.list({ limit: 2_000 })) {
        statuses.set(status, (statuses.get(status) ?? 0) + 1)
      }
      assert.deepEqual(Object.fromEntries(statuses), { DONE: 250, RETRY: 250, DEAD: 250, NEW: 250 })
    })

    test('takes an empty list, unknown ids, and one id twice', async (h) => {
      assert.deepEqual(await h.settle([]), [])
      assert.deepEqual(await h.settle([done({ eventId: 'nobody', token: 'x' })]), [])
      await h.appendFree(1)
      const row = await h.claimOne()
      assert.deepEqual(await h.settle([done(row), done(row)]), [row.eventId])
    })

    test('a settle with another token changes nothing', async (h) => {
      await h.appendFree(1)
      const row = await h.claimOne({ token: 'a:1' })
      const stale = { eventId: row.eventId, token: 'a:2' }
      for (const outcome of [done(stale), retry(stale), dead(stale), release(stale)]) {
        assert.deepEqual(await h.settle([outcome], false), [])
      }
      const record = await h.record(row.eventId)
      assert.deepEqual([record.status, record.attempts, record.lockedBy], ['NEW', 0, 'a:1'])
    })

    test("a settle with the same process's older token changes nothing", async (h) => {
      await h.appendFree(1)
      const older = await h.claimOne({ token: 'process:1' })
      await h.settle([release(older)])
      const newer = await h.claimOne({ token: 'process:2' })
      assert.deepEqual(await h.settle([retry(older)]), [])
      assert.deepEqual(await h.settle([done(newer)]), [newer.eventId])
    })

    test('a settle after the lease ran out and the row was claimed again changes nothing', async (h) => {
      await h.appendFree(1)
      const zombie = await h.claimOne({ leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      const owner = await h.claimOne({ suspects: 1 })
      for (const outcome of [done(zombie), retry(zombie), dead(zombie), release(zombie)]) {
        assert.deepEqual(await h.settle([outcome]), [])
      }
      assert.equal((await h.record(owner.eventId)).lockedBy, owner.token)
      assert.deepEqual(await h.settle([done(owner)]), [owner.eventId])
    })

    test('a settle after the lease ran out counts while nobody else took the row', async (h) => {
      await h.appendFree(1)
      const late = await h.claimOne({ leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.settle([done(late)]), [late.eventId])
      assert.deepEqual(await h.claim({ suspects: 1 }), [])
    })

    test('stale and good ones in one call: only the good ones count', async (h) => {
      await h.appendFree(4)
      const rows = await h.claim()
      const settled = await h.settle(
        rows.map((row, index) => done(index % 2 ? row : { eventId: row.eventId, token: 'stale' })),
      )
      assert.deepEqual(
        settled.sort(),
        rows
          .filter((_, index) => index % 2)
          .map((row) => row.eventId)
          .sort(),
      )
      assert.equal((await h.store.stats()).pending, 2)
    })

    test('a final state is final', async (h) => {
      await h.appendFree(2)
      const [first, other] = await h.claim()
      assert.ok(first && other)
      await h.settle([done(first), dead(other)])
      for (const row of [first, other]) {
        for (const outcome of [done(row), retry(row), dead(row), release(row)]) {
          assert.deepEqual(await h.settle([outcome], false), [])
        }
      }
      assert.equal((await h.record(first.eventId)).status, 'DONE')
      assert.equal((await h.record(other.eventId)).status, 'DEAD')
      assert.equal((await h.record(other.eventId)).attempts, 1)
    })
  },
}
