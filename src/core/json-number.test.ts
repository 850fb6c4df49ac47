import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { numberProblem } from './json-number.js'

/** The number as a fraction of integers, from its text alone. */
function fractionOf(token: string): { numerator: bigint; denominator: bigint } {
  const [mantissa = '', exponent = '0'] = token.toLowerCase().split('e')
  const [whole = '', fraction = ''] = mantissa.split('.')
  const power = Number(exponent) - fraction.length
  const digits = BigInt(whole + fraction)
  const scale = 10n ** BigInt(Math.abs(power))
  return power < 0
    ? { numerator: digits, denominator: scale }
    : { numerator: digits * scale, denominator: 1n }
}

function isEqual(a: string, b: string): boolean {
  const [x, y] = [fractionOf(a), fractionOf(b)]
  return x.numerator * y.denominator === y.numerator * x.denominator
}

const digits = (minLength: number, maxLength: number) =>
  fc.string({ unit: fc.constantFrom(...'0123456789'), minLength, maxLength })
const whole = fc.oneof(
  fc.constant('0'),
  fc.tuple(fc.constantFrom(...'123456789'), digits(0, 22)).map(([first, rest]) => first + rest),
)
const token = fc
  .tuple(
    fc.constantFrom('', '-'),
    whole,
    fc.option(digits(1, 22), { nil: undefined }),
    fc.option(fc.integer({ min: -340, max: 320 }), { nil: undefined }),
  )
  .map(([sign, integer, fraction, exponent]) => {
    return `${sign}${integer}${fraction === undefined ? '' : `.${fraction}`}${exponent === undefined ? '' : `e${exponent}`}`
  })

describe('numberProblem', () => {
  it('accepts every double as JSON.stringify writes it', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true, noDefaultInfinity: true }), (value) => {
        expect(numberProblem(JSON.stringify(value))).toBeUndefined()
      }),
      { numRuns: 2_000 },
    )
  })

  it('accepts a number if, and only if, it is equal to what JSON.stringify writes for its double', () => {
    fc.assert(
      fc.property(token, (text) => {
        const value = Number(text)
        const comesBack = Number.isFinite(value) && !Object.is(value, -0)
        expect(numberProblem(text) === undefined).toBe(comesBack && isEqual(text, JSON.stringify(value)))
      }),
      { numRuns: 5_000 },
    )
  })
})
