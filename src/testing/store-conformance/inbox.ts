import assert from 'node:assert/strict'
import { gate, LONG_MS, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const ODD_NAMES = [
  'a',
  'A',
  'a ',
  ' a',
  'é',
  'e\u0301',
  "'); drop --",
  '"a"',
  '\\',
  '%',
  '["a","b"]',
  '😀'.repeat(32),
]

/** Marks in a transaction of its own. */
function mark<Client>(h: Harness<Client>, handler: string, eventId: string): Promise<boolean> {
  return h.store.transaction(({ client }) => h.store.markProcessed(client, handler, eventId))
}

export const inbox: Theme = {
  name: 'inbox',
  define(test) {
    test('an event is new to a handler once', async (h) => {
      assert.equal(await h.store.isProcessed('mail', 'e-1'), false)
      assert.equal(await mark(h, 'mail', 'e-1'), true)
      assert.equal(await h.store.isProcessed('mail', 'e-1'), true)
      assert.equal(await mark(h, 'mail', 'e-1'), false)
      assert.equal(await h.store.isProcessed('mail', 'e-1'), true)
    })

    test('each handler has its own marks', async (h) => {
      assert.equal(await mark(h, 'mail', 'e-1'), true)
      assert.equal(await mark(h, 'audit', 'e-1'), true)
      assert.equal(await mark(h, 'mail', 'e-2'), true)
      assert.equal(await h.store.isProcessed('audit', 'e-2'), false)
      assert.equal(await h.store.isProcessed('e-1', 'mail'), false)
    })

    test('names and ids are compared exactly, and not run together', async (h) => {
      const pairs = [...ODD_NAMES.map((name) => [name, 'id']), ...ODD_NAMES.map((id) => ['name', id])]
      pairs.push(['ab', 'c'], ['a', 'bc'], ['a,b', 'c'], ['a', 'b,c'], ['n'.repeat(255), 'i'.repeat(64)])
      for (const [handler = '', id = ''] of pairs) {
        assert.equal(await h.store.isProcessed(handler, id), false, `${handler} has not seen ${id}`)
        assert.equal(await mark(h, handler, id), true)
      }
      for (const [handler = '', id = ''] of pairs) assert.equal(await mark(h, handler, id), false)
    })

    test('the event need not be in the outbox, and its row is another matter', async (h) => {
      const [id = ''] = await h.appendFree(1)
      assert.equal(await mark(h, 'mail', id), true)
      assert.deepEqual(await h.claimIds(), [id])
      await h.store.transaction(async ({ client }) => {
        assert.equal((await h.store.findPresent(client, ['elsewhere'])).size, 0)
        assert.equal(await h.store.markProcessed(client, 'mail', 'elsewhere'), true)
        assert.equal((await h.store.findPresent(client, ['elsewhere'])).size, 0)
      })
    })

    test('a mark is gone with the transaction that rolls back', async (h) => {
      const failure = new Error('roll back')
      const result = h.store.transaction(async ({ client }) => {
        assert.equal(await h.store.markProcessed(client, 'mail', 'e-1'), true)
        await h.appendIn(client, [{}])
        throw failure
      })
      await assert.rejects(result, (error) => error === failure)
      assert.equal(await h.store.isProcessed('mail', 'e-1'), false)
      assert.equal(await mark(h, 'mail', 'e-1'), true)
    })

    test('a mark and events commit together', async (h) => {
      await h.store.transaction(async ({ client }) => {
        await h.appendIn(client, [{}])
        assert.equal(await h.store.markProcessed(client, 'mail', 'e-1'), true)
        await h.appendIn(client, [{}])
      })
      assert.equal(await h.store.isProcessed('mail', 'e-1'), true)
      assert.equal((await h.claim()).length, 2)
    })

    test('a mark is gone with a savepoint that fails, and can be set again', async (h) => {
      await h.store.transaction(async ({ client, savepoint }) => {
        const nested = savepoint(async () => {
          assert.equal(await h.store.markProcessed(client, 'mail', 'e-1'), true)
          throw new Error('only the savepoint')
        })
        await assert.rejects(nested)
        assert.equal(await h.store.markProcessed(client, 'audit', 'e-1'), true)
        assert.equal(await h.store.markProcessed(client, 'mail', 'e-1'), true)
      })
      assert.equal(await h.store.isProcessed('mail', 'e-1'), true)
      assert.equal(await h.store.isProcessed('audit', 'e-1'), true)
    })

    test('the second time in one transaction is the second time, and harms nothing', async (h) => {
      assert.equal(await mark(h, 'mail', 'old'), true)
      await h.store.transaction(async ({ client }) => {
        assert.equal(await h.store.markProcessed(client, 'mail', 'old'), false)
        assert.equal(await h.store.markProcessed(client, 'mail', 'e-1'), true)
        assert.equal(await h.store.markProcessed(client, 'mail', 'e-1'), false)
        await h.appendIn(client, [{}])
      })
      assert.equal(await h.store.isProcessed('mail', 'e-1'), true)
      assert.equal((await h.claim()).length, 1)
    })

    test(
      'a mark shows to others after the commit only',
      async (h) => {
        await h.store.transaction(async ({ client }) => {
          await h.store.markProcessed(client, 'mail', 'e-1')
          assert.equal(await h.store.isProcessed('mail', 'e-1'), false)
        })
        assert.equal(await h.store.isProcessed('mail', 'e-1'), true)
      },
      'concurrentTransactions',
    )

    for (const first of ['commits', 'rolls back'] as const) {
      test(
        `of two transactions at once the second is told when the first ${first}`,
        async (h) => {
          const stop = new Error('roll back')
          const order: string[] = []
          const asked = gate()
          const markSecond = () =>
            h.store
              .transaction(async ({ client }) => {
                assert.equal(await h.store.markProcessed(client, 'audit', 'e-1'), true, 'no need to wait')
                const answer = h.store.markProcessed(client, 'mail', 'e-1')
                asked.open()
                const isNew = await answer
                order.push('second is told')
                return isNew
              })
              .finally(asked.open)
          let second: Promise<boolean> | undefined
          const firstEnds = h.store.transaction(async ({ client }) => {
            assert.equal(await h.store.markProcessed(client, 'mail', 'e-1'), true)
            second = markSecond()
            second.catch(() => {})
            await asked.opened
            order.push('first ends')
            if (first === 'rolls back') throw stop
          })
          const failure = await firstEnds.catch((error) => error)
          assert.equal(failure, first === 'rolls back' ? stop : undefined)
          assert.equal(await second, first === 'rolls back')
          assert.deepEqual(order, ['first ends', 'second is told'])
          assert.equal(await h.store.isProcessed('mail', 'e-1'), true)
        },
        'concurrentTransactions',
      )
    }

    test(
      'of many transactions at once one is the first',
      async (h) => {
        const answers = await Promise.all(Array.from({ length: 6 }, () => mark(h, 'mail', 'e-1')))
        assert.equal(answers.filter((isNew) => isNew).length, 1)
      },
      'concurrentTransactions',
    )

    for (const end of ['commit', 'rollback'] as const) {
      test(
        `marks in a caller's own transaction: what holds after its ${end}`,
        async (h) => {
          const transaction = await h.begin()
          assert.equal(await h.store.markProcessed(transaction.client, 'mail', 'e-1'), true)
          await transaction[end]()
          assert.equal(await h.store.isProcessed('mail', 'e-1'), end === 'commit')
        },
        'callerTransactions',
        'begin',
      )
    }

    test('marks stay as long as they should', async (h) => {
      await mark(h, 'mail', 'e-1')
      assert.equal(await h.store.pruneProcessed(LONG_MS, 100), 0)
      assert.equal(await mark(h, 'mail', 'e-1'), false)
    })

    test('old marks go, at most so many at a time, and are forgotten', async (h) => {
      for (let index = 0; index < 5; index++) await mark(h, 'mail', `old ${index}`)
      await h.elapse(SHORT_MS)
      assert.equal(await h.store.pruneProcessed(10, 2), 2)
      assert.equal(await h.store.pruneProcessed(10, 2), 2)
      assert.equal(await h.store.pruneProcessed(10, 2), 1)
      assert.equal(await h.store.pruneProcessed(10, 2), 0)
      assert.equal(await mark(h, 'mail', 'old 0'), true)
    })

    test('two instances that prune at the same time delete each mark once', async (h) => {
      for (let index = 0; index < 20; index++) await mark(h, 'mail', `e-${index}`)
      await h.elapse(SHORT_MS)
      let pruned = 0
      for (let round = 0; pruned < 20 && round < 20; round++) {
        const counts = await Promise.all([h.store.pruneProcessed(10, 5), h.store.pruneProcessed(10, 5)])
        pruned += counts[0] + counts[1]
      }
      assert.equal(pruned, 20)
      assert.equal(await h.store.isProcessed('mail', 'e-0'), false)
    })
  },
}
