import assert from 'node:assert/strict'
import { RetryAfter, Unrecoverable } from '../../core/errors.js'
import { isA } from '../../core/unknown.js'
import { HOSTILE_VALUES } from '../hostile-values.js'
import { event } from './fixtures.js'
import { group, hasCode, recordingHandler } from './harness.js'
import type { Theme } from './suite.js'

export const handlers: Theme = {
  name: 'handlers',
  define(test) {
    test('calls all handlers of an event in the order of registration', async (h) => {
      const calls: string[] = []
      const bus = await h.bus({ group: group() })
      for (const name of ['one', 'two', 'three'])
        bus.subscribe('order.placed', { name, handle: async () => void calls.push(name) })
      await bus.start?.()
      await bus.publish(event())
      await h.until('all were called', () => calls.length === 3)
      assert.deepEqual(calls, ['one', 'two', 'three'])
    })

    test('delivers events by type, list of types and pattern', async (h) => {
      const [exact, several, below, all] = [
        recordingHandler('exact'),
        recordingHandler('several'),
        recordingHandler('below'),
        recordingHandler('all'),
      ]
      const bus = await h.bus({ group: group() })
      bus.subscribe('order.placed', exact)
      bus.subscribeAll(['order.placed', 'order.paid'], several)
      bus.subscribe('order.*', below)
      bus.subscribe('*', all)
      await bus.start?.()
      const types = ['order.placed', 'order.paid', 'order.line.added', 'orders', 'other']
      await bus.publishAll(types.map((eventType) => event({ eventType })))
      await h.until('all events have arrived', () => all.events.length === types.length)
      const seen = (of: typeof all) => of.events.map(({ eventType }) => eventType).sort()
      await h.until('the other handlers were called', () => below.events.length === 3)
      assert.deepEqual(seen(exact), ['order.placed'])
      assert.deepEqual(seen(several), ['order.paid', 'order.placed'])
      assert.deepEqual(seen(below), ['order.line.added', 'order.paid', 'order.placed'])
    })

    test(
      'keeps consuming after handlers throw or return values that cannot be inspected',
      async (h) => {
        const makes = Object.values(HOSTILE_VALUES)
        const calls = new Map<string, number>()
        const bus = await h.bus({ group: group(), concurrency: 2 })
        bus.subscribe('*', {
          name: 'hostile',
          handle: ({ eventId }) => {
            const count = (calls.get(eventId) ?? 0) + 1
            calls.set(eventId, count)
            const [manner, at] = eventId.split(' ')
            const make = makes[Number(at)]
            if (count > 1 || make === undefined) return undefined
            if (manner === 'returns') return make()
            if (manner === 'rejects') return Promise.reject(make())
            throw make()
          },
        })
        await bus.start?.()
        const ids = ['throws', 'rejects', 'returns'].flatMap((manner) =>
          makes.map((_, at) => `${manner} ${at}`),
        )
        await bus.publishAll([...ids, 'last'].map((eventId) => event({ eventId })))
        // These errors delay the next attempt or prevent it.
        const isLater = (value: unknown) => isA(value, RetryAfter) || isA(value, Unrecoverable)
        const isAgain = (id: string) => {
          const [manner, at] = id.split(' ')
          return manner !== 'returns' && !isLater(makes[Number(at)]?.())
        }
        await h.until('all were called, and those that failed were called again', () =>
          ids.every((id) => (calls.get(id) ?? 0) >= (isAgain(id) ? 2 : 1)),
        )
        await h.until('the last one was called', () => calls.has('last'))
      },
      'groups',
    )

    test('skips events without a handler', async (h) => {
      const got = recordingHandler()
      const bus = await h.bus({ group: group() })
      bus.subscribe('order.placed', got)
      await bus.start?.()
      await bus.publishAll([event({ eventType: 'nobody.cares' }), event()])
      await h.until('the other event has arrived', () => got.events.length === 1)
    })

    test(
      'keeps the correlation id in events that a handler publishes',
      async (h) => {
        const seen = recordingHandler('second')
        const bus = await h.bus({ group: group() })
        bus.subscribe('first', { name: 'first', handle: () => bus.publish({ type: 'second' }) })
        bus.subscribe('second', seen)
        await bus.start?.()
        const first = event({ eventType: 'first', metadata: { correlationId: 'c-1' } })
        await bus.publish(first)
        await h.until('the second event has arrived', () => seen.events.length === 1)
        assert.equal(seen.events[0]?.metadata.correlationId, 'c-1')
        assert.equal(seen.events[0]?.metadata.causationId, first.eventId)
      },
      'groups',
    )

    test(
      'does not call a succeeded handler again when another handler of the event is retried',
      async (h) => {
        let failures = 0
        const steady = recordingHandler('steady')
        const shaky = recordingHandler('shaky', () => {
          if (failures++ < 2) throw new Error('not yet')
        })
        const bus = await h.consumer({ group: group() }, shaky, steady)
        await bus.publish(event())
        await h.until(
          'the handler has succeeded',
          () => shaky.events.length === 3 && steady.events.length > 0,
        )
        assert.equal(steady.events.length, 1)
      },
      'groups',
    )

    test(
      'refuses a second handler of the same name for one event, because the group keeps progress by name',
      async (h) => {
        const bus = await h.bus({ group: group() })
        bus.subscribe('order.placed', recordingHandler('same'))
        assert.throws(
          () => bus.subscribe('order.placed', recordingHandler('same')),
          (error) => hasCode(error, 'HANDLER_EXISTS'),
        )
        assert.throws(
          () => bus.subscribe('order.*', recordingHandler('same')),
          (error) => hasCode(error, 'HANDLER_EXISTS'),
        )
      },
      'groups',
    )

    test('rejects invalid patterns', async (h) => {
      const bus = await h.bus({ group: group() })
      for (const pattern of ['order*', '*.placed', 'a.*.b', '**', '']) {
        assert.throws(
          () => bus.subscribe(pattern, recordingHandler()),
          (error) => hasCode(error, 'INVALID_SETTING'),
          pattern,
        )
      }
    })

    test(
      'rejects subscribe without a group and after start',
      async (h) => {
        const without = await h.bus()
        assert.throws(
          () => without.subscribe('*', recordingHandler()),
          (error) => hasCode(error, 'INVALID_SETTING'),
        )
        const bus = await h.consumer({ group: group() }, recordingHandler())
        assert.throws(
          () => bus.subscribe('later', recordingHandler('later')),
          (error) => hasCode(error, 'INVALID_SETTING'),
        )
      },
      'groups',
    )

    test(
      'rejects publish options that brokers do not support',
      async (h) => {
        const bus = await h.bus()
        for (const options of [
          { delayMs: 1 },
          { deliverAt: new Date() },
          { onDuplicate: 'ignore' } as const,
        ]) {
          await assert.rejects(bus.publish(event(), options), (error) => hasCode(error, 'UNSUPPORTED'))
        }
      },
      'groups',
    )
  },
}
