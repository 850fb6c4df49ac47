// entry: aftercommit/knex
import type { HostedTransactions, SqlRow, SqlValue, TransactionsOf } from '../transaction.js'

/** An instance of Knex. */
export interface KnexInstance {
  transaction: (...args: never[]) => unknown
}

/** Its `Knex.Transaction`. */
export type KnexTransaction<Db extends KnexInstance> = Parameters<Db['transaction']>[0] extends (
  trx: infer Tx extends object,
  ...rest: never
) => unknown
  ? Tx
  : never

/** Its `Knex.TransactionConfig`: isolation level, read only, … */
export type KnexOptions<Db extends KnexInstance> = NonNullable<Parameters<Db['transaction']>[1]>

/**
 * Transactions of Knex with the outbox in them, whatever the client. Leave the end to the body's promise: after
 * `trx.commit()` or `trx.rollback()` by hand nobody can say which of its events are there, and the answer is a
 * CommitUnknownError if it has published any.
 */
export function knexTransactions<Db extends KnexInstance>(
  outbox: TransactionsOf,
  db: Db,
): HostedTransactions<KnexTransaction<Db>, KnexOptions<Db>> {
  const knex = db as unknown as Runner<KnexTransaction<Db>, KnexOptions<Db>>
  return outbox.transactionsOf({
    source: knex,
    // What Knex answers is thenable, and no promise.
    transaction: async (body, config) => knex.transaction((trx) => body(trx).catch(rethrow), config),
    async query(trx, sql, params) {
      const result = await (trx as unknown as Handle).raw(...withQuestionMarks(sql, params))
      return GIVES_ROWS.test(sql) ? rowsOf(result) : []
    },
  })
}

/** A transaction of Knex resolves after the rollback when the body throws `undefined`, as if it was committed. */
function rethrow(error: unknown): never {
  throw error === undefined ? new Error('undefined was thrown in a transaction of Knex') : error
}

/** Clients answer other statements in many ways. */
const GIVES_ROWS = /^\s*select\b|\breturning\b/i

interface Runner<Tx, Options> {
  transaction<T>(body: (trx: Tx) => Promise<T>, config?: Options): PromiseLike<T>
}

interface Handle {
  raw(sql: string, bindings: readonly SqlValue[]): PromiseLike<unknown>
}

/** Knex knows `?` only, so that a parameter that comes twice is bound twice. */
function withQuestionMarks(sql: string, params: readonly SqlValue[]): [sql: string, bindings: SqlValue[]] {
  if (!/\$\d/.test(sql)) return [sql, [...params]]
  const bindings: SqlValue[] = []
  const text = sql.replaceAll('?', '\\?').replace(/\$(\d+)/g, (_, number: string) => {
    bindings.push(params[Number(number) - 1] ?? null)
    return '?'
  })
  return [text, bindings]
}

/** Rows (SQLite), rows and their columns (mysql2), or an object that has them (pg). */
function rowsOf(result: unknown): readonly SqlRow[] {
  if (!Array.isArray(result)) return (result as { readonly rows: readonly SqlRow[] }).rows
  return Array.isArray(result[0]) ? result[0] : result
}
