import assert from 'node:assert/strict'
import type { Transaction } from '../../transaction.js'
import { type Harness, hasCode, named } from './harness.js'
import type { Theme } from './suite.js'

const isEnded = hasCode('TRANSACTION_ENDED')

function gate() {
  let open = () => {}
  const opened = new Promise<void>((resolve) => {
    open = resolve
  })
  return { opened, open: () => open() }
}

/** Runs a transaction to its end, one way or the other, and answers the scope that it had. */
async function over<Tx extends object, Options>(
  h: Harness<Tx, Options>,
  how: 'commits' | 'rolls back',
  during: (scope: Transaction<Tx>) => unknown = () => {},
): Promise<Transaction<Tx>> {
  let kept: Transaction<Tx> | undefined
  const result = h.transaction(async (tx, scope) => {
    kept = scope
    await h.world.insert(tx, h.id())
    during(scope)
    if (how === 'rolls back') throw new Error('roll back')
  })
  if (how === 'commits') await result
  else await assert.rejects(result, /roll back/)
  assert.ok(kept)
  return kept
}

const LATE = [
  'publish',
  'publish of several',
  'pair of publishes',
  'publish in a nested one',
  'mark',
] as const

type Refused = { readonly reason: unknown }

async function attempt<Tx extends object, Options>(
  h: Harness<Tx, Options>,
  way: (typeof LATE)[number],
  scope: Transaction<Tx>,
): Promise<unknown> {
  if (way === 'publish') return h.publish('never')
  if (way === 'publish of several') return h.outbox.publishAll([named('never'), named('never')])
  if (way === 'pair of publishes') {
    const both = await Promise.allSettled([h.publish('never'), h.publish('never')])
    return both.find(({ status }) => status === 'fulfilled') ?? Promise.reject((both[0] as Refused).reason)
  }
  if (way === 'mark') return h.transaction.store.markProcessed(scope.client, 'late', h.id())
  return h.transaction(() => h.publish('never'))
}

export const ended: Theme = {
  name: 'ended',
  define(test) {
    for (const how of ['commits', 'rolls back'] as const) {
      test(`a floating promise that publishes after the transaction ${how} is refused`, async (h) => {
        const goOn = gate()
        let late: Promise<unknown> = Promise.resolve()
        await over(h, how, () => {
          late = goOn.opened.then(() => h.publish('late'))
          late.catch(() => {})
        })
        goOn.open()
        await assert.rejects(late, isEnded)
        assert.deepEqual(await h.names(), [])
      })

      test(`the scope is of no use after the transaction ${how}`, async (h) => {
        const scope = await over(h, how)
        await assert.rejects(scope.publish(named('late')), isEnded)
        await assert.rejects(scope.publishAll([named('late')]), isEnded)
        await assert.rejects(h.outbox.publish(named('late'), { tx: scope }), isEnded)
        await assert.rejects(
          scope.transaction(() => scope.publish(named('late'))),
          isEnded,
        )
        assert.throws(() => scope.afterCommit(() => {}), isEnded)
        assert.throws(() => scope.afterRollback(() => {}), isEnded)
        assert.deepEqual(await h.names(), [])
      })
    }

    for (const way of LATE) {
      test(`a ${way} after the transaction was ended under it is refused and writes nothing`, async (h) => {
        await h.start()
        let refused: unknown
        const result = h.transaction(async (tx, scope) => {
          await h.world.insert(tx, h.id())
          await h.publish('undone')
          await h.world.execute(tx, 'ROLLBACK')
          refused = await attempt(h, way, scope).then(
            () => undefined,
            (error) => error,
          )
          throw new Error('enough')
        })
        await assert.rejects(result)
        assert.ok(refused instanceof Error, 'it was refused')
        if (way !== 'publish in a nested one') assert.ok(isEnded(refused))
        await h.onlyHot()
      })
    }

    test('an event that is gone with a transaction ended under it is not announced', async (h) => {
      await h.start()
      const called: string[] = []
      const result = h.transaction(async (tx, scope) => {
        scope.afterCommit(() => called.push('committed'))
        scope.afterRollback(() => called.push('rolled back'))
        await h.world.insert(tx, h.id())
        await h.publish('undone')
        await h.world.execute(tx, 'ROLLBACK')
      })
      await assert.rejects(result)
      assert.ok(!called.includes('committed'), 'nothing was committed')
      await h.onlyHot()
    })

    test('a transaction that the application committed by itself is not reported as rolled back', async (h) => {
      const result = h.transaction(async (tx) => {
        await h.publish('kept')
        await h.world.execute(tx, 'COMMIT')
      })
      const code = await result.then(
        () => 'none',
        (error) => error.code,
      )
      assert.notEqual(code, 'TRANSACTION_ROLLED_BACK')
      assert.deepEqual(await h.names(), ['kept'])
    })

    test('marks are refused with a handle whose transaction has ended', async (h) => {
      const tx = await h.transaction(async (handle) => handle)
      await assert.rejects(h.transaction.store.markProcessed(tx, 'late', h.id()), isEnded)
    })

    test('a publish under way when the body throws is not written', async (h) => {
      let floating: Promise<unknown> = Promise.resolve()
      const result = h.transaction(async () => {
        floating = h.publish('never')
        floating.catch(() => {})
        throw new Error('roll back')
      })
      await assert.rejects(result, /roll back/)
      await floating.catch(() => {})
      assert.deepEqual(await h.names(), [])
    })

    test('a late one does not get into the next transaction on the same connection', async (h) => {
      const scope = await over(h, 'commits')
      await h.transaction(async () => {
        await h.publish('next')
        await assert.rejects(scope.publish(named('late')), isEnded)
      })
      assert.deepEqual(await h.names(), ['next'])
    })
  },
}
