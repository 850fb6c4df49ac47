import assert from 'node:assert/strict'
import type { ConfirmingPublisher } from '../../bus.js'
import { defineEvent } from '../../core/define-event.js'
import { EventEnvelope } from '../../core/envelope.js'
import { EVERY_FIELD, ODD_PAYLOADS, ODD_TIMES } from '../odd-values.js'
import { event } from './fixtures.js'
import { group, type Harness, note } from './harness.js'
import type { Theme } from './suite.js'

async function comeBackEqual(h: Harness, sent: readonly EventEnvelope[]): Promise<void> {
  const got = note()
  const bus = await h.consumer({ group: group() }, got)
  await bus.publishAll(sent)
  await h.until('all have come', () => new Set(got.events.map((one) => one.eventId)).size === sent.length)
  for (const one of sent) {
    const back = got.events.find((other) => other.eventId === one.eventId)
    assert.ok(back)
    assert.deepStrictEqual(back.toJSON(), one.toJSON())
    assert.equal(back.payloadText, one.payloadText)
    assert.equal(back.payloadSize, one.payloadSize)
  }
}

/** An event as a writer of plain SQL could have stored it. */
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
    test('every field of the envelope comes back, and absent ones stay absent', (h) =>
      comeBackEqual(h, [event(EVERY_FIELD), event()]))

    test(
      'an event that cannot be converted to a message fails alone',
      async (h) => {
        const got = note()
        const bus = await h.consumer({ group: group() }, got)
        const { send } = bus as Partial<ConfirmingPublisher>
        const bad = [{ metadata: { userId: 5 } }, { occurredAtMs: Number.NaN }, { tenantId: {} }].map(stored)
        const answers = await send?.call(bus, [event(), ...bad, event()])
        assert.deepEqual(
          answers?.map((answer) => (answer === null ? null : (answer as { code?: unknown }).code)),
          [null, 'INVALID_EVENT', 'INVALID_EVENT', 'INVALID_EVENT', null],
        )
        await h.until('the others have come', () => got.events.length === 2)
      },
      'groups',
    )

    test('odd payloads come back', (h) =>
      comeBackEqual(
        h,
        Object.values(ODD_PAYLOADS).map((payload) => event({ payload })),
      ))

    test('odd times come back', (h) =>
      comeBackEqual(
        h,
        ODD_TIMES.map((time) => event({ occurredAt: new Date(time) })),
      ))

    test('odd ids come back, and are different events', (h) =>
      comeBackEqual(
        h,
        ["a'b", 'A', 'a', 'é', 'e\u0301', '%', '50%25', '"q"', '\\', 'x.y.>'].map((eventId) =>
          event({ eventId }),
        ),
      ))

    test('odd event types come back', (h) =>
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

    test('a definition decodes what was published by its name', async (h) => {
      const Placed = defineEvent<{ total: number }>('order.placed')
      const totals: number[] = []
      const bus = await h.bus({ group: group() })
      bus.subscribe(Placed, { name: 'sum', handle: ({ payload }) => void totals.push(payload.total) })
      await bus.start?.()
      const id = await bus.publish(Placed({ total: 7 }))
      await bus.publish({ type: 'order.placed', payload: { total: 8 } })
      assert.equal(typeof id, 'string')
      await h.until('both have come', () => totals.length === 2)
      assert.deepEqual(totals.sort(), [7, 8])
    })

    test('a publish of none is fine', async (h) => {
      assert.deepEqual(await (await h.bus()).publishAll([]), [])
    })

    test('of events of which one is not acceptable none is published', async (h) => {
      const got = note()
      const bus = await h.consumer({ group: group() }, got)
      await assert.rejects(bus.publishAll([event(), { type: '' }]))
      const last = await bus.publish(event())
      await h.until('the last one has come', () => got.events.some((one) => one.eventId === last))
      assert.equal(got.events.length, 1)
    })

    test(
      'what comes twice is taken once by a broker that can tell',
      async (h) => {
        const got = note()
        const bus = await h.consumer({ group: group() }, got)
        const twice = event()
        await bus.publishAll([twice, twice])
        await bus.publish(twice)
        const last = await bus.publish(event())
        await h.until('the last one has come', () => got.events.some((one) => one.eventId === last))
        assert.equal(got.events.filter((one) => one.eventId === twice.eventId).length, 1)
      },
      'deduplicates',
    )

    test('thousands at once arrive', async (h) => {
      const got = note()
      const bus = await h.consumer({ group: group() }, got)
      const events = Array.from({ length: 2_500 }, () => event())
      await bus.publishAll(events)
      await h.until(
        'all have come',
        () => new Set(got.events.map((one) => one.eventId)).size === events.length,
      )
    })
  },
}
