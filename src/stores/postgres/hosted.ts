import type { HostedClient } from '../../transaction.js'
import { isServerError, type Query } from './driver.js'

/** Statements inside a transaction of an ORM. */
export function hostedQuery({ query }: HostedClient, onError: (error: unknown) => never): Query {
  return async ({ text }, params) => {
    const rows = await query(text, params).catch((error) => onError(serverErrorIn(error)))
    return rows.map((row) => Object.values(row))
  }
}

/** What the server said, which an ORM wraps in an error of its own; the error itself when there is no such thing. */
export function serverErrorIn(error: unknown): unknown {
  let cause = error
  for (let depth = 0; depth < 10 && typeof cause === 'object' && cause !== null; depth++) {
    if (isServerError(cause)) return cause
    cause = (cause as { cause?: unknown }).cause
  }
  return error
}
