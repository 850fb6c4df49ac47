// entry: aftercommit/prisma
import { AftercommitError } from '../core/errors.js'
import { isA, read } from '../core/unknown.js'
import type { HostedTransactions, SqlRow, SqlValue, TransactionsOf } from '../transaction.js'

/** A PrismaClient, extended or not. */
export interface PrismaDatabase {
  // The arguments of a client that is not known yet.
  $transaction(...args: never[]): Promise<unknown>
}

/** Its `Prisma.TransactionClient`. */
export type PrismaTransaction<Client extends PrismaDatabase> = Parameters<Client['$transaction']>[0] extends (
  tx: infer Tx extends object,
) => unknown
  ? Tx
  : never

/** `maxWait`, `timeout` and `isolationLevel`. */
export type PrismaOptions<Client extends PrismaDatabase> = Extract<
  Parameters<Client['$transaction']>[1],
  object
>

/** Of those for SQLite the only one known to refuse what comes behind the end of a transaction. */
const REFUSES_LATE = '@prisma/adapter-libsql'

/**
 * Interactive transactions of Prisma with the outbox in them. When Prisma's `timeout` ends one, a statement of the
 * application that was on its way may be committed by itself; one of the outbox is refused on PostgreSQL, MySQL, MariaDB
 * and, with `adapter-libsql`, SQLite. Other adapters for SQLite are refused (`UNSUPPORTED`).
 */
export function prismaTransactions<Client extends PrismaDatabase>(
  outbox: TransactionsOf,
  prisma: Client,
): HostedTransactions<PrismaTransaction<Client>, PrismaOptions<Client>> {
  const client = prisma as unknown as Runner<PrismaTransaction<Client>>
  const adapter = client._engineConfig?.adapter
  const refusesLate = adapter?.adapterName === REFUSES_LATE
  const isMysql = adapter?.provider === 'mysql'
  if (adapter?.provider === 'sqlite' && !refusesLate) throw wouldBeCommitted()
  return outbox.transactionsOf<PrismaTransaction<Client>, PrismaOptions<Client>>({
    source: client,
    refusesLate,
    transaction: (body, options) => client.$transaction(body, options).catch(explain),
    async query(tx, sql, params) {
      // The question of the store for SQLite, which fails inside of a transaction: Prisma then drops, without a word,
      // the statements of the application that were sent at the same time.
      if (sql === 'BEGIN') throw wouldBeCommitted()
      const handle = tx as unknown as Handle
      const [, verb, name] = (isMysql && handle.$transaction && SAVEPOINT.exec(sql)) || []
      if (!verb || !name) return query(handle, sql, params)
      await nestingOf(handle).send(verb, name)
      return []
    },
    ...(isMysql ? { savepoint: nested } : {}),
  })
}

async function nested<Tx extends object, T>(tx: Tx, body: (inner: Tx) => Promise<T>): Promise<T> {
  return nestingOf(tx as unknown as Handle).run((inner) => body(inner as unknown as Tx))
}

function unsupported(message: string): AftercommitError {
  return new AftercommitError('UNSUPPORTED', message)
}

function wouldBeCommitted(): AftercommitError {
  return unsupported(
    `With this driver adapter of Prisma an event that comes after the end of its transaction would be committed by itself. On SQLite use ${REFUSES_LATE}.`,
  )
}

interface Runner<Tx> {
  /** Nothing that Prisma documents. Without it SQLite is refused at the first event. */
  readonly _engineConfig?: {
    readonly adapter?: { readonly adapterName?: unknown; readonly provider?: unknown }
  }
  $transaction<T>(body: (tx: Tx) => Promise<T>, options?: object): Promise<T>
}

interface Handle {
  $queryRawUnsafe(sql: string, ...params: readonly SqlValue[]): Promise<SqlRow[]>
  /** Nested transactions, since Prisma 7.5. */
  $transaction?<T>(body: (inner: Handle) => Promise<T>): Promise<T>
}

const SAVEPOINT = /^(SAVEPOINT|RELEASE SAVEPOINT|ROLLBACK TO SAVEPOINT) (\w+)$/

/** The server prepares no such statement. */
const NOT_PREPARED = '1295'
const NO_SAVEPOINT =
  'Inside a nested transaction that was begun by tx.$transaction(), Prisma allows no savepoint on MySQL. Begin nested transactions by the function that began the outer one.'

/** Ends a savepoint: without an error by releasing it, with one by rolling back to it. */
type End = (error?: Error) => Promise<void>

/** By each handle of a transaction, also those of nested ones. */
const nestings = new WeakMap<Handle, Nesting>()

function nestingOf(tx: Handle): Nesting {
  const known = nestings.get(tx) ?? new Nesting(tx)
  nestings.set(tx, known)
  return known
}

/**
 * Nested transactions of Prisma in the place of savepoints, for MySQL and MariaDB. Since version 7.5 Prisma prepares every
 * raw statement, and MySQL prepares no SAVEPOINT (error 1295). Prisma itself sends its savepoints as plain text.
 */
class Nesting {
  /** The outermost handle, and those of the nested transactions that are open. */
  readonly #handles: Handle[]
  readonly #savepoints: { readonly name: string; readonly end: End }[] = []
  #count = 0

  constructor(tx: Handle) {
    this.#handles = [tx]
  }

  async run<T>(body: (inner: Handle) => Promise<T>): Promise<T> {
    let hasBegun = false
    const nested = this.#innermost.$transaction?.(async (inner) => {
      hasBegun = true
      nestings.set(inner, this)
      this.#handles.push(inner)
      try {
        return await body(inner)
      } finally {
        this.#handles.splice(this.#handles.indexOf(inner), 1)
      }
    })
    if (!nested) return this.#bySql(body)
    return nested.catch((error) => {
      if (hasBegun || !isConcurrent(error)) throw error
      return this.#bySql(body)
    })
  }

  /** For a Prisma that does not nest, and where the application has begun a nested transaction: only its handle nests. */
  async #bySql<T>(body: (inner: Handle) => Promise<T>): Promise<T> {
    const tx = this.#innermost
    const name = `aftercommit_nested_${++this.#count}`
    await query(tx, `SAVEPOINT ${name}`, []).catch((error) => {
      throw reportOf(error)?.originalCode === NOT_PREPARED ? unsupported(NO_SAVEPOINT) : error
    })
    try {
      const result = await body(tx)
      await query(tx, `RELEASE SAVEPOINT ${name}`, [])
      return result
    } catch (error) {
      await query(tx, `ROLLBACK TO SAVEPOINT ${name}`, []).catch(() => {})
      throw error
    }
  }

  /** A statement about a savepoint of the store. */
  async send(verb: string, name: string): Promise<void> {
    if (verb === 'SAVEPOINT') {
      this.#savepoints.push({ name, end: await this.#begun() })
      return
    }
    const at = this.#savepoints.findLastIndex((savepoint) => savepoint.name === name)
    const [savepoint] = at < 0 ? [] : this.#savepoints.splice(at)
    await savepoint?.end(verb === 'RELEASE SAVEPOINT' ? undefined : new Error('rolled back to a savepoint'))
  }

  get #innermost(): Handle {
    return this.#handles.at(-1) as Handle
  }

  #begun(): Promise<End> {
    return new Promise((resolve, reject) => {
      const running = this.run(
        () =>
          new Promise<void>((release, rollBack) => {
            resolve(async (error) => {
              if (error) rollBack(error)
              else release()
              await running.catch((reason) => {
                if (reason !== error) explain(reason)
              })
            })
          }),
      )
      running.catch((error) => {
        if (error instanceof AftercommitError) resolve((cause) => this.#unnested(cause))
        else reject(error)
      })
    })
  }

  /** Inside a nested transaction that the application began, Prisma tells at least whether it has ended the outer one. */
  async #unnested(error: Error | undefined): Promise<void> {
    if (!error) return void (await query(this.#innermost, 'select 1', []))
    throw unsupported(
      'Only a part of the events was written inside a nested transaction of Prisma, which allows no savepoint there. Roll the transaction back.',
    )
  }
}

/** Prisma begins a nested transaction only on the handle of the innermost one. */
function isConcurrent(error: unknown): boolean {
  return error instanceof Error && /concurrent nested transactions/i.test(error.message)
}

async function query(tx: Handle, sql: string, params: readonly SqlValue[]): Promise<readonly SqlRow[]> {
  return tx.$queryRawUnsafe(sql, ...params).catch(explain)
}

/** What the driver adapter noted of the driver's error. */
interface Report {
  readonly originalCode: string
  readonly originalMessage?: string
  readonly state?: string
}

/** In the error of a statement it is hidden, in that of a COMMIT it is the cause. */
function reportOf(error: unknown): Report | undefined {
  const ofStatement = read(read(read(error, 'meta'), 'driverAdapterError'), 'cause')
  const report = ofStatement ?? read(error, 'cause')
  return typeof read(report, 'originalCode') === 'string' ? (report as Report) : undefined
}

/** Adds to the report what the stores look for, in the words of each driver, and makes it the cause of the error. */
function explain(error: unknown): never {
  const report = reportOf(error)
  if (report && isA(error, Error)) {
    const { originalCode: code, originalMessage: message, state: sqlState = '' } = report
    const number = Number(code)
    const words = { code, severity: 'ERROR', errno: number, sqlState, errcode: number, message }
    Object.assign(report, { ...words, ...report })
    error.cause ??= report
  }
  throw error
}
