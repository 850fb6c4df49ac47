import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { afterwards, event, outboxOn, rowsIn } from '../../support/trap-kit.js'
import { Cursor, opened, payloads, wireOf } from './with-the-commit.kit.js'

/** With `pg`, the BEGIN of a managed transaction goes in one packet with its first statement, whoever sends that. */

const TABLE = 'create table business (id int primary key)'
const insert = (id: number) => ({ text: 'insert into business (id) values ($1)', values: [id] })
const ids = async (pool: pg.Pool) =>
  (await pool.query('select id from business order by id')).rows.map(({ id }) => id)

interface Connection {
  parse(message: { name: string; text: string }): void
  readonly parsedStatements: Record<string, string>
}
const connectionOf = (client: unknown) => (client as { connection: Connection }).connection

async function shop() {
  const { pool, outbox } = await opened({ doorbell: false })
  await pool.query(TABLE)
  return { pool, outbox }
}

describe('a transaction with a statement and an event', () => {
  it('takes two round trips in all', async () => {
    const { pool, outbox } = await shop()
    const client = await pool.connect()
    const sent = wireOf(client)
    client.release()
    await outbox.transaction(async (tx) => {
      expect(tx.client).toBe(client)
      await tx.client.query(insert(1))
      await tx.publish(event())
    })
    expect(sent).toEqual(['begin', 'insert', 'wait', 'insert', 'commit', 'wait'])
    expect(await ids(pool)).toEqual([1])
    expect(await rowsIn(pool)).toHaveLength(1)
  })

  it('has nothing to begin, commit or roll back when it does nothing', async () => {
    const { pool, outbox } = await shop()
    const client = await pool.connect()
    const sent = wireOf(client)
    client.release()
    const seen: string[] = []
    const done = outbox.transaction(async (tx) => {
      tx.afterCommit(() => seen.push('committed'))
      return 'nothing'
    })
    expect(await done).toBe('nothing')
    const failed = outbox.transaction(async (tx) => {
      tx.afterRollback(() => seen.push('rolled back'))
      throw new Error('not today')
    })
    await expect(failed).rejects.toThrow('not today')
    expect(seen).toEqual(['committed', 'rolled back'])
    expect(sent).toEqual([])
    // The next user of the client is in no transaction, and is told so.
    expect(client.getTransactionStatus()).toBe('I')
    await pool.query(insert(1))
    expect(await ids(poolOf(pool))).toEqual([1])
  })
})

/** Somebody else's connection. */
function poolOf(pool: pg.Pool): pg.Pool {
  const other = new pg.Pool({ connectionString: pool.options.connectionString as string, max: 1 })
  afterwards('end the pool', () => other.end())
  return other
}

describe('the first statement', () => {
  const forms: readonly (readonly [string, (client: pg.PoolClient) => Promise<unknown>])[] = [
    ['with values', (client) => client.query(insert(1))],
    ['text alone', (client) => client.query('insert into business values (1)')],
    ['several at once', (client) => client.query('select 1; insert into business values (1); select 2')],
    ['a prepared one', (client) => client.query({ name: 'mine', ...insert(1) })],
    [
      'with a callback',
      (client) =>
        new Promise<void>((resolve, reject) =>
          client.query(insert(1), (error) => (error ? reject(error) : resolve())),
        ),
    ],
    [
      'past whoever looks at client.query',
      (client) =>
        (pg.Client.prototype.query as (text: string) => Promise<unknown>).call(
          client,
          'insert into business values (1)',
        ),
    ],
    [
      'a cursor',
      async (client) => {
        const cursor = client.query(new Cursor('insert into business values (1) returning id'))
        await cursor.row
        await cursor.close()
      },
    ],
  ]

  it.each(forms)('is part of the transaction, and rolled back with it: %s', async (_form, run) => {
    const { pool, outbox } = await shop()
    for (const _round of [1, 2]) {
      const failed = outbox.transaction(async (tx) => {
        await run(tx.client)
        expect(tx.client.getTransactionStatus()).toBe('T')
        await tx.publish(event())
        throw new Error('no')
      })
      await expect(failed).rejects.toThrow('no')
    }
    expect(await ids(pool)).toEqual([])
    expect(await rowsIn(pool)).toEqual([])
    await outbox.transaction(async (tx) => {
      await run(tx.client)
      await tx.publish(event())
    })
    expect(await ids(pool)).toEqual([1])
    expect(await rowsIn(pool)).toHaveLength(1)
  })

  it('gets its own answer and nothing of the BEGIN', async () => {
    const { outbox } = await shop()
    await outbox.transaction(async (tx) => {
      const results = (await tx.client.query('select 1 as a; select 2 as b')) as unknown as pg.QueryResult[]
      expect(results.map(({ command, rows }) => [command, rows])).toEqual([
        ['SELECT', [{ a: 1 }]],
        ['SELECT', [{ b: 2 }]],
      ])
    })
    const one = await outbox.transaction(async (tx) => tx.client.query('select $1::int as a', [3]))
    expect([one.command, one.rows]).toEqual(['SELECT', [{ a: 3 }]])
  })

  it('that fails leaves a failed transaction, of which nothing is committed', async () => {
    const { pool, outbox } = await shop()
    const failed = outbox.transaction(async (tx) => {
      await tx.client.query({ name: 'wrong', text: 'select nonsense($1)', values: [1] }).catch(() => {})
      expect(tx.client.getTransactionStatus()).toBe('E')
      expect(connectionOf(tx.client).parsedStatements).not.toHaveProperty('wrong')
      await tx.publish(event())
    })
    await expect(failed).rejects.toMatchObject({ code: 'TRANSACTION_ROLLED_BACK' })
    expect(await rowsIn(pool)).toEqual([])
  })

  it('that ends the transaction ends it: an event behind it is refused, and does not commit by itself', async () => {
    const { pool, outbox } = await shop()
    const failed = outbox.transaction(async (tx) => {
      await tx.client.query('commit')
      await tx.publish(event())
    })
    await expect(failed).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    expect(await rowsIn(pool)).toEqual([])
  })

  it('waits for one that the pool has sent before', async () => {
    const { pool } = await shop()
    const fresh = poolOf(pool)
    const { outbox } = outboxOn(fresh)
    const order: unknown[] = []
    fresh.on('connect', (client) => {
      client.query('select 4711 as n').then(({ rows }) => order.push(rows[0].n))
    })
    await outbox.transaction(async (tx) => {
      order.push((await tx.client.query('select 4712 as n')).rows[0].n)
      await tx.publish(event('thing.happened', 'after it'))
    })
    expect(order).toEqual([4711, 4712])
    expect(await payloads(pool)).toEqual(['after it'])
  })
})

describe('a BEGIN that fails', () => {
  it.each([
    ['with values', insert(1)],
    ['text alone', { text: 'insert into business values (1)' }],
  ])('takes its statement with it, and nothing commits by itself afterwards: %s', async (_form, first) => {
    const { pool, outbox } = await shop()
    const clients: unknown[] = []
    const failed = outbox.transaction(async (tx) => {
      clients.push(tx.client)
      const connection = connectionOf(tx.client)
      const { parse } = connection
      connection.parse = (message) =>
        parse.call(connection, message.text === 'BEGIN' ? { name: '', text: 'BEGIN NONSENSE' } : message)
      // An application that goes on, whatever happens.
      for (const statement of [first, insert(2), insert(3)]) await tx.client.query(statement).catch(() => {})
      await tx.publish(event()).catch(() => {})
    })
    await expect(failed).rejects.toThrow()
    expect(await ids(pool)).toEqual([])
    expect(await rowsIn(pool)).toEqual([])
    // The pool gives out another one.
    await outbox.transaction(async (tx) => {
      expect(clients).not.toContain(tx.client)
      await tx.client.query(insert(4))
    })
    expect(await ids(pool)).toEqual([4])
  })
})
