import { toEnvelope } from '../../src/index.js'

/** Arguments of `outbox_publish`; JSON is text. */
export interface SqlEvent {
  readonly event_type: string | null
  readonly payload?: string
  readonly aggregate_type?: string
  readonly aggregate_id?: string
  readonly event_id?: string
  readonly ordering_key?: string
  readonly tenant_id?: string
  readonly version?: number
  readonly headers?: string
  readonly metadata?: string
}

/** In the order of the procedure's parameters. */
export const PARAMETERS = [
  ...['event_type', 'payload', 'aggregate_type', 'aggregate_id', 'event_id', 'ordering_key', 'tenant_id'],
  ...['version', 'headers', 'metadata', 'delay_ms'],
] as const

const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)
/** Objects and arrays in turns, with white space, members before and after the inner level, and brackets in strings. */
const nestedObjects = (levels: number): string => {
  let text = ' [ 1e2 , true ] '
  for (let level = 1; level < levels; level++) {
    text = level % 2 === 0 ? `[ "]", ${text} , null ]` : `{"a\\"{" : ${text}, "b": -0.5}`
  }
  return text
}
const names = { aggregate_type: 'o', aggregate_id: 'o-1', ordering_key: 'k', tenant_id: 't' } as const
const EMOJI = '😀'

/** Events that `publish()` refuses. Every way of publishing by SQL must refuse them with the message of `publish()`. */
export const REFUSED: Readonly<Record<string, SqlEvent>> = {
  'no type': { event_type: null },
  'an empty type': { event_type: '' },
  'a type of 256 characters': { event_type: 't'.repeat(256) },
  'a type of 128 emoji, which are 256 UTF-16 units': { event_type: EMOJI.repeat(128) },
  'a line feed in the type': { event_type: 'a\nb' },
  'a C1 control character in the type': { event_type: 'a\u0085b' },
  'DEL in the type': { event_type: 'a\u007f' },
  'U+001F in the type': { event_type: 'order\u001forder.placed' },
  'an empty id': { event_type: 'a', event_id: '' },
  'an id of 65 characters': { event_type: 'a', event_id: 'i'.repeat(65) },
  'an id of 33 emoji': { event_type: 'a', event_id: EMOJI.repeat(33) },
  'a record separator in the id': { event_type: 'a', event_id: 'a\u001eb' },
  ...Object.fromEntries(
    Object.keys(names).flatMap((field) => [
      [`an empty ${field}`, { event_type: 'a', [field]: '' }],
      [`a ${field} of 256 characters`, { event_type: 'a', [field]: 'x'.repeat(256) }],
      [`a tabulator in the ${field}`, { event_type: 'a', [field]: 'a\tb' }],
    ]),
  ),
  'version 0': { event_type: 'a', version: 0 },
  'a negative version': { event_type: `it's "quoted" 50%`, version: -1 },
  'headers that are an array': { event_type: 'a', headers: '["a"]' },
  'headers that are a text': { event_type: 'a', headers: '"a"' },
  'a header that is a number': { event_type: 'a', headers: '{"ok": "yes", "n": 1}' },
  'a header that is null': { event_type: 'a', headers: '{"n": null}' },
  'a header that is an object': { event_type: 'a', headers: '{"n": {"m": "x"}}' },
  'a header that is an array of texts': { event_type: 'a', headers: '{"n": ["x"]}' },
  'a header without a name': { event_type: 'a', headers: '{"": "x"}' },
  'a header with a long name': { event_type: 'a', headers: JSON.stringify({ ['n'.repeat(256)]: 'x' }) },
  'a header with a line feed in its name': { event_type: 'a', headers: '{"a\\nb": "x"}' },
  'headers of 65,537 characters': { event_type: 'a', headers: JSON.stringify({ n: 'x'.repeat(65_536) }) },
  'many headers of 65,537 characters in total': {
    event_type: 'a',
    headers: JSON.stringify(
      Object.fromEntries(Array.from({ length: 1_100 }, (_, n) => [`${n}`.padStart(9), 'x'.repeat(51)])),
    ),
  },
  'headers of 32,769 emoji': { event_type: 'a', headers: JSON.stringify({ n: EMOJI.repeat(32_769) }) },
  'metadata that are an array': { event_type: 'a', metadata: '[]' },
  'metadata that are a number': { event_type: 'a', metadata: '5' },
  'a user id that is a number': { event_type: 'a', metadata: '{"userId": 5}' },
  'a correlation id that is an object': { event_type: 'a', metadata: '{"correlationId": {"a": "b"}}' },
  'a trace id that is a boolean': { event_type: 'a', metadata: '{"traceId": false}' },
  'a causation id that is an array': { event_type: 'a', metadata: '{"causationId": ["a"]}' },
  'a correlation id of 1 MB': {
    event_type: 'a',
    metadata: JSON.stringify({ correlationId: 'c'.repeat(1_000_000) }),
  },
  'a correlation id of 513 emoji': {
    event_type: 'a',
    metadata: JSON.stringify({ correlationId: EMOJI.repeat(513) }),
  },
  'an escape character in the user id': { event_type: 'a', metadata: '{"userId": "\\u001b[2J"}' },
  'a payload of more than 1 MiB': { event_type: 'a', payload: JSON.stringify('x'.repeat(1_048_575)) },
  'a payload of 101 levels': { event_type: 'a', payload: nested(101) },
  'a payload of 101 levels beside a shallow branch': {
    event_type: 'a',
    payload: `{"a": 1, "b": [${nested(99)}]}`,
  },
  'a payload with 1e400': { event_type: 'a', payload: '{"n": 1e400}' },
  'a payload with -1e400': { event_type: 'a', payload: '[-1e400]' },
  'a payload with 1e-400': { event_type: 'a', payload: '[0, 1e-400]' },
  'a payload with an integer beyond 2^53': { event_type: 'a', payload: '{"id": 9007199254740993}' },
  'a payload with too many digits behind the point': { event_type: 'a', payload: '[0.1234567890123456789]' },
  'an unknown metadata field': { event_type: 'a', metadata: '{"anotherProgram": "x"}' },
  'an unknown metadata field that is no name': { event_type: 'a', metadata: '{"a \\n b": "x"}' },
  'a payload with a number that has a shorter form halfway between two doubles': {
    event_type: 'a',
    payload: '[99999999999999990000000, 1]',
  },
  'a payload with many digits on both sides of the point': {
    event_type: 'a',
    payload: '[12345678.12345678901]',
  },
  'a payload with a number that is just above the largest double': {
    event_type: 'a',
    payload: '[1.7976931348623159e308]',
  },
  'a payload with an integer and an exponent beyond the largest double': {
    event_type: 'a',
    payload: '[1, 18e307]',
  },
  'a payload with four digits and an exponent beyond the largest double': {
    event_type: 'a',
    payload: '[1798e305]',
  },
  'a payload with a number that becomes zero': { event_type: 'a', payload: '[2e-324]' },
  'a payload with a number that becomes 5e-324': { event_type: 'a', payload: '[4.94e-324]' },
  'a payload with a number of 1,001 characters': { event_type: 'a', payload: `[1.${'0'.repeat(999)}]` },
  'a payload with 400 digits': { event_type: 'a', payload: `{"a": "text", "n": ${'9'.repeat(400)}}` },
}

/** Events close to a limit, which every way of publishing accepts. */
export const ACCEPTED: Readonly<Record<string, SqlEvent>> = {
  'a type of 255 characters': { event_type: 't'.repeat(255) },
  'a type of 127 emoji': { event_type: EMOJI.repeat(127) },
  'an id of 64 characters beyond ASCII': { event_type: 'a', event_id: 'ö'.repeat(64) },
  'names of 255 characters': Object.fromEntries([
    ['event_type', 'a'],
    ...Object.keys(names).map((field) => [field, 'ß'.repeat(255)]),
  ]) as unknown as SqlEvent,
  'a space without a break, a quote and a percent sign': {
    event_type: `a\u00a0' " % \\ $aftercommit$ {{schema}}`,
  },
  'headers of 65,536 characters': { event_type: 'a', headers: JSON.stringify({ n: 'x'.repeat(65_535) }) },
  'control characters in the value of a header': {
    event_type: 'a',
    headers: '{"n": "a\\n\\u0001\\"b\\\\", "__proto__": "x"}',
  },
  'a header of 65,535 escaped characters': {
    event_type: 'a',
    headers: JSON.stringify({ n: '\u0001'.repeat(65_535) }),
  },
  'thousands of headers with escaped characters': {
    event_type: 'a',
    headers: JSON.stringify(Object.fromEntries(Array.from({ length: 6_000 }, (_, n) => [`h${n}`, '"\\\n']))),
  },
  'headers that are null': { event_type: 'a', headers: 'null' },
  'headers without a name': { event_type: 'a', headers: '{}' },
  'metadata that are null': { event_type: 'a', metadata: 'null' },
  'metadata with a field that is null': { event_type: 'a', metadata: '{"userId": null, "traceId": ""}' },
  'a correlation id of 1,024 characters': {
    event_type: 'a',
    metadata: JSON.stringify({ correlationId: 'ü'.repeat(1_024) }),
  },
  'a payload with brackets and numbers in strings': {
    event_type: 'a',
    payload: JSON.stringify({ '[[1e400': `${'['.repeat(500)} \\" 1e999 12345678901234567890`, e: '1e-999' }),
  },
  'a payload of 1 MiB': { event_type: 'a', payload: JSON.stringify('x'.repeat(1_048_574)) },
  'thousands of numbers and literals': {
    event_type: 'a',
    payload: JSON.stringify(Array.from({ length: 5_000 }, (_, n) => [n / 7, -n, true, null])),
  },
  ...Object.fromEntries(
    [31, 32, 33, 99, 100].flatMap((levels) => [
      [`a payload of ${levels} levels`, { event_type: 'a', payload: nested(levels) }],
      [`a payload of ${levels} levels of all kinds`, { event_type: 'a', payload: nestedObjects(levels) }],
    ]),
  ),
  'a payload of 60,000 characters and 100 levels': {
    event_type: 'a',
    payload: nestedObjects(100).replace('1e2', '"\\n][", '.repeat(6_000) + '1e2'),
  },
  'integers that are halfway between two doubles': {
    event_type: 'a',
    payload: '[44995302570365500, 20714911169720310, 274586684024451600, 2.7e22, 1e23, 2e23]',
  },
  'numbers with an exponent that their digits make up for': {
    event_type: 'a',
    payload: '[0.1e309, 0.01e310, 17976931348623157e292, 50e-325, 0.5e-323]',
  },
  'zeros with an exponent that no double has': {
    event_type: 'a',
    payload: '{"0e400": [0e400, 0.0E+999, 0e-400]}',
  },
  'numbers close to the smallest normal double': {
    event_type: 'a',
    payload: '[2.2250738585072014e-308, 1.0000000000000001e-106, 1.5e-323]',
  },
  'a number of 1,000 characters': { event_type: 'a', payload: `[1.${'0'.repeat(998)}]` },
  'the largest and the smallest double': {
    event_type: 'a',
    payload:
      '[1.7976931348623157e308, 5e-324, -5e-324, 0.1, 1E2, 9007199254740992, 12345678901234567000, 0.30000000000000004, 1.000000000000000000]',
  },
}

/** The message with which `publish()` refuses the event; undefined if it is accepted. */
export function refusalByPublish(event: SqlEvent): string | undefined {
  const { event_type: type, payload = 'null', event_id: eventId, version, headers, metadata } = event
  const {
    aggregate_type: aggregateType,
    aggregate_id: aggregateId,
    ordering_key: orderingKey,
    tenant_id: tenantId,
  } = event
  const parsed = (text: string | undefined) =>
    text === undefined ? undefined : (JSON.parse(text) ?? undefined)
  const fields = { eventId, version, aggregateType, aggregateId, orderingKey, tenantId }
  try {
    toEnvelope({
      type: type as string,
      payloadJson: payload,
      ...fields,
      headers: parsed(headers),
      metadata: parsed(metadata),
    } as Parameters<typeof toEnvelope>[0])
    return undefined
  } catch (error) {
    // The SQL functions do not name the path.
    return (error as Error).message.replace(/^(Invalid payload at) \S+:/, '$1 $:')
  }
}
