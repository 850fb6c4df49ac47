import assert from 'node:assert/strict'
import { type Harness, hasCode, named } from './harness.js'
import type { Theme } from './suite.js'

const MANY = 50

/** Lets the first `size` callers wait for each other; 1 for nobody. */
function barrier(size: number): () => Promise<void> {
  let arrived = 0
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return () => {
    if (++arrived >= size) open()
    return opened
  }
}

export const concurrency: Theme = {
  name: 'concurrency',
  define(test) {
    test(`${MANY} at the same time, with interleaved statements, do not mix`, async (h) => {
      await h.start()
      const meet = barrier(Math.min(h.world.openAtOnce, MANY))
      const ids = Array.from({ length: MANY }, () => h.id())
      const rollsBack = (n: number) => n % 5 === 0
      const results = await Promise.allSettled(
        ids.map((id, n) =>
          h.transaction(async (tx) => {
            await h.publish(`${n} a`)
            await meet()
            await h.world.insert(tx, id)
            await deeper(h, `${n} b`)
            if (rollsBack(n)) throw new Error(`${n} rolls back`)
            await h.publish(`${n} c`)
          }),
        ),
      )
      results.forEach((result, n) => {
        const reason = result.status === 'rejected' ? String(result.reason) : undefined
        assert.equal(reason, rollsBack(n) ? `Error: ${n} rolls back` : undefined)
      })
      const kept = ids.map((_, n) => n).filter((n) => !rollsBack(n))
      const rows = await h.world.committed(ids)
      assert.deepEqual([...rows].sort(), kept.map((n) => ids[n]).sort())
      await h.onlyHot(...kept.flatMap((n) => [`${n} a`, `${n} b`, `${n} c`]))
    })

    test('publishes that run at the same time in one transaction are all written', async (h) => {
      await h.start()
      const names = Array.from({ length: 20 }, (_, n) => `event ${n}`)
      await h.transaction(() => Promise.all(names.map((name) => h.publish(name))))
      await h.onlyHot(...names)
    })

    test('publishes that run at the same time as statements of the application are all written', async (h) => {
      await h.start()
      const names = Array.from({ length: 5 }, (_, n) => `event ${n}`)
      const ids = names.map(() => h.id())
      await h.transaction((tx) =>
        Promise.all([...names.map((name) => h.publish(name)), ...ids.map((id) => h.world.insert(tx, id))]),
      )
      assert.equal((await h.world.committed(ids)).length, ids.length)
      await h.onlyHot(...names)
    })

    test('another outbox does not see the transaction', async (h) => {
      const other = await h.another()
      await h.transaction(async () => {
        await assert.rejects(other.outbox.publish(named('never')), hasCode('NO_ACTIVE_TRANSACTION'))
        await h.publish('one')
      })
      assert.deepEqual(await h.names(), ['one'])
      assert.deepEqual(await other.outbox.store.list({}), [])
    })

    test('a scope of one outbox is refused by another', async (h) => {
      const other = await h.another()
      await h.transaction(async (_tx, scope) => {
        await assert.rejects(
          other.outbox.publish(named('never'), { tx: scope }),
          hasCode('FOREIGN_TRANSACTION'),
        )
      })
      assert.deepEqual(await other.outbox.store.list({}), [])
    })

    test(
      'a transaction of another outbox inside of one is another transaction',
      async (h) => {
        await h.start()
        const other = await h.another()
        await other.outbox.start()
        const [outer, inner] = [h.id(), h.id()]
        await h.transaction(async (tx) => {
          await h.world.insert(tx, outer)
          const rolledBack = other.transaction(async (otherTx) => {
            assert.notEqual(otherTx, tx)
            await h.world.insert(otherTx, inner)
            await other.outbox.publish(named('never'))
            await h.publish('outer')
            throw new Error('roll back')
          })
          await assert.rejects(rolledBack, /roll back/)
          await other.transaction(() => other.outbox.publish(named('other')))
        })
        assert.deepEqual(await h.world.committed([outer, inner]), [outer])
        await h.onlyHot('outer')
        await h.until('the other one delivers', () => other.handled.length > 0)
        assert.deepEqual(
          other.handled.map((event) => event.payload),
          [{ name: 'other' }],
        )
      },
      'two open at once',
    )

    test('outside of a transaction publish is refused', async (h) => {
      await assert.rejects(h.publish('never'), hasCode('NO_ACTIVE_TRANSACTION'))
      assert.deepEqual(await h.names(), [])
    })

    test('handlers do not see the transaction of who published', async (h) => {
      const seen: unknown[] = []
      h.outbox.on('thing.happened', 'nosy', async () => {
        await h.publish('never').catch((error) => seen.push(error))
      })
      await h.start()
      await h.transaction(() => h.publish('one'))
      await h.until('the handler has run', () => seen.length > 0)
      assert.ok(hasCode('NO_ACTIVE_TRANSACTION')(seen[0]))
    })
  },
}

/** A use case that knows nothing of transactions. */
async function deeper<Tx extends object, Options>(h: Harness<Tx, Options>, name: string): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve))
  await h.publish(name)
}
