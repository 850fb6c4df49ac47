// entry: aftercommit/typeorm
import { serialized } from '../ambient.js'
import { AftercommitError } from '../core/errors.js'
import type { HostedTransactions, SqlRow, SqlValue, TransactionsOf } from '../transaction.js'

/** A DataSource of TypeORM's. */
export interface TypeOrmDataSource {
  /** Of the type that the body of a transaction gets. */
  readonly manager: object
  // The manager of a data source that is not known yet.
  transaction(isolation: never, body: (manager: never) => Promise<never>): Promise<unknown>
}

/** Its `EntityManager`. */
export type TypeOrmManager<Source extends TypeOrmDataSource> = Source['manager']

/** Its isolation levels, by name. */
export type TypeOrmIsolation<Source extends TypeOrmDataSource> = Extract<
  Parameters<Source['transaction']>[0],
  string
>

/**
 * Transactions of TypeORM with the outbox in them. On SQLite, where a data source has one connection, they run one after
 * the other.
 */
export function typeormTransactions<Source extends TypeOrmDataSource>(
  outbox: TransactionsOf,
  dataSource: Source,
): HostedTransactions<TypeOrmManager<Source>, TypeOrmIsolation<Source>> {
  const source = dataSource as unknown as Runner<TypeOrmManager<Source>>
  return outbox.transactionsOf<TypeOrmManager<Source>, TypeOrmIsolation<Source>>({
    source,
    transaction: (body, isolation) =>
      alone(source, () =>
        isolation === undefined ? source.transaction(body) : source.transaction(isolation, body),
      ),
    query,
  })
}

interface QueryRunner {
  readonly isTransactionActive: boolean
  rollbackTransaction(): Promise<void>
  query(sql: string, params: readonly SqlValue[], structured: true): Promise<{ readonly records: SqlRow[] }>
}

interface Runner<Manager> {
  transaction<T>(body: (manager: Manager) => Promise<T>): Promise<T>
  transaction<T>(isolation: string, body: (manager: Manager) => Promise<T>): Promise<T>
  createQueryRunner(): QueryRunner
}

async function query(manager: object, sql: string, params: readonly SqlValue[]): Promise<readonly SqlRow[]> {
  const { queryRunner } = manager as { readonly queryRunner: QueryRunner }
  return (await queryRunner.query(sql, [...params], true)).records
}

/** One that begins while another is open on the one connection of its data source would become a savepoint in it. */
async function alone<Manager, T>(source: Runner<Manager>, run: () => Promise<T>): Promise<T> {
  const runner = source.createQueryRunner()
  if (runner !== source.createQueryRunner()) return run()
  const work = async () => {
    if (runner.isTransactionActive) throw nested()
    return run().catch((error) => repaired(runner, error))
  }
  return serialized(source, work, nested)
}

/** SQLite may have rolled back by itself; TypeORM's ROLLBACK then fails, and it takes the transaction for open ever after. */
async function repaired(runner: QueryRunner, error: unknown): Promise<never> {
  if (runner.isTransactionActive) {
    await runner.query('BEGIN', [], true).catch(() => {})
    await runner.rollbackTransaction().catch(() => {})
  }
  throw error
}

function nested(): AftercommitError {
  return new AftercommitError(
    'NESTED_TRANSACTION',
    'Another transaction is open on the one connection of this data source. Begin all of them by the same function.',
  )
}
