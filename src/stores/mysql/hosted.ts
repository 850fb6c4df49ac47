import { StoreNotMigratedError } from '../../core/errors.js'
import { originalMessageOf } from '../../core/redact.js'
import { causesOf } from '../../core/unknown.js'
import type { HostedClient } from '../../transaction.js'
import { isMissing, isServerError, type Query } from './driver.js'

const UNTOLD = -1
const NO_SUCH_SAVEPOINT = 1305

/**
 * Statements inside a transaction of an ORM, which may not pass on what the server answers to a write. To ask for it with
 * a second statement would not do: one of the application's may come between the two.
 */
export function hostedQuery({ query }: HostedClient, table: string): Query {
  return async (sql, params = []) => {
    const rows = await query(sql, params).catch((error) => {
      const reported = serverErrorIn(error)
      const isOurs = isMissing(reported) && originalMessageOf(reported).includes(table)
      throw isOurs ? new StoreNotMigratedError() : reported
    })
    return {
      rows: rows.map((row) => Object.values(row)),
      affected: UNTOLD,
      insertId: null,
      inTransaction: null,
    }
  }
}

/** Whether a transaction is open: outside of one the server forgets a savepoint at once. */
export async function isOpen(query: Query): Promise<boolean> {
  await query('SAVEPOINT aftercommit_open')
  return query('RELEASE SAVEPOINT aftercommit_open').then(
    () => true,
    (error) => {
      if (isServerError(error) && error.errno === NO_SUCH_SAVEPOINT) return false
      throw error
    },
  )
}

/** What the server said, which an ORM wraps in an error of its own; the error itself when there is no such thing. */
export function serverErrorIn(error: unknown): unknown {
  return causesOf(error).find(isServerError) ?? error
}
