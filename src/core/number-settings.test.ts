import { describe, expect, it } from 'vitest'
import { InvalidSettingError } from './errors.js'
import {
  durationSetting,
  integerProblem,
  integerSetting,
  MAX_DURATION_MS,
  parseDecimal,
  parseDuration,
  parseInteger,
} from './number-settings.js'

const INVALID: [string, unknown][] = [
  ['null', null],
  ['a fraction', 1.5],
  ['a negative number', -1],
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['a number that is not exact', 2 ** 53],
  ['text', '5'],
  ['a bigint', 5n],
  ['a boolean', true],
  ['an object', {}],
]

describe.each([
  ['integerSetting', integerSetting],
  ['durationSetting', durationSetting],
])('%s', (_name, read) => {
  it('returns the value, or the default if there is no value', () => {
    expect(read('limit', 7, { default: 3 })).toBe(7)
    expect(read('limit', undefined, { default: 3 })).toBe(3)
    expect(read('limit', 0, { default: 3 })).toBe(0)
  })

  it('accepts both limits and rejects the numbers next to them', () => {
    const limits = { min: 2, max: 4 }
    expect([2, 4].map((value) => read('limit', value, limits))).toEqual([2, 4])
    for (const value of [1, 5]) expect(() => read('limit', value, limits)).toThrow(InvalidSettingError)
  })

  it('requires a setting without a default', () => {
    expect(() => read('limit', undefined)).toThrow(InvalidSettingError)
  })

  it('reduces larger numbers to 100 years in milliseconds', () => {
    expect(read('limit', MAX_DURATION_MS - 1)).toBe(MAX_DURATION_MS - 1)
    expect(read('limit', Number.MAX_SAFE_INTEGER)).toBe(MAX_DURATION_MS)
  })

  it.each(INVALID)('rejects %s', (_what, value) => {
    expect(() => read('limit', value as number, { default: 3 })).toThrow(
      expect.objectContaining({ code: 'INVALID_SETTING', setting: 'limit' }) as unknown as Error,
    )
  })
})

describe('the message of an invalid number', () => {
  it('names the setting and its limits', () => {
    expect(() => integerSetting('concurrency', 0, { min: 1 })).toThrow(
      'Invalid setting concurrency: must be a whole number, 1 or more.',
    )
    expect(() => integerSetting('batchSize', 0, { min: 1, max: 1_000 })).toThrow(
      'Invalid setting batchSize: must be a whole number from 1 to 1000.',
    )
  })

  it('says how to write a duration', () => {
    expect(() => durationSetting('leaseMs', 0.5, { min: 100 })).toThrow(
      'Invalid setting leaseMs: must be a whole number of milliseconds, 100 or more. For 30 seconds, write 30000.',
    )
  })

  it('is null for a valid number', () => {
    expect(integerProblem(5, { min: 5, max: 5 })).toBeNull()
  })
})

describe('numbers as text', () => {
  it.each(['', ' 1', '-1', '+1', '1.5', '1e3', '0x10', '1_000', 'NaN', '٣', '9'.repeat(17)])(
    'rejects %j as a whole number',
    (text) => expect(parseInteger(text)).toBeNaN(),
  )

  it('reads whole numbers', () => {
    expect(['0', '007', '9007199254740991'].map(parseInteger)).toEqual([0, 7, Number.MAX_SAFE_INTEGER])
  })

  it('reads decimal numbers and rejects other notations', () => {
    expect(['0.1', '.5', '2', '86400'].map(parseDecimal)).toEqual([0.1, 0.5, 2, 86_400])
    for (const text of ['', '.', '1.', '1e3', '-1', '0x10', 'Infinity']) {
      expect(parseDecimal(text)).toBeNaN()
    }
  })

  it('reads durations with a unit and rejects other text', () => {
    expect(['7d', '12h', '30min', '45 s', ' 0d '].map(parseDuration)).toEqual([
      604_800_000, 43_200_000, 1_800_000, 45_000, 0,
    ])
    for (const text of ['7', 'd', '-1d', '1.5h', '1w', '', `${'9'.repeat(10)}s`]) {
      expect(parseDuration(text)).toBeNaN()
    }
  })
})
