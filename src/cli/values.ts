import { UsageError } from './errors.js'

/** The number that an option was given. */
export function wholeNumber(option: string, text: string, least: number, most: number): number {
  const value = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN
  if (value >= least && value <= most) return value
  throw new UsageError(`--${option} must be a whole number from ${least} to ${most}.`)
}

const UNITS: Readonly<Record<string, number>> = {
  s: 1_000,
  min: 60_000,
  h: 3_600_000,
  d: 86_400_000,
}

/** `7d`, `12h`, `30min`, `45s` in milliseconds. */
export function milliseconds(option: string, text: string): number {
  const [, count, unit = ''] = /^(\d{1,9})(s|min|h|d)$/.exec(text.replaceAll(' ', '')) ?? []
  if (count !== undefined) return Number(count) * (UNITS[unit] as number)
  throw new UsageError(`--${option} must be a number with its unit: 7d, 12h, 30min or 45s.`)
}
