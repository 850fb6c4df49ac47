import assert from 'node:assert/strict'
import { event, numbered } from './fixtures.js'
import { group, hasCode, idsOf, recordingHandler } from './harness.js'
import type { Theme } from './suite.js'

const COUNT = 600
const BATCH = 20

const isUnavailable = (error: unknown) => {
  assert.ok(hasCode(error, 'NOT_CONFIRMED'), String(error))
  const { errors } = error as { errors: readonly unknown[] }
  assert.ok(
    errors.every((cause) => hasCode(cause, 'BROKER_UNAVAILABLE')),
    String(errors[0]),
  )
  return true
}

/** Short enough that several timeouts fit into one test. */
const QUICK = { confirmTimeoutMs: 1_000, takeoverMs: 1_000 }

export const outages: Theme = {
  name: 'outages',
  define(test) {
    test(
      'loses no confirmed event when the broker is killed during publishing',
      async (h) => {
        // The group exists without a running consumer, so the broker must keep the events for it.
        const name = group()
        await (await h.consumer({ group: name, ...QUICK }, recordingHandler())).stop?.()
        const publisher = await h.bus(QUICK)
        const events = numbered(COUNT)
        for (let from = 0; from < COUNT; from += BATCH) {
          const batch = events.slice(from, from + BATCH)
          if (from === COUNT / 2) await Promise.all([h.insist(publisher, batch), killed(h)])
          else await h.insist(publisher, batch)
        }
        const got = recordingHandler()
        await h.consumer({ group: name, ...QUICK }, got)
        await h.until('all events have arrived', () => new Set(idsOf(got.events)).size === COUNT)
      },
      'kill',
    )

    test(
      'delivers all remaining events after the broker was killed during consuming',
      async (h) => {
        const got = recordingHandler('work', () => new Promise((resolve) => setTimeout(resolve, 2)))
        const publisher = await h.bus(QUICK)
        await h.consumer({ group: group(), concurrency: 4, ...QUICK }, got)
        await publisher.publishAll(numbered(COUNT))
        await h.until('some events have arrived', () => got.events.length >= COUNT / 10)
        await killed(h)
        await h.until('all events have arrived', () => new Set(idsOf(got.events)).size === COUNT)
      },
      'kill',
    )

    test(
      'fails to publish with BrokerUnavailableError while the broker is down, and works again afterwards',
      async (h) => {
        const got = recordingHandler()
        const bus = await h.consumer({ group: group(), ...QUICK }, got)
        await bus.publish(event())
        await h.until('the first event has arrived', () => got.events.length === 1)
        await h.world.kill?.()
        try {
          await assert.rejects(bus.publishAll(numbered(3)), isUnavailable)
        } finally {
          await h.world.restart?.()
        }
        const last = event()
        await h.insist(bus, [last])
        await h.until('the last event has arrived', () => idsOf(got.events).includes(last.eventId))
      },
      'kill',
    )

    test(
      'reconnects publishers and consumers after a broken connection',
      async (h) => {
        const got = recordingHandler()
        await h.consumer({ group: group(), ...QUICK }, got)
        const publisher = await h.bus(QUICK)
        const events = numbered(COUNT)
        for (let from = 0; from < COUNT; from += BATCH) {
          const batch = events.slice(from, from + BATCH)
          if (from % (COUNT / 3) === 0) await Promise.all([h.insist(publisher, batch), h.world.cut?.()])
          else await h.insist(publisher, batch)
        }
        await h.until('all events have arrived', () => new Set(idsOf(got.events)).size === COUNT)
      },
      'cut',
    )

    test(
      'fails with BrokerUnavailableError when no confirmation arrives in time, and works again afterwards',
      async (h) => {
        const got = recordingHandler()
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
        await h.until('the last event has arrived', () => idsOf(got.events).includes(last.eventId))
      },
      'freeze',
    )

    test(
      'stops without waiting for a silent broker',
      async (h) => {
        const got = recordingHandler()
        const bus = await h.consumer({ group: group(), ...QUICK, drainTimeoutMs: 100 }, got)
        await bus.publish(event())
        await h.until('the event has arrived', () => got.events.length === 1)
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
