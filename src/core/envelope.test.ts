import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { defineEvent } from './define-event.js'
import { type EnvelopeInit, EventEnvelope, GLOBAL_AGGREGATE } from './envelope.js'
import {
  InvalidEventError,
  InvalidEventIdError,
  InvalidPayloadError,
  PayloadTooLargeError,
  UndecodablePayloadError,
} from './errors.js'
import { EMPTY_METADATA } from './metadata.js'
import type { StoredEvent } from './stored-event.js'

const full: EnvelopeInit = {
  eventId: 'e-1',
  eventType: 'order.placed',
  aggregateType: 'order',
  aggregateId: 'o-1',
  tenantId: 't-1',
  occurredAt: new Date('2026-03-04T05:06:07.089Z'),
  version: 3,
  headers: { 'x-region': 'eu' },
  metadata: { correlationId: 'c-1', userId: 'u-4711' },
  orderingKey: 'order:o-1',
  payload: { total: 42, items: [{ sku: 'a' }] },
}

const stored: StoredEvent = {
  eventId: 'e-1',
  eventType: 'order.placed',
  aggregateType: 'order',
  aggregateId: null,
  tenantId: null,
  orderingKey: null,
  version: 1,
  payloadText: '{"a": 1}',
  payloadBytes: null,
  headers: null,
  metadata: null,
  occurredAtMs: 5,
  payloadSize: 8,
}

describe('EventEnvelope.create', () => {
  it('fills in the defaults', () => {
    const before = Date.now()
    const envelope = EventEnvelope.create({ eventType: 'ping' })
    expect(envelope.eventId).toMatch(/^[0-9a-f-]{36}$/)
    expect(envelope.aggregateType).toBe(GLOBAL_AGGREGATE)
    expect(envelope.aggregateType).toBe('__GLOBAL__')
    expect(envelope.version).toBe(1)
    expect(envelope.occurredAtMs).toBeGreaterThanOrEqual(before)
    expect(envelope.metadata).toBe(EMPTY_METADATA)
    expect(envelope.headers).toEqual({})
    expect(envelope.payload).toBe(null)
    expect([envelope.aggregateId, envelope.tenantId, envelope.orderingKey]).toEqual([
      undefined,
      undefined,
      undefined,
    ])
  })

  it('keeps every field, and the size in bytes', () => {
    const envelope = EventEnvelope.create({ ...full, payload: '€' })
    expect(envelope.eventId).toBe('e-1')
    expect(envelope.occurredAt).toEqual(full.occurredAt)
    expect(envelope.version).toBe(3)
    expect(envelope.tenantId).toBe('t-1')
    expect(envelope.orderingKey).toBe('order:o-1')
    expect(envelope.payloadText).toBe('"€"')
    expect(envelope.payloadSize).toBe(5)
    expect(envelope.payloadBytes).toBe(null)
  })

  it.each<[string, Partial<Record<keyof EnvelopeInit, unknown>>, string]>([
    ['an empty type', { eventType: '' }, 'eventType'],
    ['a type of 256 characters', { eventType: 'x'.repeat(256) }, 'eventType'],
    ['a type with a line break', { eventType: 'a\nb' }, 'eventType'],
    ['a type that is a number', { eventType: 5 }, 'eventType'],
    ['an empty aggregate type', { aggregateType: '' }, 'aggregateType'],
    ['an aggregate id that is a number', { aggregateId: 5 }, 'aggregateId'],
    ['an empty aggregate id', { aggregateId: '' }, 'aggregateId'],
    ['half a surrogate pair in the tenant', { tenantId: 'a\ud800' }, 'tenantId'],
    ['an empty ordering key', { orderingKey: '' }, 'orderingKey'],
    ['an ordering key of 256 characters', { orderingKey: 'x'.repeat(256) }, 'orderingKey'],
    ['version 0', { version: 0 }, 'version'],
    ['version 1.5', { version: 1.5 }, 'version'],
    ['a version that is text', { version: '1' }, 'version'],
    ['an invalid date', { occurredAt: new Date('x') }, 'occurredAt'],
    ['a date that is text', { occurredAt: '2026-01-01' }, 'occurredAt'],
    ['a date in the year 20000', { occurredAt: new Date('+020000-01-01T00:00:00Z') }, 'occurredAt'],
    ['a header that is a number', { headers: { a: 5 } }, 'header "a"'],
    ['a header with NUL', { headers: { a: 'x\0' } }, 'header "a"'],
    ['a header with half a pair', { headers: { a: '\udc00' } }, 'header "a"'],
    ['a header without a name', { headers: { '': 'x' } }, 'header name'],
    ['headers that are a list', { headers: ['a'] }, 'headers'],
    ['headers of 70,000 characters', { headers: { a: 'x'.repeat(70_000) } }, 'headers'],
    ['metadata that is a number', { metadata: { traceId: 5 } }, 'metadata.traceId'],
  ])('refuses %s', (_what, change, field) => {
    const create = () => EventEnvelope.create({ ...full, ...change } as EnvelopeInit)
    expect(create).toThrow(InvalidEventError)
    expect(create).toThrow(expect.objectContaining({ field }) as unknown as Error)
  })

  it('refuses a bad id, a bad payload, and a payload that is undefined', () => {
    expect(() => EventEnvelope.create({ ...full, eventId: '' })).toThrow(InvalidEventIdError)
    expect(() => EventEnvelope.create({ ...full, payload: { a: 1n } })).toThrow(InvalidPayloadError)
    expect(() => EventEnvelope.create({ ...full, payload: undefined })).toThrow(InvalidPayloadError)
  })

  it('takes a header called __proto__ for a header', () => {
    const headers = JSON.parse('{"__proto__":"x","constructor":"y"}') as Record<string, string>
    const envelope = EventEnvelope.create({ ...full, headers })
    expect(Object.keys(envelope.headers)).toEqual(['__proto__', 'constructor'])
    expect(Object.entries(EventEnvelope.fromJSON(JSON.stringify(envelope)).headers)).toEqual([
      ['__proto__', 'x'],
      ['constructor', 'y'],
    ])
    expect(EventEnvelope.create({ eventType: 'a' }).headers.constructor).toBeUndefined()
  })
})

describe('an envelope is deeply immutable', () => {
  const payload = { total: 42, items: [{ sku: 'a' }] }
  const occurredAt = new Date(5)
  const headers: Record<string, string> = { a: '1' }
  const envelope = EventEnvelope.create<typeof payload>({ eventType: 'a', payload, occurredAt, headers })

  it('does not see later changes of what it was made from', () => {
    payload.items.push({ sku: 'late' })
    occurredAt.setTime(6)
    headers.a = 'changed'
    expect(envelope.payload.items).toEqual([{ sku: 'a' }])
    expect(envelope.occurredAtMs).toBe(5)
    expect(envelope.headers.a).toBe('1')
    expect(Object.isFrozen(payload)).toBe(false)
  })

  it('throws when someone writes to it', () => {
    const open = envelope as unknown as Record<string, Record<string, unknown>>
    expect(() => Object.assign(envelope, { eventType: 'b' })).toThrow(TypeError)
    expect(() => Object.assign(open.headers as object, { a: '2' })).toThrow(TypeError)
    expect(() => Object.assign(open.metadata as object, { userId: '2' })).toThrow(TypeError)
    expect(() => envelope.payload.items.push({ sku: 'b' })).toThrow(TypeError)
  })

  it('hands out dates and bytes as copies', () => {
    envelope.occurredAt.setTime(0)
    expect(envelope.occurredAt.getTime()).toBe(5)
    const source = new Uint8Array([1, 2, 3])
    const withBytes = EventEnvelope.create<Uint8Array>({ eventType: 'a', payload: source })
    source[0] = 9
    withBytes.payload[1] = 9
    withBytes.payloadBytes?.fill(9)
    expect(withBytes.payload).toEqual(new Uint8Array([1, 2, 3]))
    expect(withBytes.payloadText).toBe(null)
    expect(withBytes.payloadSize).toBe(3)
  })

  it('decodes once', () => {
    expect(envelope.payload).toBe(envelope.payload)
    expect(envelope.withHeader('b', '2').payload).toBe(envelope.payload)
  })
})

describe('bytes', () => {
  it('of a Buffer are copied as plain bytes, up to 1,048,576 of them', () => {
    const envelope = EventEnvelope.create({ eventType: 'a', payload: Buffer.from('abc') })
    expect(envelope.payload).toStrictEqual(new Uint8Array([97, 98, 99]))
    expect(EventEnvelope.create({ eventType: 'a', payload: new Uint8Array(1_048_576) }).payloadSize).toBe(
      1_048_576,
    )
    expect(() => EventEnvelope.create({ eventType: 'a', payload: new Uint8Array(1_048_577) })).toThrow(
      PayloadTooLargeError,
    )
  })
})

describe('copies', () => {
  const envelope = EventEnvelope.create(full)

  it('differ in the one field', () => {
    expect(envelope.withCorrelationId('c-2').metadata).toEqual({ correlationId: 'c-2', userId: 'u-4711' })
    expect(envelope.withCausationId('p').metadata.causationId).toBe('p')
    expect(envelope.withUserId('u-2').metadata.userId).toBe('u-2')
    expect(envelope.withTraceId('t').metadata.traceId).toBe('t')
    expect(envelope.withHeader('b', '2').headers).toEqual({ 'x-region': 'eu', b: '2' })
    expect(envelope.withHeader('x-region', 'us').headers).toEqual({ 'x-region': 'us' })
    expect({ ...envelope.withUserId('u-2').toJSON(), metadata: null }).toEqual({
      ...envelope.toJSON(),
      metadata: null,
    })
    expect(envelope.metadata).toEqual(full.metadata)
  })

  it('refuse unknown fields and what is no object', () => {
    const envelope = EventEnvelope.create({ eventType: 'a' })
    expect(() => envelope.withMetadata({ corelationId: 'c' } as object)).toThrow(
      /Did you mean correlationId\?/,
    )
    expect(() => envelope.withMetadata(null as never)).toThrow(InvalidEventError)
    expect(() => EventEnvelope.create({ eventType: 'a', data: 1 } as never)).toThrow(
      /data: an envelope has no such field/,
    )
    expect(() => EventEnvelope.create(null as never)).toThrow(InvalidEventError)
  })

  it('are checked like the original', () => {
    expect(() => envelope.withHeader('a', 'x\0')).toThrow(InvalidEventError)
    expect(() => envelope.withUserId('a\nb')).toThrow(InvalidEventError)
  })
})

describe('causedBy', () => {
  const parent = EventEnvelope.create({
    eventType: 'p',
    eventId: 'parent',
    metadata: { correlationId: 'story' },
  })
  const child = EventEnvelope.create({ eventType: 'c', metadata: { traceparent: '00-x' } })

  it('takes over the correlation id, and sets the cause', () => {
    expect(child.causedBy(parent).metadata).toEqual({
      correlationId: 'story',
      causationId: 'parent',
      traceparent: '00-x',
    })
  })

  it('starts the story with the parent when that has none', () => {
    const first = EventEnvelope.create({ eventType: 'p', eventId: 'first' })
    expect(child.causedBy(first).metadata.correlationId).toBe('first')
  })

  it('keeps a correlation id that is set already', () => {
    expect(child.withCorrelationId('own').causedBy(parent).metadata.correlationId).toBe('own')
  })
})

describe('EventEnvelope.fromStored', () => {
  it('takes a row as it is', () => {
    const envelope = EventEnvelope.fromStored({ ...stored, headers: { a: '1' }, metadata: { userId: 'u' } })
    expect(envelope.payload).toEqual({ a: 1 })
    expect(envelope.payloadText).toBe('{"a": 1}')
    expect(envelope.aggregateId).toBeUndefined()
    expect(envelope.headers).toEqual({ a: '1' })
    expect(inspect(envelope)).toContain('[redacted]')
    expect(Object.isFrozen(envelope.payload)).toBe(true)
  })

  it('decodes lazily, once, with the decoder and the version of the row', () => {
    const calls: unknown[] = []
    const decode = (text: string, version: number) => {
      calls.push([text, version])
      return new Date(7)
    }
    const envelope = EventEnvelope.fromStored<Date>({ ...stored, version: 2 }, decode)
    expect(calls).toEqual([])
    expect(envelope.payload).toEqual(new Date(7))
    expect(envelope.payload).toEqual(new Date(7))
    expect(calls).toEqual([['{"a": 1}', 2]])
  })

  it('says that a payload cannot be decoded, without showing it', () => {
    const envelope = EventEnvelope.fromStored({ ...stored, payloadText: '{"card": 4111' })
    for (const read of [() => envelope.payload, () => envelope.decodePayload(), () => envelope.toJSON()]) {
      expect(read).toThrow(UndecodablePayloadError)
      expect(read).toThrow(/^(?!.*4111)/)
    }
    expect(() => EventEnvelope.fromStored({ ...stored, payloadText: null }).payload).toThrow(
      UndecodablePayloadError,
    )
  })

  it('refuses bytes where a schema wants JSON', () => {
    const decode = Object.assign(() => 1, { textOnly: true })
    const bytes = { ...stored, payloadText: null, payloadBytes: new Uint8Array(1) }
    expect(() => EventEnvelope.fromStored(bytes, decode).decodePayload()).toThrow(UndecodablePayloadError)
    expect(EventEnvelope.fromStored(bytes, () => 1).payload).toEqual(new Uint8Array(1))
  })
})

describe('payloadAs', () => {
  it('decodes with the definition', () => {
    const Placed = defineEvent<{ total: number }>('order.placed', { version: 3 })
    const payload = EventEnvelope.create(full).payloadAs(Placed)
    expect(payload.total).toBe(42)
    expect(Object.isFrozen(payload)).toBe(true)
  })

  it('refuses the definition of another type', () => {
    expect(() => EventEnvelope.create(full).payloadAs(defineEvent('order.paid'))).toThrow(InvalidEventError)
  })
})

describe('JSON', () => {
  it('carries dates as ISO-8601 and leaves absent fields out', () => {
    const json = JSON.parse(JSON.stringify(EventEnvelope.create(full))) as unknown
    expect(json).toEqual({ ...full, occurredAt: '2026-03-04T05:06:07.089Z' })
    const small = EventEnvelope.create({ eventType: 'a' }).toJSON()
    expect(Object.keys(small)).not.toContain('aggregateId')
  })

  it('carries a large payload of bytes', () => {
    const payload = Uint8Array.from({ length: 300_000 }, (_, i) => i % 256)
    const back = EventEnvelope.fromJSON(JSON.stringify(EventEnvelope.create({ eventType: 'a', payload })))
    expect(back.payload).toEqual(payload)
  })

  it.each<[string, string | object]>([
    ['broken text', '{"card": 4111'],
    ['a list', '[]'],
    ['null', 'null'],
    ['no id', { eventType: 'a', occurredAt: '2026-01-01T00:00:00Z', payload: 1 }],
    ['no time', { eventId: 'a', eventType: 'a', payload: 1 }],
    ['no payload', { eventId: 'a', eventType: 'a', occurredAt: '2026-01-01T00:00:00Z' }],
    ['two payloads', { ...EventEnvelope.create(full).toJSON(), payloadBase64: 'AA==' }],
    ['bad base64', { eventId: 'a', eventType: 'a', occurredAt: '2026-01-01T00:00:00Z', payloadBase64: '%' }],
    ['a bad type', { ...EventEnvelope.create(full).toJSON(), eventType: '' }],
    ['a number that would come back changed', textWith('"n":9007199254740993')],
    ['a negative zero', textWith('"n":-0')],
    ['a key that comes twice', textWith('"n":1,"n":2')],
    ['an object that cannot be read', new Proxy({}, { ownKeys: () => JSON.parse('{') })],
  ])('refuses %s', (_what, json) => {
    expect(() => EventEnvelope.fromJSON(json)).toThrow(InvalidEventError)
  })

  it('leaves out fields that only a later version knows', () => {
    const json = EventEnvelope.create(full).toJSON()
    const later = { ...json, priority: 1, metadata: { ...json.metadata, sessionId: 's' } }
    expect(EventEnvelope.fromJSON(JSON.stringify(later)).toJSON()).toEqual(json)
  })
})

function textWith(payload: string): string {
  return `{"eventId":"a","eventType":"a","occurredAt":"2026-01-01T00:00:00Z","payload":{${payload}}}`
}

describe('printing an envelope', () => {
  it('shows neither the payload, nor the values of headers, nor the user id', () => {
    const headers = { authorization: 'Bearer 4111' }
    const envelope = EventEnvelope.create({ ...full, headers, payload: { card: '4111' } })
    for (const shown of [
      inspect(envelope),
      inspect([{ envelope }], { depth: 9 }),
      inspect(envelope, { showHidden: true }),
    ]) {
      expect(shown).not.toMatch(/4111|u-4711/)
      expect(shown).toContain('[hidden, 15 bytes]')
      expect(shown).toContain('order.placed')
      expect(shown).toContain('authorization')
    }
  })
})
