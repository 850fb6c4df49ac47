import assert from 'node:assert/strict'
import { event, numbered } from './fixtures.js'
import { group, idsOf, recordingHandler } from './harness.js'
import type { Theme } from './suite.js'

export const groups: Theme = {
  name: 'groups',
  define(test) {
    test(
      'shares the messages between the consumers of a group',
      async (h) => {
        const name = group()
        const handlers = [recordingHandler(), recordingHandler()] as const
        for (const handler of handlers) await h.consumer({ group: name, concurrency: 2 }, handler)
        const publisher = await h.bus()
        const all = () => handlers.flatMap((handler) => idsOf(handler.events))
        let published = 0
        // Publishes until each consumer has received messages, because brokers distribute messages differently.
        await h.until('both consumers have received messages', async () => {
          if (published < 2_000) {
            await publisher.publishAll(numbered(50, (number) => ({ orderingKey: `key-${number}` })))
            published += 50
          }
          await h.until('all published events have arrived', () => all().length >= published)
          return handlers.every(({ events: seen }) => seen.length > 0)
        })
        assert.equal(new Set(all()).size, published)
        assert.equal(all().length, published, 'no event was delivered twice')
      },
      'shares',
    )

    test(
      'delivers all messages to each group',
      async (h) => {
        const handlers = [recordingHandler(), recordingHandler()] as const
        for (const handler of handlers) await h.consumer({ group: group() }, handler)
        const publisher = await h.bus()
        const events = numbered(100)
        await publisher.publishAll(events)
        for (const handler of handlers) {
          await h.until('all events have arrived', () => handler.events.length === events.length)
          assert.deepEqual(idsOf(handler.events).sort(), idsOf(events).sort())
        }
      },
      'groups',
    )

    test(
      'keeps messages for a group without a running consumer',
      async (h) => {
        const name = group()
        const first = await h.consumer({ group: name }, recordingHandler())
        await first.stop?.()
        const publisher = await h.bus()
        const events = numbered(20)
        await publisher.publishAll(events)
        const got = recordingHandler()
        await h.consumer({ group: name }, got)
        await h.until('all events have arrived', () => got.events.length === events.length)
      },
      'groups',
    )

    test(
      'starts several consumers concurrently when the destination does not exist yet',
      async (h) => {
        const handlers = Array.from({ length: 4 }, () => recordingHandler())
        const buses = await Promise.all(handlers.map((handler) => h.consumer({ group: group() }, handler)))
        await Promise.all(buses.map((bus) => bus.publish(event())))
        for (const handler of handlers)
          await h.until('all events have arrived', () => handler.events.length === buses.length)
      },
      'groups',
    )
  },
}
