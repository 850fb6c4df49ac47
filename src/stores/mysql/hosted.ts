import type { HostedClient } from '../../transaction.js'
import { isServerError, type Query } from './driver.js'

const WRITES = /^\s*(insert|update|delete)/i

/** Statements inside a transaction of an ORM, which may not pass on what the server answers to a write. */
export function hostedQuery({ query }: HostedClient): Query {
  const run = async (sql: string, params: Parameters<typeof query>[1]) => {
    const rows = await query(sql, params).catch((error) => {
      throw serverErrorIn(error)
    })
    return rows.map((row) => Object.values(row))
  }
  return async (sql, params = []) => {
    const rows = await run(sql, params)
    if (!WRITES.test(sql)) return { rows, affected: 0, insertId: 0, inTransaction: null }
    const [answer = []] = await run('select row_count() as affected, last_insert_id() as id', [])
    return { rows: [], affected: Number(answer[0]), insertId: Number(answer[1]), inTransaction: null }
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
