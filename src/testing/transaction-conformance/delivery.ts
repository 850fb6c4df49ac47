import assert from 'node:assert/strict'
import { named } from './harness.js'
import type { Theme } from './suite.js'

export const delivery: Theme = {
  name: 'delivery',
  define(test) {
    test('a commit keeps row and event, answers what the body returned, and delivers from memory', async (h) => {
      await h.start()
      const id = h.id()
      const answer = await h.transaction(async (tx) => {
        await h.world.insert(tx, id)
        await h.publish('one')
        return 'answer'
      })
      assert.equal(answer, 'answer')
      assert.ok(await h.isCommitted(id))
      await h.onlyHot('one')
      assert.equal(h.counts.hot_enqueued, 2, 'the event and the sentinel')
    })

    test('nothing is delivered before the commit', async (h) => {
      await h.start()
      await h.transaction(async (tx) => {
        await h.publish('one')
        // As many statements as it takes for a delivery that does not wait.
        for (let n = 0; n < 5; n++) await h.world.insert(tx, h.id())
        assert.deepEqual(h.handledNames(), [])
      })
      await h.onlyHot('one')
    })

    test('a body that throws leaves neither row nor event, and its error is the one that is thrown', async (h) => {
      await h.start()
      const id = h.id()
      const failure = new Error('business rule')
      const result = h.transaction(async (tx) => {
        await h.world.insert(tx, id)
        await h.publish('never')
        throw failure
      })
      await assert.rejects(result, (error) => error === failure)
      assert.ok(!(await h.isCommitted(id)))
      await h.onlyHot()
    })

    test('a body that throws before it did anything leaves nothing', async (h) => {
      await h.start()
      const failure = new Error('at once')
      await assert.rejects(
        h.transaction(() => Promise.reject(failure)),
        (error) => error === failure,
      )
      await h.onlyHot()
    })

    test('a publish that was not awaited is part of the transaction', async (h) => {
      await h.start()
      await h.transaction(async () => void h.publish('floating'))
      await h.onlyHot('floating')
    })

    test('an outbox that is not started writes a row that anybody may take', async (h) => {
      await h.transaction(() => h.publish('one'))
      const [record] = await h.records()
      assert.equal(record?.lockedBy, null)
      assert.equal(h.counts.hot_enqueued ?? 0, 0)
      await h.outbox.drain()
      assert.deepEqual(h.handledNames(), ['one'])
    })

    test('the outbox of the second argument publishes in the same transaction', async (h) => {
      await h.start()
      await h.transaction((_tx, scope) => scope.publish(named('by the scope')))
      await assert.rejects(
        h.transaction(async (_tx, scope) => {
          await scope.publish(named('never'))
          throw new Error('roll back')
        }),
      )
      await h.onlyHot('by the scope')
    })

    test('the scope holds the handle that the body got', (h) =>
      h.transaction(async (tx, scope) => assert.equal(scope.client, tx)))

    test('a transaction that publishes nothing commits', async (h) => {
      const id = h.id()
      await h.transaction((tx) => h.world.insert(tx, id))
      assert.ok(await h.isCommitted(id))
    })

    test(
      'the options reach the database',
      async (h) => {
        const { options } = h.world
        assert.ok(options)
        const read = (value?: typeof options.value) =>
          h.transaction(async (tx) => {
            await h.publish('one')
            return options.read(tx)
          }, value)
        assert.equal(await read(options.value), options.expected)
        assert.notEqual(await read(), options.expected, 'without them it is another')
      },
      'options',
    )
  },
}
