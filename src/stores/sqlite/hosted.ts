import type { HostedClient, SqlValue } from '../../transaction.js'
import type { Params, Row } from './driver.js'

/** Statements in a transaction: on a connection of SQLite's, or through an ORM. */
export interface Statements {
  /** For statements that give rows. */
  all(sql: string, params: Params): readonly Row[] | Promise<readonly Row[]>
  /** For statements that give none. */
  run(sql: string, params: Params): void | Promise<void>
}

const known = new WeakMap<HostedClient, Statements>()

/** The same for the same transaction. */
export function hostedStatements(client: HostedClient): Statements {
  let statements = known.get(client)
  if (!statements) {
    const all = (sql: string, params: Params) => client.query(...byPosition(sql, params))
    const run = async (sql: string, params: Params) => void (await all(sql, params))
    statements = { all, run }
    known.set(client, statements)
  }
  return statements
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
