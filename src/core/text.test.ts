import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { describeError, isClean, quoteText, sanitizeText } from './text.js'

const anyUnits = fc.string({
  unit: fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
})

describe('sanitizeText', () => {
  it('gives well-formed text without NUL and within the limit, for any string', () => {
    fc.assert(
      fc.property(anyUnits, fc.nat(20), (text, max) => {
        const clean = sanitizeText(text, max)
        expect(clean.length).toBeLessThanOrEqual(max)
        expect(clean.isWellFormed()).toBe(true)
        expect(clean).not.toContain('\0')
      }),
    )
  })

  it('does not split a surrogate pair', () => {
    expect(sanitizeText('ab😀', 3)).toBe('ab')
    expect(sanitizeText('ab😀', 4)).toBe('ab😀')
    expect(sanitizeText('😀', 1)).toBe('')
  })

  it('keeps other control characters, which databases take', () => {
    expect(sanitizeText('a\nb\u001b[31m', 100)).toBe('a\nb\u001b[31m')
    expect(sanitizeText('a\0\ud800b', 100)).toBe('a\ufffd\ufffdb')
  })
})

describe('isClean', () => {
  it('accepts exactly the well-formed strings without control characters', () => {
    fc.assert(
      fc.property(fc.oneof(anyUnits, fc.string({ unit: 'binary' })), (text) => {
        expect(isClean(text)).toBe(text.isWellFormed() && !/\p{Cc}/u.test(text))
      }),
    )
  })
})

describe('quoteText', () => {
  it('escapes what a terminal or a log line could trip over, and cuts', () => {
    expect(quoteText('a\n\u001b[2J\u009b"')).toBe('"a\\n\\u001b[2J\\u009b\\""')
    expect(quoteText('x'.repeat(100), 3)).toBe('"xxx…"')
  })
})

describe('describeError', () => {
  it.each<[string, unknown, { name: string; message: string }]>([
    ['an Error', new TypeError('boom'), { name: 'TypeError', message: 'boom' }],
    ['a string', 'boom', { name: 'NonError', message: 'boom' }],
    ['null', null, { name: 'NonError', message: 'null' }],
    ['undefined', undefined, { name: 'NonError', message: 'undefined' }],
    ['a symbol', Symbol('s'), { name: 'NonError', message: 'Symbol(s)' }],
    ['a bigint', 1n, { name: 'NonError', message: '1' }],
    ['an object like an error', { name: 'Odd', message: 'm' }, { name: 'Odd', message: 'm' }],
    [
      'an object with keys',
      { status: 3 },
      { name: 'NonError', message: 'an object was thrown, with the keys: status' },
    ],
    ['an Error without a message', new Error(), { name: 'Error', message: '' }],
    ['NUL and lone surrogates', new Error('a\0b\ud800'), { name: 'Error', message: 'a\ufffdb\ufffd' }],
  ])('describes %s', (_what, thrown, expected) => {
    expect(describeError(thrown)).toEqual(expected)
  })

  it('finds the reason inside an AggregateError without a message, as a refused connection throws', () => {
    const refused = Object.assign(new AggregateError([new Error('connect ECONNREFUSED ::1:5432')]), {
      code: 'ECONNREFUSED',
    })
    expect(describeError(refused).message).toBe('ECONNREFUSED; connect ECONNREFUSED ::1:5432')
  })

  it('never throws, whatever was thrown', () => {
    const hostile = new Proxy(
      {},
      {
        get() {
          throw new Error('no')
        },
        ownKeys() {
          throw new Error('no')
        },
        has() {
          throw new Error('no')
        },
        getPrototypeOf() {
          throw new Error('no')
        },
      },
    )
    const getters = {
      get name() {
        throw new Error('no')
      },
      get message() {
        throw new Error('no')
      },
    }
    const selfHolding = new AggregateError([])
    for (let i = 0; i < 5; i++) selfHolding.errors.push(selfHolding)
    for (const thrown of [
      hostile,
      getters,
      Object.create(null),
      () => 1,
      selfHolding,
      new Proxy(() => 1, {}),
    ]) {
      expect(typeof describeError(thrown).message).toBe('string')
    }
  })

  it('cuts huge messages at 4,000 characters', () => {
    expect(describeError(new Error('x'.repeat(10_000_000))).message).toHaveLength(4_000)
    expect(describeError(Object.assign(new Error('x'), { name: 'n'.repeat(5_000) })).name).toHaveLength(100)
  })
})
