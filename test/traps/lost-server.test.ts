import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type PostgresServer, startPostgres } from '../support/postgres-server.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until, within } from '../support/waiting.js'
import { Worker, type WorkerOptions } from '../support/worker.js'

/** Losing the server never ends the process, and work resumes by itself. */

const outbox = { poller: { pollIntervalMs: 200, leaseMs: 2_000 } }
const CASES: readonly (readonly [string, Omit<WorkerOptions, 'url'>])[] = [
  ['pg', { outbox }],
  ['pg without the doorbell', { outbox, store: { doorbell: false } }],
  ['postgres.js', { outbox, driver: 'postgres.js' }],
  ['postgres.js without the doorbell', { outbox, driver: 'postgres.js', store: { doorbell: false } }],
]

/** Publishes as another process would, by plain SQL; a doorbell is rung only if asked. */
async function insert(client: pg.Client | pg.Pool, id: string, ring = false): Promise<string> {
  const { rows } = await client.query(
    `insert into outbox_event (event_id, event_type, payload) values ($1, 'thing.happened', '1') returning seq`,
    [id],
  )
  if (ring) await client.query(`select pg_notify('outbox_event', $1)`, [rows[0].seq])
  return id
}

describe.each(CASES)('with %s, a worker', (_name, options) => {
  it('survives the end of all its backends, again and again, and goes on', { timeout: 120_000 }, async () => {
    const url = await migratedDatabase()
    const admin = poolOn(url, { max: 1 })
    const worker = await Worker.started({ url, ...options })
    for (let round = 1; round <= 3; round++) {
      await worker.untilHandled(await insert(admin, `before ${round}`))
      await admin.query(`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()`)
      // Each dead connection of the pool that it meets is a failed attempt, and those are seconds apart in the end.
      await worker.untilHandled(await insert(admin, `after ${round}`), 30_000)
      await worker.untilHandled(await enqueued(worker), 30_000)
    }
    // An outcome whose lease ended while dead connections were met is lost, and its event is handled again.
    const areSettled = async () => (await rowsIn(admin)).every(({ status }) => status === 1)
    await until('every event is settled', areSettled)
    await ends(worker, options)
    expect(await areSettled()).toBe(true)
    expect(worker.handled.length).toBeGreaterThanOrEqual(9)
  })
})

describe('the doorbell', () => {
  it.each([
    ['pg', 'pg'],
    ['postgres.js', 'postgres.js'],
  ] as const)('of %s is answered again after its connection was ended', async (_name, driver) => {
    const url = await migratedDatabase()
    const admin = poolOn(url, { max: 1 })
    const worker = await Worker.started({ url, driver, outbox: { poller: { pollIntervalMs: 60_000 } } })
    await worker.untilHandled(await insert(admin, 'before', true), 3_000)
    await admin.query(`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid()`)
    const listening = `select 1 from pg_stat_activity where datname = current_database() and query ilike 'listen%'`
    await until('it listens again', async () => ((await admin.query(listening)).rowCount ?? 0) > 0)
    await worker.untilHandled(await insert(admin, 'after', true), 10_000)
    expect(worker.problems).toEqual([])
  })
})

describe('a server that', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres()
  })
  afterAll(() => server.stop())

  async function direct(url: string): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => {})
    await client.connect()
    return client
  }

  it.each(CASES)(
    'restarts, and later is gone for a while, is found again: %s',
    { timeout: 90_000 },
    async (_n, options) => {
      const url = await migratedDatabase(server.url)
      const worker = await Worker.started({ url, ...options })
      let admin = await direct(url)
      await worker.untilHandled(await insert(admin, 'before'))
      await server.restart()
      admin = await direct(url)
      await worker.untilHandled(await insert(admin, 'after the restart'))
      await server.kill()
      const health = await worker.ask('health')
      expect(health).toMatchObject({
        ok: false,
        live: true,
        ready: false,
        storeReachable: false,
        started: true,
      })
      await server.start()
      admin = await direct(url)
      // Between two attempts to connect postgres.js waits for up to twenty seconds.
      await worker.untilHandled(await insert(admin, 'after the crash'), 40_000)
      await until('health is well', async () => (await worker.ask('health')).ok)
      await ends(worker, options)
      await admin.end()
    },
  )

  it.each(CASES)(
    'is gone for good does not keep a worker from stopping: %s',
    { timeout: 60_000 },
    async (_n, options) => {
      const url = await migratedDatabase(server.url)
      const worker = await Worker.started({ url, ...options })
      await worker.ask('enqueue', 'thing.happened')
      await server.kill()
      try {
        await ends(worker, options)
      } finally {
        await server.start()
      }
    },
  )

  it('dies under a handler loses neither the event nor its outcome', async () => {
    const url = await migratedDatabase(server.url)
    const pool = poolOn(url)
    const { outbox: one } = outboxOn(pool, { poller: { leaseMs: 30_000, pollIntervalMs: 200 } })
    let runs = 0
    one.on('thing.happened', 'restart the server', async () => {
      runs++
      await server.restart()
    })
    await one.start()
    await one.enqueue(event())
    const settled = async () => (await rowsIn(pool).catch(() => []))[0]?.status === 1
    await until('the outcome is written once the server is back', settled, 20_000)
    expect(runs).toBe(1)
  })
})

/**
 * It stops, and ends by itself. Not so with postgres.js, which after the loss of a server goes on trying to connect for what
 * it had queued, and opens a connection that was on its way even after its `end()`; on a sound server it does end by itself
 * (see nothing-left-behind.test.ts).
 */
async function ends(worker: Worker, { driver }: Omit<WorkerOptions, 'url'>): Promise<void> {
  await within('stop', worker.ask('stop'), 20_000)
  expect(worker.problems).toEqual([])
  if (driver === 'postgres.js') return await worker.kill()
  await worker.ask('endPool')
  expect(await worker.leave()).toBe(0)
}

/** A transaction of the application's own may meet a connection that was just ended; it then tries again. */
async function enqueued(worker: Worker): Promise<string> {
  for (;;) {
    try {
      return await worker.ask('enqueue', 'thing.happened')
    } catch (error) {
      if (!/terminating connection|CONNECTION_/.test(String(error))) throw error
    }
  }
}
