import assert from 'node:assert/strict'
import { RetryAfter, Unrecoverable } from '../../core/errors.js'
import { isA } from '../../core/unknown.js'
import { HOSTILE_VALUES } from '../hostile-values.js'
import { event } from './fixtures.js'
import { group, hasCode, note } from './harness.js'
import type { Theme } from './suite.js'

export const handlers: Theme = {
  name: 'handlers',
  define(test) {
    test('all handlers of an event get it, in the order of registration', async (h) => {
      const calls: string[] = []
      const bus = await h.bus({ group: group() })
      for (const name of ['one', 'two', 'three'])
        bus.subscribe('order.placed', { name, handle: async () => void calls.push(name) })
      await bus.start?.()
      await bus.publish(event())
      await h.until('all were called', () => calls.length === 3)
      assert.deepEqual(calls, ['one', 'two', 'three'])
    })

    test('types, lists of types and patterns say what a handler gets', async (h) => {
      const [exact, several, below, all] = [note('exact'), note('several'), note('below'), note('all')]
      const bus = await h.bus({ group: group() })
      bus.subscribe('order.placed', exact)
      bus.subscribeAll(['order.placed', 'order.paid'], several)
      bus.subscribe('order.*', below)
      bus.subscribe('*', all)
      await bus.start?.()
      const types = ['order.placed', 'order.paid', 'order.line.added', 'orders', 'other']
      await bus.publishAll(types.map((eventType) => event({ eventType })))
      await h.until('all have come', () => all.events.length === types.length)
      const seen = (of: typeof all) => of.events.map((one) => one.eventType).sort()
      await h.until('the others too', () => below.events.length === 3)
      assert.deepEqual(seen(exact), ['order.placed'])
      assert.deepEqual(seen(several), ['order.paid', 'order.placed'])
      assert.deepEqual(seen(below), ['order.line.added', 'order.paid', 'order.placed'])
    })

    test(
      'handlers that throw or return values that cannot be inspected cost neither a message nor the consumer',
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
        // Not at once, or not at all.
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

    test('what nobody handles is passed over', async (h) => {
      const got = note()
      const bus = await h.bus({ group: group() })
      bus.subscribe('order.placed', got)
      await bus.start?.()
      await bus.publishAll([event({ eventType: 'nobody.cares' }), event()])
      await h.until('the other has come', () => got.events.length === 1)
    })

    test(
      'what a handler publishes continues the story',
      async (h) => {
        const seen = note('second')
        const bus = await h.bus({ group: group() })
        bus.subscribe('first', { name: 'first', handle: () => bus.publish({ type: 'second' }) })
        bus.subscribe('second', seen)
        await bus.start?.()
        const first = event({ eventType: 'first', metadata: { correlationId: 'story' } })
        await bus.publish(first)
        await h.until('the second has come', () => seen.events.length === 1)
        assert.equal(seen.events[0]?.metadata.correlationId, 'story')
        assert.equal(seen.events[0]?.metadata.causationId, first.eventId)
      },
      'groups',
    )

    test(
      'of two handlers, one of which fails twice, the other is called once',
      async (h) => {
        let failures = 0
        const steady = note('steady')
        const shaky = note('shaky', () => {
          if (failures++ < 2) throw new Error('not yet')
        })
        const bus = await h.consumer({ group: group() }, shaky, steady)
        await bus.publish(event())
        await h.until('it has succeeded', () => shaky.events.length === 3 && steady.events.length > 0)
        assert.equal(steady.events.length, 1)
      },
      'groups',
    )

    test(
      'refuses a second handler of the same name for one event, because the group keeps progress by name',
      async (h) => {
        const bus = await h.bus({ group: group() })
        bus.subscribe('order.placed', note('same'))
        assert.throws(
          () => bus.subscribe('order.placed', note('same')),
          (error) => hasCode(error, 'HANDLER_EXISTS'),
        )
        assert.throws(
          () => bus.subscribe('order.*', note('same')),
          (error) => hasCode(error, 'HANDLER_EXISTS'),
        )
      },
      'groups',
    )

    test('patterns that are none are refused', async (h) => {
      const bus = await h.bus({ group: group() })
      for (const pattern of ['order*', '*.placed', 'a.*.b', '**', '']) {
        assert.throws(
          () => bus.subscribe(pattern, note()),
          (error) => hasCode(error, 'INVALID_SETTING'),
          pattern,
        )
      }
    })

    test(
      'to subscribe takes a group, and comes before the start',
      async (h) => {
        const without = await h.bus()
        assert.throws(
          () => without.subscribe('*', note()),
          (error) => hasCode(error, 'INVALID_SETTING'),
        )
        const bus = await h.consumer({ group: group() }, note())
        assert.throws(
          () => bus.subscribe('later', note('later')),
          (error) => hasCode(error, 'INVALID_SETTING'),
        )
      },
      'groups',
    )

    test(
      'what a broker cannot do is refused',
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
