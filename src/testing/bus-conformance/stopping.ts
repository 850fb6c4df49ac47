import assert from 'node:assert/strict'
import { fixedDelay } from '../../core/backoff.js'
import { event, numbered } from './fixtures.js'
import { group, idsOf, note, signal } from './harness.js'
import type { Theme } from './suite.js'

export const stopping: Theme = {
  name: 'stopping',
  define(test) {
    test(
      'a stop waits for the handler under way, whose message does not come again',
      async (h) => {
        const name = group()
        const ends: string[] = []
        const stopCalled = signal()
        const slow = note('work', async () => {
          await stopCalled.given
          await new Promise((resolve) => setTimeout(resolve, 100))
          ends.push('handler')
        })
        const bus = await h.consumer({ group: name, drainTimeoutMs: 60_000 }, slow)
        await bus.publish(event())
        await h.until('it has begun', () => slow.events.length === 1)
        const stopping = bus.stop?.().then(() => void ends.push('stop'))
        stopCalled.give()
        await stopping
        assert.deepEqual(ends, ['handler', 'stop'])
        const got = note('work')
        const next = await h.consumer({ group: name }, got)
        const last = await next.publish(event())
        await h.until('the last one has come', () => got.events.length > 0)
        assert.deepEqual(idsOf(got.events), [last])
      },
      'groups',
    )

    test(
      'what has not begun, or takes too long, goes to the next consumer',
      async (h) => {
        const name = group()
        const never = signal()
        const held = note('work', () => never.given)
        const first = await h.consumer({ group: name, concurrency: 2, drainTimeoutMs: 50 }, held)
        const events = numbered(40)
        await first.publishAll(events)
        await h.until('some have begun', () => held.events.length === 2)
        await first.stop?.()
        const got = note('work')
        await h.consumer({ group: name }, got)
        await h.until('the next one has all', () => new Set(idsOf(got.events)).size === events.length)
        assert.equal(held.events.length, 2, 'nothing was begun after the stop')
        never.give()
      },
      'groups',
    )

    test(
      'what waits to be tried again is given back at once',
      async (h) => {
        const name = group()
        const failing = note('work', () => {
          throw new Error('no')
        })
        const retry = { maxAttempts: 5, policy: fixedDelay(3_600_000) }
        const first = await h.consumer({ group: name, retry, drainTimeoutMs: 60_000 }, failing)
        const id = await first.publish(event())
        await h.until('it has failed', () => failing.events.length === 1)
        await first.stop?.()
        const got = note('work')
        await h.consumer({ group: name }, got)
        await h.until('the next one has it', () => got.events.length === 1)
        assert.deepEqual(idsOf(got.events), [id])
      },
      'groups',
    )

    test(
      'starts and stops can come twice, and a bus can start again',
      async (h) => {
        const got = note()
        const bus = await h.bus({ group: group() })
        await bus.stop?.()
        bus.subscribe('*', got)
        await Promise.all([bus.start?.(), bus.start?.()])
        await bus.publish(event())
        await h.until('one has come', () => got.events.length === 1)
        await Promise.all([bus.stop?.(), bus.stop?.()])
        await bus.start?.()
        await bus.publish(event())
        await h.until('another has come', () => got.events.length === 2)
      },
      'groups',
    )

    test(
      'a bus that was stopped can still publish',
      async (h) => {
        const name = group()
        const got = note()
        await h.consumer({ group: name }, got)
        const publisher = await h.bus()
        await publisher.publish(event())
        await publisher.stop?.()
        await publisher.publish(event())
        await h.until('both have come', () => got.events.length === 2)
      },
      'groups',
    )
  },
}
