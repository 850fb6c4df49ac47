import { types } from 'node:util'
import { BatchResultError } from '../core/errors.js'

/** For each event what became of it: an error, or what `Promise.allSettled` says; nothing when it went well. */
export type BatchResults = readonly (Error | null | undefined | PromiseSettledResult<unknown>)[]

/** What went wrong with each event, null where nothing did. */
export type BatchErrors = readonly ({ readonly thrown: unknown } | null)[]

/** Throws BatchResultError when what went wrong cannot be told. */
export function errorsOf(handler: string, results: unknown, count: number): BatchErrors {
  if (results === undefined) return Array.from({ length: count }, () => null)
  if (!Array.isArray(results)) throw new BatchResultError(handler, `returned ${kindOf(results)}`)
  // Nobody waits for them, so nobody would hear them fail.
  for (const entry of results) if (isPromise(entry)) Promise.resolve(entry).catch(() => {})
  if (results.length !== count) {
    throw new BatchResultError(handler, `returned ${results.length} entries for ${count} events`)
  }
  return Array.from(results, (entry: unknown, at) => errorOf(handler, entry, at))
}

function errorOf(handler: string, entry: unknown, at: number): { readonly thrown: unknown } | null {
  if (entry === undefined || entry === null) return null
  if (entry instanceof Error || types.isNativeError(entry)) return { thrown: entry }
  const { status, reason } = entry as { status?: unknown; reason?: unknown }
  if (!isPromise(entry) && status === 'fulfilled') return null
  if (!isPromise(entry) && status === 'rejected') return { thrown: reason }
  throw new BatchResultError(handler, `returned ${kindOf(entry)} at position ${at}`)
}

function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function'
}

function kindOf(value: unknown): string {
  if (value === null) return 'null'
  return isPromise(value) ? 'a promise' : `a value of type ${typeof value}`
}
