import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { CommitUnknownError, exponentialBackoff } from '../../src/index.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

/** A server that answers with errors for a while, or is set up in an unusual way. */

const retry = { policy: exponentialBackoff(1, 1) }

async function worker(config: pg.PoolConfig = {}, url?: string) {
  const at = url ?? (await migratedDatabase())
  const admin = poolOn(at, { max: 4 })
  const { outbox, log } = outboxOn(poolOn(at, config), {
    poller: { pollIntervalMs: 100, leaseMs: 1_500 },
    retry,
  })
  const handled: string[] = []
  outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
  const insert = async (id: string) => {
    await admin.query(
      `insert into outbox_event (event_id, event_type, payload) values ($1, 'thing.happened', '1')`,
      [id],
    )
    return id
  }
  const settled = (id: string) => async () =>
    (await rowsIn(admin)).some((row) => row.event_id === id && row.status === 1)
  return { url: at, admin, outbox, log, handled, insert, settled }
}

const database = (url: string) => new URL(url).pathname.slice(1)
const others = `from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`

describe('a server that is read-only for a while', () => {
  it('is waited for, and work resumes by itself', async () => {
    const { url, admin, outbox, log, insert, settled } = await worker()
    await outbox.start()
    await until('before', settled(await insert('before')))
    const writer = new pg.Client({ connectionString: url })
    await writer.connect()
    await admin.query(`alter database ${database(url)} set default_transaction_read_only = on`)
    await writer.query(`select pg_terminate_backend(pid) ${others}`)
    await until('the worker has noticed', () => log.matching(/could not be claimed/).length > 0)
    expect((await outbox.health()).started).toBe(true)
    await writer.query('begin read write')
    await writer.query(
      `insert into outbox_event (event_id, event_type) values ('meanwhile', 'thing.happened')`,
    )
    await writer.query('commit')
    await writer.query('begin read write')
    await writer.query(`alter database ${database(url)} reset default_transaction_read_only`)
    await writer.query('commit')
    await writer.query(`select pg_terminate_backend(pid) ${others}`)
    await writer.end()
    await until('the one from meanwhile', settled('meanwhile'), 15_000)
    await until('the database answers again', () => log.matching(/answers again/).length > 0)
  })
})

describe('a server whose statements time out', () => {
  it('by statement_timeout and lock_timeout does not end the worker', async () => {
    const { admin, outbox, insert, settled } = await worker({
      options: '-c statement_timeout=150 -c lock_timeout=100',
    })
    await outbox.start()
    await until('before', settled(await insert('before')))
    const blocker = await admin.connect()
    await blocker.query('begin')
    await blocker.query('lock table outbox_event in access exclusive mode')
    const began = performance.now()
    await until('several statements have timed out', () => performance.now() - began > 1_000)
    await blocker.query('rollback')
    blocker.release()
    await until('after', settled(await insert('after')), 15_000)
    expect((await outbox.health()).storeReachable).toBe(true)
  })

  it('by the pool’s query_timeout leaves no wedged client in the pool', { timeout: 40_000 }, async () => {
    const at = await migratedDatabase()
    const { admin, outbox, handled, insert, settled } = await worker({ query_timeout: 200, max: 6 }, at)
    await outbox.start()
    await until('before', settled(await insert('before')))
    const blocker = await admin.connect()
    await blocker.query('begin')
    await blocker.query('lock table outbox_event in access exclusive mode')
    // INSERT and COMMIT are one packet: the server may yet carry it out.
    const error = await outbox.enqueue(event()).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(CommitUnknownError)
    expect(error.cause).toMatchObject({ message: expect.stringMatching(/timeout/i) })
    const began = performance.now()
    await until('several statements have timed out', () => performance.now() - began > 1_000)
    await blocker.query('rollback')
    blocker.release()
    await until('after', settled(await insert('after')), 15_000)
    const id = await outbox.enqueue(event())
    await until('a new one is handled', () => handled.includes(id))
  })

  it('by idle_session_timeout has its connections replaced', async () => {
    const { outbox, handled, insert } = await worker({ options: '-c idle_session_timeout=300' })
    await outbox.start()
    const began = performance.now()
    await until('the sessions were ended several times', () => performance.now() - began > 1_500)
    const id = await insert('after')
    await until('it is handled', () => handled.includes(id))
  })
})

describe('a role whose transactions are', () => {
  it.each(['serializable', 'repeatable read'])(
    '%s by default: two workers share the load',
    async (isolation) => {
      const url = await migratedDatabase()
      const options = `-c default_transaction_isolation=${isolation.replace(' ', '\\ ')}`
      const one = await worker({ options }, url)
      const two = await worker({ options }, url)
      const { rows } = await poolOn(url, { options, max: 1 }).query('show transaction_isolation')
      expect(rows).toEqual([{ transaction_isolation: isolation }])
      await one.outbox.start()
      await two.outbox.start()
      const ids: string[] = []
      for (let n = 0; n < 200; n++) ids.push(await one.insert(`event ${n}`))
      for (let n = 0; n < 20; n++) ids.push(await two.outbox.enqueue(event()))
      await until(
        'all are settled',
        async () => (await rowsIn(one.admin)).every((row) => row.status === 1),
        20_000,
      )
      expect([...one.handled, ...two.handled].sort()).toEqual(ids.sort())
      const problems = [...one.log.lines('warn'), ...two.log.lines('warn')]
      expect(problems.map((line) => `${line.msg}: ${line.error_message}`)).toEqual([])
    },
  )

  it('deferrable constraints and triggers that fail a settle once: it is tried again', async () => {
    const { admin, outbox, handled, insert, settled } = await worker()
    await admin.query('create sequence tries')
    await admin.query(`create function fail_twice() returns trigger language plpgsql as $$ begin
      if new.status = 1 and nextval('tries') <= 2 then
        raise exception 'deadlock detected' using errcode = case when currval('tries') = 1 then '40P01' else '40001' end;
      end if; return new; end $$`)
    await admin.query(
      'create trigger fail_twice before update on outbox_event for each row execute function fail_twice()',
    )
    await outbox.start()
    const id = await insert('once')
    await until('it is settled', settled(id))
    expect(handled).toEqual([id])
    expect((await rowsIn(admin))[0]?.attempts).toBe(0)
  })
})
