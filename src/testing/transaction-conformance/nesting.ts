import assert from 'node:assert/strict'
import { captureContext, runInTransaction } from '../../ambient.js'
import type { Transaction } from '../../transaction.js'
import { type Harness, hasCode, named } from './harness.js'
import type { Theme } from './suite.js'

const failure = new Error('the inner one fails')
const isFailure = (error: unknown) => error === failure

interface Way {
  readonly name: string
  readonly needs: readonly 'savepoint'[]
  run<Tx extends object, Options>(
    h: Harness<Tx, Options>,
    outer: { readonly tx: Tx; readonly scope: Transaction<Tx> },
    body: (tx: Tx) => Promise<void>,
  ): Promise<void>
}

/** They must not differ. */
const WAYS: readonly Way[] = [
  { name: 'by the ORM', needs: ['savepoint'], run: (h, { tx }, body) => bySavepoint(h, tx, body) },
  { name: 'by calling it again', needs: [], run: (h, _outer, body) => h.transaction((tx) => body(tx)) },
  {
    name: 'by the scope',
    needs: [],
    run: (_h, { scope }, body) => scope.transaction((inner) => body(inner.client)),
  },
]

function bySavepoint<Tx extends object, Options>(
  h: Harness<Tx, Options>,
  tx: Tx,
  body: (tx: Tx) => Promise<void>,
): Promise<void> {
  assert.ok(h.world.savepoint)
  return h.world.savepoint(tx, body)
}

export const nesting: Theme = {
  name: 'nesting',
  define(test) {
    test('what was wrapped a second time, in another place, is the same and nests', async (h) => {
      const again = h.world.transactionsOf(h.outbox)
      assert.equal(again, h.transaction)
      await h.start()
      const [outer, inner] = [h.id(), h.id()]
      await h.transaction(async (tx) => {
        await h.world.insert(tx, outer)
        const nested = again(async (innerTx) => {
          await h.world.insert(innerTx, inner)
          await h.publish('never')
          throw failure
        })
        await assert.rejects(nested, isFailure)
        await h.publish('after')
      })
      assert.deepEqual(await h.world.committed([outer, inner]), [outer])
      await h.onlyHot('after')
    })

    test('a transaction of the store inside of one is refused, and the other way round', async (h) => {
      await h.start()
      await h.transaction(async () => {
        await assert.rejects(
          h.outbox.transaction(async (tx) => tx.publish(named('never'))),
          hasCode('NESTED_TRANSACTION'),
        )
        await h.publish('one')
      })
      await h.outbox.transaction(async (tx) => {
        await assert.rejects(
          h.transaction(() => h.publish('never')),
          hasCode('NESTED_TRANSACTION'),
        )
        await tx.publish(named('two'))
      })
      await h.onlyHot('one', 'two')
    })

    test('calls that wait for handlers are refused inside of one, also in a nested one', async (h) => {
      const { outbox } = h
      const calls = [() => outbox.poll(), () => outbox.consumeOne(), () => outbox.drain()]
      const areRefused = async () => {
        for (const call of calls) await assert.rejects(call(), hasCode('NESTED_TRANSACTION'))
      }
      await h.start()
      await h.transaction(async (_tx, scope) => {
        await areRefused()
        await scope.transaction(areRefused)
        await h.publish('one')
      })
      await h.onlyHot('one')
    })

    test('the handle of an open one is as good as the scope, also from elsewhere', async (h) => {
      await h.start()
      const asTx = (handle: object) => ({ tx: handle as Transaction })
      await h.transaction(async (tx) => {
        await h.outbox.publish(named('by handle'), asTx(tx))
        await runInTransaction(h.outbox, undefined, () => h.outbox.publish(named('from elsewhere'), asTx(tx)))
      })
      await h.onlyHot('by handle', 'from elsewhere')
    })

    test('a handle that is given from elsewhere is that of the innermost one', async (h) => {
      await h.start()
      const elsewhere = captureContext()
      const publish = (name: string, tx: object) =>
        elsewhere(() => h.outbox.publish(named(name), { tx: tx as never }))
      await h.transaction(async (tx) => {
        await publish('before', tx)
        await h.transaction((inner) => publish('inside', inner))
        await publish('after', tx)
      })
      await h.onlyHot('before', 'inside', 'after')
    })

    for (const way of WAYS) {
      test(
        `${way.name}: what an inner one that fails wrote and published is gone, the rest is delivered`,
        async (h) => {
          await h.start()
          const [outer, inner] = [h.id(), h.id()]
          await h.transaction(async (tx, scope) => {
            await h.world.insert(tx, outer)
            await h.publish('before')
            const result = way.run(h, { tx, scope }, async (innerTx) => {
              await h.world.insert(innerTx, inner)
              await h.publish('never')
              throw failure
            })
            await assert.rejects(result, isFailure)
            await h.publish('after')
          })
          assert.deepEqual(await h.world.committed([outer, inner]), [outer])
          await h.onlyHot('before', 'after')
        },
        ...way.needs,
      )

      test(
        `${way.name}: what inner ones published is delivered with the outer commit, and not before`,
        async (h) => {
          await h.start()
          const [outer, inner] = [h.id(), h.id()]
          await h.transaction(async (tx, scope) => {
            await way.run(h, { tx, scope }, async (innerTx) => {
              await h.world.insert(innerTx, inner)
              await h.publish('inner')
            })
            await way.run(h, { tx, scope }, async () => void (await h.publish('second')))
            await h.world.insert(tx, outer)
            assert.deepEqual(h.handledNames(), [])
          })
          assert.deepEqual((await h.world.committed([outer, inner])).toSorted(), [outer, inner].sort())
          await h.onlyHot('inner', 'second')
        },
        ...way.needs,
      )

      test(
        `${way.name}: when the outer one fails, the inner ones are gone too`,
        async (h) => {
          await h.start()
          const inner = h.id()
          const result = h.transaction(async (tx, scope) => {
            await way.run(h, { tx, scope }, async (innerTx) => {
              await h.world.insert(innerTx, inner)
              await h.publish('never')
            })
            throw failure
          })
          await assert.rejects(result, isFailure)
          assert.ok(!(await h.isCommitted(inner)))
          await h.onlyHot()
        },
        ...way.needs,
      )

      test(
        `${way.name}: two levels deep`,
        async (h) => {
          await h.start()
          await h.transaction(async (tx, scope) => {
            await h.publish('outer')
            await way.run(h, { tx, scope }, async (middle) => {
              await h.publish('middle')
              const deepest = h.transaction(async (innermost) => {
                await h.world.insert(innermost, h.id())
                await h.publish('never')
                throw failure
              })
              await assert.rejects(deepest, isFailure)
              await h.world.insert(middle, h.id())
            })
          })
          await h.onlyHot('outer', 'middle')
        },
        ...way.needs,
        ...(way.needs.length > 0 ? (['nests in savepoint'] as const) : []),
      )

      test(
        `${way.name}: an id that an inner one lost can be published again`,
        async (h) => {
          await h.start()
          const eventId = h.id()
          await h.transaction(async (tx, scope) => {
            const lost = way.run(h, { tx, scope }, async () => {
              await h.outbox.publish({ ...named('never'), eventId })
              throw failure
            })
            await assert.rejects(lost, isFailure)
            await h.outbox.publish({ ...named('again'), eventId })
          })
          await h.onlyHot('again')
        },
        ...way.needs,
      )
    }
  },
}
