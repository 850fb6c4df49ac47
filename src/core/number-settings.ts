import { InvalidSettingError } from './errors.js'

/** 100 years in milliseconds. Databases have no dates for much later moments. */
export const MAX_DURATION_MS = 3_155_760_000_000

/** Range of a number. Both limits are part of it. */
export interface NumberLimits {
  /** Default 0. */
  readonly min?: number
  /** Without it, numbers above 3,155,760,000,000 count as 3,155,760,000,000. For a duration, this is 100 years. */
  readonly max?: number
}

interface NumberSetting extends NumberLimits {
  /** Value of a setting that is not given. A setting without a default is required. */
  readonly default?: number
  /** Object that the setting belongs to, as errors name it. */
  readonly of?: string | undefined
}

/** Returns a setting that is a whole number. Throws InvalidSettingError for anything else. */
export function integerSetting(
  setting: string,
  given: number | undefined,
  { default: byDefault, of, ...limits }: NumberSetting = {},
): number {
  const value = given === undefined ? byDefault : given
  const problem = integerProblem(value, limits)
  if (problem !== null) throw new InvalidSettingError(setting, problem, of === undefined ? {} : { of })
  return Math.min(value as number, MAX_DURATION_MS)
}

/** Returns a setting that is a duration in whole milliseconds. Throws InvalidSettingError for anything else. */
export function durationSetting(
  setting: string,
  given: number | undefined,
  { default: byDefault, of, ...limits }: NumberSetting = {},
): number {
  const value = given === undefined ? byDefault : given
  if (integerProblem(value, limits) === null) return Math.min(value as number, MAX_DURATION_MS)
  const range = rangeOf('a whole number of milliseconds', limits)
  throw new InvalidSettingError(
    setting,
    `must be ${range}. For 30 seconds, write 30000`,
    of === undefined ? {} : { of },
  )
}

/** Returns which numbers are valid if the value is not a whole number within the limits, otherwise `null`. */
export function integerProblem(value: unknown, limits: NumberLimits): string | null {
  const { min = 0, max = Number.MAX_SAFE_INTEGER } = limits
  if (Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max) return null
  return `must be ${rangeOf('a whole number', limits)}`
}

function rangeOf(kind: string, { min = 0, max }: NumberLimits): string {
  return max === undefined ? `${kind}, ${min} or more` : `${kind} from ${min} to ${max}`
}

/** Reads a whole number that is written in digits alone. Returns `NaN` for any other text. */
export function parseInteger(text: string): number {
  return /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
}

/** Reads a number that is written in digits, with or without a decimal point. Returns `NaN` for any other text. */
export function parseDecimal(text: string): number {
  return /^(\d{1,16}|\d{0,16}\.\d{1,16})$/.test(text) ? Number(text) : Number.NaN
}

const UNITS_MS: Readonly<Record<string, number>> = {
  s: 1_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}

/** Reads `7d`, `12h`, `30min` or `45s` as milliseconds. Returns `NaN` for any other text. */
export function parseDuration(text: string): number {
  const [, count = '', unit = ''] = /^(\d{1,9}) *(s|min|h|d)$/.exec(text.trim()) ?? []
  return parseInteger(count) * (UNITS_MS[unit] ?? Number.NaN)
}
