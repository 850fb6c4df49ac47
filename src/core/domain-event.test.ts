import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { EventCatalog } from './catalog.js'
import { defineEvent } from './define-event.js'
import { type DomainEvent, type NamedEvent, type PublishableEvent, toEnvelope } from './domain-event.js'
import { EventEnvelope } from './envelope.js'
import {
  EventValidationError,
  InvalidEventError,
  InvalidEventIdError,
  InvalidPayloadError,
} from './errors.js'

const OrderPlaced = defineEvent('order.placed', {
  aggregateType: 'order',
  aggregateId: (p) => p.orderId,
  ordered: true,
  version: 2,
  upcast: (payload) => ({ at: '1970-01-01', ...(payload as object) }),
  schema: z.object({ orderId: z.string(), at: z.coerce.date() }),
})
const catalog = new EventCatalog([OrderPlaced])

class UserRegistered implements DomainEvent {
  readonly eventId = 'e-1'
  readonly eventType = 'user.registered'
  readonly aggregateType = 'user'
  readonly occurredAt = new Date(5)
  constructor(
    readonly aggregateId: string,
    readonly email: string,
    readonly tenantId?: string,
  ) {}
}

describe('an event by name', () => {
  it('works without any definition', () => {
    const envelope = toEnvelope({ type: 'legacy.thing', payload: { a: 1 } })
    expect(envelope.eventType).toBe('legacy.thing')
    expect(envelope.payload).toEqual({ a: 1 })
    expect(envelope.aggregateType).toBe('__GLOBAL__')
  })

  it('takes over every field', () => {
    const fields = {
      eventId: 'e-1',
      aggregateType: 'a',
      aggregateId: '1',
      tenantId: 't',
      version: 4,
      headers: { h: '1' },
      metadata: { userId: 'u' },
      orderingKey: 'k',
      payload: null,
    }
    const json = toEnvelope({ type: 'x', occurredAt: new Date(5), ...fields }).toJSON()
    expect(json).toEqual({ eventType: 'x', occurredAt: '1970-01-01T00:00:00.005Z', ...fields })
  })

  it('takes JSON text that is serialised already, and keeps it to the letter', () => {
    const text = '{"n": 12345678901234567890}'
    expect(toEnvelope({ type: 'x', payloadJson: text }).payloadText).toBe(text)
    expect(() => toEnvelope({ type: 'x', payloadJson: '{' })).toThrow(InvalidPayloadError)
    expect(() => toEnvelope({ type: 'x', payloadJson: '1', payload: 1 })).toThrow(/not both/)
  })

  it('may have no payload, which is null; one that is undefined is a mistake', () => {
    expect(toEnvelope({ type: 'x' }).payload).toBe(null)
    expect(() => toEnvelope({ type: 'x', payload: undefined })).toThrow(InvalidPayloadError)
  })

  it('may carry bytes', () => {
    expect(toEnvelope({ type: 'x', payload: new Uint8Array([1]) }).payloadBytes).toEqual(new Uint8Array([1]))
  })

  it('goes through the definition that the catalog has', () => {
    const payload = { orderId: 'o-1', at: '1970-01-02T00:00:00.000Z' }
    for (const event of [
      { type: 'order.placed', payload },
      { type: 'order.placed', payloadJson: JSON.stringify(payload) },
    ]) {
      const envelope = toEnvelope(event, catalog)
      expect(envelope.payload).toEqual({ orderId: 'o-1', at: new Date(86_400_000) })
      expect(envelope.aggregateId).toBe('o-1')
      expect(envelope.aggregateType).toBe('order')
      expect(envelope.orderingKey).toBe('order:o-1')
      expect(envelope.version).toBe(2)
    }
    expect(() => toEnvelope({ type: 'order.placed', payload: { orderId: 1 } }, catalog)).toThrow(
      EventValidationError,
    )
    expect(() => toEnvelope({ type: 'order.placed' }, catalog)).toThrow(EventValidationError)
  })

  it('may be of an older version, which the definition upcasts', () => {
    const envelope = toEnvelope({ type: 'order.placed', version: 1, payload: { orderId: 'o-1' } }, catalog)
    expect(envelope.version).toBe(1)
    expect(envelope.payloadText).toBe('{"orderId":"o-1"}')
    expect(envelope.payload).toEqual({ orderId: 'o-1', at: new Date(0) })
  })

  it('has its aggregate id derived from JSON text too', () => {
    const Plain = defineEvent<{ id: string }>('plain', { aggregateId: (p) => p.id })
    expect(
      toEnvelope({ type: 'plain', payloadJson: '{"id":"7"}' }, new EventCatalog([Plain])).aggregateId,
    ).toBe('7')
  })
})

describe("an event of the user's own class", () => {
  it('has its other fields as payload', () => {
    const json = toEnvelope(new UserRegistered('u-1', 'a@b.c', 't-1')).toJSON()
    expect(json).toEqual({
      eventId: 'e-1',
      eventType: 'user.registered',
      aggregateType: 'user',
      aggregateId: 'u-1',
      tenantId: 't-1',
      occurredAt: '1970-01-01T00:00:00.005Z',
      version: 1,
      headers: {},
      metadata: {},
      payload: { email: 'a@b.c' },
    })
  })

  it('has its payload property as payload, when there is one', () => {
    class WithPayload extends UserRegistered {
      get payload(): unknown {
        return { mail: this.email }
      }
    }
    expect(toEnvelope(new WithPayload('u-1', 'a@b.c')).payload).toEqual({ mail: 'a@b.c' })
  })

  it('decides itself in toEnvelope()', () => {
    class Own extends UserRegistered {
      toEnvelope(): EventEnvelope {
        return EventEnvelope.create({ eventType: this.eventType, eventId: this.eventId, payload: 'own' })
      }
    }
    expect(toEnvelope(new Own('u-1', 'a@b.c')).payload).toBe('own')
  })

  it('goes through the definition that the catalog has', () => {
    class Placed implements DomainEvent {
      readonly eventId = 'e-2'
      readonly eventType = 'order.placed'
      readonly aggregateType = 'order'
      readonly occurredAt = new Date(5)
      readonly orderId = 'o-1'
      readonly at = new Date(7)
    }
    const envelope = toEnvelope(new Placed(), catalog)
    expect(envelope.payload).toEqual({ orderId: 'o-1', at: new Date(7) })
    expect(envelope.orderingKey).toBe('order:o-1')
    expect(() => toEnvelope(new Placed())).toThrow(/\$\.at: a Date; .*schema/)
  })

  it.each<[string, object, new (...args: never[]) => Error]>([
    ['no id', { eventType: 'a', aggregateType: 'b', occurredAt: new Date() }, InvalidEventError],
    [
      'a bad id',
      { eventId: '', eventType: 'a', aggregateType: 'b', occurredAt: new Date() },
      InvalidEventIdError,
    ],
    ['a bad time', { eventId: '1', eventType: 'a', aggregateType: 'b', occurredAt: 'x' }, InvalidEventError],
    ['a toEnvelope() that returns something else', { toEnvelope: () => ({}) }, InvalidEventError],
    ['neither type nor eventType', { payload: 1 }, InvalidEventError],
  ])('is refused with %s', (_what, event, error) => {
    expect(() => toEnvelope(event as PublishableEvent)).toThrow(error)
  })

  it.each([[null], [undefined], ['order.placed'], [5]])('is refused when it is %s', (event) => {
    expect(() => toEnvelope(event as unknown as NamedEvent)).toThrow(InvalidEventError)
  })
})

it('a definition that nobody called is refused with a hint', () => {
  expect(() => toEnvelope(OrderPlaced as unknown as NamedEvent)).toThrow(/call it with a payload/)
})

describe('an envelope that was made elsewhere', () => {
  it('is published as it is when the catalog does not know its type', () => {
    const envelope = EventEnvelope.create({ eventType: 'x', payload: 1 })
    expect(toEnvelope(envelope, catalog)).toBe(envelope)
  })

  it('gets the payload that handlers are typed by, hot as well as cold', () => {
    const raw = EventEnvelope.create({
      eventType: 'order.placed',
      version: 2,
      payload: { orderId: 'o-1', at: '1970-01-01T00:00:00.000Z' },
    })
    expect(toEnvelope(raw, catalog).payload).toEqual({ orderId: 'o-1', at: new Date(0) })
    const bad = EventEnvelope.create({ eventType: 'order.placed', version: 2, payload: {} })
    expect(() => toEnvelope(bad, catalog)).toThrow(EventValidationError)
  })

  it('is not decoded again when it comes from the catalog’s own definition', () => {
    const event = OrderPlaced({ orderId: 'o-1', at: new Date(0) })
    expect(toEnvelope(event, catalog)).toBe(event.toEnvelope())
  })
})
