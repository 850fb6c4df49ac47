import assert from 'node:assert/strict'
import type { ClaimedRow } from '../../store.js'
import { done, event, release, retry, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

/** Who holds which key, and what was handled of each. Fails as soon as two hold one key or the order is wrong. */
class KeyWatch {
  readonly handled = new Map<string, number[]>()
  hasFailed = false
  readonly #held = new Map<string, string>()

  take(run: readonly ClaimedRow[]): void {
    const [head] = run
    assert.ok(head?.orderingKey)
    const holder = this.#held.get(head.orderingKey)
    assert.equal(holder, undefined, `${head.token} got ${head.orderingKey} while ${holder} has it`)
    this.#held.set(head.orderingKey, head.token)
    const seqs = run.map((row) => row.seq)
    const before = this.handled.get(head.orderingKey)?.at(-1) ?? 0
    assert.deepEqual(
      seqs,
      [...seqs].sort((a, b) => a - b),
    )
    assert.ok((seqs[0] ?? 0) > before, `${head.orderingKey}: ${seqs[0]} came after ${before}`)
  }

  handle(row: ClaimedRow): void {
    const key = row.orderingKey ?? ''
    this.handled.set(key, [...(this.handled.get(key) ?? []), row.seq])
  }

  /** To be called before the settle is sent: once it has arrived, another may have the key. */
  giveUp(row: ClaimedRow): void {
    this.#held.delete(row.orderingKey ?? '')
  }
}

function byKey(rows: readonly ClaimedRow[]): ClaimedRow[][] {
  const runs = new Map<string, ClaimedRow[]>()
  for (const row of rows) runs.set(row.orderingKey ?? '', [...(runs.get(row.orderingKey ?? '') ?? []), row])
  return [...runs.values()]
}

/** Handles a run as a worker does: its first row fails the first time it comes, and the rest is given back then. */
async function work(h: Harness<unknown>, watch: KeyWatch, run: readonly ClaimedRow[]): Promise<void> {
  const [head, ...rest] = run
  assert.ok(head)
  if (head.attempts === 0 && head.seq % 3 === 0) {
    watch.giveUp(head)
    await h.settle([retry(head), ...rest.map((row) => release(row))])
    return
  }
  watch.handle(head)
  if (rest.length === 0) watch.giveUp(head)
  assert.equal((await h.settle([done(head)])).length, 1)
  if (rest.length === 0) return
  for (const row of rest) watch.handle(row)
  watch.giveUp(head)
  assert.equal((await h.settle(rest.map(done))).length, rest.length)
}

/** Claims and handles until `isOver` and nothing is left, or until another worker has failed. */
async function worker(h: Harness<unknown>, watch: KeyWatch, isOver: () => boolean): Promise<void> {
  let afterKey = ''
  let round = 0
  try {
    while (!watch.hasFailed) {
      assert.ok(++round < 5_000, 'something is never handed out')
      const isLast = isOver()
      const result = await h.claimOrderedResult({ keys: 5, runLength: 3, afterKey })
      const runs = byKey(result.rows)
      for (const run of runs) watch.take(run)
      await Promise.all(runs.map((run) => work(h, watch, run)))
      if (isLast && runs.length === 0 && (await h.store.stats()).pending === 0) return
      afterKey = result.afterKey ?? ''
      await new Promise((resolve) => setImmediate(resolve))
    }
  } catch (error) {
    watch.hasFailed = true
    throw error
  }
}

export const orderingRaces: Theme = {
  name: 'races for ordering keys',
  define(test) {
    test('claims at the same time never share a key, and miss none', async (h) => {
      const keys = Array.from({ length: 60 }, (_, index) => `key ${index}`)
      await h.append([...keys, ...keys, ...keys].map((orderingKey) => ({ event: event({ orderingKey }) })))
      const taken: string[] = []
      for (let round = 0; taken.length < keys.length && round < 50; round++) {
        const claims = await Promise.all(
          Array.from({ length: 8 }, () => h.claimOrdered({ keys: 4, runLength: 2 })),
        )
        for (const run of claims.flatMap(byKey)) {
          assert.equal(run.length, 2, 'a run is whole')
          taken.push(run[0]?.orderingKey ?? '')
        }
      }
      assert.deepEqual([...taken].sort(), [...keys].sort())
    })

    test('workers at the same time handle each key in order, one at a time, also after failures', async (h) => {
      const keys = Array.from({ length: 20 }, (_, index) => `key ${index}`)
      for (let round = 0; round < 7; round++) {
        await h.append(keys.map((orderingKey) => ({ event: event({ orderingKey }) })))
      }
      const watch = new KeyWatch()
      await Promise.all(Array.from({ length: 4 }, () => worker(h, watch, () => true)))
      for (const key of keys) assert.equal(watch.handled.get(key)?.length, 7)
    })

    test('workers beside writers that commit and roll back handle what was committed, in order', async (h) => {
      const watch = new KeyWatch()
      const written = new Map<string, number[]>()
      let writersLeft = 3
      const write = async (writer: number) => {
        for (let round = 0; round < 20; round++) {
          const orderingKey = `writer ${writer} key ${round % 3}`
          const envelope = event({ orderingKey })
          const isKept = round % 5 !== 4
          const result = h.store.transaction(async ({ client }) => {
            const { seqs } = await h.appendIn(client, [{ event: envelope }])
            if (!isKept) throw new Error('roll back')
            return seqs.get(envelope.eventId) ?? 0
          })
          if (isKept) written.set(orderingKey, [...(written.get(orderingKey) ?? []), await result])
          else await assert.rejects(result)
        }
        writersLeft--
      }
      const work = Array.from({ length: 3 }, () => worker(h, watch, () => writersLeft === 0))
      await Promise.all([...[0, 1, 2].map(write), ...work])
      assert.deepEqual(
        [...watch.handled].sort(([a], [b]) => (a < b ? -1 : 1)),
        [...written].sort(([a], [b]) => (a < b ? -1 : 1)),
      )
    })

    test('of a late settle and many claims of an expired key one wins', async (h) => {
      const keys = Array.from({ length: 10 }, (_, index) => `key ${index}`)
      await h.append(keys.map((orderingKey) => ({ event: event({ orderingKey }) })))
      const zombies = await h.claimOrdered({ leaseMs: SHORT_MS })
      assert.equal(zombies.length, 10)
      await h.elapse(SHORT_MS)
      const claims = Array.from({ length: 4 }, () => h.claimOrderedIds({ suspects: 100 }))
      const winners = [await h.settle(zombies.map(done)), ...(await Promise.all(claims))].flat()
      assert.deepEqual([...winners].sort(), zombies.map((row) => row.eventId).sort())
    })

    test('overlapping runs settled in opposite orders do not block each other for ever', async (h) => {
      const keys = Array.from({ length: 25 }, (_, index) => `key ${index}`)
      await h.append([...keys, ...keys, ...keys].map((orderingKey) => ({ event: event({ orderingKey }) })))
      const forward = (await h.claimOrdered()).map(done)
      assert.equal(forward.length, 75)
      const answers = await Promise.all([
        h.settle(forward),
        h.settle([...forward].reverse()),
        h.settle(forward),
      ])
      assert.equal(answers.flat().length, 75)
      assert.equal((await h.store.stats()).pending, 0)
    })
  },
}
