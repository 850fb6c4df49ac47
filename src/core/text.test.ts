import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isClean, quoteText, sanitizeText } from './text.js'

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
