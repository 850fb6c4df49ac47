import assert from 'node:assert/strict'
import { MAX_PAYLOAD_BYTES } from '../../core/payload-limits.js'
import { ANY, event, gate, LONG_MS, SHORT_MS } from './fixtures.js'
import type { Theme } from './suite.js'

export const append: Theme = {
  name: 'append',
  define(test) {
    test('tells the seq of each row, rising in the order given', async (h) => {
      const events = [event(), event(), event()]
      const { seqs, duplicates } = await h.append(events.map((envelope) => ({ event: envelope })))
      assert.deepEqual([...seqs.keys()].sort(), events.map((envelope) => envelope.eventId).sort())
      const inOrder = events.map((envelope) => seqs.get(envelope.eventId) ?? 0)
      assert.deepEqual(
        inOrder,
        [...inOrder].sort((a, b) => a - b),
      )
      assert.equal(new Set(inOrder).size, 3)
      assert.deepEqual(duplicates, [])
      const records = await h.store.list({})
      assert.deepEqual(
        records.map((record) => [record.eventId, record.seq]),
        events.map((envelope) => [envelope.eventId, seqs.get(envelope.eventId)]),
      )
    })

    test('takes an empty list', async (h) => {
      const result = await h.append([])
      assert.equal(result.seqs.size, 0)
      assert.deepEqual(result.duplicates, [])
    })

    test('writes a thousand rows at once', async (h) => {
      await h.appendFree(1_000)
      assert.equal((await h.store.stats()).pending, 1_000)
    })

    test('writes as many bytes at once as one publishAll() call may have', async (h) => {
      const count = 63
      const payload = 'x'.repeat(MAX_PAYLOAD_BYTES - 2)
      const ids = await h.appendFree(count, { payload })
      const [first, last] = [await h.record(ids[0] ?? ''), await h.record(ids[count - 1] ?? '')]
      assert.equal(first.payloadText?.length, MAX_PAYLOAD_BYTES)
      assert.equal(last.payloadText?.length, MAX_PAYLOAD_BYTES)
      assert.equal((await h.store.stats()).pending, count)
    })

    test('writes many events with large headers at once', async (h) => {
      const headers = { large: 'x"'.repeat(32_000) }
      const ids = await h.appendFree(500, { headers })
      assert.deepEqual({ ...(await h.record(ids[499] ?? '')).headers }, headers)
    })

    test('writes nothing when one id exists, and says which', async (h) => {
      const old = event()
      await h.append([{ event: old }])
      const fresh = event()
      const result = await h.append([{ event: fresh }, { event: old }])
      assert.deepEqual(result.duplicates, [old.eventId])
      assert.equal(result.seqs.size, 0)
      assert.equal(await h.find(fresh.eventId), undefined)
      assert.equal((await h.store.list({})).length, 1)
    })

    test('ignores an id that exists, on demand, and keeps the first row as it was', async (h) => {
      const old = event({ payload: 'first' })
      await h.append([{ event: old }])
      const fresh = event()
      const again = event({ eventId: old.eventId, payload: 'second' })
      const result = await h.append([{ event: again }, { event: fresh }], { onDuplicate: 'ignore' })
      assert.deepEqual(result.duplicates, [old.eventId])
      assert.deepEqual([...result.seqs.keys()], [fresh.eventId])
      assert.equal(JSON.parse((await h.record(old.eventId)).payloadText ?? ''), 'first')
    })

    for (const onDuplicate of ['error', 'ignore'] as const) {
      test(`sees an id twice in one batch (${onDuplicate})`, async (h) => {
        const first = event()
        const other = event()
        const result = await h.append([{ event: first }, { event: other }, { event: first }], { onDuplicate })
        assert.deepEqual(result.duplicates, [first.eventId])
        const written = onDuplicate === 'error' ? [] : [first.eventId, other.eventId]
        assert.deepEqual([...result.seqs.keys()].sort(), written.sort())
        assert.equal((await h.store.list({})).length, written.length)
      })
    }

    test('leaves the transaction usable after a duplicate', async (h) => {
      const old = event()
      await h.append([{ event: old }])
      const fresh = event()
      await h.store.transaction(async ({ client }) => {
        assert.deepEqual((await h.appendIn(client, [{ event: old }])).duplicates, [old.eventId])
        assert.deepEqual((await h.appendIn(client, [{ event: fresh }])).duplicates, [])
        assert.deepEqual((await h.appendIn(client, [{ event: fresh }])).duplicates, [fresh.eventId])
      })
      assert.deepEqual((await h.claimIds()).sort(), [old.eventId, fresh.eventId].sort())
    })

    test('an id is taken for as long as its row is there, done and dead rows too', async (h) => {
      const id = await h.makeDead()
      const [doneId] = await h.appendFree(1)
      const [row] = await h.claim()
      await h.settle([{ eventId: row?.eventId ?? '', token: row?.token ?? '', outcome: 'done' }])
      const again = [event({ eventId: id }), event({ eventId: doneId })].map((envelope) => ({
        event: envelope,
      }))
      const result = await h.append(again, { onDuplicate: 'ignore' })
      assert.deepEqual([...result.duplicates].sort(), [id, doneId].sort())
      assert.equal(result.seqs.size, 0)
    })

    for (const first of ['commits', 'rolls back'] as const) {
      test(
        `of two transactions with one id the second is the duplicate only if the first ${first}`,
        async (h) => {
          const envelope = event()
          const secondBegins = gate()
          const isWritten = gate()
          const stop = new Error('roll back')
          const firstEnds = h.store.transaction(async ({ client }) => {
            await h.appendIn(client, [{ event: envelope }])
            isWritten.open()
            await secondBegins.opened
            if (first === 'rolls back') throw stop
          })
          await isWritten.opened
          const second = h.store.transaction(({ client }) => {
            const result = h.appendIn(client, [{ event: envelope }])
            secondBegins.open()
            return result
          })
          if (first === 'commits') await firstEnds
          else await assert.rejects(firstEnds, stop)
          const { duplicates } = await second
          assert.deepEqual(duplicates, first === 'commits' ? [envelope.eventId] : [])
          assert.equal((await h.store.list({})).length, 1)
        },
        'concurrentTransactions',
      )
    }

    test('a row that is born leased is not claimed while its lease holds', async (h) => {
      const leased = event()
      const free = event()
      await h.append([{ event: leased, token: 'hot:1' }, { event: free }], { leaseMs: LONG_MS })
      assert.deepEqual(await h.claimIds({ suspects: 10 }), [free.eventId])
      const record = await h.record(leased.eventId)
      assert.equal(record.lockedBy, 'hot:1')
      assert.ok(record.lockedUntil)
    })

    test('a row that is born leased can be claimed when its lease has run out', async (h) => {
      const leased = event()
      await h.append([{ event: leased, token: 'hot:1' }], { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.equal((await h.claimOne({ suspects: 1 })).eventId, leased.eventId)
    })

    test('a row that is born leased is settled with its token', async (h) => {
      const leased = event()
      await h.append([{ event: leased, token: 'hot:1' }])
      assert.deepEqual(await h.settle([{ eventId: leased.eventId, token: 'hot:2', outcome: 'done' }]), [])
      assert.deepEqual(await h.settle([{ eventId: leased.eventId, token: 'hot:1', outcome: 'done' }]), [
        leased.eventId,
      ])
      assert.equal((await h.record(leased.eventId)).status, 'DONE')
    })

    test('a delayed row is not due before its time', async (h) => {
      await h.append([{ delayMs: LONG_MS }, { deliverAt: new Date('9990-01-01T00:00:00Z') }])
      assert.deepEqual(await h.claim(), [])
      assert.equal((await h.store.stats()).pending, 2)
    })

    test('a delayed row is due after its time, however high the floor of the scan is', async (h) => {
      const late = event()
      await h.append([{ event: late, delayMs: SHORT_MS }])
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimIds({ fromSeq: 1_000_000, accept: ANY }), [late.eventId])
    })

    test('a row whose time has passed already is due at once', async (h) => {
      const past = event()
      const now = event()
      await h.append([
        { event: past, deliverAt: new Date('2001-01-01T00:00:00Z') },
        { event: now, delayMs: 0 },
      ])
      assert.deepEqual((await h.claimIds()).sort(), [past.eventId, now.eventId].sort())
    })
  },
}
