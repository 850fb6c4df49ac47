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
 * application that was on its way may be committed by itself; one of the outbox is refused on PostgreSQL, MariaDB and,
 * with `adapter-libsql`, SQLite. Other adapters for SQLite are refused (`UNSUPPORTED`).
 */
export function prismaTransactions<Client extends PrismaDatabase>(
  outbox: TransactionsOf,
  prisma: Client,
): HostedTransactions<PrismaTransaction<Client>, PrismaOptions<Client>> {
  const client = prisma as unknown as Runner<PrismaTransaction<Client>>
  const adapter = client._engineConfig?.adapter
  const refusesLate = adapter?.adapterName === REFUSES_LATE
  if (adapter?.provider === 'sqlite' && !refusesLate) throw wouldBeCommitted()
  return outbox.transactionsOf<PrismaTransaction<Client>, PrismaOptions<Client>>({
    source: client,
    refusesLate,
    transaction: (body, options) => client.$transaction(body, options).catch(explain),
    async query(tx, sql, params) {
      // The question of the store for SQLite, which fails inside of a transaction: Prisma then drops, without a word,
      // the statements of the application that were sent at the same time.
      if (sql === 'BEGIN') throw wouldBeCommitted()
      return query(tx as unknown as Handle, sql, params)
    },
  })
}

function wouldBeCommitted(): AftercommitError {
  return new AftercommitError(
    'UNSUPPORTED',
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
