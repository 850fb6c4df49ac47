import { randomUUID } from 'node:crypto'
import { StoreNotMigratedError, TransactionEndedError } from '../../core/errors.js'
import { originalMessageOf } from '../../core/redact.js'
import { causesOf } from '../../core/unknown.js'
import type { AppendRow } from '../../store.js'
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
      rows: rows.map((row) => Object.values(row).flatMap(flat)),
      affected: UNTOLD,
      insertId: null,
      inTransaction: null,
    }
  }
}

/** With `nestTables`, a pool of mysql2 returns one object per table. */
function flat(value: unknown): unknown {
  const isTable = Object.prototype.toString.call(value) === '[object Object]'
  return isTable ? Object.values(value as object) : [value]
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

/**
 * Runs a write inside of an ORM's transaction on MySQL. A statement there cannot refuse to run outside of a transaction,
 * and the ORM does not pass on whether it did. If no transaction is open afterwards, the write may have committed by
 * itself: `undo` takes it back, and the write is rejected.
 */
export async function provenInside<T>(
  query: Query,
  write: () => Promise<T>,
  undo: () => Promise<unknown>,
): Promise<T> {
  let result: T
  try {
    result = await write()
  } catch (error) {
    if (!(await isOpen(query).catch(() => false))) await undo()
    throw error
  }
  const open = await isOpen(query).catch(async (error) => {
    await undo()
    throw error
  })
  if (open) return result
  await undo()
  throw new TransactionEndedError()
}

/**
 * Rows without a lease get one that no instance holds, so that no claim takes a row before its transaction is proven to
 * be open. Null if all rows have a lease already.
 */
export function heldRows(rows: readonly AppendRow[]): Held | null {
  if (rows.every((row) => row.token !== null)) return null
  const token = `held:${randomUUID()}`
  return { token, rows: rows.map((row) => (row.token === null ? { ...row, token } : row)) }
}

interface Held {
  readonly token: string
  readonly rows: readonly AppendRow[]
}

/** What the server said, which an ORM wraps in an error of its own; the error itself when there is no such thing. */
export function serverErrorIn(error: unknown): unknown {
  return causesOf(error).find(isServerError) ?? error
}
