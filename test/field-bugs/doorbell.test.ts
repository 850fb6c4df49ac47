import type pg from 'pg'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { findPgBouncer, type PgBouncer, startPgBouncer } from '../support/pgbouncer.js'
import { startPostgres } from '../support/postgres-server.js'
import { startProxy } from '../support/proxy.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

/** Bugs of other queues with LISTEN, NOTIFY and poolers. */

/** A session that listens and never reads keeps the queue from being emptied. */
async function fillNotifyQueue(admin: pg.Pool): Promise<pg.PoolClient> {
  const sleeper = await admin.connect()
  await sleeper.query('listen outbox_event')
  await sleeper.query('begin')
  await sleeper.query('select 1')
  const isFull = () =>
    admin.query(`select pg_notify('other', $1)`, ['x'.repeat(7_900)]).then(
      () => false,
      () => true,
    )
  await until('the queue is full', isFull, 30_000)
  return sleeper
}

it('que#229: a full NOTIFY queue fails no publish and no commit', { timeout: 60_000 }, async () => {
  const server = await startPostgres({ settings: { max_notify_queue_pages: 64 } })
  afterwards('stop the server', () => server.stop())
  const url = await migratedDatabase(server.url)
  const admin = poolOn(url, { max: 3 })
  await admin.query('create table orders (n int)')
  const { outbox } = outboxOn(poolOn(url))
  const handled: string[] = []
  outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
  await outbox.start()
  const sleeper = await fillNotifyQueue(admin)
  const writer = outboxOn(poolOn(url)).outbox
  const ids = [
    await writer.enqueue(event()),
    ...(await writer.transaction(async (tx) => {
      await tx.client.query('insert into orders values (1)')
      return tx.publishAll([event(), event()])
    })),
    await outbox.enqueue({ ...event(), orderingKey: 'k' }),
  ]
  await until('polling finds them', () => ids.every((id) => handled.includes(id)))
  expect((await admin.query('select * from orders')).rowCount).toBe(1)
  await sleeper.query('rollback')
  sleeper.release(true)
})

const binary = findPgBouncer()

describe.skipIf(binary === null)('behind PgBouncer', () => {
  let bouncer: PgBouncer
  beforeAll(async () => {
    bouncer = await startPgBouncer(binary as string, inject('postgresUrl'), { roundRobin: true })
    return () => bouncer.stop()
  })

  it('river#238: a pooler that changes the server session between transactions breaks no statement', async () => {
    const direct = await migratedDatabase()
    const { outbox, log } = outboxOn(poolOn(bouncer.urlFor(direct), { max: 8 }))
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
    await outbox.start()
    const ids: string[] = []
    const writer = async () => {
      for (let n = 0; n < 10; n++) ids.push(await outbox.enqueue(event(), { delayMs: n % 2 }))
    }
    await Promise.all([writer(), writer(), writer()])
    await until('all are handled', () => ids.every((id) => handled.includes(id)), 20_000)
    await outbox.drain()
    expect((await rowsIn(poolOn(direct, { max: 1 }))).every((row) => row.status === 1)).toBe(true)
    // One line that says what a pooler means, and no failure.
    expect(log.lines('warn')).toMatchObject([{ msg: expect.stringContaining('pooler') }])
    expect(log.lines('error')).toEqual([])
  })
})

it('pg-boss#850: a LISTEN connection that died without a word is noticed, and rings are heard again', {
  timeout: 90_000,
}, async () => {
  const direct = await migratedDatabase()
  const proxy = await startProxy(direct)
  afterwards('close the proxy', () => proxy.close())
  const observer = poolOn(direct, { max: 2 })
  const { outbox } = outboxOn(poolOn(proxy.url), { poller: { pollIntervalMs: 3_000 } })
  const handled: string[] = []
  outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
  await outbox.start()
  let rung = 0
  const isHeardAtOnce = async () => {
    const { rows } = await observer.query(
      `insert into outbox_event (event_id, event_type) values ($1, 'thing.happened') returning seq`,
      [`ring ${++rung}`],
    )
    await observer.query(`select pg_notify('outbox_event', $1)`, [rows[0].seq])
    const id = `ring ${rung}`
    return until('the ring is heard', () => handled.includes(id), 700).then(
      () => true,
      () => false,
    )
  }
  expect(await isHeardAtOnce()).toBe(true)
  proxy.halfOpen()
  // Four in a row, each long before the next poll, cannot be the polling.
  const isHeardAgain = async () => {
    for (let n = 0; n < 4; n++) if (!(await isHeardAtOnce())) return false
    return true
  }
  await until('rings are heard again', isHeardAgain, 60_000)
})
