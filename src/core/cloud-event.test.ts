import { describe, expect, it } from 'vitest'
import { fromCloudEvent, toCloudEvent } from './cloud-event.js'
import { fromCloudEventBinary, toCloudEventBinary } from './cloud-event-binary.js'
import { EventEnvelope } from './envelope.js'
import { InvalidEventError, InvalidEventIdError, InvalidPayloadError } from './errors.js'

const envelope = EventEnvelope.create({
  eventId: 'e-1',
  eventType: 'order.placed',
  aggregateType: 'order',
  aggregateId: 'o 1%"€',
  tenantId: 't-1',
  occurredAt: new Date('2026-03-04T05:06:07.089Z'),
  version: 3,
  headers: { 'x-region': 'eu\n' },
  metadata: { correlationId: 'c-1', userId: 'u-1', traceparent: '00-x' },
  orderingKey: 'order:1',
  payload: { total: 42 },
})

const minimal = { specversion: '1.0', id: '1', source: '/other', type: 'thing.done' }

describe('structured mode', () => {
  it('follows CloudEvents 1.0, with lowercase alphanumeric extensions', () => {
    const event = toCloudEvent(envelope, { source: '/shop' })
    expect(event).toEqual({
      specversion: '1.0',
      id: 'e-1',
      source: '/shop',
      type: 'order.placed',
      subject: 'o 1%"€',
      time: '2026-03-04T05:06:07.089Z',
      datacontenttype: 'application/json',
      data: { total: 42 },
      schemaversion: 3,
      aggregatetype: 'order',
      aggregateid: 'o 1%"€',
      tenantid: 't-1',
      orderingkey: 'order:1',
      correlationid: 'c-1',
      userid: 'u-1',
      traceparent: '00-x',
      headers: '{"x-region":"eu\\n"}',
    })
    for (const name of Object.keys(event)) expect(name).toMatch(/^[a-z0-9]+$/)
  })

  it('carries bytes as data_base64', () => {
    const event = toCloudEvent(EventEnvelope.create({ eventType: 'a', payload: new Uint8Array([0, 255]) }))
    expect(event.data_base64).toBe('AP8=')
    expect(event.datacontenttype).toBe('application/octet-stream')
    expect('data' in event).toBe(false)
  })

  it('reads the events of other producers', () => {
    const read = fromCloudEvent({
      ...minimal,
      subject: 's',
      data: [1],
      time: '2026-01-01T00:00:00+01:00',
      foo: 'bar',
    })
    expect(read.payload).toEqual([1])
    expect(read.aggregateId).toBe('s')
    expect(read.aggregateType).toBe('__GLOBAL__')
    expect(read.occurredAt.toISOString()).toBe('2025-12-31T23:00:00.000Z')
    expect(fromCloudEvent(minimal).payload).toBe(null)
  })

  it.each<[string, string | object]>([
    ['another version', { ...minimal, specversion: '0.3' }],
    ['no id', { ...minimal, id: undefined }],
    ['no type', { ...minimal, type: '' }],
    ['no source', { ...minimal, source: undefined }],
    ['a bad time', { ...minimal, time: 'yesterday' }],
    ['a time that is a number', { ...minimal, time: 5 }],
    ['a bad schema version', { ...minimal, schemaversion: 'x' }],
    ['headers that are no JSON', { ...minimal, headers: 'x' }],
    ['headers that are no text', { ...minimal, headers: {} }],
    ['data twice', { ...minimal, data: 1, data_base64: 'AA==' }],
    ['bad base64', { ...minimal, data_base64: '%' }],
    ['broken text', '{"a'],
    ['a list', '[]'],
    ['a correlation id that is a number', { ...minimal, correlationid: 5 }],
  ])('refuses %s', (_what, event) => {
    expect(() => fromCloudEvent(event)).toThrow(InvalidEventError)
  })

  it.each([
    [
      'a number that comes back changed',
      '"data":{"n":9007199254740993}',
      /at \$\.data\.n: the number has more digits/,
    ],
    ['a key that comes twice', '"data":{"n":1,"n":2}', /at \$\.data\.n: the key comes twice/],
    ['an attribute that comes twice', '"id":"2"', /at \$\.id: the key comes twice/],
  ])('refuses text with %s', (_what, more, message) => {
    const text = `{"specversion":"1.0","id":"1","type":"a","source":"x",${more}}`
    expect(() => fromCloudEvent(text)).toThrow(InvalidEventError)
    expect(() => fromCloudEvent(text)).toThrow(message)
  })

  it('refuses bad ids and payloads', () => {
    expect(() => fromCloudEvent({ ...minimal, id: 'x'.repeat(65) })).toThrow(InvalidEventIdError)
    expect(() => fromCloudEvent({ ...minimal, data: '\0' })).toThrow(InvalidPayloadError)
  })
})

describe('binary mode', () => {
  it('percent-encodes space, quote, percent and what is not printable ASCII', () => {
    const { headers, body } = toCloudEventBinary(envelope)
    expect(headers['ce-subject']).toBe('o%201%25%22%E2%82%AC')
    expect(headers['ce-type']).toBe('order.placed')
    expect(headers['ce-schemaversion']).toBe('3')
    expect(headers['content-type']).toBe('application/json')
    expect(headers['ce-datacontenttype']).toBeUndefined()
    expect(new TextDecoder().decode(body)).toBe('{"total":42}')
    for (const value of Object.values(headers)) expect(value).toMatch(/^[!-~]*$/)
    // Nothing that HTTP itself would refuse.
    expect(() => new Headers(headers)).not.toThrow()
  })

  it('keeps the payload text to the letter', () => {
    const text = '{"n": 1.50}'
    const stored = EventEnvelope.fromStored({
      eventId: '1',
      eventType: 'a',
      aggregateType: 'b',
      aggregateId: null,
      tenantId: null,
      orderingKey: null,
      version: 1,
      payloadText: text,
      payloadBytes: null,
      headers: null,
      metadata: null,
      occurredAtMs: 0,
      payloadSize: text.length,
    })
    expect(fromCloudEventBinary(toCloudEventBinary(stored)).payloadText).toBe(text)
  })

  it('reads the messages of other producers: names in any case, quoted values, lists', () => {
    const read = fromCloudEventBinary({
      headers: {
        'CE-SpecVersion': '1.0',
        'Ce-Id': '1',
        'ce-source': ['/x', '/y'],
        'ce-type': '"a \\"b\\""',
        'ce-absent': undefined,
        'Content-Type': 'application/vnd.x+json; charset=utf-8',
      },
      body: new TextEncoder().encode('[1]'),
    })
    expect(read.eventType).toBe('a "b"')
    expect(read.payload).toEqual([1])
  })

  const headers = { 'ce-specversion': '1.0', 'ce-id': '1', 'ce-source': '/', 'ce-type': 'a' }

  it('takes other content types for bytes, and an empty body for null', () => {
    const body = new Uint8Array([1])
    expect(
      fromCloudEventBinary({ headers: { ...headers, 'content-type': 'image/png' }, body }).payload,
    ).toEqual(body)
    expect(fromCloudEventBinary({ headers, body: new Uint8Array() }).payload).toBe(null)
  })

  it('refuses broken percent-encoding, and a body that is not UTF-8 or not JSON', () => {
    const body = new TextEncoder().encode('1')
    expect(() => fromCloudEventBinary({ headers: { ...headers, 'ce-subject': '%E2%82' }, body })).toThrow(
      InvalidEventError,
    )
    expect(() => fromCloudEventBinary({ headers, body: new Uint8Array([0xff]) })).toThrow(InvalidEventError)
    expect(() => fromCloudEventBinary({ headers, body: new TextEncoder().encode('{') })).toThrow(
      InvalidPayloadError,
    )
    expect(() => fromCloudEventBinary({ headers: {}, body })).toThrow(InvalidEventError)
  })
})
