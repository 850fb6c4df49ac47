import { MAX_TIME, MIN_TIME } from './checks.js'

/*
 * Reads columns that any writer may have filled with anything, for people and for bookkeeping. None of these functions
 * throws: a value of the wrong type is replaced by a harmless one.
 */

const NOTHING: readonly never[] = []

/** The value of JSON text, or the value itself if it was parsed already. Undefined if the text is not JSON. */
export function parsed(value: unknown): unknown {
  if (typeof value !== 'string') return value
  try {
    return JSON.parse(value)
  } catch {
    return undefined
  }
}

export function objectIn(value: unknown): Readonly<Record<string, unknown>> | null {
  const object = parsed(value)
  return isObject(object) ? object : null
}

export function listIn(value: unknown): readonly unknown[] {
  const list = parsed(value)
  return Array.isArray(list) ? list : NOTHING
}

/** The texts of a list, such as names of handlers. */
export function namesIn(value: unknown): readonly string[] {
  return listIn(value).filter((name) => typeof name === 'string')
}

export function textIn(value: unknown): string {
  if (typeof value === 'string') return value
  if (value === null || value === undefined) return ''
  return typeof value === 'object' ? '(binary)' : String(value)
}

export function optionalTextIn(value: unknown): string | null {
  return value === null || value === undefined ? null : textIn(value)
}

export function numberIn(value: unknown): number {
  const number = typeof value === 'object' ? Number.NaN : Number(value)
  return Number.isFinite(number) ? number : 0
}

/** Milliseconds since 1970, moved into the years 1 to 9999: an infinite time becomes the first or the last moment of them. */
export function timeIn(value: unknown): number {
  const ms = typeof value === 'object' ? Number.NaN : Number(value)
  return Number.isNaN(ms) ? 0 : Math.min(Math.max(Math.trunc(ms), MIN_TIME), MAX_TIME)
}

export function dateIn(value: unknown): Date {
  return new Date(timeIn(value))
}

export function optionalDateIn(value: unknown): Date | null {
  return value === null || value === undefined ? null : dateIn(value)
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
