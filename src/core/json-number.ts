/** Numbers of at most this many characters without an exponent have at most 15 digits, and a double keeps 15 digits. */
const SHORT = 15
/** Databases limit the digits of a number; PostgreSQL's `jsonb` allows 16,383 behind the point. */
export const MAX_NUMBER = 1_000

const PARTS = /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/

/**
 * Returns why a number in JSON text would come back as another number, or undefined if it would not. A number is kept if
 * it is equal to the shortest decimal of its nearest double, which is what JSON.stringify() writes: `0.10` and `1e2` are
 * kept, `9007199254740993` and `0.1000000000000000055` are not. Negative zero is not kept either, because
 * JSON.stringify() writes `0`.
 */
export function numberProblem(token: string): string | undefined {
  const value = Number(token)
  if (value === 0 && token.charCodeAt(0) === MINUS && isZero(token)) return 'negative zero would become 0'
  if (token.length <= SHORT && !/[eE]/.test(token)) return undefined
  if (!Number.isFinite(value) || (value === 0 && !isZero(token))) {
    return 'the number is outside the range of a double'
  }
  if (token.length > MAX_NUMBER) return `the number is longer than ${MAX_NUMBER} characters`
  if (decimalOf(token) === decimalOf(String(value))) return undefined
  return 'the number has more digits than a double keeps: write it as a string'
}

const MINUS = 45

function isZero(token: string): boolean {
  return !/[1-9]/.test(token.split(/[eE]/)[0] as string)
}

/** Digits without zeros on either side, and the power of ten of the last digit: equal for equal numbers. */
function decimalOf(token: string): string {
  const [, whole = '', fraction = '', exponent = '0'] = PARTS.exec(token) ?? []
  const digits = (whole + fraction).replace(/^0+/, '')
  const significant = digits.replace(/0+$/, '')
  if (significant === '') return '0'
  return `${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`
}
