import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { BEGIN, COMMIT } from '../../../src/stores/postgres/drivers/pg-packet.js'
import { behindBatchingPooler } from '../../support/batching-pooler.js'
import { afterwards, event, outboxOn, poolOn, rowsIn } from '../../support/trap-kit.js'
import { Cursor, opened, payloads, wireOf } from './with-the-commit.kit.js'

/**
 * With `pg`, the BEGIN of a managed transaction goes in one packet with its first statement, whoever sends that; or in
 * front of it, when that has no parameters or speaks the protocol itself.
 */

const TABLE = 'create table business (id int primary key)'
const insert = (id: number) => ({ text: 'insert into business (id) values ($1)', values: [id] })
const ids = async (pool: pg.Pool) =>
  (await pool.query('select id from business order by id')).rows.map(({ id }) => id)

interface Connection {
  parse(message: { name: string; text: string }): void
  query(text: string): void
  readonly stream: NodeJS.ReadableStream
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

  it('the next time BEGIN and COMMIT are known to the server', async () => {
    const { pool, outbox } = await opened({ doorbell: false, prepare: true })
    await pool.query(TABLE)
    const client = await pool.connect()
    const sent = wireOf(client)
    const parsed: string[] = []
    const { connection } = client as unknown as { connection: Connection }
    const { parse } = connection
    connection.parse = (message) => {
      parsed.push(message.text.trim().slice(0, 6).toLowerCase())
      parse.call(connection, message)
    }
    client.release()
    for (const id of [1, 2]) {
      await outbox.transaction(async (tx) => {
        await tx.client.query({ name: 'one', ...insert(id) })
        await tx.publish(event())
      })
    }
    const once = ['begin', 'insert', 'wait', 'insert', 'commit', 'wait']
    expect(sent).toEqual([...once, ...once])
    expect(parsed.filter((word) => word !== 'insert')).toEqual(['begin', 'commit'])
    // Of ours one that asks for its seq, and perhaps one that does not.
    expect(parsed.length).toBeLessThanOrEqual(5)
    expect(await ids(pool)).toEqual([1, 2])
  })

  it.each(['all', BEGIN.name, COMMIT.name])(
    'tells when %s was deallocated, commits nothing, and goes on with another client',
    async (what) => {
      const { pool, outbox } = await opened({ doorbell: false, prepare: true })
      await pool.query(TABLE)
      const order = (id: number) =>
        outbox.transaction(async (tx) => {
          await tx.client.query(insert(id))
          await tx.publish(event())
        })
      await order(1)
      await pool.query(`deallocate ${what}`)
      await expect(order(2)).rejects.toThrow('does not exist')
      await order(3)
      expect(await ids(pool)).toEqual([1, 3])
      expect(await rowsIn(pool)).toHaveLength(2)
    },
  )

  it('a client of the application is out of the transaction when its COMMIT was deallocated', async () => {
    const { pool, outbox } = await opened({ doorbell: false, prepare: true })
    const client = await pool.connect()
    afterwards('give the client back', async () => client.release())
    await outbox.transaction(client, (tx) => tx.publish(event()))
    await client.query(`deallocate ${COMMIT.name}`)
    const failed = outbox.transaction(client, (tx) => tx.publish(event()))
    await expect(failed).rejects.toThrow('does not exist')
    await client.query('select 1')
    expect(await rowsIn(pool)).toHaveLength(1)
  })

  it('a COMMIT that is refused is known to the server all the same', async () => {
    const { pool, outbox } = await opened({ doorbell: false, prepare: true })
    await pool.query(
      `${TABLE}; alter table business add constraint one unique (id) deferrable initially deferred`,
    )
    await pool.query('alter table business drop constraint business_pkey')
    const order = (id: number) =>
      outbox.transaction(async (tx) => {
        await tx.client.query(insert(id))
        await tx.client.query(insert(id))
        await tx.publish(event())
      })
    await expect(order(1)).rejects.toThrow('unique')
    await expect(order(2)).rejects.toThrow('unique')
    await outbox.transaction(async (tx) => {
      await tx.client.query(insert(3))
      await tx.publish(event())
    })
    expect([await ids(pool), (await rowsIn(pool)).length, pool.totalCount]).toEqual([[3], 1, 1])
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

  it('leaves nothing open when a statement that nobody waits for comes as it ends', async () => {
    const { pool } = await shop()
    const single = poolOf(pool)
    const { outbox } = outboxOn(single, {}, { doorbell: false })
    for (let turns = 0; turns < 40; turns++) {
      for (const outcome of ['commit', 'roll back']) {
        let floating: Promise<unknown> | undefined
        const done = outbox.transaction(async (tx) => {
          floating = (async () => {
            for (let turn = 0; turn < turns; turn++) await null
            await tx.client.query('select $1::int', [1])
          })()
          if (outcome === 'roll back') throw new Error('not today')
        })
        await done.catch(() => {})
        await floating
        await single.query(insert(turns))
        expect(await ids(pool)).toEqual([turns])
        await pool.query('delete from business')
      }
    }
  })

  it('has not committed when the connection was dead and the application does not look', async () => {
    const { pool, outbox } = await shop()
    const seen: string[] = []
    const failed = outbox.transaction(async (tx) => {
      tx.afterCommit(() => seen.push('committed'))
      tx.afterRollback(() => seen.push('rolled back'))
      const ended = new Promise((resolve) => tx.client.once('end', resolve))
      const { processID } = tx.client as unknown as { processID: number }
      await pool.query('select pg_terminate_backend($1)', [processID])
      await ended
      await tx.client.query(insert(1)).catch(() => {})
    })
    await expect(failed).rejects.toThrow()
    expect(seen).toEqual(['rolled back'])
    expect(await ids(pool)).toEqual([])
  })
})

/** As pg-copy-streams has it: reads what the server says from the socket. */
class CopyTo {
  readonly text: string
  readonly answers: string[] = []
  readonly done: Promise<void>
  #settle: { resolve(): void; reject(error: unknown): void } = { resolve() {}, reject() {} }
  #connection: Connection | null = null

  constructor(text: string) {
    this.text = text
    this.done = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject }
    })
  }

  submit(connection: unknown): void {
    this.#connection = connection as Connection
    this.#connection.stream.on('data', this.#read)
    this.#connection.query(this.text)
  }

  #read = (chunk: Buffer) => {
    for (let at = 0; at < chunk.length; at += 1 + chunk.readUInt32BE(at + 1)) {
      this.answers.push(String.fromCharCode(chunk[at] as number))
    }
  }

  handleError(error: unknown): void {
    this.#connection?.stream.removeListener('data', this.#read)
    this.#settle.reject(error)
  }

  handleReadyForQuery(): void {
    this.#connection?.stream.removeListener('data', this.#read)
    this.#settle.resolve()
  }

  handleCopyData(): void {}
  handleCommandComplete(): void {}
}

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
      (client) => Reflect.apply(pg.Client.prototype.query, client, ['insert into business values (1)']),
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

  it('that reads the answers itself, as COPY does, sees none to the BEGIN', async () => {
    const { pool, outbox } = await shop()
    await outbox.transaction(async (tx) => {
      const copy = tx.client.query(new CopyTo('copy (select 1) to stdout'))
      const published = tx.publish(event())
      await copy.done
      await published
      expect(copy.answers.join('')).toMatch(/^HdcC/)
      expect(tx.client.getTransactionStatus()).toBe('T')
    })
    expect(await rowsIn(pool)).toHaveLength(1)
  })

  it.each(forms)('is part of the transaction behind a pooler that reorders: %s', async (form, run) => {
    // It asks for its row by a Flush, which such a pooler does not know.
    if (form === 'a cursor') return
    const { pool } = await shop()
    const pooled = poolOn(await behindBatchingPooler(pool.options.connectionString as string))
    const { outbox } = outboxOn(pooled, {}, { doorbell: false })
    const failed = outbox.transaction(async (tx) => {
      await run(tx.client)
      await tx.publish(event())
      throw new Error('no')
    })
    await expect(failed).rejects.toThrow('no')
    expect(await ids(pool)).toEqual([])
  })

  it('that fails leaves a failed transaction, of which nothing is committed', async () => {
    const { pool, outbox } = await shop()
    const failed = outbox.transaction(async (tx) => {
      await tx.client.query({ name: 'wrong', text: 'select nonsense($1)', values: [1] }).catch(() => {})
      // The server sends the error off before it says in which state the transaction is.
      await tx.client.query('select 1').catch(() => {})
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
  it.each<[string, (client: pg.PoolClient) => Promise<unknown>]>([
    ['with values', (client) => client.query(insert(1))],
    ['text alone', (client) => client.query('insert into business values (1)')],
    [
      'a copy',
      (client) =>
        client.query(new CopyTo('copy (insert into business values (1) returning id) to stdout')).done,
    ],
  ])('takes its statement with it, and nothing commits by itself afterwards: %s', async (_form, first) => {
    const { pool, outbox } = await shop()
    const clients: unknown[] = []
    const failed = outbox.transaction(async (tx) => {
      clients.push(tx.client)
      const connection = connectionOf(tx.client)
      const { parse, query } = connection
      const wrong = (text: string) => (text === 'BEGIN' ? 'BEGIN NONSENSE' : text)
      connection.parse = ({ name, text }) => parse.call(connection, { name, text: wrong(text) })
      connection.query = (text) => query.call(connection, wrong(text))
      // An application that goes on, whatever happens.
      await first(tx.client).catch(() => {})
      for (const statement of [insert(2), insert(3)]) await tx.client.query(statement).catch(() => {})
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

describe('with `prepare: false`, as behind a pooler', () => {
  it('the BEGIN goes first and alone: what splits packets, or sends reads elsewhere, must see it', async () => {
    const { pool, outbox } = await opened({ doorbell: false, prepare: false })
    await pool.query(TABLE)
    const client = await pool.connect()
    const sent = wireOf(client)
    client.release()
    await outbox.transaction(async (tx) => {
      await tx.client.query(insert(1))
      await tx.publish(event())
    })
    expect(sent).toEqual(['begin', 'wait', 'insert', 'wait', 'insert', 'commit', 'wait'])
  })
})
