import assert from 'node:assert/strict'
import { DuplicateEventError } from '../../core/errors.js'
import { named } from './harness.js'
import type { Theme } from './suite.js'

const isDuplicate = (error: unknown) => error instanceof DuplicateEventError
const HOUR_MS = 3_600_000

export const duplicates: Theme = {
  name: 'duplicates and delays',
  define(test) {
    test('an id that exists is refused, and the transaction goes on', async (h) => {
      await h.start()
      const eventId = h.id()
      const row = h.id()
      await h.transaction(() => h.outbox.publish({ ...named('first'), eventId }))
      await h.transaction(async (tx) => {
        await assert.rejects(h.outbox.publish({ ...named('never'), eventId }), isDuplicate)
        await h.world.insert(tx, row)
        await h.publish('second')
      })
      assert.ok(await h.isCommitted(row))
      await h.onlyHot('first', 'second')
    })

    test('of many with one that exists none is written, and the transaction goes on', async (h) => {
      await h.start()
      const eventId = h.id()
      await h.transaction(() => h.outbox.publish({ ...named('first'), eventId }))
      await h.transaction(async () => {
        const events = [named('never'), { ...named('never'), eventId }, named('never')]
        await assert.rejects(h.outbox.publishAll(events), isDuplicate)
        await h.publish('second')
      })
      await h.onlyHot('first', 'second')
    })

    test('of many at once that are large, one that is refused takes no others with it', async (h) => {
      await h.start()
      const eventId = h.id()
      await h.transaction(() => h.outbox.publish({ ...named('first'), eventId }))
      const large = (name: string) => ({
        type: 'thing.happened',
        payload: { name, fill: 'x'.repeat(200_000) },
      })
      await h.transaction(async () => {
        const refused = h.outbox.publishAll([large('never'), { ...large('never'), eventId }])
        const written = h.outbox.publishAll([large('one'), large('two')])
        await assert.rejects(refused, isDuplicate)
        await written
      })
      await h.onlyHot('first', 'one', 'two')
    })

    test('an ignored one never goes hot, and what exists stays', async (h) => {
      await h.start()
      const eventId = h.id()
      await h.transaction(() => h.outbox.publish({ ...named('first'), eventId }))
      await h.transaction(async () => {
        await h.outbox.publish({ ...named('never'), eventId }, { onDuplicate: 'ignore' })
        const events = [named('second'), { ...named('never'), eventId }]
        await h.outbox.publishAll(events, { onDuplicate: 'ignore' })
      })
      await h.onlyHot('first', 'second')
    })

    test('the same id twice in one transaction is refused', async (h) => {
      await h.start()
      const eventId = h.id()
      await h.transaction(async () => {
        await h.outbox.publish({ ...named('one'), eventId })
        await assert.rejects(h.outbox.publish({ ...named('never'), eventId }), isDuplicate)
      })
      await h.onlyHot('one')
    })

    test('a delayed one waits in the table', async (h) => {
      await h.start()
      await h.transaction(async () => {
        await h.outbox.publish(named('later'), { delayMs: HOUR_MS })
        await h.publish('now')
      })
      await h.until('the other one is delivered', () => h.handled.length > 0)
      await h.outbox.drain()
      assert.deepEqual(h.handledNames(), ['now'])
      const later = (await h.records()).find((record) => record.status === 'NEW')
      assert.ok(later)
      assert.equal(later.lockedBy, null)
      const delay = later.availableAt.getTime() - later.createdAt.getTime()
      assert.ok(Math.abs(delay - HOUR_MS) < 10_000, `${delay} ms`)
    })

    test('one whose moment has come is delivered', async (h) => {
      await h.transaction(() => h.outbox.publish(named('due'), { delayMs: 1 }))
      await h.until('it is delivered', async () => {
        await h.outbox.drain()
        return h.handled.length > 0
      })
    })
  },
}
