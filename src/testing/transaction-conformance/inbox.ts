import assert from 'node:assert/strict'
import { EventEnvelope } from '../../core/envelope.js'
import { exactlyOnce } from '../../inbox/exactly-once.js'
import { processedEvents } from '../../inbox/processed-events.js'
import type { Transaction } from '../../transaction.js'
import { type Harness, named } from './harness.js'
import type { Theme } from './suite.js'

const received = () => EventEnvelope.create({ eventType: 'thing.received', payload: { name: 'received' } })

/** Writes a row of its own each time that it is run. */
function effectsOf<Tx extends object, Options>(h: Harness<Tx, Options>) {
  const ids: string[] = []
  const run = async ({ tx }: { readonly tx: Transaction<Tx> }) => {
    const id = h.id()
    ids.push(id)
    await h.world.insert(tx.client, id)
    await tx.publish(named('follow-up'))
  }
  return { run, committed: async () => (await h.world.committed(ids)).length, runs: () => ids.length }
}

export const inbox: Theme = {
  name: 'inbox',
  define(test) {
    test('a duplicate has no second effect, and the follow-up is published once', async (h) => {
      await h.start()
      const effects = effectsOf(h)
      const once = exactlyOnce(
        { name: 'once', handle: (_event, context) => effects.run(context) },
        h.transaction,
      )
      const event = received()
      await once.handle(event)
      await once.handle(event)
      assert.equal(effects.runs(), 1)
      assert.equal(await effects.committed(), 1)
      await h.onlyHot('follow-up')
    })

    test('duplicates at the same time have one effect', async (h) => {
      await h.start()
      const effects = effectsOf(h)
      const once = exactlyOnce(
        { name: 'once', handle: (_event, context) => effects.run(context) },
        h.transaction,
      )
      const event = received()
      await Promise.all(Array.from({ length: 5 }, () => once.handle(event)))
      assert.equal(await effects.committed(), 1)
      await h.onlyHot('follow-up')
    })

    test('after a failure the effect and the mark are gone, and the next attempt has it', async (h) => {
      const effects = effectsOf(h)
      let fails = true
      const handle = async (_event: EventEnvelope, context: { readonly tx: Transaction<object> }) => {
        await effects.run(context as never)
        if (fails) throw new Error('fails')
      }
      const once = exactlyOnce({ name: 'once', handle }, h.transaction)
      const event = received()
      await assert.rejects(async () => once.handle(event), /fails/)
      assert.equal(await effects.committed(), 0)
      assert.equal(await h.transaction.store.isProcessed('once', event.eventId), false)
      fails = false
      await once.handle(event)
      assert.equal(await effects.committed(), 1)
      assert.equal(await h.transaction.store.isProcessed('once', event.eventId), true)
    })

    test(
      'an effect that is gone, because the failure of a statement was swallowed, is not taken for done',
      async (h) => {
        const row = h.id()
        const handle = async (_event: EventEnvelope, { tx }: { readonly tx: Transaction<never> }) => {
          await h.world.insert(tx.client, row)
          await Promise.resolve(h.world.fail(tx.client)).catch(() => {})
        }
        const once = exactlyOnce({ name: 'once', handle: handle as never }, h.transaction)
        const event = received()
        await assert.rejects(async () => once.handle(event))
        assert.equal(await h.isCommitted(row), false)
        assert.equal(await h.transaction.store.isProcessed('once', event.eventId), false)
      },
      'refuses the commit',
    )

    test('a mark that is gone with a transaction ended under it is not taken for made', async (h) => {
      const event = received()
      const result = h.transaction(async (tx) => {
        await h.transaction.store.markProcessed(tx, 'once', event.eventId)
        await h.world.execute(tx, 'ROLLBACK')
      })
      await assert.rejects(result)
      assert.equal(await h.transaction.store.isProcessed('once', event.eventId), false)
    })

    test('as a handler of the outbox', async (h) => {
      const effects = effectsOf(h)
      h.outbox.on(
        'thing.received',
        'once',
        exactlyOnce((_event, context) => effects.run(context), h.transaction),
      )
      await h.start()
      await h.transaction(() => h.outbox.publish({ type: 'thing.received', payload: { name: 'received' } }))
      await h.until('the follow-up is delivered', () => h.handledNames().includes('follow-up'))
      assert.equal(await effects.committed(), 1)
      assert.equal(effects.runs(), 1)
    })

    test('a mark that is made by hand in a transaction is part of it', async (h) => {
      const marks = processedEvents(h.transaction)
      const event = received()
      const rolledBack = h.transaction(async () => {
        await marks.markProcessed({ handler: 'by hand', eventId: event.eventId })
        throw new Error('roll back')
      })
      await assert.rejects(rolledBack, /roll back/)
      assert.equal(await marks.contains({ handler: 'by hand', eventId: event.eventId }), false)
      await h.transaction(() => marks.markProcessed({ handler: 'by hand', eventId: event.eventId }))
      assert.equal(await marks.contains({ handler: 'by hand', eventId: event.eventId }), true)
    })
  },
}
