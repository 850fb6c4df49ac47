import assert from 'node:assert/strict'
import type { ClaimedRow } from '../../store.js'
import { claimOf, done, event, onlyType, release, retry, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

/** Runs of these keys whose owner vanished with all of them in its hands. */
async function loseRuns(h: Harness<unknown>, keys: readonly string[], length: number): Promise<string[]> {
  const events = keys.flatMap((orderingKey) => Array.from({ length }, () => event({ orderingKey })))
  await h.append(events.map((envelope) => ({ event: envelope })))
  const rows = await h.claimOrdered({ leaseMs: SHORT_MS, runLength: length })
  assert.equal(rows.length, events.length)
  await h.elapse(SHORT_MS)
  return events.map((envelope) => envelope.eventId)
}

export const orderingSuspects: Theme = {
  name: 'suspects of ordering keys',
  define(test) {
    test('of a run whose lease ran out the first row is tried alone, by a claim that asks for suspects', async (h) => {
      const [first] = await loseRuns(h, ['a'], 3)
      assert.deepEqual(await h.claimOrdered({ suspects: 0 }), [])
      const rows = await h.claimOrdered({ token: 'worker:7', suspects: 1 })
      assert.deepEqual(
        rows.map((row) => [row.eventId, row.token, row.suspect, row.attempts]),
        [[first, 'worker:7:solo', true, 0]],
      )
      assert.deepEqual(await h.claimOrdered({ suspects: 10 }), [], 'nobody else tries the next one meanwhile')
    })

    test('the rows behind it follow one by one, each alone, none charged', async (h) => {
      const ids = await loseRuns(h, ['a'], 3)
      for (const id of ids) {
        assert.deepEqual(await h.claimOrdered(), [])
        const rows = await h.claimOrdered({ suspects: 1 })
        assert.deepEqual(
          rows.map((row) => [row.eventId, row.suspect, row.attempts]),
          [[id, true, 0]],
        )
        assert.deepEqual(await h.settle(rows.map(done)), [id])
      }
    })

    test('a row that was alone is charged for each lease it loses', async (h) => {
      const [first] = await loseRuns(h, ['a'], 2)
      for (const attempts of [0, 1, 2]) {
        const rows = await h.claimOrdered({ suspects: 1, leaseMs: SHORT_MS })
        assert.deepEqual(
          rows.map((row) => [row.eventId, row.attempts]),
          [[first, attempts]],
        )
        assert.equal((await h.record(first ?? '')).attempts, attempts)
        await h.elapse(SHORT_MS)
      }
    })

    test('a row that was given back after it was alone is neither charged nor suspect', async (h) => {
      const [first] = await loseRuns(h, ['a'], 2)
      const [alone] = await h.claimOrdered({ suspects: 1 })
      assert.ok(alone)
      assert.deepEqual(
        await h.settle([release({ ...claimOf(alone), token: alone.token.replace(':solo', '') })]),
        [],
      )
      assert.deepEqual(await h.settle([release(alone)]), [first])
      const rows = await h.claimOrdered({ suspects: 1 })
      assert.deepEqual(
        rows.map((row) => [row.eventId, row.attempts, row.suspect]),
        [[first, 0, false]],
        'and the run ends before the next one, which lost its lease',
      )
    })

    test('a run ends before a row that lost its lease', async (h) => {
      const ids = await h.appendFree(3, { orderingKey: 'a' })
      const [first, ...rest] = await h.claimOrdered({ leaseMs: SHORT_MS })
      assert.ok(first && rest.length === 2)
      await h.settle([retry(first)])
      await h.elapse(SHORT_MS)
      const rows = await h.claimOrdered({ suspects: 10 })
      assert.deepEqual(
        rows.map((row) => [row.eventId, row.suspect, row.attempts]),
        [[ids[0], false, 1]],
      )
    })

    test('nobody but its new owner settles rows of a key that was taken over', async (h) => {
      const ids = await h.appendFree(4, { orderingKey: 'a' })
      const zombies = await h.claimOrdered({ leaseMs: SHORT_MS })
      const [first] = zombies
      assert.ok(first)
      await h.elapse(SHORT_MS)
      const [alone] = await h.claimOrdered({ suspects: 1 })
      assert.equal(alone?.eventId, first.eventId)
      assert.deepEqual(await h.settle(zombies.map(done)), [])
      await h.settle([release(alone as ClaimedRow)])
      assert.equal((await h.claimOrdered()).length, 1, 'and the others still wait to be tried alone')
      assert.deepEqual(await h.settle(zombies.map((row) => retry(row))), [])
      for (const id of ids.slice(1)) {
        const record = await h.record(id)
        assert.deepEqual([record.status, record.attempts], ['NEW', 0])
      }
    })

    test('a key that nobody took over can still be settled by its owner', async (h) => {
      await h.appendFree(3, { orderingKey: 'a' })
      const zombies = await h.claimOrdered({ leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      await h.claimOrdered({ suspects: 0 })
      assert.equal((await h.settle(zombies.map(done))).length, 3)
    })

    test('takes at most so many suspects, and other keys beside them', async (h) => {
      const lost = await loseRuns(h, ['a', 'b', 'd'], 2)
      const fresh = await h.appendFree(2, { orderingKey: 'c' })
      const rows = await h.claimOrdered({ suspects: 1 })
      assert.deepEqual(
        rows.map((row) => row.eventId),
        [lost[0], ...fresh],
      )
      assert.deepEqual(await h.claimOrderedIds({ suspects: 5 }), [lost[2], lost[4]])
    })

    test('suspects count towards the keys and the bytes', async (h) => {
      const keys = ['a', 'b', 'c']
      await h.append(keys.map((orderingKey) => ({ event: event({ orderingKey, payload: 'x'.repeat(98) }) })))
      await h.claimOrdered({ leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.equal((await h.claimOrdered({ suspects: 10, keys: 1 })).length, 1)
      assert.equal((await h.claimOrdered({ suspects: 10, maxBytes: 150 })).length, 1)
    })

    test('a suspect of a type that is not accepted is left alone', async (h) => {
      await loseRuns(h, ['a'], 1)
      assert.deepEqual(await h.claimOrdered({ suspects: 1, accept: onlyType('other') }), [])
    })

    test('a row that lost its lease waits for one behind it that is being worked on', async (h) => {
      const envelope = event({ orderingKey: 'a' })
      await h.append([{ event: envelope, token: 'lost:1' }], { leaseMs: SHORT_MS })
      await h.append([{ event: event({ orderingKey: 'a' }), token: 'hot:1' }])
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.claimOrdered({ suspects: 1 }), [])
    })

    test('two claims at the same time do not share a suspect', async (h) => {
      const lost = await loseRuns(h, ['a', 'b', 'c', 'd'], 2)
      const claims = await Promise.all([1, 2, 3, 4].map(() => h.claimOrderedIds({ suspects: 2 })))
      const ids = claims.flat()
      assert.equal(new Set(ids).size, ids.length)
      assert.ok(ids.length >= 2)
      for (const id of ids) assert.equal(lost.indexOf(id) % 2, 0, 'the first row of its key')
    })
  },
}
