// entry: aftercommit/kysely
import { readSettings } from '../core/settings.js'
import type { HostedTransactions, SqlRow, SqlValue, TransactionsOf } from '../transaction.js'

/** An instance of Kysely. */
export interface KyselyDatabase {
  transaction: () => KyselyBuilder
}

interface KyselyBuilder {
  setIsolationLevel: (...args: never[]) => unknown
  setAccessMode: (...args: never[]) => unknown
  execute: (...args: never[]) => unknown
}

type Builder<Db extends KyselyDatabase> = ReturnType<Db['transaction']>

/** Its `Transaction<Tables>`. */
export type KyselyTransaction<Db extends KyselyDatabase> = Parameters<Builder<Db>['execute']>[0] extends (
  tx: infer Tx extends object,
  ...rest: never
) => unknown
  ? Tx
  : never

/** What `setIsolationLevel` and `setAccessMode` take. */
export interface KyselyOptions<Db extends KyselyDatabase> {
  readonly isolationLevel?: Parameters<Builder<Db>['setIsolationLevel']>[0] | undefined
  readonly accessMode?: Parameters<Builder<Db>['setAccessMode']>[0] | undefined
}

const OPTIONS = ['isolationLevel', 'accessMode'] as const

/** Transactions of Kysely with the outbox in them, whatever the dialect. */
export function kyselyTransactions<Db extends KyselyDatabase>(
  outbox: TransactionsOf,
  db: Db,
): HostedTransactions<KyselyTransaction<Db>, KyselyOptions<Db>> {
  return outbox.transactionsOf({
    source: db,
    async transaction(body, given) {
      const options = readSettings<KyselyOptions<Db>>('a transaction of Kysely', given, OPTIONS)
      let builder = db.transaction() as unknown as Runner<KyselyTransaction<Db>>
      if (options.isolationLevel) builder = builder.setIsolationLevel(options.isolationLevel)
      if (options.accessMode) builder = builder.setAccessMode(options.accessMode)
      return builder.execute(body)
    },
    async query(tx, sql, parameters) {
      const query = { kind: 'RawNode', sqlFragments: [sql], parameters: [] } as const
      // Plugins are for the application's statements: one that renames columns must not touch these.
      const handle = (tx as unknown as Handle).withoutPlugins()
      const { rows } = await handle.executeQuery({ sql, parameters, query, queryId: { queryId: ID } })
      return rows
    },
  })
}

interface Runner<Tx> {
  setIsolationLevel(level: unknown): Runner<Tx>
  setAccessMode(mode: unknown): Runner<Tx>
  execute<T>(body: (tx: Tx) => Promise<T>): Promise<T>
}

/** A compiled query, as `CompiledQuery.raw` makes it. */
interface Compiled {
  readonly sql: string
  readonly parameters: readonly SqlValue[]
  readonly query: object
  readonly queryId: { readonly queryId: string }
}

interface Handle {
  withoutPlugins(): Handle
  executeQuery(query: Compiled): Promise<{ readonly rows: readonly SqlRow[] }>
}

/** For plugins to recognise a query by; there are none. */
const ID = 'aftercommit'
