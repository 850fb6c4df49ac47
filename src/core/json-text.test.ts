import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { InvalidPayloadError, PayloadTooLargeError } from './errors.js'
import { checkJsonText } from './json-text.js'
import { MAX_PAYLOAD_BYTES } from './payload-limits.js'
import { serializeJson } from './serialize.js'

function refusal(text: string): InvalidPayloadError {
  try {
    checkJsonText(text)
  } catch (error) {
    if (error instanceof InvalidPayloadError) return error
    throw error
  }
  return expect.fail('the text was accepted')
}

function manyKeys(count: number): string {
  return Array.from({ length: count }, (_, at) => `"k${at}":${at}`).join(',')
}

describe('checkJsonText', () => {
  it('returns good text unchanged, with its spaces and its way to write numbers', () => {
    const text = ' {"a" : [1.0, 1e2, "x\\"]", {"b\\\\": -0.5e-3}], "😀": "\\ud83d\\ude00"}\n'
    expect(checkJsonText(text)).toBe(text)
  })

  it('accepts whatever serializeJson writes', () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), (value) => {
        const text = serializeJson(value, 'json')
        expect(checkJsonText(text)).toBe(text)
      }),
    )
  })

  it.each<[string, string, string, RegExp]>([
    ['text that is not JSON', '{"card": 4111', '$', /not valid JSON/],
    ['an empty text', '', '$', /not valid JSON/],
    ['NUL as an escape', '{"a":[1,{"b":"x\\u0000"}]}', '$.a[1].b', /U\+0000/],
    ['NUL as an escape in a key', '{"x\\u0000":1}', '$["x\\u0000"]', /key.*U\+0000/],
    ['NUL under a key that comes twice', '{"a":"\\u0000","a":1}', '$.a', /U\+0000/],
    ['half a pair as an escape', '["\\ud83d"]', '$[0]', /surrogate/],
    ['half a pair, plain', '["\ud83d"]', '$[0]', /surrogate/],
    ['half a pair in a key', '{"a":{"\\udc00":1}}', '$.a["\\udc00"]', /key.*surrogate/],
    ['a number that becomes Infinity', '{"n":[0,1e400]}', '$.n[1]', /range/],
    ['a number that becomes 0', '{"n":-1e-400}', '$.n', /range/],
    ['a number of 2,000 digits', `[0.${'1'.repeat(2_000)}]`, '$[0]', /longer than 1000/],
    ['an integer beyond 2^53', '{"id":9007199254740993}', '$.id', /more digits than a double keeps/],
    ['a large integer', '[1,{"id":12345678901234567890}]', '$[1].id', /more digits/],
    ['a fraction of 34 digits', '{"n":0.1000000000000000055511151231257827}', '$.n', /more digits/],
    ['an integer with a fraction', '[9007199254740992.5]', '$[0]', /more digits/],
    ['the smallest number with two digits', '[4.9e-324]', '$[0]', /more digits/],
    ['negative zero', '{"n":-0}', '$.n', /negative zero/],
    ['negative zero with a fraction and an exponent', '[-0.00e5]', '$[0]', /negative zero/],
    ['a key that comes twice', '{"x":{"a":1,"b":2,"a":1}}', '$.x.a', /twice/],
    ['a key that comes twice, once with an escape', '{"a":1,"\\u0061":2}', '$.a', /twice/],
    ['a __proto__ key that comes twice', '{"__proto__":1,"__proto__":2}', '$.__proto__', /twice/],
    ['a key that comes twice among 40', `{${manyKeys(40)},"k7":1}`, '$.k7', /twice/],
    ['101 levels', `${'['.repeat(101)}${']'.repeat(101)}`, `$${'[0]'.repeat(100)}`, /deeper/],
    ['200,000 levels', `${'['.repeat(200_000)}${']'.repeat(200_000)}`, `$${'[0]'.repeat(100)}`, /deeper/],
  ])('refuses %s', (_what, text, path, reason) => {
    const error = refusal(text)
    expect(error.path).toBe(path)
    expect(error.reason).toMatch(reason)
  })

  it.each([
    '[0, 0.0, 0e5, -1, 1.50, 1E2, 1e+2, 100e-2, 9007199254740992, 1e21, 100000000000000000000000]',
    '[0.1, 0.30000000000000004, 5e-324, 1.7976931348623157e308, 123456789012345680000]',
    '[{"a":1},{"a":1},{"b":{"a":1},"a":[{"a":2}]}]',
    `{${manyKeys(40)}}`,
  ])('accepts %s, whose values come back equal', (text) => {
    expect(checkJsonText(text)).toBe(text)
  })

  it('does not take an escaped backslash for an escape', () => {
    expect(checkJsonText('["\\\\u0000", "\\\\\\\\"]')).toBe('["\\\\u0000", "\\\\\\\\"]')
  })

  it('never quotes the text in the error, not even as the cause', () => {
    const error = refusal('{"card": 4111 x}')
    expect(error.message).not.toContain('4111')
    expect(error.cause).toBeUndefined()
  })

  it('counts bytes', () => {
    const most = `"${'a'.repeat(MAX_PAYLOAD_BYTES - 2)}"`
    expect(checkJsonText(most)).toBe(most)
    expect(() => checkJsonText(`${most} `)).toThrow(PayloadTooLargeError)
    expect(() => checkJsonText(`"${'€'.repeat(400_000)}"`)).toThrow(PayloadTooLargeError)
  })

  it('refuses what is not a string', () => {
    expect(() => checkJsonText({} as string)).toThrow(InvalidPayloadError)
  })
})
