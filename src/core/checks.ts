import { InvalidEventError } from './errors.js'
import { isPlainObject, kindOf, timeOf } from './plain.js'
import { isClean, isWellFormed } from './text.js'

/** Longest type, aggregate, tenant, ordering key or header name, in UTF-16 units. */
export const MAX_NAME = 255
/** Longest metadata value, in UTF-16 units. */
export const MAX_METADATA = 1_024
/** Names and values of all headers of one event, in UTF-16 units. */
export const MAX_HEADERS = 65_536
/** Longest delay of a first attempt: a hundred years. */
export const MAX_DELAY_MS = 3_155_760_000_000
export const DELAY_REASON = 'must be a number of milliseconds from 0 to a hundred years'
const MAX_VERSION = 2_147_483_647
/** RFC 3339 and MySQL know years of four digits only. */
export const MIN_TIME = Date.parse('0001-01-01T00:00:00.000Z')
export const MAX_TIME = Date.parse('9999-12-31T23:59:59.999Z')

export type Headers = Readonly<Record<string, string>>

/** No headers: frozen and shared. */
export const EMPTY_HEADERS: Headers = Object.freeze(Object.create(null) as Record<string, string>)

/** A type, aggregate, tenant or ordering key: 1 to 255 characters without control characters, or InvalidEventError. */
export function checkName(field: string, value: unknown, eventType?: string): string {
  if (typeof value === 'string' && value !== '' && value.length <= MAX_NAME && isClean(value)) return value
  throw new InvalidEventError(
    field,
    nameProblem(value, MAX_NAME),
    eventType === undefined ? {} : { eventType },
  )
}

export function checkOptionalName(field: string, value: unknown, eventType: string): string | null {
  return value === undefined || value === null ? null : checkName(field, value, eventType)
}

/** One metadata value: text of at most 1,024 characters without control characters. */
export function checkMetadataText(field: string, value: unknown): string {
  if (typeof value === 'string' && value.length <= MAX_METADATA && isClean(value)) return value
  throw new InvalidEventError(
    `metadata.${field}`,
    value === '' ? 'it is empty' : nameProblem(value, MAX_METADATA),
  )
}

export function checkVersion(value: unknown, eventType: string): number {
  if (Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_VERSION)
    return value as number
  throw new InvalidEventError('version', 'it must be an integer of at least 1', { eventType })
}

/** Milliseconds of a valid Date in the years 1 to 9999. Dates of other realms are fine. */
export function checkTime(value: unknown, eventType: string): number {
  const ms = timeOf(value)
  if (ms >= MIN_TIME && ms <= MAX_TIME) return ms
  throw new InvalidEventError('occurredAt', 'it must be a valid Date in the years 1 to 9999', { eventType })
}

/**
 * Returns a frozen copy without a prototype, so that a header called `__proto__` or `constructor` is just a header. Each
 * value is read only once: the copy is checked, and a getter cannot put another value into it afterwards.
 */
export function checkHeaders(headers: unknown, eventType: string): Headers {
  if (headers === undefined || headers === null || headers === EMPTY_HEADERS) return EMPTY_HEADERS
  const isObject = typeof headers === 'object' && !Array.isArray(headers)
  if (!isObject || !isPlainObject(headers)) {
    const what = isObject ? `, not ${kindOf(headers)}. Use Object.fromEntries() for its entries` : ''
    throw new InvalidEventError('headers', `they must be an object of strings${what}`, { eventType })
  }
  const copy = Object.create(null) as Record<string, string>
  let size = 0
  for (const name of Object.keys(headers)) {
    const value: unknown = (headers as Record<string, unknown>)[name]
    copy[name] = checkHeader(name, value, eventType)
    size += name.length + copy[name].length
    if (size > MAX_HEADERS) {
      throw new InvalidEventError(
        'headers',
        `they exceed ${MAX_HEADERS} characters in total; use the payload`,
        { eventType },
      )
    }
  }
  return size === 0 ? EMPTY_HEADERS : Object.freeze(copy)
}

/** As checkHeaders, for headers that are known to be good. */
export function freezeHeaders(headers: Headers | null): Headers {
  if (headers === null) return EMPTY_HEADERS
  const names = Object.keys(headers)
  if (names.length === 0) return EMPTY_HEADERS
  const copy = Object.create(null) as Record<string, string>
  for (const name of names) copy[name] = headers[name] as string
  return Object.freeze(copy)
}

function checkHeader(name: string, value: unknown, eventType: string): string {
  checkName('header name', name, eventType)
  if (typeof value === 'string' && !value.includes('\0') && isWellFormed(value)) return value
  const problem = typeof value === 'string' ? 'holds U+0000 or half a surrogate pair' : 'is not a string'
  throw new InvalidEventError(`header ${JSON.stringify(name)}`, `its value ${problem}`, { eventType })
}

function nameProblem(value: unknown, max: number): string {
  if (typeof value !== 'string') return `it must be a string, not ${value === null ? 'null' : typeof value}`
  if (value === '') return 'it is empty'
  if (value.length > max) return `it is longer than ${max} characters`
  return 'it holds control characters or half a surrogate pair'
}
