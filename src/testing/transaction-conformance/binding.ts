import assert from 'node:assert/strict'
import { EventEnvelope } from '../../core/envelope.js'
import { CONTROL_CHARACTERS, ODD_TEXTS } from '../odd-values.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const QUOTES = `' " \\ \\\\ \\u0041 \\' ''' $1 $2 :name ? ?? \\? @p1 ; -- /* {} %s \${x} \``

const PAYLOADS: Readonly<Record<string, unknown>> = {
  'an empty object': {},
  'an empty array': [],
  'an empty string': '',
  null: null,
  false: false,
  zero: 0,
  'arrays of all kinds': [
    [],
    [
      [1, 2],
      ['a', null],
    ],
    [{}],
    [true, false],
    ['{1,2}', 'ARRAY[1]'],
  ],
  'large and tiny numbers': [1e308, -1e308, 5e-324, 2 ** 53, -(2 ** 53), 0.1 + 0.2, 1e21, 1e-7],
  'text of all kinds': ODD_TEXTS,
  'control characters': CONTROL_CHARACTERS,
  'quotes, backslashes and placeholders': { [QUOTES]: [QUOTES], 'in the middle': `a${QUOTES}b` },
  'text that looks like a date': ['2024-02-29T12:34:56.789Z', '2024-02-29', '0000-00-00'],
  'a text that is JSON': '{"a":[1,2,"\\"x\\""]}',
  'nulls inside': { a: null, b: [null, [], {}] },
  'keys that are names in JavaScript': JSON.parse('{"__proto__":{"a":1},"constructor":2,"toString":3,"":4}'),
  'a hundred thousand characters': 'xü😀'.repeat(25_000),
  'no bytes': new Uint8Array(0),
  'every byte': Uint8Array.from({ length: 256 }, (_, index) => index),
  'bytes that are a part of others': Uint8Array.from({ length: 64 }, (_, index) => index).subarray(7, 33),
}

const everything = (payload: unknown = { total: 42 }) =>
  EventEnvelope.create({
    eventType: `order.placed ${QUOTES}`,
    aggregateType: "order's",
    aggregateId: 'o-1 ü 😀',
    tenantId: 'tenant\\1',
    version: 2_147_483_647,
    occurredAt: new Date('2024-02-29T12:34:56.789Z'),
    headers: { 'x-source': 'web', quotes: QUOTES, empty: '', ü: 'line\nbreak 😀' },
    metadata: { correlationId: `c ${QUOTES}`, causationId: 'c-0', userId: 'user 7', traceId: 't-1' },
    payload,
  })

const byId = (first: EventEnvelope, other: EventEnvelope) => (first.eventId < other.eventId ? -1 : 1)
const textsOf = (events: readonly EventEnvelope[]) =>
  [...events].sort(byId).map((event) => JSON.parse(JSON.stringify(event)))

/** Through the table: a handler of this process would get the event from memory. */
async function arrive<Tx extends object, Options>(
  h: Harness<Tx, Options>,
  sent: readonly EventEnvelope[],
  publish: () => Promise<unknown>,
): Promise<void> {
  await h.transaction(publish)
  await h.outbox.drain()
  assert.deepStrictEqual(textsOf(h.handled), textsOf(sent))
  const arrived = new Map(h.handled.map((event) => [event.eventId, event.payload]))
  for (const event of sent) assert.deepStrictEqual(arrived.get(event.eventId), event.payload)
}

export const binding: Theme = {
  name: 'binding',
  define(test) {
    test('payloads of all kinds arrive, with few fields and with all', async (h) => {
      const events = Object.values(PAYLOADS).flatMap((payload) => [
        EventEnvelope.create({ eventType: 'thing.happened', payload }),
        everything(payload),
      ])
      await arrive(h, events, async () => {
        for (const event of events) await h.outbox.publish(event)
      })
    })

    test('absent fields stay absent', async (h) => {
      const event = EventEnvelope.create({ eventType: 'thing.happened', payload: 1 })
      await arrive(h, [event], () => h.outbox.publish(event))
      const [record] = await h.records()
      assert.deepEqual([record?.aggregateId, record?.tenantId, record?.orderingKey], [null, null, null])
    })

    test('an ordering key arrives', async (h) => {
      const event = EventEnvelope.create({ eventType: 'thing.happened', payload: 1, orderingKey: QUOTES })
      await arrive(h, [event], () => h.outbox.publish(event))
    })

    test('three hundred at once arrive, of all kinds, in their order', async (h) => {
      const payloads = Object.values(PAYLOADS)
      const events = Array.from({ length: 300 }, (_, n) => everything(payloads[n % payloads.length]))
      let ids: readonly string[] = []
      await arrive(h, events, async () => {
        ids = await h.outbox.publishAll(events)
      })
      const written = (await h.records()).toSorted((first, other) => first.seq - other.seq)
      const expected = events.map((event) => event.eventId)
      assert.deepEqual(ids, expected)
      assert.deepEqual(
        written.map((record) => record.eventId),
        expected,
      )
    })
  },
}
