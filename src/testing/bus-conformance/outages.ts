import assert from 'node:assert/strict'
import { event, numbered } from './fixtures.js'
import { group, hasCode, idsOf, note } from './harness.js'
import type { Theme } from './suite.js'

const COUNT = 600
const BATCH = 20

const isUnavailable = (error: unknown) => {
  assert.ok(hasCode(error, 'NOT_CONFIRMED'), String(error))
  const { errors } = error as { errors: readonly unknown[] }
  assert.ok(
    errors.every((one) => hasCode(one, 'BROKER_UNAVAILABLE')),
    String(errors[0]),
  )
  return true
}

/** Fast enough that a test sees several of them. */
const QUICK = { confirmTimeoutMs: 1_000, takeoverMs: 1_000 }

export const outages: Theme = {
  name: 'outages',
  define(test) {
    test(
      'a broker that is killed in the middle of publishing loses nothing that it has confirmed',
      async (h) => {
        // The group exists, and nobody reads meanwhile: what comes afterwards was kept.
        const name = group()
        await (await h.consumer({ group: name, ...QUICK }, note())).stop?.()
        const publisher = await h.bus(QUICK)
        const events = numbered(COUNT)
        for (let from = 0; from < COUNT; from += BATCH) {
          const batch = events.slice(from, from + BATCH)
          if (from === COUNT / 2) await Promise.all([h.insist(publisher, batch), killed(h)])
          else await h.insist(publisher, batch)
        }
        const got = note()
        await h.consumer({ group: name, ...QUICK }, got)
        await h.until('all have come', () => new Set(idsOf(got.events)).size === COUNT)
      },
      'kill',
    )

    test(
      'a broker that is killed in the middle of consuming hands out all that is left',
      async (h) => {
        const got = note('work', () => new Promise((resolve) => setTimeout(resolve, 2)))
        const publisher = await h.bus(QUICK)
        await h.consumer({ group: group(), concurrency: 4, ...QUICK }, got)
        await publisher.publishAll(numbered(COUNT))
        await h.until('some have come', () => got.events.length >= COUNT / 10)
        await killed(h)
        await h.until('all have come', () => new Set(idsOf(got.events)).size === COUNT)
      },
      'kill',
    )

    test(
      'while the broker is down publishing fails as unavailable, and works again afterwards',
      async (h) => {
        const got = note()
        const bus = await h.consumer({ group: group(), ...QUICK }, got)
        await bus.publish(event())
        await h.until('the first has come', () => got.events.length === 1)
        await h.world.kill?.()
        try {
          await assert.rejects(bus.publishAll(numbered(3)), isUnavailable)
        } finally {
          await h.world.restart?.()
        }
        const last = event()
        await h.insist(bus, [last])
        await h.until('the last has come', () => idsOf(got.events).includes(last.eventId))
      },
      'kill',
    )

    test(
      'a connection that breaks is made again, by publishers and consumers',
      async (h) => {
        const got = note()
        await h.consumer({ group: group(), ...QUICK }, got)
        const publisher = await h.bus(QUICK)
        const events = numbered(COUNT)
        for (let from = 0; from < COUNT; from += BATCH) {
          const batch = events.slice(from, from + BATCH)
          if (from % (COUNT / 3) === 0) await Promise.all([h.insist(publisher, batch), h.world.cut?.()])
          else await h.insist(publisher, batch)
        }
        await h.until('all have come', () => new Set(idsOf(got.events)).size === COUNT)
      },
      'cut',
    )

    test(
      'a confirm that never comes fails as unavailable, in time, and the bus works again afterwards',
      async (h) => {
        const got = note()
        const bus = await h.consumer({ group: group(), ...QUICK }, got)
        await bus.publish(event())
        const thaw = await h.world.freeze?.()
        try {
          await assert.rejects(bus.publish(event()), isUnavailable)
        } finally {
          await thaw?.()
        }
        const last = event()
        await h.insist(bus, [last])
        await h.until('the last has come', () => idsOf(got.events).includes(last.eventId))
      },
      'freeze',
    )

    test(
      'a stop does not wait for a broker that is gone',
      async (h) => {
        const got = note()
        const bus = await h.consumer({ group: group(), ...QUICK, drainTimeoutMs: 100 }, got)
        await bus.publish(event())
        await h.until('it has come', () => got.events.length === 1)
        const thaw = await h.world.freeze?.()
        try {
          await bus.stop?.()
        } finally {
          await thaw?.()
        }
      },
      'freeze',
    )
  },
}

async function killed(h: {
  readonly world: { kill?: (() => Promise<void>) | undefined; restart?: (() => Promise<void>) | undefined }
}): Promise<void> {
  await h.world.kill?.()
  await h.world.restart?.()
}
