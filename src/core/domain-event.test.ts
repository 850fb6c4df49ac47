import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { EventCatalog } from './catalog.js'
import { defineEvent } from './define-event.js'
import { type DomainEvent, type NamedEvent, type PublishableEvent, toEnvelope } from './domain-event.js'
import { EventEnvelope } from './envelope.js'
import {
  AftercommitError,
  EventValidationError,
  InvalidEventError,
  InvalidEventIdError,
  InvalidPayloadError,
  PayloadTooLargeError,
} from './errors.js'
import type { MetadataInput } from './metadata.js'

function thrownBy(act: () => unknown): Error {
  try {
    act()
  } catch (error) {
    return error as Error
  }
  return expect.fail('nothing was thrown')
}

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
    const text = '{"n": 1.50}'
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

  it('may carry bytes of another realm, and of a subclass with a length of its own', () => {
    const foreign: unknown = runInNewContext('new Uint8Array([1, 2])')
    expect(toEnvelope({ type: 'x', payload: foreign }).payloadBytes).toEqual(new Uint8Array([1, 2]))
    class Odd extends Uint8Array {
      override get byteLength() {
        return 5
      }
    }
    expect(toEnvelope({ type: 'x', payload: new Odd([1]) }).payloadSize).toBe(1)
    class Small extends Uint8Array {
      override get byteLength() {
        return 1
      }
    }
    expect(() => toEnvelope({ type: 'x', payload: new Small(1_048_577) })).toThrow(PayloadTooLargeError)
  })

  it('is refused with bytes whose buffer was transferred, which would be stored as none', () => {
    const payload = new Uint8Array([1])
    structuredClone(payload.buffer, { transfer: [payload.buffer] })
    expect(() => toEnvelope({ type: 'x', payload })).toThrow(InvalidPayloadError)
  })

  it('is refused with a time that pretends to be a Date, and takes a Date of another realm', () => {
    const occurredAt = runInNewContext('new Date(5)') as Date
    expect(toEnvelope({ type: 'x', occurredAt }).occurredAtMs).toBe(5)
    const odd = { [Symbol.toStringTag]: 'Date', valueOf: () => 5 } as unknown as Date
    expect(() => toEnvelope({ type: 'x', occurredAt: odd })).toThrow(/must be a valid Date/)
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

describe('an event by name is refused', () => {
  it.each<[string, RegExp]>([
    ['data', /Invalid data of event "order\.placed": an event has no such field\. Use payload\./],
    ['correlationId', /Use metadata: \{ correlationId \}/],
    ['userId', /Use metadata: \{ userId \}/],
    ['delayMs', /Use the second argument: publish\(event, \{ delayMs \}\)/],
    ['id', /Use eventId/],
    ['paylaod', /Did you mean payload\?/],
    ['agregateId', /Did you mean aggregateId\?/],
    ['header', /Did you mean headers\?/],
    ['unheardOf', /Known fields: type, payload, payloadJson, eventId/],
  ])('with the unknown field %s', (name, message) => {
    const make = () => toEnvelope({ type: 'order.placed', payload: 1, [name]: 'x' } as NamedEvent)
    expect(make).toThrow(InvalidEventError)
    expect(make).toThrow(message)
  })

  it('with an unknown field of its metadata', () => {
    const metadata = { corelationId: 'c' } as MetadataInput
    expect(() => toEnvelope({ type: 'a', metadata })).toThrow(
      /metadata\.corelationId.*Did you mean correlationId\?/,
    )
  })

  it('when it is an instance whose data would be lost', () => {
    class Own {
      readonly type = 'a'
      constructor(readonly orderId: string) {}
    }
    class Hidden {
      readonly type = 'a'
      readonly #total = 42
      get total() {
        return this.#total
      }
    }
    expect(() => toEnvelope(new Own('o-1'))).toThrow(/orderId of event "a"/)
    expect(() => toEnvelope(new Hidden())).toThrow(/\$\.total: it would be lost/)
    class Serialised extends Hidden {
      toJSON() {
        return { total: this.total }
      }
    }
    expect(toEnvelope(new Serialised()).payload).toEqual({ total: 42 })
  })
})

describe('an event whose fields change between two reads', () => {
  it.each<[string, unknown, unknown]>([
    ['eventId', 'e-1', 'x'.repeat(1_000)],
    ['aggregateId', 'a-1', 'x'.repeat(1_000)],
    ['orderingKey', 'k-1', 5],
    ['tenantId', 't-1', {}],
    ['version', 2, -1],
    ['type', 'a', 5],
    ['payload', { n: 1 }, { n: 1n }],
    ['headers', { a: 'b' }, 5],
    ['metadata', { userId: 'u' }, { userId: 5 }],
  ])('is written with the %s that was checked', (name, first, later) => {
    let reads = 0
    const event = Object.defineProperty({ type: 'a', payload: 0 }, name, {
      enumerable: true,
      get: () => (reads++ === 0 ? first : later),
    })
    const json = toEnvelope(event).toJSON() as unknown as Record<string, unknown>
    expect(json[name === 'type' ? 'eventType' : name]).toEqual(first)
    expect(reads).toBe(1)
  })

  it('is written with the headers that were checked, and not with 2 MB of others', () => {
    let reads = 0
    const headers = {
      get trace() {
        return reads++ === 0 ? 'short' : 'x'.repeat(2_000_000)
      },
    }
    expect(toEnvelope({ type: 'a', headers }).headers).toEqual({ trace: 'short' })
    reads = 0
    const Placed = defineEvent('b')
    expect(Placed(1, { headers }).toEnvelope().headers).toEqual({ trace: 'short' })
    reads = 0
    expect(EventEnvelope.create({ eventType: 'c', headers }).headers).toEqual({ trace: 'short' })
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

  it('has as payload what toJSON() returns, when the data is in private fields', () => {
    class Placed extends UserRegistered {
      readonly #total = 42
      get total() {
        return this.#total
      }
      toJSON() {
        return { total: this.#total, lines: [{ sku: 'a' }] }
      }
    }
    expect(toEnvelope(new Placed('u-1', 'a@b.c')).payload).toEqual({ total: 42, lines: [{ sku: 'a' }] })
  })

  it.each<[string, () => unknown, string, RegExp]>([
    ['a Date', () => ({ at: [new Date()] }), '$.at[0]', /a Date/],
    ['undefined', () => undefined, '$', /undefined/],
    ['a bigint', () => ({ n: 1n }), '$.n', /bigint/],
    ['a promise', async () => ({}), '$', /a Promise/],
  ])('is refused, with the path, when toJSON() returns %s', (_what, toJSON, path, reason) => {
    class Odd extends UserRegistered {
      toJSON() {
        return toJSON()
      }
    }
    const error = thrownBy(() => toEnvelope(new Odd('u-1', 'a@b.c'))) as InvalidPayloadError
    expect(error).toBeInstanceOf(InvalidPayloadError)
    expect(error.path).toBe(path)
    expect(error.reason).toMatch(reason)
  })

  it.each(['toJSON', 'toEnvelope', 'payload'])('is refused with an own error when %s throws', (name) => {
    const failing = () => {
      throw new Error('secret')
    }
    class Failing extends UserRegistered {}
    Object.defineProperty(Failing.prototype, name, name === 'payload' ? { get: failing } : { value: failing })
    const error = thrownBy(() => toEnvelope(new Failing('u-1', 'a@b.c')))
    expect(error).toBeInstanceOf(AftercommitError)
    expect(error.message).toMatch(/threw an error/)
    expect(error.message).not.toContain('secret')
  })

  it('is refused when only accessors have its data, which would be stored as {}', () => {
    class Hidden implements DomainEvent {
      readonly eventId = 'e-1'
      readonly eventType = 'order.placed'
      readonly aggregateType = 'order'
      readonly occurredAt = new Date(5)
      readonly #total = 42
      get total() {
        return this.#total
      }
    }
    class Deeper extends Hidden {}
    for (const event of [new Hidden(), new Deeper()]) {
      expect(() => toEnvelope(event)).toThrow(/\$\.total: it would be lost.*toJSON\(\)/)
    }
    const notEnumerable = Object.defineProperty(new UserRegistered('u-1', 'x'), 'email', {
      enumerable: false,
    })
    expect(() => toEnvelope(notEnumerable)).toThrow(/\$\.email: it would be lost/)
  })

  it('is refused when one of its getters reads a private field, although it has other fields', () => {
    class Priced extends UserRegistered {
      readonly note = 'x'
      readonly #total = 42
      get total() {
        return this.#total
      }
    }
    class Deeper extends Priced {}
    for (const event of [new Priced('u-1', 'a@b.c'), new Deeper('u-1', 'a@b.c')]) {
      expect(() => toEnvelope(event)).toThrow(/\$\.total: it would be lost.*toJSON\(\)/)
    }
    class Written extends Priced {
      toJSON() {
        return { total: this.total }
      }
    }
    expect(toEnvelope(new Written('u-1', 'a@b.c')).payload).toEqual({ total: 42 })
  })

  it('may have no data at all, accessors beside its fields, and accessors for fields of the envelope', () => {
    class Empty implements DomainEvent {
      readonly eventId = 'e-1'
      readonly occurredAt = new Date(5)
      get eventType() {
        return 'cache.cleared'
      }
      get aggregateType() {
        return 'cache'
      }
      describe() {
        return 'text'
      }
    }
    expect(toEnvelope(new Empty()).payload).toEqual({})
    class Named extends UserRegistered {
      get domain() {
        return this.email.split('@')[1]
      }
    }
    expect(toEnvelope(new Named('u-1', 'a@b.c')).payload).toEqual({ email: 'a@b.c' })
  })

  it('is refused with fields beside an own payload, which would be lost', () => {
    const base = { eventId: '1', eventType: 'a', aggregateType: 'b', occurredAt: new Date(5), payload: 1 }
    const refusal = (more: object) =>
      thrownBy(() => toEnvelope({ ...base, ...more } as PublishableEvent)).message
    expect(toEnvelope(base).payload).toBe(1)
    expect(refusal({ correlationId: 'c' })).toMatch(
      /correlationId of event "a": .* Use metadata: \{ correlationId \}/,
    )
    expect(refusal({ payloadJson: '1' })).toMatch(/payloadJson of event "a": .* Use \{ type, payloadJson \}/)
    expect(refusal({ orderingkey: 'k' })).toMatch(/Did you mean orderingKey\?/)
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
