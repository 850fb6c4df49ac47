// entry: aftercommit/drizzle
import { serialized } from '../ambient.js'
import { AftercommitError, InvalidSettingError } from '../core/errors.js'
import { readSettings } from '../core/settings.js'
import { causesOf, read } from '../core/unknown.js'
import type { HostedTransactions, SqlRow, SqlValue, TransactionHost, TransactionsOf } from '../transaction.js'

/** A database of Drizzle's, whatever the driver. */
export interface DrizzleDatabase {
  transaction: (...args: never[]) => unknown
}

/** The `tx` that this database gives to the body of a transaction. */
export type DrizzleTransaction<Db extends DrizzleDatabase> = Parameters<Db['transaction']>[0] extends (
  tx: infer Tx extends object,
  ...rest: never
) => unknown
  ? Tx
  : never

/** Isolation level and access mode, or what the driver has. */
export type DrizzleOptions<Db extends DrizzleDatabase> = NonNullable<Parameters<Db['transaction']>[1]>

/**
 * Transactions of Drizzle with the outbox in them. With a synchronous driver (`better-sqlite3`) the body may be
 * asynchronous all the same: such transactions run one after the other, and BEGIN is IMMEDIATE unless the options say
 * otherwise.
 */
export function drizzleTransactions<Db extends DrizzleDatabase>(
  outbox: TransactionsOf,
  db: Db,
): HostedTransactions<DrizzleTransaction<Db>, DrizzleOptions<Db>> {
  const host = isSynchronous(db) ? synchronousHost(db) : asynchronousHost(db as unknown as Asynchronous)
  const hosting = Object.assign(host, { source: db }) as unknown
  return outbox.transactionsOf(hosting as TransactionHost<DrizzleTransaction<Db>, DrizzleOptions<Db>>)
}

/** What stands for a statement in Drizzle; its `sql` template makes the same. */
interface Statement {
  getSQL(): { toQuery(): { readonly sql: string; readonly params: unknown[] } }
}

/** PostgreSQL and MySQL have `execute`, SQLite has `all` and `run`. */
interface Handle {
  execute?(statement: Statement): PromiseLike<unknown>
  all?(statement: Statement): PromiseLike<unknown> | unknown
  run?(statement: Statement | string): PromiseLike<unknown> | unknown
}

interface Asynchronous extends Handle {
  readonly $client?: { reconnect?(): Promise<unknown> }
  transaction<T>(body: (tx: Handle) => Promise<T>, options?: unknown): Promise<T>
}

interface Synchronous {
  readonly resultKind: 'sync'
  readonly $client: { exec(sql: string): unknown }
  all(statement: Statement): unknown
  run(statement: Statement): unknown
  transaction(body: (tx: Handle) => void): void
}

function isSynchronous(db: unknown): db is Synchronous {
  return (db as Partial<Synchronous>).resultKind === 'sync'
}

function asynchronousHost(db: Asynchronous): TransactionHost<Handle> {
  const isSqlite = db.execute === undefined
  const transaction: TransactionHost<Handle>['transaction'] = (body, options) => db.transaction(body, options)
  return {
    transaction: isSqlite ? (body, options) => queued(db, transaction, body, options) : transaction,
    // postgres.js fails the transaction for a failed statement that no savepoint of its own surrounds.
    savepoint: (tx, body) => (tx as Asynchronous).transaction(body),
    query,
  }
}

/** SQLite has one writer, and its drivers give up at once where another one has the lock. */
function queued<T>(
  db: Asynchronous,
  transaction: TransactionHost<Handle>['transaction'],
  body: (tx: Handle) => Promise<T>,
  options: unknown,
): Promise<T> {
  return alone(connectionOf(db), async () => {
    let hasBegun = false
    const begun = (tx: Handle) => {
      hasBegun = true
      return body(tx)
    }
    return patiently(
      () => transaction(begun, options),
      // A BEGIN that fails stays under way on libSQL's connection, where no later transaction could commit.
      async () => {
        if (!hasBegun) await db.$client?.reconnect?.()
        return !hasBegun
      },
    )
  })
}

/** BEGIN and COMMIT of our own, since Drizzle's would commit before the body has got to its first await. */
function synchronousHost(db: Synchronous): TransactionHost<Handle, { readonly behavior?: string }> {
  return {
    transaction: (body, options) =>
      alone(connectionOf(db), async () => {
        const behavior = behaviorOf(options)
        let tx: Handle = db
        // For the handle alone: it goes on working behind the empty transaction that it came with.
        db.transaction((handle) => {
          tx = handle
        })
        await patiently(() => begin(db, behavior))
        try {
          const result = await body(tx)
          db.$client.exec('COMMIT')
          return result
        } catch (error) {
          rollBack(db)
          throw error
        }
      }),
    query,
  }
}

/** What several databases of Drizzle's may share. */
function connectionOf(db: object): object {
  return (db as { readonly $client?: object }).$client ?? db
}

/** One transaction at a time, whichever outbox it belongs to; the others wait in the order in which they asked. */
function alone<T>(connection: object, body: () => Promise<T>): Promise<T> {
  return serialized(connection, body, nested)
}

function nested(): AftercommitError {
  return new AftercommitError(
    'NESTED_TRANSACTION',
    'A transaction of another outbox is open on this connection, and a second one would wait for it for ever.',
  )
}

const PATIENCE_MS = 10_000
const PAUSE_MS = 3

/** Waits for the lock by timers: the driver's own waiting would stop the process, and perhaps the one that has the lock. */
async function patiently<T>(attempt: () => T | Promise<T>, mayRepeat = async () => true): Promise<T> {
  const giveUpAt = performance.now() + PATIENCE_MS
  for (;;) {
    try {
      return await attempt()
    } catch (error) {
      // Asked first, for what it does: the next transaction needs the connection as much as another attempt.
      if (!isBusy(error) || !(await mayRepeat()) || performance.now() >= giveUpAt) throw error
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
  }
}

function isBusy(error: unknown): boolean {
  return causesOf(error).some((cause) => {
    const code = read(cause, 'code')
    return typeof code === 'string' && code.startsWith('SQLITE_BUSY')
  })
}

function behaviorOf(options: { readonly behavior?: string } | undefined): string {
  const { behavior = 'immediate' } = readSettings('a transaction of Drizzle', options, ['behavior'])
  if (BEHAVIORS.includes(behavior)) return behavior
  throw new InvalidSettingError('behavior', `must be one of: ${BEHAVIORS.join(', ')}`)
}

const BEHAVIORS: readonly string[] = ['deferred', 'immediate', 'exclusive']

function begin(db: Synchronous, behavior: string): void {
  const [setting] = db.all(statement('PRAGMA busy_timeout', [])) as readonly SqlRow[]
  db.$client.exec('PRAGMA busy_timeout = 0')
  try {
    db.$client.exec(`BEGIN ${behavior}`)
  } finally {
    db.$client.exec(`PRAGMA busy_timeout = ${Number(setting?.timeout ?? 0)}`)
  }
}

/** SQLite may have done so itself, and the error that led here says more than that. */
function rollBack(db: Synchronous): void {
  try {
    db.$client.exec('ROLLBACK')
  } catch {}
}

async function query(tx: Handle, sql: string, params: readonly SqlValue[]): Promise<readonly SqlRow[]> {
  return run(tx, sql, params).catch((error) => {
    // Drizzle's own error holds the parameters, and a payload is not for logs.
    throw Object(error).cause ?? error
  })
}

async function run(tx: Handle, sql: string, params: readonly SqlValue[]): Promise<readonly SqlRow[]> {
  const asked = statement(sql, params)
  if (GIVES_ROWS.test(sql)) return rowsOf(await (tx.execute ? tx.execute(asked) : tx.all?.(asked)))
  await (tx.execute ? tx.execute(asked) : tx.run?.(asked))
  return []
}

/** Drivers answer other statements in many ways, and a synchronous one refuses to look for rows there. */
const GIVES_ROWS = /^\s*select\b|\breturning\b/i

function statement(sql: string, params: readonly SqlValue[]): Statement {
  return { getSQL: () => ({ toQuery: () => ({ sql, params: [...params] }) }) }
}

/** Rows (postgres.js, SQLite), rows and their columns (mysql2), or an object that has them (pg, PGlite). */
function rowsOf(result: unknown): readonly SqlRow[] {
  if (!Array.isArray(result)) return (result as { readonly rows: readonly SqlRow[] }).rows
  return Array.isArray(result[0]) ? result[0] : result
}
