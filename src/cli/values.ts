import {
  integerProblem,
  type NumberLimits,
  parseDecimal,
  parseDuration,
  parseInteger,
} from '../core/number-settings.js'
import { UsageError } from './errors.js'

/** Returns the whole number that an option was given. */
export function integerOption(option: string, text: string, limits: NumberLimits): number {
  const value = parseInteger(text)
  const problem = integerProblem(value, limits)
  if (problem !== null) throw new UsageError(`--${option} ${problem}.`)
  return value
}

/** Returns the duration that an option was given, such as `7d` or `45s`, in milliseconds. */
export function durationOption(option: string, text: string): number {
  const ms = parseDuration(text)
  if (Number.isNaN(ms)) {
    throw new UsageError(`--${option} must be a number with its unit: 7d, 12h, 30min or 45s.`)
  }
  return ms
}

/** Returns the number of seconds that an option was given, in milliseconds. Fractions are valid. */
export function secondsOption(option: string, text: string, min: number, max: number): number {
  const seconds = parseDecimal(text)
  if (seconds >= min && seconds <= max) return Math.round(seconds * 1_000)
  throw new UsageError(`--${option} must be a number of seconds, from ${min} to ${max}.`)
}
