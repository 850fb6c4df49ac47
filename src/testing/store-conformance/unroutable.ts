import assert from 'node:assert/strict'
import { claimOf, dead, done, event, LONG_MS, NONE, onlyPrefix, onlyType, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

type Request = Partial<Parameters<Harness<unknown>['store']['claimUnroutable']>[0]>

function claimUnroutable(h: Harness<unknown>, request: Request = {}) {
  const defaults = {
    token: h.token(),
    leaseMs: LONG_MS,
    limit: 100,
    known: onlyType('known'),
    olderThanMs: 0,
  }
  return h.store.claimUnroutable({ ...defaults, ...request })
}

export const unroutable: Theme = {
  name: 'unroutable events',
  define(test) {
    test('takes what nobody is known to handle, leased to the token', async (h) => {
      await h.appendFree(1, { eventType: 'known' })
      const [id] = await h.appendFree(1, { eventType: 'unknown' })
      const rows = await claimUnroutable(h, { token: 'janitor:1' })
      assert.deepEqual(
        rows.map((row) => [row.eventId, row.token]),
        [[id, 'janitor:1']],
      )
      assert.deepEqual(await claimUnroutable(h), [])
      assert.deepEqual(await h.settle(rows.map((row) => dead(row, { error: 'unroutable' }))), [id])
      assert.equal((await h.record(id ?? '')).status, 'DEAD')
    })

    test('a version that nobody knows is unroutable, a type under a known prefix is not', async (h) => {
      const [newer] = await h.appendFree(1, { eventType: 'known', version: 2 })
      await h.appendFree(1, { eventType: 'order.placed' })
      const known = { ...onlyType('known'), prefixes: onlyPrefix('order.').prefixes }
      assert.deepEqual(
        (await claimUnroutable(h, { known })).map((row) => row.eventId),
        [newer],
      )
    })

    test('when nothing is known everything is unroutable', async (h) => {
      const ids = await h.appendFree(2)
      assert.deepEqual(
        (await claimUnroutable(h, { known: NONE })).map((row) => row.eventId).sort(),
        [...ids].sort(),
      )
    })

    test('waits until the event is old enough', async (h) => {
      const ids = await h.appendFree(1, { eventType: 'unknown' })
      assert.deepEqual(await claimUnroutable(h, { olderThanMs: LONG_MS }), [])
      await h.elapse(SHORT_MS)
      const rows = await claimUnroutable(h, { olderThanMs: 10 })
      assert.deepEqual(
        rows.map((row) => row.eventId),
        ids,
      )
    })

    test('leaves leased and delayed rows alone', async (h) => {
      await h.append([{ token: 'hot:1' }, { delayMs: LONG_MS }])
      assert.deepEqual(await claimUnroutable(h), [])
    })

    test('takes rows whose last owner vanished, and does not charge them', async (h) => {
      await h.append([{ token: 'lost:1' }], { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      const [row] = await claimUnroutable(h)
      assert.equal(row?.attempts, 0)
    })

    test('takes rows of ordering keys too, which then hold up nobody', async (h) => {
      const keyed = { orderingKey: 'a' }
      const [unknown] = await h.appendFree(1, { ...keyed, eventType: 'unknown' })
      const [known] = await h.appendFree(1, { ...keyed, eventType: 'known' })
      const accept = onlyType('known')
      assert.deepEqual(await h.claimOrdered({ accept }), [])
      const rows = await claimUnroutable(h)
      assert.deepEqual(
        rows.map((row) => row.eventId),
        [unknown],
      )
      assert.deepEqual(await claimUnroutable(h), [])
      assert.deepEqual(await h.settle(rows.map((row) => dead(row))), [unknown])
      assert.deepEqual(await h.claimOrderedIds({ accept }), [known])
    })

    test('of an ordering key it takes the first row only', async (h) => {
      const keyed = { orderingKey: 'a' }
      await h.appendFree(1, { ...keyed, eventType: 'known' })
      const unknown = await h.appendFree(2, { ...keyed, eventType: 'unknown' })
      assert.deepEqual(await claimUnroutable(h), [])
      await h.settle((await h.claimOrdered({ runLength: 1 })).map(done))
      assert.deepEqual(
        (await claimUnroutable(h)).map((row) => row.eventId),
        unknown.slice(0, 1),
      )
    })

    test('leaves rows of ordering keys alone that are leased or delayed, not those of lost leases', async (h) => {
      await h.append([
        { event: event({ orderingKey: 'a' }), token: 'hot:1' },
        { event: event({ orderingKey: 'b' }), delayMs: LONG_MS },
      ])
      const lost = event({ orderingKey: 'c' })
      await h.append([{ event: lost, token: 'lost:1' }], { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.deepEqual(
        (await claimUnroutable(h)).map((row) => [row.eventId, row.attempts]),
        [[lost.eventId, 0]],
      )
    })

    test('takes at most the limit, the oldest first', async (h) => {
      const ids = await h.appendFree(3)
      assert.deepEqual(
        (await claimUnroutable(h, { limit: 2 })).map((row) => row.eventId),
        ids.slice(0, 2),
      )
      assert.deepEqual(
        (await claimUnroutable(h, { limit: 2 })).map((row) => row.eventId),
        ids.slice(2),
      )
    })

    test('a claim of unroutable rows stops at the limit for bytes besides payloads, and takes its first row at any size', async (h) => {
      const headers = { note: 'x'.repeat(50_000) }
      const large = { eventType: 'large', headers, payload: 'x'.repeat(200_000) }
      const ids = await h.appendFree(4, large)
      await h.append([{ event: event(large), delayMs: 1 }])
      await h.append([{ event: event({ ...large, orderingKey: 'a' }) }])
      await h.elapse(SHORT_MS)
      const known = onlyType('conformance.sentinel')
      const claims: string[][] = []
      for (const maxBytes of [125_000, 1, 125_000, 125_000, 125_000]) {
        claims.push((await claimUnroutable(h, { known, maxBytes })).map((row) => row.eventId))
      }
      assert.deepEqual(
        claims.map((claim) => claim.length),
        [2, 1, 2, 1, 0],
      )
      assert.deepEqual(claims.flat().slice(0, 4), ids)
    })

    test('known rows in front do not hide it', async (h) => {
      await h.appendFree(300, { eventType: 'known' })
      const [id] = await h.appendFree(1, { eventType: 'unknown' })
      assert.deepEqual(
        (await claimUnroutable(h, { limit: 10 })).map((row) => row.eventId),
        [id],
      )
    })

    test('a row it took can be renewed and given back', async (h) => {
      await h.appendFree(1)
      const [row] = await claimUnroutable(h)
      assert.ok(row)
      assert.equal((await h.store.renewIfLeased([claimOf(row)], LONG_MS)).size, 1)
      await h.settle([{ ...claimOf(row), outcome: 'release', delayMs: 0 }])
      assert.deepEqual(
        (await claimUnroutable(h)).map((again) => [again.eventId, again.attempts]),
        [[row.eventId, 0]],
      )
    })
  },
}
