import { types } from 'node:util'
import { BatchResultError } from '../core/errors.js'
import { ignoreRejection, isA, isThenable, read } from '../core/unknown.js'

/** Entries of a result with the wrong length whose rejections are handled. */
const MAX_EXTRA = 10_000

/** One entry per event: its error, or null if it was handled. */
export type BatchErrors = readonly ({ readonly thrown: unknown } | null)[]

/**
 * Reads what a batch handler returned. Throws BatchResultError when the result does not have one entry per event. An entry
 * that is not a result fails its own event only.
 */
export function errorsOf(handler: string, results: unknown, count: number): BatchErrors {
  if (results === undefined) return Array.from({ length: count }, () => null)
  if (!Array.isArray(results)) throw new BatchResultError(handler, `returned ${kindOf(results)}`)
  if (results.length !== count) {
    results.slice(0, MAX_EXTRA).forEach(ignoreRejection)
    throw new BatchResultError(handler, `returned ${results.length} entries for ${count} events`)
  }
  return Array.from({ length: count }, (_, at) => errorAt(handler, results, at))
}

function errorAt(
  handler: string,
  results: readonly unknown[],
  at: number,
): { readonly thrown: unknown } | null {
  try {
    return errorOf(handler, results[at], at)
  } catch (thrown) {
    return { thrown }
  }
}

function errorOf(handler: string, entry: unknown, at: number): { readonly thrown: unknown } | null {
  if (entry === undefined || entry === null) return null
  if (isA(entry, Error) || types.isNativeError(entry)) return { thrown: entry }
  // No caller awaits a promise in the result.
  ignoreRejection(entry)
  const status = isThenable(entry) ? undefined : read(entry, 'status')
  if (status === 'fulfilled') return null
  if (status === 'rejected') return { thrown: (entry as PromiseRejectedResult).reason }
  throw new BatchResultError(handler, `returned ${kindOf(entry)} at position ${at}`)
}

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  return isThenable(value) ? 'a promise' : `a value of type ${typeof value}`
}
