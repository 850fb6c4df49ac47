import { InvalidSettingError } from './errors.js'
import { durationSetting } from './number-settings.js'

/** How long to wait before the next attempt. */
export interface RetryPolicy {
  /** `attempts`: failed attempts so far, at least 1. Gives whole milliseconds, at least 0. */
  delayMs(attempts: number, error: unknown): number
  /** Takes the place of the outbox's own limit, when given. */
  readonly maxAttempts?: number
}

const SECOND = 1_000
const HOUR = 3_600_000

/** min(max, base × 2^(attempts−1)), times a random factor in [0.5, 1.5) that keeps retries from marching in step. */
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

/** step × (attempts + 1): with the default, two minutes after the first failure, three after the second. */
export function linearBackoff(stepMs = 60_000): RetryPolicy {
  const step = durationSetting('stepMs', stepMs)
  return Object.freeze({ delayMs: (attempts: number) => Math.round(step * (atLeastOne(attempts) + 1)) })
}

/** The same delay every time. */
export function fixedDelay(ms: number): RetryPolicy {
  const delayMs = durationSetting('ms', ms)
  return Object.freeze({ delayMs: () => delayMs })
}

/** 25 attempts over about three days, for calls to other systems: 1 s, doubling up to 7 hours, with jitter. */
export function patient(random: () => number = Math.random): RetryPolicy {
  return Object.freeze({ ...exponentialBackoff(SECOND, 7 * HOUR, random), maxAttempts: 25 })
}

function jittered(ms: number, random: () => number): number {
  return Math.round(ms * (0.5 + random()))
}

/** 2^(attempts−1), kept finite so that a base of 0 stays 0. */
function doubled(attempts: number): number {
  return 2 ** Math.min(atLeastOne(attempts) - 1, 1_000)
}

function atLeastOne(attempts: number): number {
  return attempts >= 1 ? attempts : 1
}
