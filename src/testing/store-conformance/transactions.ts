import assert from 'node:assert/strict'
import { AftercommitError } from '../../core/errors.js'
import { HOSTILE_VALUES } from '../hostile-values.js'
import { event, gate } from './fixtures.js'
import type { Theme } from './suite.js'

const hasCode = (code: string) => (error: unknown) =>
  error instanceof Error && 'code' in error && error.code === code

/** An outbox reports a TypeError as an unknown transaction. */
const NO_CLIENTS: Readonly<Record<string, () => unknown>> = {
  'an empty object': () => ({}),
  'a function': () => () => {},
  'a string': () => 'tx',
  'a revoked proxy': () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    return proxy
  },
}

/** Compares by identity: `assert.rejects` would inspect the value. */
async function assertRejectsWith(result: Promise<unknown>, value: unknown, name: string): Promise<void> {
  const thrown = await result.then(
    () => null,
    (error: unknown) => ({ error }),
  )
  assert.ok(thrown, `${name}: it did not reject`)
  assert.ok(Object.is(thrown.error, value), `${name}: it rejected with another value`)
}

export const transactions: Theme = {
  name: 'transactions',
  define(test) {
    test('a rollback leaves nothing, and the error of the body is the one that is thrown', async (h) => {
      const failure = new Error('business rule')
      const result = h.store.transaction(async ({ client }) => {
        await h.appendIn(client, [{}, {}])
        throw failure
      })
      await assert.rejects(result, (error) => error === failure)
      assert.deepEqual(await h.store.list({}), [])
      assert.deepEqual(await h.claim({ suspects: 10 }), [])
    })

    test('a commit keeps everything and answers what the body returned', async (h) => {
      const envelope = event()
      const other = event()
      const answer = await h.store.transaction(async ({ client }) => {
        await h.appendIn(client, [{ event: envelope }])
        await h.appendIn(client, [{ event: other }])
        return 'answer'
      })
      assert.equal(answer, 'answer')
      assert.deepEqual(await h.claimIds(), [envelope.eventId, other.eventId])
    })

    test('a thrown value that is no error comes through as it is', async (h) => {
      const result = h.store.transaction(() => Promise.reject('just text'))
      await assert.rejects(result, (thrown) => thrown === 'just text')
    })

    test('a body that throws a value that cannot be inspected is rolled back, and rejects with this value', async (h) => {
      for (const [name, make] of Object.entries(HOSTILE_VALUES)) {
        const value = make()
        const result = h.store.transaction(async ({ client }) => {
          await h.appendIn(client, [{}])
          throw value
        })
        await assertRejectsWith(result, value, name)
      }
      assert.deepEqual(await h.store.list({}), [])
      await h.appendFree(1)
      assert.equal((await h.claim()).length, 1)
    })

    test('a savepoint whose body throws a value that cannot be inspected is rolled back alone', async (h) => {
      const kept: string[] = []
      for (const [name, make] of Object.entries(HOSTILE_VALUES)) {
        const value = make()
        const outer = event()
        kept.push(outer.eventId)
        await h.store.transaction(async (session) => {
          await h.appendIn(session.client, [{ event: outer }])
          const inner = session.savepoint(async ({ client }) => {
            await h.appendIn(client, [{}])
            throw value
          })
          await assertRejectsWith(inner, value, name)
        })
      }
      const rows = await h.store.list({ limit: 1_000 })
      assert.deepEqual(rows.map(({ eventId }) => String(eventId)).sort(), kept.sort())
    })

    test('the store goes on working after many rollbacks', async (h) => {
      for (let round = 0; round < 30; round++) {
        await assert.rejects(h.store.transaction(() => Promise.reject(new Error(`round ${round}`))))
      }
      await h.appendFree(1)
      assert.equal((await h.claim()).length, 1)
    })

    test(
      'nothing shows before the commit',
      async (h) => {
        const isWritten = gate()
        const goOn = gate()
        const open = h.store.transaction(async ({ client }) => {
          await h.appendIn(client, [{}])
          isWritten.open()
          await goOn.opened
        })
        await isWritten.opened
        assert.deepEqual(await h.claim(), [])
        assert.deepEqual(await h.store.list({}), [])
        assert.equal((await h.store.stats()).pending, 0)
        goOn.open()
        await open
        assert.equal((await h.claim()).length, 1)
      },
      'concurrentTransactions',
    )

    test(
      'transactions that run at the same time do not mix',
      async (h) => {
        const kept = event()
        const bothWrote = [gate(), gate()] as const
        const rolledBack = h.store.transaction(async ({ client }) => {
          await h.appendIn(client, [{}])
          bothWrote[0].open()
          await bothWrote[1].opened
          throw new Error('roll back')
        })
        const committed = h.store.transaction(async ({ client }) => {
          await h.appendIn(client, [{ event: kept }])
          bothWrote[1].open()
          await bothWrote[0].opened
        })
        await Promise.all([assert.rejects(rolledBack), committed])
        assert.deepEqual(await h.claimIds(), [kept.eventId])
      },
      'concurrentTransactions',
    )

    test('a savepoint that fails takes only its own rows with it', async (h) => {
      const [before, inside, after] = [event(), event(), event()]
      const failure = new Error('only the savepoint')
      await h.store.transaction(async ({ client, savepoint }) => {
        await h.appendIn(client, [{ event: before }])
        const nested = savepoint(async () => {
          await h.appendIn(client, [{ event: inside }])
          throw failure
        })
        await assert.rejects(nested, (error) => error === failure)
        await h.appendIn(client, [{ event: after }])
      })
      assert.deepEqual(await h.claimIds(), [before.eventId, after.eventId])
    })

    test('an id of a failed savepoint is free again', async (h) => {
      const envelope = event()
      await h.store.transaction(async ({ client, savepoint }) => {
        const nested = savepoint(async () => {
          await h.appendIn(client, [{ event: envelope }])
          throw new Error('only the savepoint')
        })
        await assert.rejects(nested)
        assert.deepEqual((await h.appendIn(client, [{ event: envelope }])).duplicates, [])
      })
      assert.deepEqual(await h.claimIds(), [envelope.eventId])
    })

    test('savepoints nest, and answer what their body returned', async (h) => {
      const [outer, inner] = [event(), event()]
      await h.store.transaction(async ({ client, savepoint }) => {
        const answer = await savepoint(async () => {
          await h.appendIn(client, [{ event: outer }])
          const innermost = savepoint(async () => {
            await h.appendIn(client, [{ event: inner }])
            throw new Error('the inner one')
          })
          await assert.rejects(innermost)
          return 'answer'
        })
        assert.equal(answer, 'answer')
      })
      assert.deepEqual(await h.claimIds(), [outer.eventId])
    })

    test('a savepoint that succeeded is gone when the transaction rolls back', async (h) => {
      const result = h.store.transaction(async ({ client, savepoint }) => {
        await savepoint(() => h.appendIn(client, [{}]))
        throw new Error('all of it')
      })
      await assert.rejects(result)
      assert.deepEqual(await h.store.list({}), [])
    })

    test('finds which rows the transaction still holds', async (h) => {
      const [kept, lost] = [event(), event()]
      await h.store.transaction(async ({ client, savepoint }) => {
        const { seqs } = await h.appendIn(client, [{ event: kept }])
        const nested = savepoint(async () => {
          await h.appendIn(client, [{ event: lost }])
          const both = await h.store.findPresent(client, [kept.eventId, lost.eventId])
          assert.deepEqual([...both.keys()].sort(), [kept.eventId, lost.eventId].sort())
          throw new Error('only the savepoint')
        })
        await assert.rejects(nested)
        const present = await h.store.findPresent(client, [kept.eventId, lost.eventId, 'never written'])
        assert.deepEqual([...present], [...seqs])
        assert.equal((await h.store.findPresent(client, [])).size, 0)
      })
    })

    test('inside a transaction its client passes as being in one', async (h) => {
      await h.store.transaction(({ client }) => h.store.ensureInTransaction(client))
    })

    test(
      'a swallowed failure is never taken for a commit',
      async (h) => {
        const before = event()
        const result = await Promise.allSettled([
          h.store.transaction(async ({ client }) => {
            await h.appendIn(client, [{ event: before }])
            await assert.rejects(h.failingStatement(client))
          }),
        ])
        const isThere = (await h.find(before.eventId)) !== undefined
        assert.equal(result[0].status, isThere ? 'fulfilled' : 'rejected')
        if (result[0].status === 'rejected') assert.ok(hasCode('TRANSACTION_ROLLED_BACK')(result[0].reason))
      },
      'failingStatement',
    )

    test(
      'a failure inside a savepoint does not hurt the transaction around it',
      async (h) => {
        const [before, after] = [event(), event()]
        await h.store.transaction(async ({ client, savepoint }) => {
          await h.appendIn(client, [{ event: before }])
          await assert.rejects(savepoint((inner) => h.failingStatement(inner.client)))
          await h.appendIn(client, [{ event: after }])
        })
        assert.deepEqual(await h.claimIds(), [before.eventId, after.eventId])
      },
      'failingStatement',
    )

    test(
      "writes into a caller's own transaction: gone with its rollback",
      async (h) => {
        const transaction = await h.begin()
        await h.store.ensureInTransaction(transaction.client)
        await h.appendIn(transaction.client, [{}])
        await transaction.rollback()
        assert.deepEqual(await h.store.list({}), [])
      },
      'callerTransactions',
      'begin',
    )

    test(
      "writes into a caller's own transaction: there with its commit",
      async (h) => {
        const envelope = event()
        const transaction = await h.begin()
        await h.appendIn(transaction.client, [{ event: envelope }])
        assert.deepEqual(
          [...(await h.store.findPresent(transaction.client, [envelope.eventId])).keys()],
          [envelope.eventId],
        )
        await transaction.commit()
        assert.deepEqual(await h.claimIds(), [envelope.eventId])
      },
      'callerTransactions',
      'begin',
    )

    test(
      "knows that a caller's transaction has ended",
      async (h) => {
        for (const end of ['commit', 'rollback'] as const) {
          const transaction = await h.begin()
          await transaction[end]()
          await assert.rejects(h.store.ensureInTransaction(transaction.client), hasCode('TRANSACTION_ENDED'))
        }
      },
      'callerTransactions',
      'begin',
    )

    for (const [what, make] of Object.entries(NO_CLIENTS)) {
      test(
        `refuses ${what} in the place of a client`,
        async (h) => {
          const refused = h.store.ensureInTransaction(make() as never)
          await assert.rejects(
            refused,
            (error) => error instanceof TypeError || error instanceof AftercommitError,
          )
        },
        'callerTransactions',
      )
    }
  },
}
