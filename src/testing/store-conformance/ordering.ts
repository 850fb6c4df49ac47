import assert from 'node:assert/strict'
import type { ClaimedRow } from '../../store.js'
import { claimOf, done, event, LONG_MS, NONE, onlyType, release, retry, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const A = { orderingKey: 'a' }
const B = { orderingKey: 'b' }

const idsOf = (rows: readonly ClaimedRow[]) => rows.map((row) => row.eventId)

/** Writes rows of a key that commit late: `meanwhile` runs when their `seq` is drawn and nobody sees them yet. */
async function appendLate(
  h: Harness<unknown>,
  count: number,
  orderingKey: string,
  meanwhile: () => Promise<unknown>,
): Promise<string[]> {
  const late = Array.from({ length: count }, () => event({ orderingKey }))
  await h.store.transaction(async ({ client }) => {
    await h.appendIn(
      client,
      late.map((envelope) => ({ event: envelope })),
    )
    await meanwhile()
  })
  return late.map((envelope) => envelope.eventId)
}

export const ordering: Theme = {
  name: 'ordering keys',
  define(test) {
    test('a key comes run by run, in the order of seq, each once the one before is settled', async (h) => {
      const ids = await h.appendFree(10, A)
      for (const expected of [ids.slice(0, 4), ids.slice(4, 8), ids.slice(8)]) {
        const rows = await h.claimOrdered({ token: 'worker:1' })
        assert.deepEqual(idsOf(rows), expected)
        for (const row of rows) {
          assert.deepEqual(
            [row.orderingKey, row.token, row.attempts, row.suspect],
            ['a', 'worker:1', 0, false],
          )
          assert.deepEqual(row.handledBy, [])
        }
        assert.deepEqual(await h.claimOrdered({ suspects: 10 }), [], 'the key is being worked on')
        assert.deepEqual([...(await h.settle(rows.map(done)))].sort(), [...expected].sort())
      }
      assert.deepEqual(await h.claimOrderedResult(), { rows: [], afterKey: null, nextDueMs: null })
    })

    test('keys stand side by side, each row with those of its own key', async (h) => {
      const events = [A, B, A, B, A].map((init) => event(init))
      await h.append(events.map((envelope) => ({ event: envelope })))
      assert.deepEqual(
        await h.claimOrderedIds(),
        [0, 2, 4, 1, 3].map((index) => events[index]?.eventId),
      )
    })

    test('a run may be as short as one row', async (h) => {
      const ids = await h.appendFree(3, A)
      for (const id of ids) {
        const rows = await h.claimOrdered({ runLength: 1 })
        assert.deepEqual(idsOf(rows), [id])
        await h.settle(rows.map(done), false)
      }
      assert.deepEqual(await h.store.list({}), [])
    })

    test('no row of a key comes by the other claim, whatever has happened to it', async (h) => {
      await h.appendFree(1, A)
      const [failed] = await h.claimOrdered()
      assert.ok(failed)
      await h.settle([retry(failed)])
      await h.append(
        [
          { event: event(B) },
          { event: event({ orderingKey: 'c' }), delayMs: 1 },
          { event: event({ orderingKey: 'd' }), token: 'lost:1' },
        ],
        { leaseMs: SHORT_MS },
      )
      const [free] = await h.appendFree(1)
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimIds({ suspects: 10 }), [free])
      assert.equal((await h.claimOrdered({ suspects: 10 })).length, 4)
    })

    test('no row without a key comes by the ordered claim, whatever has happened to it', async (h) => {
      await h.appendFree(1)
      await h.settle([retry(await h.claimOne())])
      await h.append([{}, { delayMs: 1 }, { token: 'lost:1' }], { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimOrderedResult({ suspects: 10 }), {
        rows: [],
        afterKey: null,
        nextDueMs: null,
      })
      assert.equal((await h.claim({ suspects: 10 })).length, 4)
    })

    test('a claim of everything that tells whether keys have rows does not deny any', async (h) => {
      assert.notEqual((await h.claimResult()).hasOrdered, true)
      await h.append([{ event: event(A), delayMs: LONG_MS }, {}])
      assert.notEqual((await h.claimResult()).hasOrdered, false)
      await h.append([{ event: event(B), token: 'hot:1' }])
      assert.notEqual((await h.claimResult({ accept: NONE })).hasOrdered, false)
    })

    test('rows of keys in front do not hide one without', async (h) => {
      await h.appendFree(300, A)
      const [free] = await h.appendFree(1)
      assert.deepEqual(await h.claimIds({ limit: 10 }), [free])
    })

    test('a key whose first row is still being worked on waits, whatever is settled behind it', async (h) => {
      const ids = await h.appendFree(5, A)
      const [first, second, third] = await h.claimOrdered({ runLength: 3 })
      assert.ok(first && second && third)
      await h.settle([done(second), release(third)])
      assert.deepEqual(await h.claimOrdered({ runLength: 3 }), [])
      await h.settle([done(first)])
      assert.deepEqual(await h.claimOrderedIds({ runLength: 3 }), ids.slice(2))
    })

    test('a key waits for a row that is being worked on behind a first one that is free', async (h) => {
      const ids = await h.appendFree(4, A)
      const [first, second, third] = await h.claimOrdered({ runLength: 3 })
      assert.ok(first && second && third)
      await h.settle([retry(first), release(second)])
      assert.deepEqual(await h.claimOrdered({ runLength: 3 }), [])
      await h.settle([release(third)])
      const again = await h.claimOrdered({ runLength: 3 })
      assert.deepEqual(
        again.map((row) => [row.eventId, row.attempts]),
        ids.slice(0, 3).map((id, index) => [id, index === 0 ? 1 : 0]),
      )
    })

    test('a row that is being worked on counts also behind one that would end the run', async (h) => {
      await h.append([
        { event: event(A) },
        { event: event(A), delayMs: LONG_MS },
        { event: event(A), token: 'hot:1' },
        { event: event({ ...B, eventType: 'mine' }) },
        { event: event({ ...B, eventType: 'foreign' }) },
        { event: event({ ...B, eventType: 'mine' }), token: 'hot:2' },
      ])
      assert.deepEqual(await h.claimOrdered({ suspects: 10 }), [])
      assert.deepEqual(await h.claimOrdered({ suspects: 10, accept: onlyType('mine') }), [])
    })

    test('the rest of a run that is given back comes again, in order', async (h) => {
      const ids = await h.appendFree(4, A)
      const [first, ...rest] = await h.claimOrdered()
      assert.ok(first)
      await h.settle([...rest.map((row) => release(row)).reverse(), done(first)])
      const again = await h.claimOrdered()
      assert.deepEqual(idsOf(again), ids.slice(1))
      for (const row of again) assert.deepEqual([row.attempts, row.suspect], [0, false])
    })

    test('a first row that failed holds its key, and only that one, until it is due', async (h) => {
      await h.appendFree(3, A)
      const [first, ...rest] = await h.claimOrdered()
      assert.ok(first)
      await h.settle([retry(first, { delayMs: LONG_MS }), ...rest.map((row) => release(row))])
      const [other] = await h.appendFree(1, B)
      const result = await h.claimOrderedResult()
      assert.deepEqual(idsOf(result.rows), [other])
      assert.ok(result.nextDueMs !== null && result.nextDueMs > 0 && result.nextDueMs <= LONG_MS)
    })

    test('a first row that failed comes again with those behind it when it is due', async (h) => {
      const ids = await h.appendFree(3, A)
      const [first, ...rest] = await h.claimOrdered()
      assert.ok(first)
      const failed = retry(first, { delayMs: SHORT_MS, attempts: 2, handledBy: ['mail'] })
      await h.settle([failed, ...rest.map((row) => release(row))])
      await h.elapse(SHORT_MS)
      const again = await h.claimOrdered()
      assert.deepEqual(idsOf(again), ids)
      assert.deepEqual([again[0]?.attempts, again[0]?.handledBy], [2, ['mail']])
    })

    test('a first row that is given back for later holds its key', async (h) => {
      await h.appendFree(2, A)
      const [first, second] = await h.claimOrdered()
      assert.ok(first && second)
      await h.settle([release(first, LONG_MS), release(second)])
      const result = await h.claimOrderedResult()
      assert.deepEqual(result.rows, [])
      assert.ok((result.nextDueMs ?? 0) > 0)
    })

    test('a delayed row ends the run before it, and holds the key when it comes first', async (h) => {
      const [first, later, last] = [event(A), event(A), event(A)]
      await h.append([{ event: first }, { event: later, delayMs: LONG_MS }, { event: last }])
      const run = await h.claimOrderedResult()
      assert.deepEqual(idsOf(run.rows), [first.eventId])
      assert.equal(run.nextDueMs, null, 'the row that waits is not the first one')
      await h.settle(run.rows.map(done))
      const { rows, nextDueMs } = await h.claimOrderedResult()
      assert.deepEqual(rows, [])
      assert.ok(nextDueMs !== null && nextDueMs > 0 && nextDueMs <= LONG_MS)
    })

    test('a delayed row comes in its place when it is due', async (h) => {
      const [first, later, last] = [event(A), event(A), event(A)]
      await h.append([{ event: first }, { event: later, delayMs: SHORT_MS }, { event: last }])
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimOrderedIds(), [first.eventId, later.eventId, last.eventId])
    })

    test('of several first rows that wait the nearest is told', async (h) => {
      await h.append([
        { event: event(A), delayMs: 3 * LONG_MS },
        { event: event(B), delayMs: 2 * LONG_MS },
        { event: event({ orderingKey: 'c' }), delayMs: 4 * LONG_MS },
      ])
      const { nextDueMs } = await h.claimOrderedResult()
      assert.ok(nextDueMs !== null && nextDueMs > LONG_MS && nextDueMs <= 2 * LONG_MS)
    })

    test('a type that is not accepted holds the key and is not passed over', async (h) => {
      const [other] = await h.appendFree(1, { ...A, eventType: 'other' })
      const [mine] = await h.appendFree(1, { ...A, eventType: 'mine' })
      const [last] = await h.appendFree(1, { ...A, eventType: 'other' })
      assert.deepEqual(await h.claimOrdered({ accept: onlyType('mine') }), [])
      for (const [eventType, id] of [
        ['other', other],
        ['mine', mine],
        ['other', last],
      ] as const) {
        const rows = await h.claimOrdered({ accept: onlyType(eventType) })
        assert.deepEqual(idsOf(rows), [id], 'the next row, of another type, ends the run')
        await h.settle(rows.map(done))
      }
    })

    test('a version that is not accepted holds the key and is not passed over', async (h) => {
      const old = await h.appendFree(2, { ...A, version: 1 })
      const [newer] = await h.appendFree(1, { ...A, version: 2 })
      await h.appendFree(1, { ...A, version: 1 })
      const accept = onlyType('order.placed', 1)
      const rows = await h.claimOrdered({ accept })
      assert.deepEqual(idsOf(rows), old)
      await h.settle(rows.map(done))
      assert.deepEqual(await h.claimOrdered({ accept }), [])
      assert.equal((await h.claimOrderedIds({ accept: onlyType('order.placed', 2) }))[0], newer)
    })

    test('a key whose first row is recent is left alone on demand', async (h) => {
      const ids = await h.appendFree(1, A)
      assert.deepEqual(await h.claimOrdered({ skipRecentMs: LONG_MS }), [])
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimOrderedIds({ skipRecentMs: 10 }), ids)
    })

    test('a settle with another token changes nothing', async (h) => {
      await h.appendFree(2, A)
      const rows = await h.claimOrdered()
      const before = await h.store.list({})
      const foreign = rows.map((row) => ({ eventId: row.eventId, token: 'other:1' }))
      for (const settlement of [done, retry, release]) {
        assert.deepEqual(await h.settle(foreign.map((claim) => settlement(claim))), [])
      }
      assert.equal((await h.store.renewIfLeased(foreign, LONG_MS)).size, 0)
      assert.deepEqual(await h.store.list({}), before)
      assert.equal((await h.settle(rows.map(done))).length, 2)
    })

    test('the leases of a run are renewed by its token, and keep the key', async (h) => {
      await h.appendFree(3, A)
      const rows = await h.claimOrdered({ leaseMs: 2_000 })
      const renewed = await h.store.renewIfLeased(rows.map(claimOf), LONG_MS)
      assert.deepEqual([...renewed].sort(), idsOf(rows).sort())
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimOrdered({ suspects: 10 }), [])
    })

    test(
      'a row that commits late, with a lower seq, comes first',
      async (h) => {
        let ids: string[] = []
        const late = await appendLate(h, 1, 'a', async () => {
          ids = await h.appendFree(2, A)
        })
        assert.deepEqual(await h.claimOrderedIds(), [...late, ...ids])
      },
      'concurrentTransactions',
    )

    test(
      'a row that commits late does not run beside those that went ahead of it',
      async (h) => {
        let rows: readonly ClaimedRow[] = []
        const late = await appendLate(h, 1, 'a', async () => {
          await h.appendFree(2, A)
          rows = await h.claimOrdered()
        })
        const [first, second] = rows
        assert.ok(first && second)
        assert.deepEqual(await h.claimOrdered({ suspects: 10 }), [])
        await h.settle([done(first)])
        assert.deepEqual(await h.claimOrdered({ suspects: 10 }), [])
        await h.settle([release(second)])
        assert.deepEqual(await h.claimOrderedIds(), [...late, second.eventId])
      },
      'concurrentTransactions',
    )

    test(
      'nor do more of them than a run is long',
      async (h) => {
        let rows: readonly ClaimedRow[] = []
        const late = await appendLate(h, 9, 'a', async () => {
          await h.appendFree(2, A)
          rows = await h.claimOrdered()
        })
        assert.equal(rows.length, 2)
        assert.deepEqual(await h.claimOrdered({ suspects: 10 }), [])
        await h.settle(rows.map(done))
        assert.deepEqual(await h.claimOrderedIds(), late.slice(0, 4))
      },
      'concurrentTransactions',
    )

    test(
      'a row that commits late comes before one that waits to be tried again',
      async (h) => {
        const late = await appendLate(h, 1, 'a', async () => {
          await h.appendFree(2, A)
          const [first, second] = await h.claimOrdered()
          assert.ok(first && second)
          await h.settle([retry(first, { delayMs: LONG_MS }), release(second)])
          assert.deepEqual(await h.claimOrdered(), [])
        })
        assert.deepEqual(await h.claimOrderedIds(), late)
      },
      'concurrentTransactions',
    )
  },
}
