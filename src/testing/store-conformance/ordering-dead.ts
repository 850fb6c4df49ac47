import assert from 'node:assert/strict'
import type { ClaimedRow } from '../../store.js'
import { dead, done, event, release } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const A = { orderingKey: 'a' }

/** Appends so many rows of one key and lets the first one die; the rest of its run is given back. */
async function killHead(h: Harness<unknown>, count: number, halts: boolean): Promise<string[]> {
  const ids = await h.appendFree(count, A)
  await die(h, await h.claimOrdered({ runLength: count }), halts)
  return ids
}

async function die(h: Harness<unknown>, run: readonly ClaimedRow[], halts: boolean): Promise<void> {
  const [head, ...rest] = run
  assert.ok(head)
  const settled = await h.settle([dead(head, { halts }), ...rest.map((row) => release(row))])
  assert.equal(settled.length, run.length)
}

export const orderingDead: Theme = {
  name: 'dead letters of ordering keys',
  define(test) {
    test('a dead row that does not halt lets its key go on', async (h) => {
      const [first, ...rest] = await killHead(h, 3, false)
      assert.equal((await h.record(first ?? '')).status, 'DEAD')
      assert.deepEqual(await h.claimOrderedIds(), rest)
    })

    test('a dead row that halts holds its key, also for rows that come later, and no other key', async (h) => {
      const [first] = await killHead(h, 3, true)
      await h.appendFree(1, A)
      const [other] = await h.appendFree(1, { orderingKey: 'b' })
      const { rows, afterKey, nextDueMs } = await h.claimOrderedResult({ suspects: 10 })
      assert.deepEqual(
        rows.map((row) => row.eventId),
        [other],
      )
      assert.deepEqual([afterKey, nextDueMs], [null, null])
      const { pending, dead: deadCount } = await h.store.stats()
      assert.deepEqual([pending, deadCount, (await h.record(first ?? '')).status], [4, 1, 'DEAD'])
    })

    test('a dead row in the middle of a run that halts holds what is behind it', async (h) => {
      const ids = await h.appendFree(3, A)
      const [first, second, third] = await h.claimOrdered()
      assert.ok(first && second && third)
      await h.settle([done(first), dead(second, { halts: true }), release(third)])
      assert.deepEqual(await h.claimOrdered(), [])
      await h.store.discardDead({ eventIds: [second.eventId] })
      assert.deepEqual(await h.claimOrderedIds(), ids.slice(2))
    })

    test(
      'a row that commits late, in front of a dead one that halts, leads nobody past it',
      async (h) => {
        const late = event(A)
        await h.store.transaction(async ({ client }) => {
          await h.appendIn(client, [{ event: late }])
          await killHead(h, 3, true)
        })
        const rows = await h.claimOrdered()
        assert.deepEqual(
          rows.map((row) => row.eventId),
          [late.eventId],
        )
        await h.settle(rows.map(done))
        assert.deepEqual(await h.claimOrdered(), [])
      },
      'concurrentTransactions',
    )

    for (const halts of [false, true]) {
      const title = halts ? 'that halted' : 'that did not halt'

      const place = halts ? 'keeps its place at the front' : 'goes to the tail'
      test(`a dead row ${title} ${place} of its key when it is retried`, async (h) => {
        const [first, ...rest] = await killHead(h, 3, halts)
        assert.deepEqual(await h.store.retryDead({ eventIds: [first ?? ''] }), [first])
        const rows = await h.claimOrdered()
        assert.deepEqual(
          rows.map((row) => row.eventId),
          halts ? [first, ...rest] : [...rest, first],
        )
        const retried = rows.find((row) => row.eventId === first)
        assert.deepEqual([retried?.attempts, retried?.suspect], [0, false])
        const seqs = (await h.store.list({})).map((record) => [record.eventId, record.seq])
        assert.deepEqual(
          seqs,
          rows.map((row) => [row.eventId, row.seq]),
        )
      })

      test(`a dead row ${title} is gone from its key when it is discarded`, async (h) => {
        const [first, ...rest] = await killHead(h, 3, halts)
        assert.deepEqual(await h.store.discardDead({ eventIds: [first ?? ''] }), [first])
        assert.deepEqual(await h.claimOrderedIds(), rest)
      })
    }

    test('dead rows of one key that are retried together keep their order', async (h) => {
      const ids = await h.appendFree(6, A)
      const rows = await h.claimOrdered({ runLength: 6 })
      await h.settle([
        ...rows.slice(0, 4).map((row) => dead(row)),
        ...rows.slice(4).map((row) => release(row)),
      ])
      assert.equal((await h.store.retryDead({})).length, 4)
      assert.deepEqual(await h.claimOrderedIds({ runLength: 6 }), [...ids.slice(4), ...ids.slice(0, 4)])
    })

    test('a dead row that is retried and dies again halts only when it is told to', async (h) => {
      const [first, second] = await killHead(h, 2, true)
      await h.store.retryDead({ eventIds: [first ?? ''] })
      await die(h, await h.claimOrdered({ runLength: 1 }), false)
      assert.equal((await h.record(first ?? '')).status, 'DEAD')
      assert.deepEqual(await h.claimOrderedIds(), [second])
    })

    test('a retry while later rows are being worked on waits behind them', async (h) => {
      const [first, second] = await killHead(h, 2, false)
      const rows = await h.claimOrdered()
      await h.store.retryDead({ eventIds: [first ?? ''] })
      assert.deepEqual(await h.claimOrdered({ suspects: 10 }), [])
      assert.deepEqual(await h.settle(rows.map(done)), [second])
      assert.deepEqual(await h.claimOrderedIds(), [first])
    })

    test('without an ordering key nothing halts, and a retry keeps the seq', async (h) => {
      const [id] = await h.appendFree(1)
      const row = await h.claimOne()
      await h.settle([dead(row, { halts: true })])
      const others = await h.appendFree(2)
      const keyed = await h.appendFree(1, A)
      assert.deepEqual(await h.claimIds(), others)
      assert.deepEqual(await h.claimOrderedIds(), keyed)
      assert.deepEqual(await h.store.retryDead({}), [id])
      assert.deepEqual(
        (await h.claim()).map((again) => [again.eventId, again.seq]),
        [[id, row.seq]],
      )
    })
  },
}
