import type { BetterSQLite3Database } from 'drizzle-orm/better-sqlite3'
import type { LibSQLDatabase } from 'drizzle-orm/libsql'
import type { MySql2Database } from 'drizzle-orm/mysql2'
import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
import type { PgTransactionConfig } from 'drizzle-orm/pg-core'
import type { Knex } from 'knex'
import type { Kysely, Transaction as KyselysTransaction } from 'kysely'
import { describe, expectTypeOf, it } from 'vitest'
import { exactlyOnce } from '../../src/inbox/index.js'
import type { Outbox, Transaction } from '../../src/index.js'
import { drizzleTransactions } from '../../src/transactions/drizzle.js'
import { knexTransactions } from '../../src/transactions/knex.js'
import { kyselyTransactions } from '../../src/transactions/kysely.js'

declare const outbox: Outbox<{ client: true }>

/** What the ORM itself gives to the body of a transaction. */
type BodyOf<Db extends { transaction(body: never, ...rest: never[]): unknown }> = Parameters<
  Parameters<Db['transaction']>[0]
>[0]

describe('Drizzle', () => {
  it('gives its own transaction, and takes its own options', async () => {
    const transaction = drizzleTransactions(outbox, {} as NodePgDatabase)
    const result = transaction(
      async (tx, scope) => {
        expectTypeOf(tx).toEqualTypeOf<BodyOf<NodePgDatabase>>()
        expectTypeOf(scope).toEqualTypeOf<Transaction<BodyOf<NodePgDatabase>>>()
        return 1
      },
      { isolationLevel: 'serializable', accessMode: 'read write' },
    )
    expectTypeOf(result).toEqualTypeOf<Promise<number>>()
    expectTypeOf(transaction).parameter(1).toEqualTypeOf<PgTransactionConfig | undefined>()
    // @ts-expect-error there is no such isolation level
    await transaction(async () => {}, { isolationLevel: 'chaos' })
  })

  it('does so with every driver', async () => {
    await drizzleTransactions(
      outbox,
      {} as MySql2Database,
    )(async (tx) => expectTypeOf(tx).toEqualTypeOf<BodyOf<MySql2Database>>())
    await drizzleTransactions(
      outbox,
      {} as LibSQLDatabase,
    )(async (tx) => expectTypeOf(tx).toEqualTypeOf<BodyOf<LibSQLDatabase>>())
    const synchronous = drizzleTransactions(outbox, {} as BetterSQLite3Database)
    await synchronous(async (tx) => expectTypeOf(tx).toEqualTypeOf<BodyOf<BetterSQLite3Database>>(), {
      behavior: 'exclusive',
    })
  })
})

describe('Kysely', () => {
  interface Tables {
    orders: { id: string }
  }

  it('gives its own transaction, and takes its own options', async () => {
    const transaction = kyselyTransactions(outbox, {} as Kysely<Tables>)
    const result = transaction(
      async (tx) => {
        expectTypeOf(tx).toEqualTypeOf<KyselysTransaction<Tables>>()
        return tx.insertInto('orders').values({ id: 'o-1' }).execute()
      },
      { isolationLevel: 'repeatable read', accessMode: 'read write' },
    )
    expectTypeOf(result).resolves.toBeArray()
    // @ts-expect-error there is no such isolation level
    await transaction(async () => {}, { isolationLevel: 'chaos' })
    // @ts-expect-error there is no such table
    await transaction(async (tx) => tx.insertInto('nothing'))
  })
})

describe('Knex', () => {
  it('gives its own transaction, and takes its own options', async () => {
    const transaction = knexTransactions(outbox, {} as Knex)
    await transaction(async (trx) => expectTypeOf(trx).toEqualTypeOf<Knex.Transaction>(), {
      isolationLevel: 'serializable',
      readOnly: false,
    })
    expectTypeOf(transaction).parameter(1).toEqualTypeOf<Knex.TransactionConfig | undefined>()
    // @ts-expect-error there is no such isolation level
    await transaction(async () => {}, { isolationLevel: 'chaos' })
  })
})

it('gives exactly-once handlers the transaction of the ORM', () => {
  const transaction = kyselyTransactions(outbox, {} as Kysely<{ orders: { id: string } }>)
  exactlyOnce((_event, { tx }) => {
    expectTypeOf(tx.client).toEqualTypeOf<KyselysTransaction<{ orders: { id: string } }>>()
  }, transaction)
})
