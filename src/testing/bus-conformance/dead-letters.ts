import assert from 'node:assert/strict'
import { fixedDelay } from '../../core/backoff.js'
import { Unrecoverable } from '../../core/errors.js'
import { event } from './fixtures.js'
import { group, idsOf, recordingHandler, signal } from './harness.js'
import type { Theme } from './suite.js'

const THREE = { maxAttempts: 3, policy: fixedDelay(1) }

export const deadLetters: Theme = {
  name: 'dead letters',
  define(test) {
    test(
      'dead-letters a message with the reason after its last attempt, and handles the next message of its key',
      async (h) => {
        const name = group()
        const poison = event({ payload: { poison: true }, orderingKey: 'a' })
        const good = event({ orderingKey: 'a' })
        const got = recordingHandler('picky', ({ eventId }) => {
          if (eventId === poison.eventId) throw new TypeError('not acceptable')
        })
        const bus = await h.consumer({ group: name, retry: THREE }, got, recordingHandler('other'))
        await bus.publishAll([poison, good])
        await h.until('the good event has arrived', () => idsOf(got.events).includes(good.eventId))
        await h.until(
          'the message is dead-lettered',
          async () => (await h.world.deadLetters?.(name))?.length === 1,
        )
        const [letter] = (await h.world.deadLetters?.(name)) ?? []
        assert.equal(letter?.eventId, poison.eventId)
        assert.equal(letter?.eventType, poison.eventType)
        assert.equal(letter?.payload, poison.payloadText)
        assert.equal(letter?.group, name)
        assert.equal(letter?.handlers, 'picky')
        assert.equal(letter?.attempts, 3)
        assert.match(letter?.error ?? '', /picky: TypeError: not acceptable/)
        assert.equal(idsOf(got.events).filter((id) => id === poison.eventId).length, 3)
      },
      'deadLetters',
    )

    test(
      'dead-letters a message at once when a handler throws Unrecoverable',
      async (h) => {
        const name = group()
        const got = recordingHandler('unrecoverable', () => {
          throw new Unrecoverable('never')
        })
        const bus = await h.consumer({ group: name }, got)
        await bus.publish(event())
        await h.until(
          'the message is dead-lettered',
          async () => (await h.world.deadLetters?.(name))?.length === 1,
        )
        assert.equal(got.events.length, 1)
      },
      'deadLetters',
    )

    test(
      'does not deliver a dead-lettered message again',
      async (h) => {
        const name = group()
        const first = await h.consumer(
          { group: name },
          recordingHandler('unrecoverable', () => {
            throw new Unrecoverable('never')
          }),
        )
        await first.publish(event())
        await h.until(
          'the message is dead-lettered',
          async () => (await h.world.deadLetters?.(name))?.length === 1,
        )
        await first.stop?.()
        const got = recordingHandler('unrecoverable')
        const second = await h.consumer({ group: name }, got)
        const last = await second.publish(event())
        await h.until('the last event has arrived', () => got.events.length > 0)
        assert.deepEqual(idsOf(got.events), [last])
      },
      'deadLetters',
    )

    test(
      'dead-letters messages that are not events, and handles the next event',
      async (h) => {
        const name = group()
        const got = recordingHandler()
        const bus = await h.consumer({ group: name }, got)
        const ce = { specversion: '1.0', id: 'x', source: '/elsewhere', type: 'order.placed' }
        await h.world.publishForeign?.('no event', {})
        await h.world.publishForeign?.('{}', { ...ce, specversion: '0.3' })
        await h.world.publishForeign?.('{ "broken": ', { ...ce, datacontenttype: 'application/json' })
        await h.world.publishForeign?.('{}', { ...ce, id: 'x'.repeat(300) })
        const last = await bus.publish(event())
        await h.until('the next event has arrived', () => got.events.length > 0)
        await h.until(
          'the messages are dead-lettered',
          async () => (await h.world.deadLetters?.(name))?.length === 4,
        )
        assert.deepEqual(idsOf(got.events), [last])
      },
      'deadLetters',
      'publishForeign',
    )

    test(
      'handles events of other producers',
      async (h) => {
        const got = recordingHandler()
        await h.consumer({ group: group() }, got)
        await h.world.publishForeign?.('{"a":1}', {
          specversion: '1.0',
          id: 'from-elsewhere',
          source: '/elsewhere',
          type: 'order.placed',
          theirextension: 'unknown to aftercommit',
        })
        await h.until('the event has arrived', () => got.events.length === 1)
        assert.equal(got.events[0]?.eventId, 'from-elsewhere')
        assert.deepEqual(got.events[0]?.payload, { a: 1 })
      },
      'publishForeign',
    )

    test(
      'dead-letters a message after its consumers have crashed repeatedly',
      async (h) => {
        const name = group()
        const never = signal()
        const options = { group: name, takeoverMs: 300, drainTimeoutMs: 0, retry: { maxDeliveries: 2 } }
        const publisher = await h.bus()
        for (let death = 1; death <= 2; death++) {
          const crashing = recordingHandler('work', () => never.given)
          const bus = await h.consumer(options, crashing)
          if (death === 1) await publisher.publish(event())
          await h.until(`consumer ${death} has the message`, () => crashing.events.length === 1)
          await h.world.vanish?.(bus)
        }
        const last = recordingHandler('work')
        await h.consumer(options, last)
        await h.until(
          'the message is dead-lettered',
          async () => (await h.world.deadLetters?.(name))?.length === 1,
        )
        assert.equal(last.events.length, 0)
        never.give()
      },
      'deadLetters',
      'vanish',
      'countsDeliveries',
    )
  },
}
