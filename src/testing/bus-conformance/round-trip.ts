import assert from 'node:assert/strict'
import type { ConfirmingPublisher } from '../../bus.js'
import { defineEvent } from '../../core/define-event.js'
import { EventEnvelope } from '../../core/envelope.js'
import { EVERY_FIELD, ODD_PAYLOADS, ODD_TIMES } from '../odd-values.js'
import { event } from './fixtures.js'
import { group, type Harness, idsOf, recordingHandler } from './harness.js'
import type { Theme } from './suite.js'

async function comeBackEqual(h: Harness, sent: readonly EventEnvelope[]): Promise<void> {
  const got = recordingHandler()
  const bus = await h.consumer({ group: group() }, got)
  await bus.publishAll(sent)
  await h.until(
    'all events have arrived',
    () => new Set(got.events.map(({ eventId }) => eventId)).size === sent.length,
  )
  for (const original of sent) {
    const back = got.events.find((candidate) => candidate.eventId === original.eventId)
    assert.ok(back)
    assert.deepStrictEqual(back.toJSON(), original.toJSON())
    assert.equal(back.payloadText, original.payloadText)
    assert.equal(back.payloadSize, original.payloadSize)
  }
}

/** An event that a program has stored with plain SQL. */
function stored(fields: object): EventEnvelope {
  const { eventId, eventType, aggregateType, version, occurredAtMs, payloadText, payloadSize } = event()
  return EventEnvelope.fromStored({
    ...{ eventId, eventType, aggregateType, version, occurredAtMs, payloadText, payloadSize },
    ...{
      aggregateId: null,
      tenantId: null,
      orderingKey: null,
      payloadBytes: null,
      headers: null,
      metadata: null,
    },
    ...fields,
  })
}

export const roundTrip: Theme = {
  name: 'round trip',
  define(test) {
    test('preserves every field of the envelope, and leaves absent fields absent', (h) =>
      comeBackEqual(h, [event(EVERY_FIELD), event()]))

    test(
      'fails only the event that cannot be converted to a message',
      async (h) => {
        const got = recordingHandler()
        const bus = await h.consumer({ group: group() }, got)
        const { send } = bus as Partial<ConfirmingPublisher>
        const bad = [{ metadata: { userId: 5 } }, { occurredAtMs: Number.NaN }, { tenantId: {} }].map(stored)
        const answers = await send?.call(bus, [event(), ...bad, event()])
        assert.deepEqual(
          answers?.map((answer) => (answer === null ? null : (answer as { code?: unknown }).code)),
          [null, 'INVALID_EVENT', 'INVALID_EVENT', 'INVALID_EVENT', null],
        )
        await h.until('the other events have arrived', () => got.events.length === 2)
      },
      'groups',
    )

    test('preserves unusual payloads', (h) =>
      comeBackEqual(
        h,
        Object.values(ODD_PAYLOADS).map((payload) => event({ payload })),
      ))

    test('preserves unusual times', (h) =>
      comeBackEqual(
        h,
        ODD_TIMES.map((time) => event({ occurredAt: new Date(time) })),
      ))

    test('preserves unusual ids, and treats them as different events', (h) =>
      comeBackEqual(
        h,
        ["a'b", 'A', 'a', 'é', 'e\u0301', '%', '50%25', '"q"', '\\', 'x.y.>'].map((eventId) =>
          event({ eventId }),
        ),
      ))

    test('preserves unusual event types', (h) =>
      comeBackEqual(
        h,
        [
          'a',
          'order.placed.v2',
          'Grüße',
          'with space',
          '.dots..all.',
          'a>b',
          'a#b',
          '日本語',
          'x/y:z?',
          '%41',
          '$SYS.x',
        ].map((eventType) => event({ eventType })),
      ))

    test('decodes events that were published by name with the subscribed definition', async (h) => {
      const Placed = defineEvent<{ total: number }>('order.placed')
      const totals: number[] = []
      const bus = await h.bus({ group: group() })
      bus.subscribe(Placed, { name: 'sum', handle: ({ payload }) => void totals.push(payload.total) })
      await bus.start?.()
      const id = await bus.publish(Placed({ total: 7 }))
      await bus.publish({ type: 'order.placed', payload: { total: 8 } })
      assert.equal(typeof id, 'string')
      await h.until('both events have arrived', () => totals.length === 2)
      assert.deepEqual(totals.sort(), [7, 8])
    })

    test('accepts an empty list of events', async (h) => {
      assert.deepEqual(await (await h.bus()).publishAll([]), [])
    })

    test('publishes no event of a list with an invalid event', async (h) => {
      const got = recordingHandler()
      const bus = await h.consumer({ group: group() }, got)
      await assert.rejects(bus.publishAll([event(), { type: '' }]))
      const last = await bus.publish(event())
      await h.until('the last event has arrived', () => idsOf(got.events).includes(last))
      assert.equal(got.events.length, 1)
    })

    test(
      'delivers a repeated event once if the broker drops duplicates',
      async (h) => {
        const got = recordingHandler()
        const bus = await h.consumer({ group: group() }, got)
        const twice = event()
        await bus.publishAll([twice, twice])
        await bus.publish(twice)
        const last = await bus.publish(event())
        await h.until('the last event has arrived', () => idsOf(got.events).includes(last))
        assert.equal(got.events.filter(({ eventId }) => eventId === twice.eventId).length, 1)
      },
      'deduplicates',
    )

    test('delivers thousands of events of one publish', async (h) => {
      const got = recordingHandler()
      const bus = await h.consumer({ group: group() }, got)
      const events = Array.from({ length: 2_500 }, () => event())
      await bus.publishAll(events)
      await h.until(
        'all events have arrived',
        () => new Set(got.events.map(({ eventId }) => eventId)).size === events.length,
      )
    })
  },
}
