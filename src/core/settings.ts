import { InvalidSettingError } from './errors.js'

/** A hundred years in milliseconds stand for all that is longer: later moments are no dates for a database. */
const MOST = 3_155_760_000_000

/** A misspelt setting would silently keep its default. */
export function known(group: string, given: object, names: readonly string[]): void {
  for (const name of Object.keys(given)) {
    if (!names.includes(name)) {
      throw new InvalidSettingError(`${group}${name}`, `is not a setting; there are: ${names.join(', ')}`)
    }
  }
}

/** Undefined is fine; anything else must have these functions. */
export function needs(setting: string, given: object | undefined, methods: readonly string[]): void {
  if (given === undefined) return
  for (const method of methods) {
    if (typeof (given as Record<string, unknown> | null)?.[method] === 'function') continue
    throw new InvalidSettingError(setting, `must have a ${method}() function`)
  }
}

/** Longer than a hundred years is a hundred years. */
export function whole(setting: string, given: number | undefined, otherwise: number, least: number): number {
  const value = given ?? otherwise
  if (Number.isSafeInteger(value) && value >= least) return Math.min(value, MOST)
  throw new InvalidSettingError(setting, `must be a whole number, ${least} or more`)
}
