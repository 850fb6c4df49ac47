import assert from 'node:assert/strict'
import type { ClaimedRow, ClaimRequest, ClaimResult } from '../../store.js'
import {
  ANY,
  claimOf,
  dead,
  done,
  event,
  gate,
  LONG_MS,
  onlyType,
  release,
  retry,
  SHORT_MS,
} from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const MANY = 400
const BATCH = 100

/** Only new rows, many at a time, of a large backlog: a store may have a way of its own for that. */
function claimMany(h: Harness<unknown>, request: Partial<ClaimRequest> = {}): Promise<ClaimResult> {
  return h.store.claim({
    token: h.token(),
    leaseMs: LONG_MS,
    limit: BATCH,
    maxBytes: 64 * 1024 * 1024,
    accept: ANY,
    fromSeq: 0,
    suspects: 0,
    skipRecentMs: 0,
    freshOnly: true,
    ...request,
  })
}

async function first(
  h: Harness<unknown>,
  request: Partial<ClaimRequest> = {},
): Promise<readonly ClaimedRow[]> {
  await h.appendFree(MANY)
  const { rows } = await claimMany(h, request)
  assert.equal(rows.length, BATCH)
  return rows
}

const idsOf = (rows: readonly ClaimedRow[]) => rows.map((row) => row.eventId)
/** Whatever is left, by any claim. */
const rest = (h: Harness<unknown>, request: Partial<ClaimRequest> = {}) =>
  h.claimIds({ limit: MANY * 2, ...request })

export const largeClaims: Theme = {
  name: 'large claims',
  define(test) {
    test('claims that follow each other take everything once, in order', async (h) => {
      const ids = await h.appendFree(MANY + 50)
      const taken: string[] = []
      let fromSeq = 0
      for (let claims = 0; claims < 20 && taken.length < ids.length; claims++) {
        const { rows, nextSeq } = await claimMany(h, { fromSeq })
        assert.ok(rows.length <= BATCH)
        taken.push(...idsOf(rows))
        fromSeq = nextSeq
      }
      assert.deepEqual(taken, ids)
      assert.deepEqual(await rest(h), [])
      assert.deepEqual((await claimMany(h)).rows, [])
    })

    test('claims at the same time, large and small, never take the same row', async (h) => {
      const ids = await h.appendFree(MANY)
      const results = await Promise.all([
        claimMany(h),
        claimMany(h, { limit: 3 }),
        claimMany(h),
        h.claimResult({ limit: 20 }),
        claimMany(h),
        claimMany(h, { limit: 7 }),
      ])
      const taken = results.flatMap((result) => idsOf(result.rows))
      assert.equal(new Set(taken).size, taken.length)
      assert.deepEqual([...taken, ...(await rest(h))].sort(), [...ids].sort())
    })

    test('what is held can be seen, and belongs to nobody else', async (h) => {
      const rows = await first(h, { token: 'worker:1' })
      const { lockedBy, lockedUntil, status } = await h.record(rows[7]?.eventId ?? '')
      assert.deepEqual([lockedBy, status], ['worker:1', 'NEW'])
      assert.ok((lockedUntil?.getTime() ?? 0) > Date.now())
      assert.deepEqual((await h.store.overview()).leases, [{ instance: 'worker', count: BATCH }])
      const others = await rest(h, { suspects: 1_000 })
      assert.equal(others.length, MANY - BATCH)
      assert.deepEqual(
        others.filter((id) => idsOf(rows).includes(id)),
        [],
      )
      const guessed = rows.map((row) => done({ eventId: row.eventId, token: 'worker:2' }))
      assert.deepEqual(await h.settle(guessed), [])
    })

    test('what is done is done, bit by bit, and nothing of it comes back', async (h) => {
      const rows = await first(h)
      assert.equal((await h.settle(rows.slice(0, 30).map(done))).length, 30)
      assert.equal((await h.settle(rows.slice(30).map(done))).length, 70)
      assert.deepEqual(await h.settle(rows.map(done)), [])
      assert.equal((await h.store.stats()).pending, MANY - BATCH)
      assert.equal((await rest(h, { suspects: 1_000 })).length, MANY - BATCH)
    })

    test('what is kept is kept as done', async (h) => {
      const rows = await first(h)
      const settled = await h.store.settleIfLeased(rows.map(done), true)
      assert.equal(settled.size, BATCH)
      const { status, lockedBy } = await h.record(rows[99]?.eventId ?? '')
      assert.deepEqual([status, lockedBy], ['DONE', null])
    })

    test('what is given back can be claimed at once; the others stay', async (h) => {
      const rows = await first(h)
      assert.equal((await h.settle(rows.slice(0, 10).map((row) => release(row)))).length, 10)
      const free = await rest(h, { suspects: 1_000 })
      assert.deepEqual(free.filter((id) => idsOf(rows).includes(id)).sort(), idsOf(rows.slice(0, 10)).sort())
      assert.equal((await h.settle(rows.slice(10).map(done))).length, 90)
      assert.deepEqual(await h.settle(rows.slice(0, 10).map(done)), [])
    })

    test('one that fails and one that dies, beside others that are done', async (h) => {
      const rows = await first(h)
      const [fails, dies, ...succeed] = rows as [ClaimedRow, ClaimedRow, ...ClaimedRow[]]
      const outcomes = [
        ...succeed.slice(0, 50).map(done),
        retry(fails),
        dead(dies),
        ...succeed.slice(50).map(done),
      ]
      assert.equal((await h.settle(outcomes)).length, BATCH)
      assert.equal((await h.record(dies.eventId)).status, 'DEAD')
      assert.deepEqual(await h.claimIds({ fromSeq: 1_000_000_000 }), [fails.eventId])
      assert.equal((await h.record(fails.eventId)).attempts, 1)
    })

    test('a lease that is renewed outlives its first term, and what is done with it counts', async (h) => {
      const rows = await first(h, { leaseMs: 2_000 })
      await h.settle(rows.slice(0, 20).map(done))
      const left = rows.slice(20)
      const renewed = await h.store.renewIfLeased(left.map(claimOf), LONG_MS)
      assert.deepEqual([...renewed].sort(), idsOf(left).sort())
      assert.ok(((await h.record(left[0]?.eventId ?? '')).lockedUntil?.getTime() ?? 0) > Date.now() + 60_000)
      assert.equal((await rest(h, { suspects: 1_000 })).length, MANY - BATCH)
      assert.equal((await h.settle(left.map(done))).length, 80)
    })

    test('some of a claim are renewed, and the others are not lost by it', async (h) => {
      const rows = await first(h)
      assert.equal((await h.store.renewIfLeased(rows.slice(0, 5).map(claimOf), LONG_MS)).size, 5)
      assert.equal((await rest(h, { suspects: 1_000 })).length, MANY - BATCH)
      assert.equal((await h.settle(rows.map(done))).length, BATCH)
    })

    test('a lease that ran out is not renewed', async (h) => {
      const rows = await first(h, { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.equal((await h.store.renewIfLeased(rows.map(claimOf), LONG_MS)).size, 0)
    })

    test('what a vanished owner held are suspects, and a late outcome of it counts until they are taken', async (h) => {
      const rows = await first(h, { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.equal((await h.settle(rows.slice(0, 10).map(done))).length, 10)
      const others: string[] = []
      for (let claims = 0; claims < 5; claims++) others.push(...(await h.claimIds({ limit: MANY })))
      assert.equal(others.length, MANY - BATCH)
      assert.equal((await h.settle(rows.slice(10, 20).map(done))).length, 10)
      const taken = await h.claim({ suspects: 1_000, limit: 1_000 })
      assert.deepEqual(idsOf(taken).sort(), idsOf(rows.slice(20)).sort())
      assert.ok(taken.every((row) => row.suspect && row.attempts === 0))
      assert.deepEqual(await h.settle(rows.slice(20).map(done)), [])
      assert.equal((await h.settle(taken.map(done))).length, 80)
    })

    test('types that are not wanted are passed over and stay free', async (h) => {
      const wanted: string[] = []
      const others: string[] = []
      for (let n = 0; n < 4; n++) {
        wanted.push(...(await h.appendFree(80)))
        others.push(...(await h.appendFree(20, { eventType: 'other' })))
      }
      const { rows } = await claimMany(h, { accept: onlyType('order.placed') })
      assert.ok(rows.every((row) => row.eventType === 'order.placed'))
      await h.settle(rows.map(done))
      assert.deepEqual((await rest(h, { accept: onlyType('other') })).sort(), others.sort())
      assert.deepEqual((await rest(h)).sort(), wanted.filter((id) => !idsOf(rows).includes(id)).sort())
    })

    test('large payloads stop a claim in time, and none is left out', async (h) => {
      const ids = await h.appendFree(150)
      ids.push(...(await h.appendFree(5, { payload: 'x'.repeat(50_000) })), ...(await h.appendFree(MANY)))
      const taken: string[] = []
      let fromSeq = 0
      for (let claims = 0; claims < 100 && taken.length < ids.length; claims++) {
        const { rows, nextSeq } = await claimMany(h, { fromSeq, maxBytes: 100_000 })
        let bytes = 0
        for (const row of rows) bytes += row.payloadSize
        assert.ok(bytes <= 100_000 || rows.length === 1)
        assert.ok(rows.every((row) => (row.payloadText?.length ?? 0) === row.payloadSize))
        taken.push(...idsOf(rows))
        await h.settle(rows.map(done))
        fromSeq = nextSeq
      }
      assert.deepEqual(taken, ids)
    })

    test(
      'a row that commits late among those that are held is found when they are done, or given back',
      async (h) => {
        for (const settle of [done, (row: ClaimedRow) => release(row, LONG_MS)]) {
          const late = event({ eventType: 'late' })
          const isWritten = gate()
          const goOn = gate()
          await h.appendFree(10)
          const slow = h.store.transaction(async ({ client }) => {
            await h.appendIn(client, [{ event: late }])
            isWritten.open()
            await goOn.opened
          })
          await isWritten.opened
          await h.appendFree(MANY)
          const { rows } = await claimMany(h)
          goOn.open()
          await slow
          assert.ok(rows.length > BATCH / 2)
          await h.settle(rows.map(settle))
          assert.deepEqual(await h.claimIds({ accept: onlyType('late') }), [late.eventId])
          await h.settle((await h.claim({ limit: 1_000 })).map(done))
        }
      },
      'concurrentTransactions',
    )
  },
}
