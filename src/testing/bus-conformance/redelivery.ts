import assert from 'node:assert/strict'
import { fixedDelay } from '../../core/backoff.js'
import { RetryAfter } from '../../core/errors.js'
import { event, numbered } from './fixtures.js'
import { group, idsOf, note, signal } from './harness.js'
import type { Theme } from './suite.js'

const SOON_MS = 500

export const redelivery: Theme = {
  name: 'redelivery',
  define(test) {
    test(
      'a handler that fails is called again until it succeeds',
      async (h) => {
        const failing = new Set<number>([1, 2, 3, 4])
        let calls = 0
        const got = note('shaky', async () => {
          if (failing.has(++calls)) throw new Error(`no ${calls}`)
        })
        const bus = await h.consumer({ group: group() }, got)
        const id = await bus.publish(event())
        await h.until('it has succeeded', () => calls === 5)
        assert.deepEqual(new Set(idsOf(got.events)), new Set([id]))
      },
      'groups',
    )

    test(
      'a handler that says when to call it again loses no attempt',
      async (h) => {
        let calls = 0
        const got = note('patient', () => {
          if (++calls <= 6) throw new RetryAfter(1)
        })
        const bus = await h.consumer(
          { group: group(), retry: { maxAttempts: 2, policy: fixedDelay(1) } },
          got,
        )
        await bus.publish(event())
        await h.until('it has succeeded', () => calls === 7)
      },
      'groups',
    )

    test(
      'what succeeded does not come again, neither to others nor later',
      async (h) => {
        const name = group()
        const got = note()
        const first = await h.consumer({ group: name, takeoverMs: SOON_MS }, got)
        await first.publishAll(numbered(20))
        await h.until('all have come', () => got.events.length === 20)
        await first.stop?.()
        const later = note()
        const second = await h.consumer({ group: name, takeoverMs: SOON_MS }, later)
        const last = await second.publish(event())
        await h.until('the last one has come', () => later.events.length > 0)
        assert.deepEqual(idsOf(later.events), [last])
      },
      'groups',
    )

    test(
      'what a consumer held that vanished goes to another one',
      async (h) => {
        const name = group()
        const never = signal()
        const held = note('work', () => never.given)
        const first = await h.consumer({ group: name, takeoverMs: SOON_MS, drainTimeoutMs: 0 }, held)
        const publisher = await h.bus()
        const events = numbered(10)
        await publisher.publishAll(events)
        await h.until('it has them', () => held.events.length === events.length)
        await h.world.vanish?.(first)
        const got = note('work')
        await h.consumer({ group: name, takeoverMs: SOON_MS }, got)
        await h.until('the other has them', () => new Set(idsOf(got.events)).size === events.length)
        never.give()
      },
      'vanish',
    )

    test(
      'one that takes longer than the takeover is left in peace while it lives',
      async (h) => {
        const name = group()
        let isDone = false
        const slow = note('work', async ({ payload }) => {
          if (payload !== 'slow') return
          // By the end of it the message would have come again, several times over.
          await new Promise((resolve) => setTimeout(resolve, SOON_MS * 5))
          isDone = true
        })
        for (let n = 0; n < 2; n++) await h.consumer({ group: name, takeoverMs: SOON_MS }, slow)
        const publisher = await h.bus()
        const id = await publisher.publish(event({ payload: 'slow' }))
        await h.until('it is done', () => isDone)
        const last = await publisher.publish(event())
        await h.until('the next one has come', () => idsOf(slow.events).includes(last))
        assert.deepEqual(
          idsOf(slow.events).filter((one) => one === id),
          [id],
        )
      },
      'groups',
    )
  },
}
