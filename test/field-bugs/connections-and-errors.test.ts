import pg from 'pg'
import { expect, it, onTestFinished } from 'vitest'
import { createOutbox, silentLogger, TransactionEndedError } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { startProxy } from '../support/proxy.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until, within } from '../support/waiting.js'
import { Worker } from '../support/worker.js'

/** Bugs of other queues and drivers with lost connections, error texts, names and late statements. */

const OTHERS = `from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`

it('graphile-worker#22: the end of an idle connection of a pool without listeners does not end the process', async () => {
  const url = await migratedDatabase()
  const admin = poolOn(url, { max: 1 })
  // Its pool has no listener for 'error'; what would have ended the process comes as a problem.
  const worker = await Worker.started({ url, outbox: { poller: { pollIntervalMs: 200 } } })
  await worker.untilHandled(await worker.ask('enqueue', 'thing.happened'))
  const ended = await admin.query(`select pg_terminate_backend(pid) ${OTHERS} and state = 'idle'`)
  expect(ended.rowCount).toBeGreaterThan(0)
  await admin.query(`insert into outbox_event (event_id, event_type) values ('after', 'thing.happened')`)
  await worker.untilHandled('after', 30_000)
  expect(worker.problems).toEqual([])
})

it('graphile-worker#178: the end of a connection inside a transaction rejects it, and does not end the process', async () => {
  const uncaught: unknown[] = []
  const note = (error: unknown) => uncaught.push(error)
  process.prependListener('uncaughtException', note)
  onTestFinished(() => void process.off('uncaughtException', note))
  const url = await migratedDatabase()
  const admin = poolOn(url, { max: 1 })
  // On purpose without a listener for 'error'.
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  afterwards('end the pool', () => pool.end())
  const outbox = createOutbox({ store: postgresStore(pool), logger: silentLogger })
  const outcome = outbox.transaction(async (tx) => {
    await tx.publish(event())
    const { rows } = await tx.client.query('select pg_backend_pid() pid')
    const gone = new Promise((resolve) => tx.client.once('end', resolve))
    await admin.query('select pg_terminate_backend($1)', [rows[0].pid])
    // Nothing is under way on it: only its event tells of the end.
    await within('the end of the connection', gone, 5_000)
  })
  await expect(outcome).rejects.toThrow()
  await outbox.enqueue(event())
  expect(uncaught).toEqual([])
  expect(await rowsIn(admin)).toHaveLength(1)
})

it('node-postgres#3399: a client whose statement timed out does not stay in the pool', async () => {
  const url = await migratedDatabase()
  const proxy = await startProxy(url)
  afterwards('close the proxy', () => proxy.close())
  const pool = poolOn(proxy.url, { query_timeout: 250, max: 1 })
  const { outbox } = outboxOn(pool)
  for (const work of ['the body', 'the commit']) {
    const outcome = outbox.transaction(async (tx) => {
      await tx.publish(event())
      // The client never hears an answer again; only a new one works.
      proxy.halfOpen()
      if (work === 'the body') await tx.client.query('select 1')
    })
    await expect(outcome).rejects.toThrow()
    await within(`a publish after ${work}`, outbox.enqueue(event()), 5_000)
  }
  expect((await pool.query('select 42 n')).rows).toEqual([{ n: 42 }])
  expect(await rowsIn(poolOn(url, { max: 1 }))).toHaveLength(2)
})

it('hatchet#4611: NUL in the text of an error does not keep the failure from being recorded', async () => {
  const pool = poolOn(await migratedDatabase())
  const { outbox } = outboxOn(pool, { retry: { maxAttempts: 2, policy: { delayMs: () => 1 } } })
  outbox.on('thing.happened', 'fail', () => {
    throw new Error('before\0after \ud800 end')
  })
  await outbox.start()
  await outbox.enqueue(event())
  await until('it is dead', async () => (await rowsIn(pool))[0]?.status === 3)
  const [row] = await rowsIn(pool)
  expect(row).toMatchObject({ attempts: 2, last_error: expect.stringMatching(/before.*after.*end/) })
})

it('pgmq#295: no name reaches the database as SQL', async () => {
  const pool = poolOn(await migratedDatabase())
  const hostile = `x'); drop table outbox_event; --`
  expect(() => postgresStore(pool, { table: hostile })).toThrow(/table/)
  expect(() => postgresStore(pool, { schema: hostile })).toThrow(/schema/)
  const { outbox } = outboxOn(pool)
  const seen: string[] = []
  outbox.on(hostile, hostile, (one) => void seen.push(one.eventType))
  await outbox.start()
  const names = { aggregateType: hostile, aggregateId: hostile, tenantId: hostile }
  await outbox.enqueue({ type: hostile, payload: 1, orderingKey: hostile, ...names })
  await until('it is handled', () => seen.length === 1)
  await outbox.pause(hostile)
  expect(await outbox.paused()).toEqual([hostile])
  expect(await outbox.resume(hostile)).toBe(true)
  await outbox.drain()
  expect(await rowsIn(pool)).toMatchObject([{ event_type: hostile, status: 1 }])
})

it('prisma#29762: a publish that comes after the rollback is refused, and never commits by itself', async () => {
  const pool = poolOn(await migratedDatabase(), { max: 2 })
  const { outbox } = outboxOn(pool)
  const rolledBack = signal()
  const late: Promise<unknown>[] = []
  const attempt = async (publish: () => Promise<unknown>) => {
    await rolledBack.promise
    return publish().catch((error: unknown) => error)
  }
  const outcome = outbox.transaction(async (tx) => {
    // Left behind by the body: with the ambient transaction, with the object, and with the client itself.
    late.push(attempt(() => outbox.publish(event())))
    late.push(attempt(() => tx.publish(event())))
    late.push(attempt(() => outbox.publish(event(), { tx: tx.client })))
    throw new Error('roll back')
  })
  await expect(outcome).rejects.toThrow('roll back')
  const client = await pool.connect()
  await client.query('begin')
  await client.query('rollback')
  late.push(attempt(() => outbox.publish(event(), { tx: client })))
  rolledBack.give()
  for (const error of await Promise.all(late)) expect(error).toBeInstanceOf(TransactionEndedError)
  client.release()
  expect(await rowsIn(pool)).toEqual([])
})

it('node-postgres#3399: a client whose BEGIN timed out does not stay in the pool', async () => {
  const proxy = await startProxy(await migratedDatabase())
  afterwards('close the proxy', () => proxy.close())
  const { outbox } = outboxOn(poolOn(proxy.url, { query_timeout: 250, max: 1 }))
  await outbox.enqueue(event())
  proxy.halfOpen()
  await expect(outbox.enqueue(event())).rejects.toThrow(/timeout/)
  await outbox.enqueue(event())
})
