import assert from 'node:assert/strict'
import type { EventEnvelope } from '../../core/envelope.js'
import type { Settlement, TypeFilter } from '../../store.js'
import { claimOf, dead, done, event, onlyType, release, retry, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import { merges, RowModel, type Script } from './row-model.js'
import type { Theme } from './suite.js'

const SETTLEMENTS = { done, retry, release }

const STORIES = [
  ['unordered', 'done'],
  ['unordered', 'retry'],
  ['unordered', 'release'],
  ['ordered', 'done'],
  ['ordered', 'retry'],
  ['ordered', 'release'],
] as const

/** A row without an ordering key, or the only one of its key: both behave alike. */
const KINDS = {
  unordered: {
    ordering: () => ({}),
    claim: (h: Harness<unknown>, accept: TypeFilter) => h.claim({ accept, suspects: 1 }),
  },
  ordered: {
    ordering: (eventType: string) => ({ orderingKey: `key of ${eventType}` }),
    claim: (h: Harness<unknown>, accept: TypeFilter) => h.claimOrdered({ accept, suspects: 1 }),
  },
}

type Kind = (typeof KINDS)[keyof typeof KINDS]

function runs(kind: Kind, orders: readonly Script[]): EventEnvelope[] {
  return orders.map((_, index) => {
    const eventType = `run.${index}`
    return event({ eventType, ...kind.ordering(eventType) })
  })
}

/** Runs two workers against one row, step by step in the given order, and compares every answer with the model. */
async function play(
  h: Harness<unknown>,
  kind: Kind,
  eventType: string,
  model: RowModel,
  steps: Script,
): Promise<void> {
  const accept = onlyType(eventType)
  const story: string[] = []
  for (const { worker, act } of steps) {
    story.push(`${worker} ${act}`)
    if (act === 'claim') {
      const rows = await kind.claim(h, accept)
      const isExpected = model.claim(worker, rows[0]?.token)
      assert.equal(rows.length === 1, isExpected, story.join(', '))
      continue
    }
    const claim = model.claimOf(worker)
    if (!claim) continue
    const answer =
      act === 'renew'
        ? (await h.store.renewIfLeased([claim], 3_600_000)).has(claim.eventId)
        : (await h.settle([SETTLEMENTS[act](claim)])).includes(claim.eventId)
    assert.equal(answer, model.answer(worker, act), story.join(', '))
  }
  assert.equal((await h.record(model.eventId)).status, model.status, story.join(', '))
}

export const interleavings: Theme = {
  name: 'interleavings',
  define(test) {
    for (const [name, outcome] of STORIES) {
      const kind = KINDS[name]

      test(`two workers claim, renew and settle (${name}, ${outcome}) in every order`, async (h) => {
        const orders = merges(['claim', 'renew', outcome], ['claim', 'renew', 'done'])
        const events = runs(kind, orders)
        await h.append(events.map((envelope) => ({ event: envelope })))
        for (const [index, steps] of orders.entries()) {
          await play(h, kind, `run.${index}`, new RowModel(events[index]?.eventId ?? ''), steps)
        }
      })

      test(`a zombie renews, settles (${name}, ${outcome}) and claims while another takes over, in every order`, async (h) => {
        const orders = merges(['renew', outcome, 'claim'], ['claim', 'renew', 'done'])
        const events = runs(kind, orders)
        await h.append(
          events.map((envelope) => ({ event: envelope, token: 'zombie' })),
          { leaseMs: SHORT_MS },
        )
        await h.elapse(SHORT_MS)
        for (const [index, steps] of orders.entries()) {
          const model = RowModel.expired(events[index]?.eventId ?? '', 'A', 'zombie')
          await play(h, kind, `run.${index}`, model, steps)
        }
      })
    }

    test('of many settles of one claim at the same time one counts', async (h) => {
      await h.appendFree(20)
      for (const row of await h.claim()) {
        const outcomes: Settlement[] = [done(row), retry(row), dead(row), release(row), done(row)]
        const answers = await Promise.all(outcomes.map((settlement) => h.settle([settlement])))
        assert.equal(answers.flat().length, 1)
      }
    })

    test('of a late settle and many claims of an expired row one wins', async (h) => {
      const ids = await h.appendFree(10)
      const zombies = await h.claim({ leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      const claims = Array.from({ length: 4 }, () => h.claimIds({ suspects: 100 }))
      const winners = [await h.settle(zombies.map(done)), ...(await Promise.all(claims))].flat()
      assert.deepEqual([...winners].sort(), [...ids].sort())
    })

    test('while a lease is being renewed nobody can take the row', async (h) => {
      await h.appendFree(5)
      const rows = await h.claim()
      const [renewed, ...stolen] = await Promise.all([
        h.store.renewIfLeased(rows.map(claimOf), 3_600_000),
        ...Array.from({ length: 4 }, () => h.claimIds({ suspects: 100 })),
      ])
      assert.equal(renewed.size, 5)
      assert.deepEqual(stolen.flat(), [])
    })

    test('overlapping batches settled in opposite orders do not block each other for ever', async (h) => {
      await h.appendFree(100)
      const rows = await h.claim()
      const forward = rows.map(done)
      const answers = await Promise.all([
        h.settle(forward),
        h.settle([...forward].reverse()),
        h.settle(forward),
      ])
      assert.equal(answers.flat().length, 100)
      assert.equal((await h.store.stats()).pending, 0)
    })

    test('claims beside writers that commit and roll back get each committed row once', async (h) => {
      const committed: string[] = []
      let writersLeft = 4
      const write = async (writer: number) => {
        for (let round = 0; round < 25; round++) {
          const envelope = event()
          const isKept = (writer + round) % 5 !== 0
          const result = h.store.transaction(async ({ client }) => {
            await h.appendIn(client, [{ event: envelope }])
            if (!isKept) throw new Error('roll back')
          })
          if (!isKept) await assert.rejects(result)
          else {
            await result
            committed.push(envelope.eventId)
          }
        }
        writersLeft--
      }
      const claimed: string[] = []
      const take = async () => {
        for (;;) {
          const isLast = writersLeft === 0
          const ids = await h.claimIds({ limit: 7 })
          claimed.push(...ids)
          if (isLast && ids.length === 0) return
          await new Promise((resolve) => setImmediate(resolve))
        }
      }
      await Promise.all([...[0, 1, 2, 3].map(write), take(), take(), take()])
      assert.equal(new Set(claimed).size, claimed.length)
      assert.deepEqual([...claimed].sort(), [...committed].sort())
    })
  },
}
