import { InvalidSettingError } from './errors.js'
import { durationSetting } from './number-settings.js'

/** Decides how long to wait before the next attempt. */
export interface RetryPolicy {
  /** Returns whole milliseconds, 0 or more. `attempts` is the number of failed attempts, 1 or more. */
  delayMs(attempts: number, error: unknown): number
  /** Replaces the limit of the outbox. */
  readonly maxAttempts?: number
}

const SECOND = 1_000
const HOUR = 3_600_000

/** Waits min(max, base × 2^(attempts−1)), times a random factor in [0.5, 1.5) that spreads simultaneous retries. */
export function exponentialBackoff(
  baseMs = 200,
  maxMs = 60_000,
  random: () => number = Math.random,
): RetryPolicy {
  const base = durationSetting('baseMs', baseMs)
  const max = durationSetting('maxMs', maxMs)
  if (max < base) throw new InvalidSettingError('maxMs', `must not be smaller than baseMs (${baseMs})`)
  return Object.freeze({
    delayMs: (attempts: number) => jittered(Math.min(max, base * doubled(attempts)), random),
  })
}

/** Waits step × (attempts + 1). The default waits two minutes after the first failure and three after the second. */
export function linearBackoff(stepMs = 60_000): RetryPolicy {
  const step = durationSetting('stepMs', stepMs)
  return Object.freeze({ delayMs: (attempts: number) => Math.round(step * (atLeastOne(attempts) + 1)) })
}

/** Waits the same time before every attempt. */
export function fixedDelay(ms: number): RetryPolicy {
  const delayMs = durationSetting('ms', ms)
  return Object.freeze({ delayMs: () => delayMs })
}

/** Makes 25 attempts over about three days, for calls to other systems. Waits 1 s, doubled up to 7 hours, with jitter. */
export function patient(random: () => number = Math.random): RetryPolicy {
  return Object.freeze({ ...exponentialBackoff(SECOND, 7 * HOUR, random), maxAttempts: 25 })
}

function jittered(ms: number, random: () => number): number {
  return Math.round(ms * (0.5 + random()))
}

/** Returns 2^(attempts−1), limited to a finite number so that a base of 0 stays 0. */
function doubled(attempts: number): number {
  return 2 ** Math.min(atLeastOne(attempts) - 1, 1_000)
}

function atLeastOne(attempts: number): number {
  return attempts >= 1 ? attempts : 1
}
