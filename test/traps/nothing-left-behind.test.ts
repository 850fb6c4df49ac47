import type pg from 'pg'
import { describe, expect, it } from 'vitest'
import { doesAsItsClass, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until, within } from '../support/waiting.js'
import { Worker, type WorkerOptions } from '../support/worker.js'

/** After stop() no timer, socket or listener of the outbox is left, and the process exits by itself. */

describe('a process whose outbox has stopped', () => {
  const cases: readonly (readonly [string, Omit<WorkerOptions, 'url'>])[] = [
    ['pg', {}],
    ['pg without the doorbell', { store: { doorbell: false } }],
    ['postgres.js', { driver: 'postgres.js' }],
  ]

  it.each(cases)(
    'has nothing running and exits with 0 once its pool is ended: %s',
    async (_name, options) => {
      const url = await migratedDatabase()
      const worker = await Worker.started({ url, ...options })
      await worker.untilHandled(await worker.ask('enqueue', 'thing.happened'))
      await worker.ask('stop')
      await worker.ask('endPool')
      await worker.untilIdle()
      expect(await worker.leave()).toBe(0)
      expect(worker.problems).toEqual([])
    },
  )

  it('exits as well when it was stopped while a handler hung', async () => {
    const url = await migratedDatabase()
    const worker = await Worker.started({ url, outbox: { dispatcher: { drainTimeoutMs: 100 } } })
    await worker.ask('enqueue', 'thing.hangs')
    await until('it hangs', () => worker.hanging === 1)
    await worker.ask('stop')
    await worker.ask('endPool')
    await worker.untilIdle()
    expect(await worker.leave()).toBe(0)
    const [row] = await rowsIn(poolOn(url, { max: 1 }))
    expect(row).toMatchObject({ status: 0, attempts: 0, leased: false })
  })

  it('exits when it only enqueued and was never started', async () => {
    const url = await migratedDatabase()
    const worker = await Worker.spawn({ url })
    await worker.ask('enqueue', 'thing.happened')
    await worker.ask('stop')
    await worker.ask('endPool')
    await worker.untilIdle()
    expect(await worker.leave()).toBe(0)
  })

  it('exits after three rounds of start and stop', async () => {
    const worker = await Worker.spawn({ url: await migratedDatabase() })
    for (let round = 0; round < 3; round++) {
      await worker.ask('start')
      await worker.untilHandled(await worker.ask('enqueue', 'thing.happened'))
      await worker.ask('stop')
    }
    await worker.ask('endPool')
    await worker.untilIdle()
    expect(await worker.leave()).toBe(0)
  })
})

describe('the pool after stop()', () => {
  const EVENTS = [
    'error',
    'end',
    'notification',
    'notice',
    'drain',
    'connect',
    'acquire',
    'remove',
    'release',
  ]
  const listenersOf = (emitter: Pick<pg.Pool, 'listenerCount'>) =>
    Object.fromEntries(EVENTS.map((name) => [name, emitter.listenerCount(name as 'error')]))

  it('has its connections back, with the listeners and settings that they had', async () => {
    const pool = poolOn(await migratedDatabase())
    const clients: pg.PoolClient[] = []
    pool.on('connect', (client) => clients.push(client))
    const { outbox } = outboxOn(pool)
    outbox.on('thing.happened', 'see', () => {})
    await pool.query('select 1')
    const idleClient = listenersOf(clients[0] as pg.PoolClient)
    const before = listenersOf(pool)
    for (let round = 0; round < 3; round++) {
      await outbox.start()
      await outbox.enqueue(event())
      await outbox.drain()
      await outbox.stop()
    }
    expect(listenersOf(pool)).toEqual(before)
    expect(pool.totalCount).toBe(pool.idleCount)
    expect(clients.length).toBeGreaterThan(2)
    for (const client of clients) expect(listenersOf(client)).toEqual(idleClient)
    for (const client of clients) expect(doesAsItsClass(client)).toBe(true)
    const { rows } = await pool.query(
      `select count(*)::int listening from pg_stat_activity where datname = current_database() and query ilike 'listen%'`,
    )
    expect(rows).toEqual([{ listening: 0 }])
    const held = await Promise.all(clients.map(() => within('a connection', pool.connect(), 2_000)))
    for (const client of held) {
      const { rows: settings } = await client.query(`select current_setting('enable_seqscan') seqscan,
        current_setting('default_transaction_isolation') isolation, (select count(*)::int from pg_listening_channels()) n`)
      expect(settings).toEqual([{ seqscan: 'on', isolation: 'read committed', n: 0 }])
      client.release()
    }
  })
})
