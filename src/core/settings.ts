import { AftercommitError, InvalidSettingError } from './errors.js'
import { refusedOptions } from './plain.js'
import { rejectUnknownKeys } from './reject-unknown-keys.js'
import { isA, read } from './unknown.js'

/**
 * Copies an object of settings. Each setting is read only once, so that the value that is checked is the value that is used.
 * Settings that are undefined are left out. Throws InvalidSettingError for names that do not exist, and for anything that
 * cannot be an object of settings.
 *
 * @param of Name of the object in error messages: 'createOutbox()', 'handler send-receipt', 'poller'.
 * @param prefix Precedes the names of the settings in error messages: 'poller.'
 */
export function readSettings<T extends object>(
  of: string,
  given: T | undefined,
  names: readonly (keyof T & string)[],
  prefix = '',
): T {
  const copy: Partial<T> = {}
  if (given === undefined) return copy as T
  try {
    if (refusedOptions(given, names) !== undefined) throw notSettings(of, names)
    const known = { of, kind: 'setting', names: new Set(names) } as const
    rejectUnknownKeys(given, known, (name, reason) => new InvalidSettingError(prefix + name, reason))
    for (const name of names) {
      const value = given[name]
      if (value !== undefined) copy[name] = value
    }
  } catch (error) {
    if (isA(error, AftercommitError)) throw error
    throw new InvalidSettingError(of, 'reading the settings threw an error', { thrown: error })
  }
  return copy as T
}

function notSettings(of: string, names: readonly string[]): InvalidSettingError {
  return new InvalidSettingError(of, `must be an object of settings. Known settings: ${names.join(', ')}`)
}

/** Copies an array of a caller, so that the elements that are checked are the elements that are used. */
export function readArray<T>(setting: string, given: readonly T[], reason: string): T[] {
  try {
    // By index: the elements are what an array holds, whatever its iterator returns.
    if (Array.isArray(given)) return Array.from({ length: given.length }, (_, at) => given[at] as T)
  } catch (thrown) {
    throw new InvalidSettingError(setting, 'reading the array threw an error', { thrown })
  }
  throw new InvalidSettingError(setting, reason)
}

/** Whether the value has the method. Never throws. */
export function hasMethod(value: unknown, method: string): boolean {
  return typeof read(value, method) === 'function'
}

/** Throws InvalidSettingError if a setting is given and one of these methods is missing. */
export function requireMethods(setting: string, given: object | undefined, methods: readonly string[]): void {
  if (given === undefined) return
  for (const method of methods) {
    if (hasMethod(given, method)) continue
    throw new InvalidSettingError(setting, `must have a ${method}() function`)
  }
}
