import assert from 'node:assert/strict'
import { event, numbered } from './fixtures.js'
import { group, idsOf, note } from './harness.js'
import type { Theme } from './suite.js'

export const groups: Theme = {
  name: 'groups',
  define(test) {
    test(
      'consumers of one group share the messages',
      async (h) => {
        const name = group()
        const both = [note(), note()] as const
        for (const one of both) await h.consumer({ group: name, concurrency: 2 }, one)
        const publisher = await h.bus()
        const all = () => both.flatMap((one) => idsOf(one.events))
        let published = 0
        // Until each has had some: how a broker deals them out is its own affair.
        await h.until('both have had some', async () => {
          if (published < 2_000) {
            await publisher.publishAll(numbered(50, (number) => ({ orderingKey: `key-${number}` })))
            published += 50
          }
          await h.until('all of these have come', () => all().length >= published)
          return both.every((one) => one.events.length > 0)
        })
        assert.equal(new Set(all()).size, published)
        assert.equal(all().length, published, 'none came twice')
      },
      'shares',
    )

    test(
      'different groups each get all',
      async (h) => {
        const both = [note(), note()] as const
        for (const one of both) await h.consumer({ group: group() }, one)
        const publisher = await h.bus()
        const events = numbered(100)
        await publisher.publishAll(events)
        for (const one of both) {
          await h.until('all have come', () => one.events.length === events.length)
          assert.deepEqual(idsOf(one.events).sort(), idsOf(events).sort())
        }
      },
      'groups',
    )

    test(
      'what comes while nobody of the group is there waits for the next one',
      async (h) => {
        const name = group()
        const first = await h.consumer({ group: name }, note())
        await first.stop?.()
        const publisher = await h.bus()
        const events = numbered(20)
        await publisher.publishAll(events)
        const got = note()
        await h.consumer({ group: name }, got)
        await h.until('all have come', () => got.events.length === events.length)
      },
      'groups',
    )

    test(
      'several that start at once on a destination that does not exist yet do not disturb each other',
      async (h) => {
        const notes = Array.from({ length: 4 }, () => note())
        const buses = await Promise.all(notes.map((one) => h.consumer({ group: group() }, one)))
        await Promise.all(buses.map((bus) => bus.publish(event())))
        for (const one of notes) await h.until('all have come', () => one.events.length === buses.length)
      },
      'groups',
    )
  },
}
