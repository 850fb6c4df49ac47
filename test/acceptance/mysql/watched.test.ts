import mysql from 'mysql2'
import { createConnection, type Pool, type PoolConnection } from 'mysql2/promise'
import { expect, it } from 'vitest'
import {
  CommitUnknownError,
  DuplicateEventError,
  InvalidSettingError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../../src/index.js'
import type { ClaimRequest } from '../../../src/store.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { isMariadb } from '../../support/mysql-flavor.js'
import { gate, until } from '../../support/until.js'
import { cleanUp, newWorld, OrderPlaced, onMysql, outboxOn, poolOn, rowsOf } from './kit.js'

const CLAIM: ClaimRequest = {
  token: 'worker:1',
  leaseMs: 30_000,
  limit: 10,
  maxBytes: 1_000_000,
  accept: { names: [], versions: [], prefixes: [''] },
  fromSeq: 0,
  suspects: 10,
  skipRecentMs: 0,
}

/** So rarely that what is handled soon came from memory. */
const HOT_ONLY = { poller: { pollIntervalMs: 3_600_000 } }

/** The driver's connection inside of one with promises. */
function coreOf(connection: PoolConnection) {
  return (connection as unknown as { connection: mysql.PoolConnection }).connection
}

/** Ends the transaction right behind the question whether there is one, and in front of what comes next. */
function rollBackBehindTheQuestion(connection: PoolConnection, question: number): void {
  const core = coreOf(connection) as unknown as Record<string, (...args: unknown[]) => unknown>
  const query = core.query as (...args: unknown[]) => unknown
  let asked = 0
  core.query = function (...args: unknown[]) {
    const sent = query.apply(this, args)
    if ((args[0] as { sql?: string }).sql === 'DO 0' && ++asked === question) {
      Reflect.deleteProperty(core, 'query')
      void connection.rollback()
    }
    return sent
  }
}

/** Runs `work` before the connection sends the first statement that matches. */
function beforeStatement(connection: PoolConnection, pattern: RegExp, work: () => Promise<void>): void {
  const core = coreOf(connection) as unknown as Record<string, (...args: unknown[]) => unknown>
  const execute = core.execute as (...args: unknown[]) => unknown
  core.execute = function (...args: unknown[]) {
    if (!pattern.test(String((args[0] as { sql?: unknown }).sql))) return execute.apply(this, args)
    Reflect.deleteProperty(core, 'execute')
    void work().then(() => execute.apply(this, args))
  }
}

/** A pool whose connections begin transactions by themselves. */
function withoutAutocommit(url: string): Pool {
  const core = mysql.createPool({ uri: url, connectionLimit: 8 })
  core.on('connection', (connection) => connection.query('set autocommit = 0'))
  const pool = core.promise()
  cleanUp(() => pool.end())
  return pool
}

/** Runs `body` once its connection has been a deadlock's victim and the error was swallowed. */
async function afterDeadlock(
  world: { url: string; outbox: ReturnType<typeof outboxOn> },
  ask: (client: PoolConnection) => Promise<unknown>,
  body: (client: PoolConnection) => Promise<unknown>,
): Promise<unknown> {
  const admin = poolOn(world.url)
  await admin.query('create table t (id int primary key, n int)')
  await admin.query('insert into t values (1, 0), (2, 0), (3, 0)')
  const [bothHold, otherAsks] = [gate(), gate()]
  const other = await admin.getConnection()
  await other.beginTransaction()
  await other.query('update t set n = 1 where id = 2')
  // The heavier transaction survives.
  await other.query('insert into t values ?', [Array.from({ length: 300 }, (_, n) => [n + 10, 0])])
  const transaction = world.outbox
    .transaction(async (tx) => {
      const client = tx.client as PoolConnection
      await client.query('update t set n = 2 where id = 1')
      await tx.publish(OrderPlaced({ orderId: 'victim' }))
      bothHold.open()
      await otherAsks.opened
      await ask(client)
      return body(client)
    })
    .catch((error) => error)
  await bothHold.opened
  const asked = other.query('update t set n = 1 where id = 1')
  otherAsks.open()
  const result = await transaction
  await asked
  await other.rollback()
  other.release()
  expect(await rowsOf(admin, 'select n from t')).toEqual([{ n: 0 }, { n: 0 }, { n: 0 }])
  expect(await rowsOf(admin)).toEqual([])
  return result
}

onMysql("the caller's own transaction", () => {
  it('ends between the question and the event: nothing of it remains', async () => {
    const { pool, outbox } = await newWorld()
    const events = ['a', 'b', 'c'].map((orderId) => OrderPlaced({ orderId }))
    for (const some of [events.slice(0, 1), events]) {
      const connection = await pool.getConnection()
      await connection.beginTransaction()
      rollBackBehindTheQuestion(connection, 2)
      const published = outbox.publishAll(some, { tx: connection })
      await expect(published).rejects.toThrow(TransactionEndedError)
      connection.release()
    }
    expect(await rowsOf(pool)).toEqual([])
    await outbox.enqueue(OrderPlaced({ orderId: 'first' }))
    const [row] = await rowsOf(pool, 'select seq from outbox_event')
    // MariaDB refuses the rows in the statement itself. On MySQL the store removes them again.
    expect(row?.seq).toBe(isMariadb ? 1 : 5)
  })

  it.skipIf(isMariadb)(
    'ends between the question and the event: no claim gets the row before it is removed',
    async () => {
      const { url, pool, outbox } = await newWorld()
      const worker = mysqlStore(poolOn(url))
      const claim = () => worker.claim(CLAIM)
      const claimed: unknown[] = []
      const connection = await pool.getConnection()
      await connection.beginTransaction()
      rollBackBehindTheQuestion(connection, 2)
      beforeStatement(connection, /^\s*delete /, async () => void claimed.push(await claim()))
      const published = outbox.publish(OrderPlaced({ orderId: 'a' }), { tx: connection })
      await expect(published).rejects.toThrow(TransactionEndedError)
      connection.release()
      expect(claimed).toEqual([expect.objectContaining({ rows: [] })])
      expect(await rowsOf(pool)).toEqual([])
      await outbox.enqueue(OrderPlaced({ orderId: 'b' }))
      expect((await claim()).rows).toHaveLength(1)
    },
  )

  it('ends between the question and the mark of a handler: nothing is marked', async () => {
    const { pool } = await newWorld()
    const store = mysqlStore(pool)
    const connection = await pool.getConnection()
    await connection.beginTransaction()
    rollBackBehindTheQuestion(connection, 1)
    await expect(store.markProcessed(connection, 'h', 'e')).rejects.toThrow(TransactionEndedError)
    expect(await rowsOf(pool, 'select * from outbox_event_inbox')).toEqual([])
    await connection.beginTransaction()
    expect(await store.markProcessed(connection, 'h', 'e')).toBe(true)
    expect(await store.markProcessed(connection, 'h', 'e')).toBe(false)
    await connection.commit()
    connection.release()
  })

  it('keeps nothing of a batch that failed in its second part, whatever the error', async () => {
    const { pool, outbox } = await newWorld()
    const other = await pool.getConnection()
    await other.beginTransaction()
    await other.query(
      `insert into outbox_event (event_id, event_type, payload) values ('e-1500', 'other', '1')`,
    )
    const events = Array.from({ length: 2_000 }, (_, n) => ({ type: 'x', eventId: `e-${n}`, payload: n }))
    const isLockTimeout = { code: 'LOCK_TIMEOUT', cause: { errno: 1205 } }
    const connection = await pool.getConnection()
    await connection.query('set innodb_lock_wait_timeout = 1')
    await connection.beginTransaction()
    await outbox.publish({ type: 'x', eventId: 'before', payload: 1 }, { tx: connection })
    await expect(outbox.publishAll(events, { tx: connection })).rejects.toMatchObject(isLockTimeout)
    await connection.commit()
    const managed = outbox.transaction(async (tx) => {
      await tx.client.query('set innodb_lock_wait_timeout = 1')
      await tx.publish({ type: 'x', eventId: 'managed', payload: 1 })
      await expect(tx.publishAll(events)).rejects.toMatchObject(isLockTimeout)
    })
    await managed
    await other.rollback()
    for (const one of [other, connection]) one.destroy()
    expect((await rowsOf(pool)).map((row) => row.event_id)).toEqual(['before', 'managed'])
  })

  it('waits for an event of the same id without holding up the others', async () => {
    const { pool, outbox } = await newWorld()
    const [first, second] = [await pool.getConnection(), await pool.getConnection()]
    await first.beginTransaction()
    await second.beginTransaction()
    await outbox.publish({ type: 'x', eventId: 'same', payload: 1 }, { tx: first })
    const waiting = outbox.publish({ type: 'x', eventId: 'same', payload: 2 }, { tx: second })
    waiting.catch(() => {})
    // The table innodb_trx names the wait as well, but it does not change while it is queried often.
    const waits = isMariadb
      ? `select 1 from information_schema.processlist where id = ? and state = 'Update' and time_ms > 50`
      : `select 1 from performance_schema.data_lock_waits w
           join performance_schema.threads t on t.thread_id = w.requesting_thread_id where t.processlist_id = ?`
    const isWaiting = async () => {
      const [rows] = await pool.query(waits, [second.threadId])
      return (rows as unknown[]).length > 0
    }
    await until(isWaiting)
    // Behind it in the index: in front of it the server itself keeps a gap.
    await outbox.enqueue({ type: 'x', eventId: 'x-other', payload: 3 })
    await outbox.publish({ type: 'x', eventId: 'y-own', payload: 4 }, { tx: first })
    await first.commit()
    await expect(waiting).rejects.toThrow(DuplicateEventError)
    await second.rollback()
    for (const one of [first, second]) one.release()
    expect((await rowsOf(pool)).map((row) => row.event_id).sort()).toEqual(['same', 'x-other', 'y-own'])
  })
})

onMysql('a statement that was prepared before the managed transaction', () => {
  /** A started outbox that delivers from memory only, and a connection of the application. */
  async function startedWorld() {
    const { pool, outbox } = await newWorld(HOT_ONLY)
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    return { pool, outbox, handled, connection: await pool.getConnection() }
  }

  // MySQL prepares no statements about savepoints.
  it.runIf(isMariadb)('goes back to a savepoint: what that took away is not announced', async () => {
    const { outbox, handled, connection } = await startedWorld()
    const savepoint = await connection.prepare('SAVEPOINT mine')
    const back = await connection.prepare('ROLLBACK TO SAVEPOINT mine')
    await outbox.transaction(connection, async (tx) => {
      await savepoint.execute([])
      await tx.publish(OrderPlaced({ orderId: 'gone' }))
      await back.execute([])
      await tx.publish(OrderPlaced({ orderId: 'kept' }))
    })
    await until(() => handled.length > 0)
    expect(handled).toEqual(['kept'])
    connection.release()
    await outbox.drain()
    expect(handled).toEqual(['kept'])
  })

  it('ends the transaction: the outcome is reported as unknown, and nothing is announced', async () => {
    const { pool, outbox, handled, connection } = await startedWorld()
    const end = await connection.prepare(isMariadb ? 'ROLLBACK' : 'create table ends_by_itself (id int)')
    const ended = outbox.transaction(connection, async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'doubtful' }))
      await end.execute([])
    })
    await expect(ended).rejects.toThrow(CommitUnknownError)
    expect(Object.keys(coreOf(connection))).not.toContain('addCommand')
    connection.release()
    expect(handled).toEqual([])
    expect((await rowsOf(pool)).length).toBe(isMariadb ? 0 : 1)
  })
})

onMysql('after a swallowed deadlock', () => {
  const swallowed = (client: PoolConnection) =>
    client.query('update t set n = 2 where id = 2').catch(() => {})

  for (const autocommit of [true, false]) {
    it(`every statement is refused, autocommit = ${autocommit}`, async () => {
      const { pool, outbox, url } = await newWorld()
      const world = { url, outbox: autocommit ? outbox : outboxOn(withoutAutocommit(url)) }
      const refused: unknown[] = []
      const result = await afterDeadlock(world, swallowed, async (client) => {
        const tries = [
          () => client.query('update t set n = 3 where id = 3'),
          () => client.execute('update t set n = ? where id = 3', [4]),
          () => client.query('commit'),
          () => client.query('select 1'),
          () => outbox.publish(OrderPlaced({ orderId: 'x' }), { tx: client }),
        ]
        for (const attempt of tries) refused.push(await attempt().catch((error) => error))
        const streamed = coreOf(client).query('update t set n = 5 where id = 3')
        refused.push(await new Promise((resolve) => streamed.on('error', resolve)))
        return 'resolved'
      })
      expect(refused).toHaveLength(6)
      for (const error of refused) expect(error).toBeInstanceOf(TransactionRolledBackError)
      expect(result).toBeInstanceOf(TransactionRolledBackError)
      await world.outbox.enqueue(OrderPlaced({ orderId: 'next' }))
      expect(await rowsOf(pool)).toHaveLength(1)
    })
  }

  it('nothing runs that had been sent already', async () => {
    const world = await newWorld()
    const behind: unknown[] = []
    const result = await afterDeadlock(
      world,
      async (client) => {
        const deadlocked = swallowed(client)
        const sent = [
          client.query('update t set n = 3 where id = 3'),
          client.execute('update t set n = ? where id = 3', [4]),
        ]
        await deadlocked
        for (const one of sent) behind.push(await one.catch((error) => error))
      },
      async () => 'resolved',
    )
    expect(behind).toHaveLength(2)
    for (const error of behind) expect(error).toBeInstanceOf(TransactionRolledBackError)
    expect(result).toBeInstanceOf(TransactionRolledBackError)
  })

  it('a savepoint around it does not help', async () => {
    const world = await newWorld()
    const result = await afterDeadlock(world, swallowed, async () =>
      world.outbox.transaction(async (inner) => inner.publish(OrderPlaced({ orderId: 'x' }))),
    )
    expect(result).toBeInstanceOf(TransactionRolledBackError)
  })
})

onMysql('a pool', () => {
  it('without autocommit: everything works on connections that have read something', async () => {
    const { url } = await newWorld()
    const pool = withoutAutocommit(url)
    const outbox = outboxOn(pool)
    for (let n = 0; n < 8; n++) await pool.query('select * from outbox_event')
    expect(await outbox.store.list({})).toEqual([])
    await outbox.pause('x')
    expect(await outbox.resume('x')).toBe(true)
    expect(await outbox.store.pruneDone(0, 10)).toBe(0)
    expect(await outbox.deadLetters.list()).toEqual([])
    const store = mysqlStore(pool, { table: 'shop_event' })
    expect(await store.migrate()).toEqual([1, 2, 3])
    expect(await mysqlStore(poolOn(url), { table: 'shop_event' }).pendingMigrations()).toEqual([])
  })

  it('in another character set than utf8mb4 is refused before anything is written', async () => {
    const { url, pool } = await newWorld()
    const event = { type: 'x', payload: 'é😀' }
    for (const charset of ['latin1', 'utf8']) {
      const outbox = outboxOn(poolOn(url, { charset }))
      await expect(outbox.enqueue(event)).rejects.toThrow(InvalidSettingError)
      await expect(outbox.enqueue(event)).rejects.toThrow(/charset: must be utf8mb4/)
    }
    const outbox = outboxOn(poolOn(url))
    const connection = await createConnection({ uri: url, charset: 'latin1' })
    await connection.beginTransaction()
    await expect(outbox.publish(event, { tx: connection })).rejects.toThrow(/utf8mb4/)
    await connection.query('set names utf8mb4')
    await expect(outbox.publish(event, { tx: connection })).rejects.toThrow(/utf8mb4/)
    await connection.end()
    const named = await createConnection({ uri: url })
    await named.query('set names latin1')
    await named.beginTransaction()
    await expect(outbox.publish(event, { tx: named })).rejects.toThrow(/and is latin1/)
    await named.end()
    expect(await rowsOf(pool)).toEqual([])
  })

  it('whose connections are all taken is not waited for for ever', async () => {
    const { pool, outbox } = await newWorld({}, { connectionLimit: 3 })
    const taken = [await pool.getConnection(), await pool.getConnection(), await pool.getConnection()]
    await expect(outbox.start()).rejects.toThrow(/the pool gave no connection within 10000 ms/)
    for (const connection of taken) connection.release()
    await outbox.store.list({})
  })
})
