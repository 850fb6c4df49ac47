import assert from 'node:assert/strict'
import type { Theme } from './suite.js'

export const hooks: Theme = {
  name: 'hooks',
  define(test) {
    test('afterCommit is called once the commit is seen by everybody, before the caller goes on', async (h) => {
      const id = h.id()
      const called: string[] = []
      let seen: Promise<boolean> | undefined
      await h.transaction(async (tx, scope) => {
        scope.afterRollback(() => called.push('rolled back'))
        scope.afterCommit(() => {
          called.push('committed')
          seen = h.isCommitted(id)
        })
        await h.world.insert(tx, id)
        await h.publish('one')
        assert.deepEqual(called, [])
      })
      assert.deepEqual(called, ['committed'])
      assert.equal(await seen, true)
    })

    test('afterRollback is called after the rollback, before the caller goes on', async (h) => {
      const id = h.id()
      const called: string[] = []
      let seen: Promise<boolean> | undefined
      const result = h.transaction(async (tx, scope) => {
        scope.afterCommit(() => called.push('committed'))
        scope.afterRollback(() => {
          called.push('rolled back')
          seen = h.isCommitted(id)
        })
        await h.world.insert(tx, id)
        await h.publish('never')
        throw new Error('roll back')
      })
      await assert.rejects(result, /roll back/)
      assert.deepEqual(called, ['rolled back'])
      assert.equal(await seen, false)
    })

    test('hooks of an inner one wait for the outer commit, or are called when the inner one fails', async (h) => {
      const called: string[] = []
      await h.transaction(async (_tx, scope) => {
        scope.afterCommit(() => called.push('outer committed'))
        await h.transaction(async (_inner, inner) => inner.afterCommit(() => called.push('inner committed')))
        const failed = h.transaction(async (_inner, inner) => {
          inner.afterCommit(() => called.push('never'))
          inner.afterRollback(() => called.push('inner rolled back'))
          throw new Error('roll back')
        })
        await assert.rejects(failed, /roll back/)
        assert.deepEqual(called, ['inner rolled back'])
      })
      assert.deepEqual(called.toSorted(), ['inner committed', 'inner rolled back', 'outer committed'])
    })

    test('a hook that throws harms nothing', async (h) => {
      await h.start()
      await h.transaction(async (_tx, scope) => {
        scope.afterCommit(() => {
          throw new Error('in a hook')
        })
        await h.publish('one')
      })
      await h.onlyHot('one')
    })
  },
}
