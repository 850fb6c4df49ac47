import { TransactionEndedError } from '../../core/errors.js'
import { originalMessageOf } from '../../core/redact.js'
import { causesOf, isA, read } from '../../core/unknown.js'
import type { HostedClient, SqlValue } from '../../transaction.js'
import type { Params, Row } from './driver.js'
import { explained } from './errors.js'

/** Statements in a transaction: on a connection of SQLite's, or through an ORM. */
export interface Statements {
  /** For statements that give rows. */
  all(sql: string, params: Params): readonly Row[] | Promise<readonly Row[]>
  /** For statements that give none. */
  run(sql: string, params: Params): void | Promise<void>
}

const known = new WeakMap<HostedClient, Statements>()

/** The same for the same transaction. `table` is what all names of ours begin with. */
export function hostedStatements(client: HostedClient, table: string): Statements {
  let statements = known.get(client)
  if (!statements) {
    const explain = (error: unknown): never => {
      // @libsql/client looks by itself.
      throw isClosed(error) ? new TransactionEndedError() : explained(error, table)
    }
    const all = (sql: string, params: Params) => client.query(...byPosition(sql, params)).catch(explain)
    const run = async (sql: string, params: Params) => void (await all(sql, params))
    statements = { all, run }
    known.set(client, statements)
  }
  return statements
}

/**
 * Some failures (a full disk, ON CONFLICT ROLLBACK) end the whole transaction, and an ORM does not notice. A second BEGIN is
 * refused and changes nothing; a first one takes no lock and is taken back.
 */
export async function isOpen(client: HostedClient): Promise<boolean> {
  if (client.refusesLate) return true
  try {
    await client.query('BEGIN', [])
  } catch (error) {
    if (messages(error).some((text) => text.includes('within a transaction'))) return true
    if (isA(error, TransactionEndedError) || isClosed(error)) return false
    throw error
  }
  await client.query('ROLLBACK', [])
  return false
}

function isClosed(error: unknown): boolean {
  const message = originalMessageOf(error)
  return read(error, 'code') === 'TRANSACTION_CLOSED' || /transaction is closed/i.test(message)
}

function messages(error: unknown): string[] {
  return causesOf(error).map(originalMessageOf)
}

/** What all ORMs bind in the same way. */
function byPosition(sql: string, params: Params): [sql: string, params: SqlValue[]] {
  const values: SqlValue[] = []
  const text = sql.replace(/:([a-zA-Z]+)/g, (_, name: string) => {
    values.push(params[name] ?? null)
    return '?'
  })
  return [text, values]
}
