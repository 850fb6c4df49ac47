import { RequestContext, TransactionPropagation, UniqueConstraintViolationException } from '@mikro-orm/core'
import { EntitySchema, type EventArgs, MikroORM } from '@mikro-orm/postgresql'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { mikroOrmTransactions } from '../../src/transactions/mikro-orm.js'
import { type Database, postgresDatabase } from './support/postgres.js'
import { newId, started } from './support/started.js'

/** What an entity does when it is written; set by the test. */
let onWritten: (entity: { id: string }) => Promise<unknown> = async () => {}

const Business = new EntitySchema<{ id: string }>({
  name: 'Business',
  tableName: 'business',
  properties: { id: { type: 'string', primary: true } },
  hooks: { afterCreate: [async ({ entity }: EventArgs<{ id: string }>) => void (await onWritten(entity))] },
})

let database: Database
let orm: MikroORM
beforeAll(async () => {
  database = await postgresDatabase()
  orm = await MikroORM.init({ entities: [Business], clientUrl: database.url })
})
afterAll(async () => {
  await orm?.close()
  await database?.drop()
})

async function world() {
  onWritten = async () => {}
  const outbox = await started(database.world.createStore)
  return { ...outbox, transaction: mikroOrmTransactions(outbox.outbox, orm.em) }
}

const persist = (em: typeof orm.em, id: string) => em.persist(em.create(Business, { id }))

describe('the unit of work of MikroORM', () => {
  it('is written with the commit, without a flush by hand', async () => {
    const { transaction, publish, handledAll } = await world()
    const id = newId()
    await transaction(async (em) => {
      persist(em, id)
      await publish('one')
    })
    expect(await database.world.committed([id])).toEqual([id])
    await handledAll('one')
  })

  it('is seen by code that uses the global manager inside', async () => {
    const { transaction, publish, handledAll } = await world()
    const id = newId()
    const result = transaction(async () => {
      persist(orm.em, id)
      await orm.em.flush()
      await publish('never')
      throw new Error('roll back')
    })
    await expect(result).rejects.toThrow('roll back')
    expect(await database.world.committed([id])).toEqual([])
    await handledAll()
  })

  it('that cannot be written rolls everything back, and its error is the one that is thrown', async () => {
    const { transaction, publish, handledAll } = await world()
    const [taken, other] = [newId(), newId()]
    await orm.em.fork().insert(Business, { id: taken })
    const called: string[] = []
    const result = transaction(async (em, scope) => {
      scope.afterCommit(() => called.push('committed'))
      scope.afterRollback(() => called.push('rolled back'))
      persist(em, other)
      persist(em, taken)
      await publish('never')
    })
    await expect(result).rejects.toBeInstanceOf(UniqueConstraintViolationException)
    expect(called).toEqual(['rolled back'])
    expect(await database.world.committed([other])).toEqual([])
    await handledAll()
  })

  it('publishes from its hooks into the transaction', async () => {
    const { transaction, publish, handledAll } = await world()
    onWritten = () => publish('by a hook')
    await transaction(async (em) => void persist(em, newId()))
    await handledAll('by a hook')
  })

  it('publishes from its hooks into a nested transaction, which can be lost', async () => {
    const { transaction, publish, handledAll } = await world()
    onWritten = ({ id }) => publish(id)
    const [kept, lost] = [newId(), newId()]
    await transaction(async () => {
      await transaction(async (em) => void persist(em, kept))
      const inner = transaction(async (em) => {
        await persist(em, lost).flush()
        throw new Error('roll back')
      })
      await expect(inner).rejects.toThrow('roll back')
    })
    await handledAll(kept)
  })

  it('of a nested transaction that failed is not written by the outer one', async () => {
    const { transaction, publish, handledAll } = await world()
    const [outer, inner] = [newId(), newId()]
    await transaction(async (em, scope) => {
      persist(em, outer)
      const failed = transaction(async (innerEm) => {
        persist(innerEm, inner)
        await publish('never')
        throw new Error('roll back')
      })
      await expect(failed).rejects.toThrow('roll back')
      const again = scope.transaction(async ({ client }) => {
        persist(client, inner)
        throw new Error('roll back')
      })
      await expect(again).rejects.toThrow('roll back')
      await publish('one')
    })
    expect(await database.world.committed([outer, inner])).toEqual([outer])
    await handledAll('one')
  })

  it('of a fork or of a request is the one that the transaction works on', async () => {
    const { outbox, transaction, publish, handledAll } = await world()
    const id = newId()
    const fork = orm.em.fork()
    const onFork = mikroOrmTransactions(outbox, fork)
    await onFork(async (em) => {
      persist(em, id)
      await publish('by a fork')
      await em.transactional(async (inner) => {
        const deepest = onFork(async (innermost) => {
          expect(innermost).not.toBe(inner)
          await publish('never')
          throw new Error('roll back')
        })
        await expect(deepest).rejects.toThrow('roll back')
        await onFork(() => publish('deeper'))
      })
    })
    expect(fork.getUnitOfWork().getById('Business', id as never)).toBeDefined()
    await RequestContext.create(orm.em, async () => {
      await transaction(async () => void (await publish('in a request')))
    })
    expect((await database.world.committed([id])).length).toBe(1)
    await handledAll('by a fork', 'deeper', 'in a request')
  })
})

describe('a transaction of MikroORM that the outbox does not know', () => {
  it('is refused as the outer one: its rollback would not be seen', async () => {
    const { outbox, transaction, publish, handledAll } = await world()
    await orm.em.transactional(async () => {
      await expect(transaction(() => publish('never'))).rejects.toMatchObject({ code: 'NESTED_TRANSACTION' })
    })
    const em = orm.em.fork()
    await em.begin()
    await expect(mikroOrmTransactions(outbox, em)(() => publish('never'))).rejects.toMatchObject({
      code: 'NESTED_TRANSACTION',
    })
    await em.rollback()
    await handledAll()
  })

  it.each([
    TransactionPropagation.NOT_SUPPORTED,
    TransactionPropagation.NEVER,
    TransactionPropagation.SUPPORTS,
  ])('is refused when it is none: %s', async (propagation) => {
    const { transaction, publish, handledAll } = await world()
    await expect(transaction(() => publish('never'), { propagation })).rejects.toMatchObject({
      code: 'NO_ACTIVE_TRANSACTION',
    })
    await handledAll()
  })
})

describe('a commit that the server refuses', () => {
  it('is an error of the server, and a rollback', async () => {
    const { transaction, publish, handledAll } = await world()
    await orm.em.fork().execute(`create table if not exists late (id text primary key,
      business text references business(id) deferrable initially deferred)`)
    const called: string[] = []
    const result = transaction(async (em, scope) => {
      scope.afterRollback(() => called.push('rolled back'))
      await em.execute(`insert into late values ('l', 'nobody')`)
      await publish('never')
    })
    await expect(result).rejects.toMatchObject({ code: '23503' })
    expect(called).toEqual(['rolled back'])
    await handledAll()
  })
})
