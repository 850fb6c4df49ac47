import assert from 'node:assert/strict'
import { EventEnvelope } from '../../core/envelope.js'
import { event } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const nested = (levels: number): unknown => (levels === 0 ? 'deep' : { in: [nested(levels - 2)] })

const PAYLOADS: Readonly<Record<string, unknown>> = {
  'an empty object': {},
  'an empty array': [],
  'an empty string': '',
  null: null,
  'a boolean': false,
  'large and tiny numbers': [1e308, -1e308, 5e-324, 2 ** 53, 0.1 + 0.2, 1e21, 1e-7],
  'minus zero, which JSON makes zero': [-0],
  'text of all kinds': [
    'Grüße',
    '日本語',
    'مرحبا',
    '👩‍👩‍👧 𝒳 \u{10ffff}',
    'e\u0301 ≠ é',
    '\u2028\u2029\ufeff',
  ],
  'control characters': '\u0001\b\t\n\f\r\u001b[31m\u001f\u007f\u009f',
  'quotes and backslashes': `' " \\ \\u0041 $1 :name ? ; -- /* {} %s \${x}`,
  'keys that are names in JavaScript': JSON.parse('{"__proto__":{"a":1},"constructor":2,"toString":3,"":4}'),
  'nulls and holes': { a: null, b: [null, [], {}] },
  'ninety levels': nested(90),
  'a megabyte of text': 'x'.repeat(1_048_574),
  'a megabyte of many values': Array.from({ length: 100_000 }, (_, index) => index),
  'no bytes': new Uint8Array(0),
  'every byte': Uint8Array.from({ length: 256 }, (_, index) => index),
  'a megabyte of bytes': new Uint8Array(1_048_576).fill(0xff),
}

const TIMES = [
  '0001-01-01T00:00:00.000Z',
  '1969-12-31T23:59:59.999Z',
  '2024-02-29T12:34:56.789Z',
  '9999-12-31T23:59:59.999Z',
]

async function comesBackEqual(h: Harness<unknown>, sent: EventEnvelope): Promise<void> {
  await h.append([{ event: sent }])
  const [claimed] = sent.orderingKey === undefined ? await h.claim() : await h.claimOrdered()
  assert.ok(claimed)
  assert.equal(claimed.payloadSize, sent.payloadSize)
  assert.deepStrictEqual(EventEnvelope.fromStored(claimed).toJSON(), sent.toJSON())
  assert.deepStrictEqual(EventEnvelope.fromStored(await h.record(sent.eventId)).toJSON(), sent.toJSON())
}

export const roundTrip: Theme = {
  name: 'round trip',
  define(test) {
    test('every field of the envelope comes back', async (h) => {
      const everything = event({
        eventType: 'order.Placed/v2 "x"',
        aggregateType: "order's",
        aggregateId: 'o-1 ü 😀',
        tenantId: 'tenant\\1',
        orderingKey: 'order:o-1',
        version: 2_147_483_647,
        occurredAt: new Date('2024-02-29T12:34:56.789Z'),
        headers: JSON.parse('{"x-source":"web","__proto__":"a header","empty":"","ü":"line\\nbreak 😀"}'),
        metadata: {
          correlationId: 'c-1',
          causationId: 'c-0',
          userId: 'user 7',
          traceId: 't-1',
          traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
          tracestate: 'a=1,b=2',
        },
      })
      await comesBackEqual(h, everything)
    })

    test('absent fields stay absent', async (h) => {
      await comesBackEqual(h, event())
    })

    for (const [title, payload] of Object.entries(PAYLOADS)) {
      test(`the payload comes back: ${title}`, (h) => comesBackEqual(h, event({ payload })))
    }

    for (const time of TIMES) {
      test(`the time comes back: ${time}`, (h) => comesBackEqual(h, event({ occurredAt: new Date(time) })))
    }

    test('ids that differ by case, a trailing space or composition are different', async (h) => {
      const ids = ['a', 'A', 'a ', ' a', 'é', 'e\u0301', 'ß', 'ss', "';--", '%', '_', '\\']
      const { duplicates } = await h.append(ids.map((eventId) => ({ event: event({ eventId }) })))
      assert.deepEqual(duplicates, [])
      assert.deepEqual((await h.claimIds()).sort(), [...ids].sort())
      for (const id of ids) assert.equal((await h.record(id)).eventId, id)
    })

    test('an id may have 64 characters of any kind', async (h) => {
      await comesBackEqual(h, event({ eventId: '😀'.repeat(32) }))
    })

    test('names may have 255 characters of any kind', async (h) => {
      const name = 'ü'.repeat(255)
      const names = {
        eventType: name,
        aggregateType: name,
        aggregateId: name,
        tenantId: name,
        orderingKey: name,
      }
      await comesBackEqual(h, event(names))
    })

    test('bytes handed out are copies', async (h) => {
      await h.append([{ event: event({ payload: new Uint8Array([1, 2, 3]) }) }])
      const row = await h.claimOne()
      row.payloadBytes?.fill(9)
      assert.deepEqual([...((await h.record(row.eventId)).payloadBytes ?? [])], [1, 2, 3])
    })
  },
}
