// entry: aftercommit/mikro-orm
import { AsyncLocalStorage } from 'node:async_hooks'
import { AftercommitError } from '../core/errors.js'
import type { HostedTransactions, SqlRow, SqlValue, TransactionsOf } from '../transaction.js'

/** An EntityManager of MikroORM's for a database that speaks SQL. */
export interface MikroOrmManager {
  // The arguments of a manager that is not known yet.
  transactional(...args: never[]): Promise<unknown>
  flush(): Promise<unknown>
  isInTransaction(): boolean
}

/** Its `TransactionOptions`: isolation level, flush mode, … */
export type MikroOrmOptions<Manager extends MikroOrmManager> = Extract<
  Parameters<Manager['transactional']>[1],
  object
>

/**
 * Transactions of MikroORM with the outbox in them: `orm.em`, or a fork of it. The unit of work is flushed behind the
 * body, so that events which its hooks publish belong to the transaction. A nested one is MikroORM's own, with a unit of
 * work of its own.
 */
export function mikroOrmTransactions<Manager extends MikroOrmManager>(
  outbox: TransactionsOf,
  em: Manager,
): HostedTransactions<Manager, MikroOrmOptions<Manager>> {
  const root = em as unknown as EntityManager<Manager>
  // Sees the innermost open transaction, also when `em` is a fork, which sees itself only.
  const observer = root.fork({ useContext: true, disableContextResolution: true })
  return outbox.transactionsOf<Manager, MikroOrmOptions<Manager>>({
    source: em,
    transaction: (body, options) =>
      outermost(root, observer).transactional((tx) => entering(tx, tx, body), copyOf(options)),
    savepoint(tx, body) {
      const handle = handleOf(tx)
      // By the innermost one that is open: a sibling would wait for it for ever.
      const outer = inside.getStore() === rootOf.get(tx) ? observer.getContext(false) : handle
      return outer.transactional((inner) =>
        entering(inner, rootOf.get(tx) ?? tx, async () => {
          const result = await body(inner)
          // Knex rolls nothing back when RELEASE fails, so a swallowed error must be found before.
          await query(inner, 'select 1', [])
          return result
        }),
      )
    },
    flush: (tx) => tx.flush(),
    query,
  })
}

interface EntityManager<Manager> extends MikroOrmManager {
  transactional<T>(body: (em: Manager) => Promise<T>, options?: object): Promise<T>
  fork(options: object): EntityManager<Manager>
  getContext(validate: boolean): EntityManager<Manager>
  getTransactionContext(): object | undefined
  getConnection(): {
    execute(sql: string, params: SqlValue[], method: 'all', context: unknown): Promise<SqlRow[] | object>
  }
}

/** MikroORM writes into the options that it gets. */
function copyOf(options: object | undefined): object {
  return { ...options }
}

/** The outermost handle of the transaction that surrounds the running code, and of each handle of ours. */
const inside = new AsyncLocalStorage<object>()
const rootOf = new WeakMap<object, object>()

function handleOf<Manager extends MikroOrmManager>(tx: Manager): EntityManager<Manager> {
  return tx as unknown as EntityManager<Manager>
}

function entering<Manager extends MikroOrmManager, T>(
  tx: Manager,
  root: object,
  body: (tx: Manager) => Promise<T>,
): Promise<T> {
  // With some of MikroORM's settings there is none.
  if (!tx.isInTransaction()) {
    throw new AftercommitError('NO_ACTIVE_TRANSACTION', 'MikroORM was told not to begin a transaction here.')
  }
  rootOf.set(tx, root)
  return inside.run(root, () => body(tx))
}

/** MikroORM would make a savepoint of one that begins inside of another, and its commit would not be one. */
function outermost<Manager>(
  em: EntityManager<Manager>,
  observer: EntityManager<Manager>,
): EntityManager<Manager> {
  if (!em.isInTransaction() && !observer.isInTransaction()) return em
  // One of another outbox: this is another transaction.
  if (inside.getStore() !== undefined) return em.fork({ disableContextResolution: true })
  throw new AftercommitError(
    'NESTED_TRANSACTION',
    'A transaction of MikroORM is open here that the outbox does not know. Begin the outer one by the same function.',
  )
}

async function query(
  tx: MikroOrmManager,
  sql: string,
  params: readonly SqlValue[],
): Promise<readonly SqlRow[]> {
  const handle = handleOf(tx)
  const context = handle.getTransactionContext()
  const answer = await handle.getConnection().execute(...asMikroOrm(sql, params), 'all', context)
  return Array.isArray(answer) ? answer : []
}

/** MikroORM knows `?` only, so that a parameter that comes twice is bound twice, and bytes only as a Buffer. */
function asMikroOrm(sql: string, params: readonly SqlValue[]): [sql: string, params: SqlValue[]] {
  const values = params.map((value) => (value instanceof Uint8Array ? Buffer.from(value) : value))
  if (!/\$\d/.test(sql)) return [sql, values]
  const repeated: SqlValue[] = []
  const text = sql.replaceAll('?', '\\?').replace(/\$(\d+)/g, (_, number: string) => {
    repeated.push(values[Number(number) - 1] ?? null)
    return '?'
  })
  return [text, repeated]
}
