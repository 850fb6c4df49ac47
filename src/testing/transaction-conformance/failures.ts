import assert from 'node:assert/strict'
import { HOSTILE_VALUES } from '../hostile-values.js'
import { hasCode } from './harness.js'
import type { Theme } from './suite.js'

/** Message, stack, and all that a logger could find. */
function everythingOf(error: unknown, depth = 0): string {
  if (typeof error !== 'object' || error === null || depth > 10) return String(error)
  const fields = Object.getOwnPropertyNames(error).map((name) => {
    const value = (error as Readonly<Record<string, unknown>>)[name]
    return typeof value === 'function' ? '' : everythingOf(value, depth + 1)
  })
  return fields.join('\n')
}

export const failures: Theme = {
  name: 'failures',
  define(test) {
    test('an error of a statement surfaces as the ORM threw it, and nothing is announced', async (h) => {
      await h.start()
      const id = h.id()
      let thrown: unknown
      const result = h.transaction(async (tx) => {
        await h.world.insert(tx, id)
        await h.publish('never')
        await h.world.fail(tx).catch((error) => {
          thrown = error
          throw error
        })
      })
      await assert.rejects(result, (error) => error === thrown)
      assert.ok(thrown instanceof Error)
      assert.ok(!(await h.isCommitted(id)))
      await h.onlyHot()
    })

    test('a body that throws a value that cannot be inspected is rolled back', async (h) => {
      await h.start()
      const ids: string[] = []
      let rollbacks = 0
      for (const make of Object.values(HOSTILE_VALUES)) {
        const id = h.id()
        ids.push(id)
        const result = h.transaction(async (tx, scope) => {
          scope.afterRollback(() => rollbacks++)
          await h.world.insert(tx, id)
          await h.publish('never')
          throw make()
        })
        // An ORM that inspects the value rejects with an error of its own.
        const isRejected = await result.then(
          () => false,
          () => true,
        )
        assert.ok(isRejected)
      }
      assert.equal(rollbacks, ids.length)
      for (const id of ids) assert.ok(!(await h.isCommitted(id)))
      await h.onlyHot()
    })

    test(
      'a swallowed error of a statement, and then a commit: nothing is announced, and the caller learns of it',
      async (h) => {
        await h.start()
        const id = h.id()
        const called: string[] = []
        const result = h.transaction(async (tx, scope) => {
          scope.afterCommit(() => called.push('committed'))
          scope.afterRollback(() => called.push('rolled back'))
          await h.world.insert(tx, id)
          await h.publish('never')
          await h.world.fail(tx).catch(() => {})
        })
        await assert.rejects(result, hasCode('TRANSACTION_ROLLED_BACK'))
        assert.deepEqual(called, ['rolled back'])
        assert.ok(!(await h.isCommitted(id)))
        await h.onlyHot()
      },
      'refuses the commit',
    )

    test(
      'publishing after a swallowed error fails, and so does the transaction',
      async (h) => {
        await h.start()
        const result = h.transaction(async (tx) => {
          await h.world.fail(tx).catch(() => {})
          await h.publish('never')
        })
        await assert.rejects(result)
        await h.onlyHot()
      },
      'refuses the commit',
    )

    test(
      'a swallowed error inside of a savepoint costs what the savepoint held',
      async (h) => {
        await h.start()
        await h.transaction(async (tx) => {
          await h.publish('outer')
          const inner = h.transaction(async (innerTx) => {
            await h.publish('never')
            await h.world.fail(innerTx).catch(() => {})
          })
          await assert.rejects(inner)
          await h.world.insert(tx, h.id())
        })
        await h.onlyHot('outer')
      },
      'refuses the commit',
    )

    test(
      'after a swallowed error of a statement the rest is committed and delivered',
      async (h) => {
        await h.start()
        const id = h.id()
        await h.transaction(async (tx) => {
          await h.publish('one')
          await h.world.fail(tx).catch(() => {})
          await h.world.insert(tx, id)
        })
        assert.ok(await h.isCommitted(id))
        await h.onlyHot('one')
      },
      'goes on',
    )

    test('an inner one goes on after a failed statement when its savepoint is rolled back', async (h) => {
      await h.start()
      const id = h.id()
      await h.transaction(async (tx) => {
        await h.publish('outer')
        await assert.rejects(h.transaction((inner) => h.world.fail(inner)))
        await h.world.insert(tx, id)
        await h.publish('after')
      })
      assert.ok(await h.isCommitted(id))
      await h.onlyHot('outer', 'after')
    })

    test('a payload is in no error, and in none of its causes', async (h) => {
      const { outbox, table, transaction } = await h.another()
      const rename = `ALTER TABLE ${table} RENAME COLUMN metadata TO something_else`
      await transaction((tx) => h.world.execute(tx, rename))
      const secret = `it's "secret" - 4711 - \\`
      for (const events of [[{ secret }], [{ secret }, { secret }]]) {
        const error: unknown = await transaction(() =>
          outbox.publishAll(events.map((payload) => ({ type: 'thing.happened', payload }))),
        ).then(
          () => assert.fail('it was published'),
          (reason) => reason,
        )
        assert.ok(error instanceof Error)
        assert.match(error.message, /metadata|column/i)
        assert.doesNotMatch(everythingOf(error), /secret|4711/)
      }
    })

    test('without tables the error says what to do', async (h) => {
      const { outbox, transaction } = await h.another('not migrated')
      const result = transaction(async (tx) => {
        await h.world.insert(tx, h.id())
        await outbox.publish({ type: 'thing.happened', payload: 1 })
      })
      await assert.rejects(result, hasCode('STORE_NOT_MIGRATED'))
    })

    test('many that fail leave the ORM usable', async (h) => {
      await h.start()
      const rounds = h.world.openAtOnce * 2 + 3
      for (let round = 0; round < rounds; round++) {
        await assert.rejects(
          h.transaction(async (tx) => {
            await h.publish('never')
            await h.world.fail(tx)
          }),
        )
      }
      await h.onlyHot()
    })

    test(
      'a connection that is lost at the commit leaves the outcome unknown: no hook runs, nothing goes hot',
      async (h) => {
        const { loseCommit } = h.world
        assert.ok(loseCommit)
        await h.start()
        const id = h.id()
        const called: string[] = []
        const result = h.transaction(async (tx, scope) => {
          scope.afterCommit(() => called.push('committed'))
          scope.afterRollback(() => called.push('rolled back'))
          await h.world.insert(tx, id)
          await h.publish('who knows')
          await loseCommit(tx)
        })
        await assert.rejects(result, hasCode('COMMIT_UNKNOWN'))
        assert.deepEqual(called, [])
        // A pool may hand out the dead connection once more.
        await h.until('a later one commits', () =>
          h
            .transaction(() => h.publish('later'))
            .then(
              () => true,
              () => false,
            ),
        )
        await h.until('the later one is delivered', () => h.handled.length > 0)
        assert.deepEqual(h.handledNames(), ['later'])
        const isThere = (await h.names()).includes('who knows')
        assert.equal(isThere, await h.isCommitted(id), 'row and event share their fate')
      },
      'loseCommit',
    )
  },
}
