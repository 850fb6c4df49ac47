import type { SqlEntityManager as MariadbManager, MikroORM as MikroMariadb } from '@mikro-orm/mariadb'
import type { MikroORM, SqlEntityManager, TransactionOptions } from '@mikro-orm/postgresql'
import type { DataSource, EntityManager } from 'typeorm'
import { describe, expectTypeOf, it } from 'vitest'
import type { Prisma, PrismaClient } from '../../.tmp/prisma/postgres/index.js'
import { exactlyOnce } from '../../src/inbox/index.js'
import type { Outbox, Transaction } from '../../src/index.js'
import { mikroOrmTransactions } from '../../src/transactions/mikro-orm.js'
import { prismaTransactions } from '../../src/transactions/prisma.js'
import { typeormTransactions } from '../../src/transactions/typeorm.js'

declare const outbox: Outbox<{ client: true }>

describe('Prisma', () => {
  const transaction = prismaTransactions(outbox, {} as PrismaClient)

  it('gives its own transaction, and takes its own options', async () => {
    const result = transaction(
      async (tx, scope) => {
        expectTypeOf(tx).toExtend<Prisma.TransactionClient>()
        expectTypeOf(tx.business.create).toBeFunction()
        expectTypeOf(tx).not.toHaveProperty('$connect')
        expectTypeOf(scope.client).toEqualTypeOf(tx)
        return 1
      },
      { isolationLevel: 'Serializable', timeout: 10, maxWait: 10 },
    )
    expectTypeOf(result).toEqualTypeOf<Promise<number>>()
    // @ts-expect-error there is no such isolation level
    await transaction(async () => {}, { isolationLevel: 'Chaos' })
    // @ts-expect-error there is no such model
    await transaction(async (tx) => tx.nothing)
    // @ts-expect-error a list of statements is no body
    await transaction([])
  })

  it('keeps what an extension adds', async () => {
    const extended = ({} as PrismaClient).$extends({ client: { $hello: () => 'hello' } })
    await prismaTransactions(
      outbox,
      extended,
    )(async (tx) => {
      expectTypeOf(tx.$hello()).toEqualTypeOf<'hello'>()
      await tx.business.create({ data: { id: '1' } })
    })
  })
})

describe('TypeORM', () => {
  const transaction = typeormTransactions(outbox, {} as DataSource)

  it('gives its EntityManager, and takes an isolation level', async () => {
    const result = transaction(async (manager, scope) => {
      expectTypeOf(manager).toEqualTypeOf<EntityManager>()
      expectTypeOf(scope).toEqualTypeOf<Transaction<EntityManager>>()
      return 'answer'
    }, 'REPEATABLE READ')
    expectTypeOf(result).toEqualTypeOf<Promise<string>>()
    // @ts-expect-error there is no such isolation level
    await transaction(async () => {}, 'CHAOS')
  })

  it('is what exactlyOnce takes', () => {
    exactlyOnce(async (_event, { tx }) => {
      expectTypeOf(tx.client).toEqualTypeOf<EntityManager>()
    }, transaction)
  })
})

describe('MikroORM', () => {
  it('gives the EntityManager of the driver, and takes its options', async () => {
    const transaction = mikroOrmTransactions(outbox, ({} as MikroORM).em)
    const result = transaction(async (em) => {
      expectTypeOf(em).toEqualTypeOf<MikroORM['em']>()
      expectTypeOf(em).toExtend<SqlEntityManager>()
      return null
    }, {} as TransactionOptions)
    expectTypeOf(result).toEqualTypeOf<Promise<null>>()
    // @ts-expect-error there is no such option
    await transaction(async () => {}, { chaos: true })

    await mikroOrmTransactions(
      outbox,
      ({} as MikroMariadb).em,
    )(async (em) => {
      expectTypeOf(em).toExtend<MariadbManager>()
    })
  })
})

it('nothing else is taken', () => {
  // @ts-expect-error no client
  prismaTransactions(outbox, {})
  // @ts-expect-error no data source
  typeormTransactions(outbox, { manager: {} })
  // @ts-expect-error the ORM and not its manager
  mikroOrmTransactions(outbox, {} as MikroORM)
  // @ts-expect-error no outbox
  typeormTransactions({}, {} as DataSource)
})
