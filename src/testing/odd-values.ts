const nested = (levels: number): unknown => (levels === 0 ? 'deep' : { in: [nested(levels - 2)] })

export const ODD_TEXTS = [
  'Grüße',
  '日本語',
  'مرحبا',
  '👩‍👩‍👧 𝒳 \u{10ffff}',
  'e\u0301 ≠ é',
  '\u2028\u2029\ufeff',
]

export const CONTROL_CHARACTERS = '\u0001\b\t\n\f\r\u001b[31m\u001f\u007f\u009f'

/** What has gone wrong on the way in one system or another. */
export const ODD_PAYLOADS: Readonly<Record<string, unknown>> = {
  'an empty object': {},
  'an empty array': [],
  'an empty string': '',
  null: null,
  'a boolean': false,
  'large and tiny numbers': [1e308, -1e308, 5e-324, 2 ** 53, 0.1 + 0.2, 1e21, 1e-7],
  'minus zero, which JSON makes zero': [-0],
  'text of all kinds': ODD_TEXTS,
  'control characters': CONTROL_CHARACTERS,
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

export const ODD_TIMES = [
  '0001-01-01T00:00:00.000Z',
  '1969-12-31T23:59:59.999Z',
  '2024-02-29T12:34:56.789Z',
  '9999-12-31T23:59:59.999Z',
]

/** Every field of an envelope, with text that some protocol or other cannot take as it is. */
export const EVERY_FIELD = {
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
} as const
