import assert from 'node:assert/strict'
import { fixedDelay } from '../../core/backoff.js'
import { RetryAfter } from '../../core/errors.js'
import { event, numbered } from './fixtures.js'
import { group, idsOf, recordingHandler, signal } from './harness.js'
import type { Theme } from './suite.js'

const SOON_MS = 500

export const redelivery: Theme = {
  name: 'redelivery',
  define(test) {
    test(
      'calls a failed handler again until it succeeds',
      async (h) => {
        const failing = new Set<number>([1, 2, 3, 4])
        let calls = 0
        const got = recordingHandler('shaky', async () => {
          if (failing.has(++calls)) throw new Error(`no ${calls}`)
        })
        const bus = await h.consumer({ group: group() }, got)
        const id = await bus.publish(event())
        await h.until('the handler has succeeded', () => calls === 5)
        assert.deepEqual(new Set(idsOf(got.events)), new Set([id]))
      },
      'groups',
    )

    test(
      'does not count an attempt when a handler throws RetryAfter',
      async (h) => {
        let calls = 0
        const got = recordingHandler('patient', () => {
          if (++calls <= 6) throw new RetryAfter(1)
        })
        const bus = await h.consumer(
          { group: group(), retry: { maxAttempts: 2, policy: fixedDelay(1) } },
          got,
        )
        await bus.publish(event())
        await h.until('the handler has succeeded', () => calls === 7)
      },
      'groups',
    )

    test(
      'does not deliver acknowledged messages again',
      async (h) => {
        const name = group()
        const got = recordingHandler()
        const first = await h.consumer({ group: name, takeoverMs: SOON_MS }, got)
        await first.publishAll(numbered(20))
        await h.until('all events have arrived', () => got.events.length === 20)
        await first.stop?.()
        const later = recordingHandler()
        const second = await h.consumer({ group: name, takeoverMs: SOON_MS }, later)
        const last = await second.publish(event())
        await h.until('the last event has arrived', () => later.events.length > 0)
        assert.deepEqual(idsOf(later.events), [last])
      },
      'groups',
    )

    test(
      'delivers the messages of a vanished consumer to another consumer',
      async (h) => {
        const name = group()
        const never = signal()
        const unacked = recordingHandler('work', () => never.given)
        const first = await h.consumer({ group: name, takeoverMs: SOON_MS, drainTimeoutMs: 0 }, unacked)
        const publisher = await h.bus()
        const events = numbered(10)
        await publisher.publishAll(events)
        await h.until('the first consumer has the events', () => unacked.events.length === events.length)
        await h.world.vanish?.(first)
        const got = recordingHandler('work')
        await h.consumer({ group: name, takeoverMs: SOON_MS }, got)
        await h.until(
          'the second consumer has the events',
          () => new Set(idsOf(got.events)).size === events.length,
        )
        never.give()
      },
      'vanish',
    )

    test(
      'does not redeliver a message whose handler runs longer than takeoverMs',
      async (h) => {
        const name = group()
        let isDone = false
        const slow = recordingHandler('work', async ({ payload }) => {
          if (payload !== 'slow') return
          // Without lease extensions, the broker would deliver the message several times during this call.
          await new Promise((resolve) => setTimeout(resolve, SOON_MS * 5))
          isDone = true
        })
        for (let n = 0; n < 2; n++) await h.consumer({ group: name, takeoverMs: SOON_MS }, slow)
        const publisher = await h.bus()
        const id = await publisher.publish(event({ payload: 'slow' }))
        await h.until('the handler is done', () => isDone)
        const last = await publisher.publish(event())
        await h.until('the next event has arrived', () => idsOf(slow.events).includes(last))
        assert.deepEqual(
          idsOf(slow.events).filter((eventId) => eventId === id),
          [id],
        )
      },
      'groups',
    )
  },
}
