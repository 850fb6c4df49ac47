import assert from 'node:assert/strict'
import { claimOf, done, LONG_MS, release, SHORT_MS } from './fixtures.js'
import type { Theme } from './suite.js'

export const renew: Theme = {
  name: 'renew',
  define(test) {
    test('a lease that is renewed goes on', async (h) => {
      await h.appendFree(2)
      const rows = await h.claim({ leaseMs: 10_000 })
      const renewed = await h.store.renewIfLeased(rows.map(claimOf), LONG_MS)
      assert.deepEqual([...renewed].sort(), rows.map((row) => row.eventId).sort())
      const { lockedUntil, createdAt } = await h.record(rows[0]?.eventId ?? '')
      assert.ok((lockedUntil?.getTime() ?? 0) >= createdAt.getTime() + LONG_MS)
    })

    test('a lease that was renewed in time outlives its first term', async (h) => {
      await h.append([{ token: 'hot:1' }], { leaseMs: 2_000 })
      const [{ eventId } = { eventId: '' }] = await h.store.list({})
      assert.deepEqual([...(await h.store.renewIfLeased([{ eventId, token: 'hot:1' }], LONG_MS))], [eventId])
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claim({ suspects: 1 }), [])
    })

    test('a lease can be cut short', async (h) => {
      await h.appendFree(1)
      const row = await h.claimOne()
      await h.store.renewIfLeased([claimOf(row)], SHORT_MS)
      await h.elapse(SHORT_MS)
      assert.equal((await h.claimOne({ suspects: 1 })).eventId, row.eventId)
    })

    test('a lease that ran out is not renewed, although nobody took the row', async (h) => {
      await h.appendFree(1)
      const row = await h.claimOne({ leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.equal((await h.store.renewIfLeased([claimOf(row)], LONG_MS)).size, 0)
      assert.equal((await h.claimOne({ suspects: 1 })).eventId, row.eventId)
    })

    test('another token renews nothing', async (h) => {
      await h.appendFree(1)
      const row = await h.claimOne()
      const before = (await h.record(row.eventId)).lockedUntil
      assert.equal(
        (await h.store.renewIfLeased([{ eventId: row.eventId, token: 'other' }], 2 * LONG_MS)).size,
        0,
      )
      assert.deepEqual((await h.record(row.eventId)).lockedUntil, before)
    })

    test('rows that were settled or given back are not renewed', async (h) => {
      await h.appendFree(2)
      const [first, other] = await h.claim()
      assert.ok(first && other)
      await h.settle([done(first), release(other)])
      assert.equal((await h.store.renewIfLeased([claimOf(first), claimOf(other)], LONG_MS)).size, 0)
      assert.equal((await h.record(other.eventId)).lockedBy, null)
    })

    test('live and lost leases in one call: only the live ones', async (h) => {
      await h.appendFree(3)
      const rows = await h.claim()
      const claims = rows.map((row, index) =>
        index === 1 ? { eventId: row.eventId, token: 'lost' } : claimOf(row),
      )
      const renewed = await h.store.renewIfLeased([...claims, { eventId: 'nobody', token: 'x' }], LONG_MS)
      assert.deepEqual([...renewed].sort(), [rows[0]?.eventId, rows[2]?.eventId].sort())
      assert.equal((await h.store.renewIfLeased([], LONG_MS)).size, 0)
    })

    test('a suspect is renewed with its own token and not charged', async (h) => {
      await h.append([{ token: 'hot:1' }], { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      const row = await h.claimOne({ suspects: 1, leaseMs: 10_000 })
      assert.deepEqual([...(await h.store.renewIfLeased([claimOf(row)], LONG_MS))], [row.eventId])
      assert.equal((await h.record(row.eventId)).attempts, 0)
    })
  },
}
