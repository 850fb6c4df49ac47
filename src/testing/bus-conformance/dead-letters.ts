import assert from 'node:assert/strict'
import { fixedDelay } from '../../core/backoff.js'
import { Unrecoverable } from '../../core/errors.js'
import { event } from './fixtures.js'
import { group, idsOf, note, signal } from './harness.js'
import type { Theme } from './suite.js'

const THREE = { maxAttempts: 3, policy: fixedDelay(1) }

export const deadLetters: Theme = {
  name: 'dead letters',
  define(test) {
    test(
      'one that fails too often is buried with its story, and the others go on',
      async (h) => {
        const name = group()
        const poison = event({ payload: { poison: true }, orderingKey: 'a' })
        const good = event({ orderingKey: 'a' })
        const got = note('picky', ({ eventId }) => {
          if (eventId === poison.eventId) throw new TypeError('cannot stomach it')
        })
        const bus = await h.consumer({ group: name, retry: THREE }, got, note('other'))
        await bus.publishAll([poison, good])
        await h.until('the good one has come', () => idsOf(got.events).includes(good.eventId))
        await h.until('it is buried', async () => (await h.world.deadLetters?.(name))?.length === 1)
        const [buried] = (await h.world.deadLetters?.(name)) ?? []
        assert.equal(buried?.eventId, poison.eventId)
        assert.equal(buried?.eventType, poison.eventType)
        assert.equal(buried?.payload, poison.payloadText)
        assert.equal(buried?.group, name)
        assert.equal(buried?.handlers, 'picky')
        assert.equal(buried?.attempts, 3)
        assert.match(buried?.error ?? '', /picky: TypeError: cannot stomach it/)
        assert.equal(idsOf(got.events).filter((id) => id === poison.eventId).length, 3)
      },
      'deadLetters',
    )

    test(
      'one that is hopeless is buried at once',
      async (h) => {
        const name = group()
        const got = note('hopeless', () => {
          throw new Unrecoverable('never')
        })
        const bus = await h.consumer({ group: name }, got)
        await bus.publish(event())
        await h.until('it is buried', async () => (await h.world.deadLetters?.(name))?.length === 1)
        assert.equal(got.events.length, 1)
      },
      'deadLetters',
    )

    test(
      'what is buried does not come again',
      async (h) => {
        const name = group()
        const first = await h.consumer(
          { group: name },
          note('hopeless', () => {
            throw new Unrecoverable('never')
          }),
        )
        await first.publish(event())
        await h.until('it is buried', async () => (await h.world.deadLetters?.(name))?.length === 1)
        await first.stop?.()
        const got = note('hopeless')
        const second = await h.consumer({ group: name }, got)
        const last = await second.publish(event())
        await h.until('the last one has come', () => got.events.length > 0)
        assert.deepEqual(idsOf(got.events), [last])
      },
      'deadLetters',
    )

    test(
      'messages that are no events are buried, and the next one comes',
      async (h) => {
        const name = group()
        const got = note()
        const bus = await h.consumer({ group: name }, got)
        const ce = { specversion: '1.0', id: 'x', source: '/elsewhere', type: 'order.placed' }
        await h.world.publishForeign?.('no event', {})
        await h.world.publishForeign?.('{}', { ...ce, specversion: '0.3' })
        await h.world.publishForeign?.('{ "broken": ', { ...ce, datacontenttype: 'application/json' })
        await h.world.publishForeign?.('{}', { ...ce, id: 'x'.repeat(300) })
        const last = await bus.publish(event())
        await h.until('the next one has come', () => got.events.length > 0)
        await h.until('they are buried', async () => (await h.world.deadLetters?.(name))?.length === 4)
        assert.deepEqual(idsOf(got.events), [last])
      },
      'deadLetters',
      'publishForeign',
    )

    test(
      'events of other producers come through',
      async (h) => {
        const got = note()
        await h.consumer({ group: group() }, got)
        await h.world.publishForeign?.('{"a":1}', {
          specversion: '1.0',
          id: 'from-elsewhere',
          source: '/elsewhere',
          type: 'order.placed',
          theirextension: 'is none of our business',
        })
        await h.until('it has come', () => got.events.length === 1)
        assert.equal(got.events[0]?.eventId, 'from-elsewhere')
        assert.deepEqual(got.events[0]?.payload, { a: 1 })
      },
      'publishForeign',
    )

    test(
      'one that its consumers do not survive is buried in the end',
      async (h) => {
        const name = group()
        const never = signal()
        const options = { group: name, takeoverMs: 300, drainTimeoutMs: 0, retry: { maxDeliveries: 2 } }
        const publisher = await h.bus()
        for (let death = 1; death <= 2; death++) {
          const deadly = note('work', () => never.given)
          const bus = await h.consumer(options, deadly)
          if (death === 1) await publisher.publish(event())
          await h.until(`consumer ${death} has it`, () => deadly.events.length === 1)
          await h.world.vanish?.(bus)
        }
        const last = note('work')
        await h.consumer(options, last)
        await h.until('it is buried', async () => (await h.world.deadLetters?.(name))?.length === 1)
        assert.equal(last.events.length, 0)
        never.give()
      },
      'deadLetters',
      'vanish',
      'countsDeliveries',
    )
  },
}
