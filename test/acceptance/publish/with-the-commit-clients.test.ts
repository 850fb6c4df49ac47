import { setFlagsFromString } from 'node:v8'
import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { createOutbox } from '../../../src/index.js'
import { type PgClient, postgresStore } from '../../../src/stores/postgres/index.js'
import { recordLog } from '../../support/log-recorder.js'
import {
  afterwards,
  doesAsItsClass,
  event,
  migratedDatabase,
  poolOn,
  rowsIn,
} from '../../support/trap-kit.js'
import { opened, payloads, poller } from './with-the-commit.kit.js'

/** Events that wait need a client that shows every statement and takes packets. There are others. */

const count = 'select count(*)::int as n from outbox_event'

describe('a client whose query the application has replaced', () => {
  it.each([
    ['passes by us', (client: pg.PoolClient) => pg.Client.prototype.query.bind(client)],
    ['comes to us in the end', (client: pg.PoolClient) => client.query.bind(client)],
  ])('is given the statement at once: by one that %s', async (_how, replace) => {
    const { pool, outbox } = await opened()
    const client = await pool.connect()
    client.on('error', () => {})
    await outbox.transaction(client, async (tx) => {
      tx.client.query = replace(tx.client) as typeof client.query
      await tx.client.query('savepoint mine')
      await tx.publish(event('thing.happened', 'undone'))
      expect((await tx.client.query(count)).rows[0].n).toBe(1)
      await tx.client.query('rollback to mine')
      await tx.publish(event('thing.happened', 'kept'))
    })
    expect(doesAsItsClass(client)).toBe(true)
    client.release()
    expect(await payloads(pool)).toEqual(['kept'])
  })
})

describe('a client that transactions run on', () => {
  it('stays one whose properties V8 finds at once', async () => {
    const { pool, outbox } = await opened()
    const client = await pool.connect()
    client.on('error', () => {})
    setFlagsFromString('--allow-natives-syntax')
    const isFast = new Function('object', 'return %HasFastProperties(object)') as (object: object) => boolean
    expect(isFast(client)).toBe(true)
    for (const payload of [1, 2]) {
      await outbox.transaction(client, (tx) => tx.publish(event('thing.happened', payload)))
      expect(isFast(client)).toBe(true)
    }
    client.release()
  })
})

describe('a client behind a proxy', () => {
  it('does as its class does after a transaction, and so does the proxy', async () => {
    const { pool, outbox } = await opened()
    const client = await pool.connect()
    client.on('error', () => {})
    const proxy = new Proxy(client, {})
    for (const one of [client, proxy, client]) {
      await outbox.transaction(one, (tx) => tx.publish(event('thing.happened', 1)))
      expect([client, proxy].map(doesAsItsClass)).toEqual([true, true])
    }
    client.release()
    expect(await payloads(pool)).toEqual([1, 1, 1])
  })
})

describe('a client that takes nothing but text', () => {
  it.each([
    ['throws', 'sync'],
    ['rejects', 'async'],
  ])('and %s otherwise, fails the transaction, which is rolled back', async (_how, kind) => {
    const { pool, outbox } = await opened()
    await pool.query('create table business (id int)')
    const client = await pool.connect()
    const picky = (text: unknown) => {
      if (typeof text !== 'string') throw new TypeError('text only')
      return Reflect.apply(pg.Client.prototype.query, client, [text])
    }
    const query = kind === 'sync' ? picky : async (text: unknown) => picky(text)
    client.query = query as unknown as typeof client.query
    const outcome = outbox.transaction(client, async (tx) => {
      await tx.client.query('insert into business values (1)')
      await tx.publish(event())
    })
    await expect(outcome).rejects.toThrow('text only')
    Reflect.deleteProperty(client, 'query')
    await client.query('commit')
    client.release()
    expect((await pool.query('select * from business')).rows).toEqual([])
    expect(await rowsIn(pool)).toEqual([])
  })
})

describe('a client that cannot be given packets', () => {
  /** As pg-native, or a wrapper of the application, would be. */
  class Wrapper implements PgClient {
    readonly #client: pg.PoolClient
    constructor(client: pg.PoolClient) {
      this.#client = client
    }
    query(...args: unknown[]) {
      return Reflect.apply(this.#client.query, this.#client, args)
    }
    on: PgClient['on'] = (...args) => this.#client.on(...(args as Parameters<pg.PoolClient['on']>))
    removeListener: PgClient['removeListener'] = (...args) =>
      this.#client.removeListener(...(args as Parameters<pg.PoolClient['removeListener']>))
    release(destroy?: boolean) {
      this.#client.release(destroy)
    }
  }

  const wrapped = (pool: pg.Pool) => ({
    options: pool.options,
    connect: async () => new Wrapper(await pool.connect()),
    query: pool.query.bind(pool) as PgClient['query'],
    on: pool.on.bind(pool) as PgClient['on'],
    removeListener: pool.removeListener.bind(pool) as PgClient['removeListener'],
  })

  const changed = (by: object) => (pool: pg.Pool) => {
    pool.on('connect', (client) => Object.assign(client, by))
    return pool as unknown as ReturnType<typeof wrapped>
  }

  it.each([
    ['a wrapper without a connection', wrapped],
    ['an older pg that knows no status', changed({ getTransactionStatus: undefined })],
    ['a client that does not know its status', changed({ getTransactionStatus: () => null })],
    ['a client that pipelines', changed({ pipeline: true })],
  ])('is given the statement at once: %s', async (_what, wrap) => {
    const pool = poolOn(await migratedDatabase())
    const outbox = createOutbox<PgClient>({
      store: postgresStore(wrap(pool)),
      logger: recordLog().logger,
      poller,
    })
    afterwards('stop', () => outbox.stop())
    const handled: unknown[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.payload))
    await outbox.start()
    const observer = poolOn(pool.options.connectionString as string, { max: 1 })
    const underway = `select 1 from pg_stat_activity where datname = current_database()
      and state = 'idle in transaction' and query ilike '%insert into%outbox_event%'`
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 1))
      expect((await observer.query(underway)).rowCount).toBe(1)
      await tx
        .transaction(async (inner) => {
          await inner.publish(event('thing.happened', 2))
          throw new Error('inner')
        })
        .catch(() => {})
      await tx.client.query('savepoint mine')
      await tx.publish(event('thing.happened', 3))
      await tx.client.query('rollback to mine')
      await tx.publish(event('thing.happened', 4))
    })
    await outbox.drain()
    expect(handled).toEqual([1, 4])
    expect(await payloads(pool)).toEqual([1, 4])
    const failing = outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 5))
      await tx.client.query('select 1/0')
    })
    await expect(failing).rejects.toThrow('division by zero')
    expect(await payloads(pool)).toEqual([1, 4])
  })
})
