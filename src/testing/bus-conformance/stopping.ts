import assert from 'node:assert/strict'
import { fixedDelay } from '../../core/backoff.js'
import { event, numbered } from './fixtures.js'
import { group, idsOf, recordingHandler, signal } from './harness.js'
import type { Theme } from './suite.js'

export const stopping: Theme = {
  name: 'stopping',
  define(test) {
    test(
      'waits for a running handler at a stop, and does not deliver its message again',
      async (h) => {
        const name = group()
        const ends: string[] = []
        const stopCalled = signal()
        const slow = recordingHandler('work', async () => {
          await stopCalled.given
          await new Promise((resolve) => setTimeout(resolve, 100))
          ends.push('handler')
        })
        const bus = await h.consumer({ group: name, drainTimeoutMs: 60_000 }, slow)
        await bus.publish(event())
        await h.until('the handler has started', () => slow.events.length === 1)
        const stopping = bus.stop?.().then(() => void ends.push('stop'))
        stopCalled.give()
        await stopping
        assert.deepEqual(ends, ['handler', 'stop'])
        const got = recordingHandler('work')
        const next = await h.consumer({ group: name }, got)
        const last = await next.publish(event())
        await h.until('the last event has arrived', () => got.events.length > 0)
        assert.deepEqual(idsOf(got.events), [last])
      },
      'groups',
    )

    test(
      'releases messages that were not started or take too long to the next consumer',
      async (h) => {
        const name = group()
        const never = signal()
        const unacked = recordingHandler('work', () => never.given)
        const first = await h.consumer({ group: name, concurrency: 2, drainTimeoutMs: 50 }, unacked)
        const events = numbered(40)
        await first.publishAll(events)
        await h.until('two handlers have started', () => unacked.events.length === 2)
        await first.stop?.()
        const got = recordingHandler('work')
        await h.consumer({ group: name }, got)
        await h.until(
          'the next consumer has all events',
          () => new Set(idsOf(got.events)).size === events.length,
        )
        assert.equal(unacked.events.length, 2, 'no handler was started after the stop')
        never.give()
      },
      'groups',
    )

    test(
      'releases messages that wait for a retry at once',
      async (h) => {
        const name = group()
        const failing = recordingHandler('work', () => {
          throw new Error('no')
        })
        const retry = { maxAttempts: 5, policy: fixedDelay(3_600_000) }
        const first = await h.consumer({ group: name, retry, drainTimeoutMs: 60_000 }, failing)
        const id = await first.publish(event())
        await h.until('the handler has failed', () => failing.events.length === 1)
        await first.stop?.()
        const got = recordingHandler('work')
        await h.consumer({ group: name }, got)
        await h.until('the next consumer has the event', () => got.events.length === 1)
        assert.deepEqual(idsOf(got.events), [id])
      },
      'groups',
    )

    test(
      'allows repeated starts and stops, and a start after a stop',
      async (h) => {
        const got = recordingHandler()
        const bus = await h.bus({ group: group() })
        await bus.stop?.()
        bus.subscribe('*', got)
        await Promise.all([bus.start?.(), bus.start?.()])
        await bus.publish(event())
        await h.until('the first event has arrived', () => got.events.length === 1)
        await Promise.all([bus.stop?.(), bus.stop?.()])
        await bus.start?.()
        await bus.publish(event())
        await h.until('the second event has arrived', () => got.events.length === 2)
      },
      'groups',
    )

    test(
      'publishes after a stop',
      async (h) => {
        const name = group()
        const got = recordingHandler()
        await h.consumer({ group: name }, got)
        const publisher = await h.bus()
        await publisher.publish(event())
        await publisher.stop?.()
        await publisher.publish(event())
        await h.until('both events have arrived', () => got.events.length === 2)
      },
      'groups',
    )
  },
}
