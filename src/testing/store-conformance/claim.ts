import assert from 'node:assert/strict'
import { event, gate, LONG_MS, noise, release, retry, SHORT_MS } from './fixtures.js'
import type { Theme } from './suite.js'

export const claim: Theme = {
  name: 'claim',
  define(test) {
    test('takes new rows in the order of their seq, with the token, untried', async (h) => {
      const ids = await h.appendFree(5)
      const rows = await h.claim({ token: 'worker:1' })
      assert.deepEqual(
        rows.map((row) => row.eventId),
        ids,
      )
      for (const row of rows) {
        assert.equal(row.token, 'worker:1')
        assert.equal(row.attempts, 0)
        assert.equal(row.suspect, false)
        assert.deepEqual(row.handledBy, [])
      }
      const seqs = rows.map((row) => row.seq)
      assert.deepEqual(
        seqs,
        [...seqs].sort((a, b) => a - b),
      )
    })

    test('leaves rows alone that are leased', async (h) => {
      await h.appendFree(3)
      assert.equal((await h.claim()).length, 3)
      assert.deepEqual(await h.claim({ suspects: 10 }), [])
      assert.equal((await h.store.stats()).pending, 3)
    })

    test('takes at most the limit, and nothing for a limit of 0', async (h) => {
      const ids = await h.appendFree(5)
      assert.deepEqual(await h.claimIds({ limit: 0, suspects: 1 }), [])
      assert.deepEqual(await h.claimIds({ limit: 2 }), ids.slice(0, 2))
      assert.deepEqual(await h.claimIds({ limit: 2 }), ids.slice(2, 4))
      assert.deepEqual(await h.claimIds({ limit: 2 }), ids.slice(4))
    })

    test('stops before the bytes are too many', async (h) => {
      const ids = await h.appendFree(4, { payload: noise(10_000) })
      assert.deepEqual(await h.claimIds({ maxBytes: 29_999 }), ids.slice(0, 2))
      assert.deepEqual(await h.claimIds({ maxBytes: 22_000 }), ids.slice(2))
    })

    test('takes the first row whatever its size', async (h) => {
      const ids = await h.appendFree(2, { payload: 'x'.repeat(10_000) })
      assert.deepEqual(await h.claimIds({ maxBytes: 1 }), ids.slice(0, 1))
      assert.deepEqual(await h.claimIds({ maxBytes: 1 }), ids.slice(1))
    })

    test('looks for new rows from a seq on', async (h) => {
      const ids = await h.appendFree(3)
      const { seq } = await h.record(ids[1] ?? '')
      assert.deepEqual(await h.claimIds({ fromSeq: seq + 2 }), [])
      assert.deepEqual(await h.claimIds({ fromSeq: seq }), ids.slice(1))
      assert.deepEqual(await h.claimIds({ fromSeq: 0 }), ids.slice(0, 1))
    })

    test('says whether it saw everything, and where to go on when not', async (h) => {
      const ids = await h.appendFree(5, { payload: 'x'.repeat(98) })
      const byLimit = await h.claimResult({ limit: 2 })
      assert.deepEqual([byLimit.complete, byLimit.nextSeq], [false, (byLimit.rows[1]?.seq ?? 0) + 1])
      const byBytes = await h.claimResult({ maxBytes: 150, fromSeq: byLimit.nextSeq })
      assert.deepEqual([byBytes.complete, byBytes.nextSeq], [false, (byBytes.rows[0]?.seq ?? 0) + 1])
      const rest = await h.claimResult({ fromSeq: byBytes.nextSeq })
      assert.deepEqual([rest.complete, rest.rows.map((row) => row.eventId)], [true, ids.slice(3)])
      assert.equal((await h.claimResult()).complete, true)
    })

    test('says whether it saw all delayed rows, where it knows, however many new ones it left', async (h) => {
      const knows = async (limit: number, maxBytes?: number) => {
        const { rows, dueComplete } = await h.claimResult({ limit, ...(maxBytes ? { maxBytes } : {}) })
        await h.settle(rows.map((row) => (row.attempts > 0 ? retry(row, { attempts: 0 }) : release(row))))
        return dueComplete ?? 'unknown'
      }
      await h.appendFree(3)
      await h.settle((await h.claim()).map((row) => retry(row)))
      await h.appendFree(20)
      assert.ok([true, 'unknown'].includes(await knows(10)))
      assert.ok([false, 'unknown'].includes(await knows(4)))
      assert.ok([false, 'unknown'].includes(await knows(10, 20)))
    })

    test('takes a delayed row that came due within the requested time, and no row that came due before', async (h) => {
      const delayed = event()
      await h.append([{ event: delayed, delayMs: 1 }])
      await h.elapse(200)
      assert.deepEqual(await h.claimIds({ dueWithinMs: 100 }), [])
      assert.deepEqual(await h.claimIds({ dueWithinMs: LONG_MS }), [delayed.eventId])
    })

    test('takes a retried row that came due within the requested time, and no row that came due before', async (h) => {
      const [id] = await h.appendFree(1)
      await h.settle([retry(await h.claimOne())])
      await h.elapse(200)
      assert.deepEqual(await h.claimIds({ dueWithinMs: 100 }), [])
      assert.deepEqual(await h.claimIds({ dueWithinMs: LONG_MS }), [id])
    })

    test('tells the highest seq drawn so far', async (h) => {
      const { seqs } = await h.append([{}, {}])
      const highest = Math.max(...seqs.values())
      assert.ok((await h.claimResult()).highSeq >= highest)
      assert.ok((await h.claimResult()).highSeq >= highest, 'also when there is nothing to claim')
    })

    test(
      'finds a row that commits late, with a low seq, from that seq',
      async (h) => {
        const late = event()
        const isWritten = gate()
        const goOn = gate()
        let lateSeq = 0
        const slow = h.store.transaction(async ({ client }) => {
          lateSeq = (await h.appendIn(client, [{ event: late }])).seqs.get(late.eventId) ?? 0
          isWritten.open()
          await goOn.opened
        })
        await isWritten.opened
        const [early] = await h.appendFree(1)
        const { rows, highSeq } = await h.claimResult()
        assert.deepEqual(
          rows.map((row) => row.eventId),
          [early],
        )
        assert.ok((rows[0]?.seq ?? 0) > lateSeq)
        assert.ok(highSeq > lateSeq)
        goOn.open()
        await slow
        assert.deepEqual(await h.claimIds({ fromSeq: highSeq + 1 }), [])
        assert.deepEqual(await h.claimIds({ fromSeq: lateSeq }), [late.eventId])
      },
      'concurrentTransactions',
    )

    test('finds rows to be tried again whatever the floor', async (h) => {
      const [id] = await h.appendFree(1)
      await h.settle([retry(await h.claimOne())])
      assert.deepEqual(await h.claimIds({ fromSeq: 1_000_000 }), [id])
    })

    test('shares the room between rows to be tried again and new ones', async (h) => {
      const retried = await h.appendFree(6)
      await h.settle((await h.claim()).map((row) => retry(row)))
      const fresh = await h.appendFree(6)
      const ids = await h.claimIds({ limit: 4 })
      assert.equal(ids.filter((id) => retried.includes(id)).length, 2)
      assert.deepEqual(ids.filter((id) => fresh.includes(id)).sort(), fresh.slice(0, 2).sort())
    })

    test('gives room that one kind leaves to the other', async (h) => {
      const retried = await h.appendFree(6)
      await h.settle((await h.claim()).map((row) => retry(row)))
      const [fresh] = await h.appendFree(1)
      const ids = await h.claimIds({ limit: 4 })
      assert.equal(ids.length, 4)
      assert.ok(fresh && ids.includes(fresh))
      assert.equal((await h.claimIds({ limit: 4 })).filter((id) => retried.includes(id)).length, 3)
    })

    test('takes those first that have been due for longest', async (h) => {
      const [first, second] = [event(), event()]
      await h.append([
        { event: second, delayMs: SHORT_MS },
        { event: first, delayMs: 1 },
      ])
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimIds({ limit: 1 }), [first.eventId])
      assert.deepEqual(await h.claimIds({ limit: 1 }), [second.eventId])
    })

    test('leaves recent rows alone on demand', async (h) => {
      const ids = await h.appendFree(1)
      assert.deepEqual(await h.claimIds({ skipRecentMs: LONG_MS }), [])
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimIds({ skipRecentMs: 10 }), ids)
    })

    test('future rows in front do not hide what is due', async (h) => {
      await h.append(Array.from({ length: 20 }, () => ({ delayMs: LONG_MS })))
      const [due] = await h.appendFree(1)
      assert.deepEqual(await h.claimIds({ limit: 5 }), [due])
    })

    test('claims at the same time never share a row, and miss none', async (h) => {
      const ids = await h.appendFree(200)
      const taken: string[] = []
      for (let round = 0; taken.length < ids.length && round < 50; round++) {
        const batches = await Promise.all(Array.from({ length: 8 }, () => h.claimIds({ limit: 10 })))
        taken.push(...batches.flat())
      }
      assert.equal(new Set(taken).size, taken.length)
      assert.deepEqual([...taken].sort(), [...ids].sort())
    })

    test('a row that is given back can be claimed again at once', async (h) => {
      const [id] = await h.appendFree(1)
      const first = await h.claimOne()
      assert.deepEqual(await h.settle([release(first)]), [id])
      const second = await h.claimOne()
      assert.equal(second.eventId, id)
      assert.notEqual(second.token, first.token)
    })
  },
}
