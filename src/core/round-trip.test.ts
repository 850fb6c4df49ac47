import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { EventCatalog } from './catalog.js'
import { fromCloudEvent, toCloudEvent } from './cloud-event.js'
import { fromCloudEventBinary, toCloudEventBinary } from './cloud-event-binary.js'
import { defineEvent } from './define-event.js'
import { EventEnvelope } from './envelope.js'

function anyEnvelope(): fc.Arbitrary<EventEnvelope> {
  const name = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 })
  const id = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 })
  const text = fc.string({ unit: 'grapheme', maxLength: 40 })
  const headerValue = fc.string({ unit: 'binary', maxLength: 40 }).map((value) => value.replaceAll('\0', ''))
  const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined })
  return fc
    .record({
      eventId: optional(id),
      eventType: name,
      aggregateType: optional(name),
      aggregateId: optional(name),
      tenantId: optional(name),
      occurredAt: fc.date({
        min: new Date(0),
        max: new Date('9999-12-31T23:59:59.999Z'),
        noInvalidDate: true,
      }),
      version: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
      headers: fc.dictionary(name, headerValue, { maxKeys: 4 }),
      metadata: fc.record(
        {
          correlationId: text,
          causationId: text,
          userId: text,
          traceId: text,
          traceparent: text,
          tracestate: text,
        },
        { requiredKeys: [] },
      ),
      orderingKey: optional(name),
      payload: fc.oneof(fc.jsonValue({ maxDepth: 4 }), fc.uint8Array({ maxLength: 100 })),
    })
    .map((init) => EventEnvelope.create(init))
}

function expectEqual(back: EventEnvelope, envelope: EventEnvelope): void {
  expect(back.toJSON()).toStrictEqual(envelope.toJSON())
  expect(back.payload).toStrictEqual(envelope.payload)
  expect(back.payloadText).toBe(envelope.payloadText)
  expect(back.payloadSize).toBe(envelope.payloadSize)
  expect(back.occurredAtMs).toBe(envelope.occurredAtMs)
}

describe('any envelope comes back equal', () => {
  it.each<[string, (envelope: EventEnvelope) => EventEnvelope]>([
    ['through JSON text', (envelope) => EventEnvelope.fromJSON(JSON.stringify(envelope))],
    ['through toJSON and fromJSON', (envelope) => EventEnvelope.fromJSON(envelope.toJSON())],
    ['through a structured CloudEvent', (envelope) => fromCloudEvent(JSON.stringify(toCloudEvent(envelope)))],
    ['through a binary CloudEvent', (envelope) => fromCloudEventBinary(toCloudEventBinary(envelope))],
    [
      'through a catalog',
      (envelope) => {
        const catalog = new EventCatalog([defineEvent(envelope.eventType, { version: envelope.version })])
        return catalog.deserialize(envelope.eventType, catalog.serialize(envelope))
      },
    ],
  ])('%s', (_way, travel) => {
    fc.assert(
      fc.property(anyEnvelope(), (envelope) => {
        expectEqual(travel(envelope), envelope)
      }),
    )
  })
})
