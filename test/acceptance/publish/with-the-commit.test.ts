import pg from 'pg'
import { describe, expect, it } from 'vitest'
import {
  createOutbox,
  DuplicateEventError,
  EventEnvelope,
  TransactionEndedError,
} from '../../../src/index.js'
import {
  type PgClient,
  type PostgresStoreOptions,
  postgresStore,
} from '../../../src/stores/postgres/index.js'
import { recordLog } from '../../support/log-recorder.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../../support/trap-kit.js'
import { until } from '../../support/waiting.js'
import { OrderPlaced } from '../../support/world.js'

/** With `pg`, an event whose id was drawn for it goes with the COMMIT, or in front of the next statement. */

const poller = { pollIntervalMs: 3_600_000 }
const count = 'select count(*)::int as n from outbox_event'

async function opened(store: PostgresStoreOptions = {}) {
  const pool = poolOn(await migratedDatabase())
  const { outbox, log } = outboxOn(pool, { poller }, store)
  const handled: unknown[] = []
  outbox.on('thing.happened', 'see', (one) => void handled.push(one.payload))
  return { pool, outbox, log, handled }
}

const payloads = async (pool: pg.Pool) =>
  (await pool.query('select payload from outbox_event order by seq')).rows.map((row) => row.payload)

/** What the client sends from now on: the first word of each statement, and where it waits for an answer. */
function wireOf(client: unknown): string[] {
  const sent: string[] = []
  const names = new Map<string, string>()
  const { connection } = client as { connection: Record<string, (message: never) => void> }
  const spy = (method: string, note: (message: never) => void) => {
    const original = connection[method] as (message: never) => void
    connection[method] = (message) => {
      note(message)
      original.call(connection, message)
    }
  }
  const word = (text: string) => /\w+/.exec(text)?.[0].toLowerCase() ?? ''
  spy('query', (text: string) => sent.push(word(text), 'wait'))
  spy('parse', ({ name, text }: { name: string; text: string }) => names.set(name, word(text)))
  spy('bind', ({ statement }: { statement: string }) => sent.push(names.get(statement) ?? 'prepared'))
  spy('sync', () => sent.push('wait'))
  return sent
}

/**
 * What pg-cursor is to the client: not text, but something that speaks the protocol itself. It gives one row, and
 * keeps the client to itself until it is closed.
 */
class Cursor {
  readonly #text: string
  readonly row: Promise<unknown>
  readonly closed: Promise<void>
  #connection: Record<string, (message?: object) => void> = {}
  #settle: Record<'row' | 'closed' | 'failed', (value?: never) => void>

  constructor(text: string) {
    this.#text = text
    const settle = { row: () => {}, closed: () => {}, failed: () => {} }
    this.row = new Promise((resolve, reject) => Object.assign(settle, { row: resolve, failed: reject }))
    this.closed = new Promise((resolve) => Object.assign(settle, { closed: resolve }))
    this.#settle = settle
  }

  submit(connection: unknown): void {
    this.#connection = connection as Record<string, (message?: object) => void>
    this.#connection.parse?.({ name: '', text: this.#text })
    this.#connection.bind?.({})
    this.#connection.execute?.({ rows: '1' })
    this.#connection.flush?.()
  }

  close(): Promise<void> {
    this.#connection.sync?.()
    return this.closed
  }

  handleDataRow({ fields }: { fields: unknown[] }): void {
    this.#settle.row(Number(fields[0]) as never)
  }

  handleError(error: unknown): void {
    this.#settle.failed(error as never)
    this.#connection.sync?.()
  }

  handleReadyForQuery(): void {
    this.#settle.closed()
  }

  handlePortalSuspended(): void {}
  handleRowDescription(): void {}
  handleCommandComplete(): void {}
}

describe('an event that is published last', () => {
  it('costs no round trip: its row and the COMMIT wait for one answer', async () => {
    const { pool, outbox } = await opened({ doorbell: false })
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      await tx.publish(event())
      await tx.publish(event())
      expect(sent).toEqual([])
    })
    expect(sent).toEqual(['insert', 'commit', 'wait'])
    expect(await rowsIn(pool)).toHaveLength(2)
  })

  it('rings the doorbell in the same packet, behind the COMMIT', async () => {
    const { outbox } = await opened()
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      await tx.publish(event())
    })
    expect(sent).toEqual(['insert', 'commit', 'select', 'wait'])
  })

  it('is committed although the ring behind it fails, and is found without it', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool, { poller: { pollIntervalMs: 100 } })
    const seen: string[] = []
    await outbox.transaction(async (tx) => {
      // After the commit the sequence of the row has another name.
      await tx.client.query('set search_path to public, pg_temp')
      await tx.client.query('alter sequence outbox_event_seq rename to another_seq')
      await tx.publish(event())
      tx.afterCommit(() => seen.push('committed'))
    })
    expect(seen).toEqual(['committed'])
    await pool.query('alter sequence another_seq rename to outbox_event_seq')
    expect(await rowsIn(pool)).toHaveLength(1)
    outbox.on('thing.happened', 'see', (one) => void seen.push(one.eventId))
    await outbox.start()
    await until('it is found', () => seen.length === 2)
  })

  it.each([
    ['prepared statements', true],
    ['statements parsed each time', false],
  ])('goes hot from there, time and again, with %s', async (_how, prepare) => {
    const { pool, outbox, handled, log } = await opened({ prepare })
    await outbox.start()
    for (let n = 0; n < 5; n++) {
      await outbox.transaction(async (tx) => {
        await tx.publish(event('thing.happened', n))
        if (n % 2) await tx.publish(event('thing.happened', n + 10))
      })
    }
    await until('all are handled', () => handled.length === 7)
    await outbox.drain()
    expect((await rowsIn(pool)).map((row) => [row.status, row.attempts])).toEqual(Array(7).fill([1, 0]))
    expect(log.lines('error')).toEqual([])
    const { rows } = await pool.query(`select 1 from pg_prepared_statements`)
    expect(rows.length === 0 || prepare).toBe(true)
  })

  it('goes with the COMMIT on a client of the application too, which is as it was afterwards', async () => {
    const { pool, outbox } = await opened()
    const client = new pg.Client({ connectionString: pool.options.connectionString as string })
    await client.connect()
    afterwards('end the client', () => client.end())
    const sent = wireOf(client)
    const { query } = client
    for (const payload of [1, 2]) {
      sent.length = 0
      await outbox.transaction(client as unknown as pg.PoolClient, async (tx) => {
        sent.length = 0
        await tx.publish(event('thing.happened', payload))
      })
      expect(sent).toEqual(['insert', 'commit', 'wait'])
    }
    expect(client.query).toBe(query)
    expect(Object.hasOwn(client, 'query')).toBe(false)
    expect(client.listenerCount('error')).toBe(0)
    expect(await payloads(pool)).toEqual([1, 2])
  })

  it('is still in time when nobody awaits it, and when the pool is being ended', async () => {
    const { pool, outbox } = await opened()
    const observer = poolOn(pool.options.connectionString as string, { max: 1 })
    let ended: Promise<void> | undefined
    await outbox.transaction(async (tx) => {
      ended = pool.end()
      void tx.publish(event('thing.happened', 1))
      void tx.client.query('select 1')
      void tx.publish(event('thing.happened', 2))
    })
    await ended
    expect(await payloads(observer)).toEqual([1, 2])
  })

  it('cannot be published by a hook, which can enqueue another', async () => {
    const { pool, outbox } = await opened()
    const late: Promise<unknown>[] = []
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 1))
      tx.afterCommit(() => late.push(tx.publish(event('thing.happened', 2)).catch((error) => error)))
      tx.afterCommit(() => late.push(outbox.enqueue(event('thing.happened', 3))))
    })
    expect(await late[0]).toBeInstanceOf(TransactionEndedError)
    await Promise.all(late)
    expect(await payloads(pool)).toEqual([1, 3])
  })

  it('sends nothing at all for an empty list', async () => {
    const { outbox } = await opened()
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      expect(await tx.publishAll([])).toEqual([])
      await tx.client.query('select 1')
      expect(await tx.publishAll([])).toEqual([])
    })
    expect(sent).toEqual(['select', 'wait', 'commit', 'wait'])
  })
})

describe("the application's next statement", () => {
  const forms: readonly (readonly [string, (client: pg.PoolClient) => Promise<unknown>])[] = [
    ['text', async (client) => (await client.query(count)).rows[0].n],
    ['a config object', async (client) => (await client.query({ name: 'n', text: count })).rows[0].n],
    [
      'a callback',
      (client) =>
        new Promise((resolve, reject) => {
          client.query(count, (error, result) => (error ? reject(error) : resolve(result.rows[0].n)))
        }),
    ],
    [
      'a cursor',
      async (client) => {
        const cursor = client.query(new Cursor(count))
        const counted = await cursor.row
        await cursor.close()
        return counted
      },
    ],
  ]

  it.each(forms)('finds the row in the table: %s', async (_form, ask) => {
    const { outbox } = await opened()
    await outbox.transaction(async (tx) => {
      await tx.publish(event())
      await tx.publishAll([event(), event()])
      expect(await ask(tx.client)).toBe(3)
      void tx.publish(event())
      expect(await ask(tx.client)).toBe(4)
    })
  })

  it('does so when it is one of another outbox on the same client, and order is kept', async () => {
    const { pool, outbox } = await opened()
    const other = outboxOn(pool).outbox
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 1))
      await other.publish(event('thing.happened', 2), { tx: tx.client })
      await tx.publish(event('thing.happened', 3))
      await expect(other.transaction(tx.client, async () => {})).rejects.toMatchObject({
        code: 'CLIENT_IN_TRANSACTION',
      })
      await tx.publish(event('thing.happened', 4))
      expect((await tx.client.query(count)).rows[0].n).toBe(4)
    })
    expect(await payloads(pool)).toEqual([1, 2, 3, 4])
  })

  it.each([
    ['passes by us', (client: pg.PoolClient) => pg.Client.prototype.query.bind(client)],
    ['comes to us in the end', (client: pg.PoolClient) => client.query.bind(client)],
  ])('finds it also when the application has replaced client.query, which %s', async (_how, replace) => {
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
    expect(Object.hasOwn(client, 'query')).toBe(false)
    client.release()
    expect(await payloads(pool)).toEqual(['kept'])
  })
})

describe('many events', () => {
  it('have the order of the publish calls, whether they went at once or late', async () => {
    const { pool, outbox } = await opened()
    await outbox.transaction(async (tx) => {
      const publish = (n: number) => tx.publish({ type: 'thing.happened', payload: n })
      const given = (n: number) => tx.publish({ type: 'thing.happened', payload: n, eventId: `given ${n}` })
      await publish(1)
      await publish(2)
      await given(3)
      await publish(4)
      await tx.client.query('select 1')
      await tx.publishAll([event('thing.happened', 5), event('thing.happened', 6)])
      await Promise.all([
        publish(7),
        given(8),
        publish(9),
        tx.client.query('select 2'),
        publish(10),
        given(11),
      ])
      await tx.transaction(async (inner) => inner.publish(event('thing.happened', 12)))
      await publish(13)
    })
    expect(await payloads(pool)).toEqual(Array.from({ length: 13 }, (_, n) => n + 1))
  })

  it.each([
    ['one by one', 1],
    ['by twenties', 20],
  ])('go in a bounded number of statements of bounded size: 1,200, %s', async (_how, size) => {
    const { pool, outbox } = await opened({ doorbell: false })
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      for (let n = 0; n < 1_200; n += size) {
        await tx.publishAll(Array.from({ length: size }, (_, i) => event('thing.happened', n + i)))
      }
    })
    expect(sent).toEqual(['insert', 'wait', 'insert', 'wait', 'insert', 'commit', 'wait'])
    expect(await payloads(pool)).toEqual(Array.from({ length: 1_200 }, (_, n) => n))
  })

  it('do not wait for a cursor that is closed only after them', async () => {
    const { pool, outbox } = await opened()
    await outbox.transaction(async (tx) => {
      const cursor = tx.client.query(new Cursor('select generate_series(1, 3)'))
      expect(await cursor.row).toBe(1)
      for (let n = 0; n < 1_200; n++) await tx.publish(event('thing.happened', n))
      await cursor.close()
    })
    expect(await payloads(pool)).toEqual(Array.from({ length: 1_200 }, (_, n) => n))
  })

  it('do not wait when they are large', async () => {
    const { pool, outbox } = await opened({ doorbell: false })
    let sent: string[] = []
    await outbox.transaction(async (tx) => {
      sent = wireOf(tx.client)
      for (let n = 0; n < 5; n++) await tx.publish(event('thing.happened', 'x'.repeat(600_000)))
    })
    expect(sent.filter((word) => word === 'insert').length).toBe(3)
    expect(await rowsIn(pool)).toHaveLength(5)
  })
})

describe('an id', () => {
  it('that one event object brings a second time is refused at once, and the transaction goes on', async () => {
    const { pool, outbox } = await opened()
    const once = OrderPlaced({ orderId: 'o-1' })
    await outbox.transaction(async (tx) => {
      await tx.publish(once)
      await expect(tx.publish(once)).rejects.toMatchObject({ eventIds: [once.eventId] })
      await expect(tx.publishAll([event(), once])).rejects.toBeInstanceOf(DuplicateEventError)
      await expect(tx.publish(once.toEnvelope())).rejects.toBeInstanceOf(DuplicateEventError)
      await tx.publish(once, { onDuplicate: 'ignore' })
      await tx.publish(event('thing.happened', 'after'))
    })
    expect((await rowsIn(pool)).map((row) => row.event_type)).toEqual(['order.placed', 'thing.happened'])
  })

  it('that was rolled back can be published again', async () => {
    const { pool, outbox } = await opened()
    const once = OrderPlaced({ orderId: 'o-1' })
    const failing = outbox.transaction(async (tx) => {
      await tx.publish(once)
      throw new Error('no')
    })
    await expect(failing).rejects.toThrow('no')
    await outbox.transaction((tx) => tx.publish(once))
    expect((await rowsIn(pool)).map((row) => row.event_id)).toEqual([once.eventId])
  })

  it('that was given is looked for at once', async () => {
    const { pool, outbox } = await opened()
    const given = { type: 'thing.happened', payload: 1, eventId: 'given' }
    await outbox.enqueue(given)
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', 2))
      await expect(tx.publish(given)).rejects.toMatchObject({ eventIds: ['given'] })
      await expect(tx.publishAll([event(), given])).rejects.toMatchObject({ eventIds: ['given'] })
      expect(await tx.publish(given, { onDuplicate: 'ignore' })).toBe('given')
      await tx.publish(EventEnvelope.create({ eventType: 'thing.happened', payload: 3 }))
    })
    expect(await payloads(pool)).toEqual([1, 2, 3])
  })
})

describe('what an event carries', () => {
  const bytes = new Uint8Array([0, 255, 30, 31])
  const all = {
    type: 'thing.whole',
    payload: { text: 'q\'"\\ €😀 \u2028', deep: [[{ n: 1e21 }], null, true] },
    aggregateType: 'thing',
    aggregateId: 't-1',
    tenantId: 'tenant \u{1F600}',
    version: 7,
    occurredAt: new Date('2020-02-02T02:02:02.002Z'),
    headers: { 'a"b': "c'd" },
    metadata: { correlationId: 'c', userId: 'u' },
  }

  it.each([
    ['alone', 1],
    ['with others', 3],
  ])('arrives whole: %s', async (_how, times) => {
    const { pool, outbox } = await opened()
    const seen: EventEnvelope[] = []
    outbox.on('thing.whole', 'see', (one) => void seen.push(one as EventEnvelope))
    for (const payload of [all.payload, bytes]) {
      await outbox.transaction(async (tx) => {
        for (let n = 0; n < times; n++) await tx.publish({ ...all, payload })
      })
    }
    await outbox.drain()
    const { type, ...fields } = all
    expect(seen).toHaveLength(2 * times)
    for (const [n, one] of seen.entries()) {
      expect(one).toMatchObject({ ...fields, eventType: type, payload: n < times ? all.payload : bytes })
    }
    await outbox.transaction(async (tx) => {
      for (let n = 0; n < times; n++) await tx.publish({ type: 'thing.kept', orderingKey: `key ${n}` })
    })
    const { rows } = await pool.query(
      `select ordering_key as key from outbox_event where event_type = 'thing.kept' order by seq`,
    )
    expect(rows.map((row) => row.key)).toEqual(['key 0', 'key 1', 'key 2'].slice(0, times))
  })

  it('is what it was at the time of the publish, delays too', async () => {
    const { pool, outbox } = await opened()
    const deliverAt = new Date('2100-01-01T00:00:00Z')
    const mutable = { list: [1] }
    await outbox.transaction(async (tx) => {
      await tx.publish(event('thing.happened', mutable), { deliverAt })
      mutable.list.push(2)
      deliverAt.setUTCFullYear(2200)
      await tx.publish(event('thing.happened', mutable), { deliverAt })
      deliverAt.setTime(Number.NaN)
      await tx.publish(event('thing.happened', mutable), { delayMs: 3_600_000 })
    })
    const { rows } = await pool.query(`select payload, round(extract(epoch from available_at - created_at)) s,
      extract(year from available_at at time zone 'utc')::int y from outbox_event order by seq`)
    expect(rows.map((row) => row.payload.list.length)).toEqual([1, 2, 2])
    expect(rows.map((row) => row.y).slice(0, 2)).toEqual([2100, 2200])
    expect(Number(rows[2]?.s)).toBe(3_600)
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
