import type pg from 'pg'
import { expect, inject, it } from 'vitest'
import { fixedDelay } from '../../src/index.js'
import { settingsOf } from '../../src/outbox/settings.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { ANY, dead, done } from '../../src/testing/store-conformance/fixtures.js'
import { startWorker } from '../support/child.js'
import { freshDatabase } from '../support/database.js'
import { afterwards, event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until } from '../support/waiting.js'
import { openWorld } from '../support/world.js'

/** Bugs of other queues about who owns a job. */

const EXPIRED = `update outbox_event set locked_until = clock_timestamp() - interval '1 second' where status in (0, 2)`

async function claim(pool: pg.Pool, token: string, count: number) {
  const request = { token, leaseMs: 60_000, limit: count, maxBytes: 1e6, accept: ANY, fromSeq: 0 }
  return (await postgresStore(pool).claim({ ...request, suspects: count, skipRecentMs: 0 })).rows
}

async function withRows(count: number): Promise<pg.Pool> {
  const pool = poolOn(await migratedDatabase())
  await pool.query(`insert into outbox_event (event_id, event_type, payload)
    select n::text, 'thing.happened', '1' from generate_series(1, ${count}) n`)
  return pool
}

it('river#1302: whoever looks for lost leases never takes an event back that is done by then', async () => {
  const pool = await withRows(1)
  const [row] = await claim(pool, 'first', 1)
  await pool.query(EXPIRED)
  // Its owner is slow, not dead: the outcome is on its way while somebody else looks for lost leases.
  const owner = await pool.connect()
  await owner.query('begin')
  await owner.query(
    `update outbox_event set status = 1, done_at = now(), locked_by = null, locked_until = null`,
  )
  let taken: readonly unknown[] | undefined
  const claiming = claim(pool, 'second', 1).then((rows) => {
    taken = rows
  })
  const waits = `select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
  await until('it has passed the row, or waits for it', async () => {
    return taken !== undefined || ((await pool.query(waits)).rowCount ?? 0) > 0
  })
  await owner.query('commit')
  owner.release()
  await claiming
  expect(taken).toEqual([])
  expect(row?.token).toBe('first')
  expect(await rowsIn(pool)).toMatchObject([{ status: 1, locked_by: null, attempts: 0 }])
})

it('river#1302: of an outcome and a takeover that race, each event sees one', {
  timeout: 60_000,
}, async () => {
  const COUNT = 40
  const pool = await withRows(COUNT)
  let outcomes = 0
  let takeovers = 0
  for (let round = 0; round < 15; round++) {
    await pool.query(
      'update outbox_event set status = 0, done_at = null, locked_by = null, locked_until = null',
    )
    const rows = await claim(pool, `owner ${round}`, COUNT)
    expect(rows).toHaveLength(COUNT)
    await pool.query(EXPIRED)
    const settle = () => postgresStore(pool).settleIfLeased(rows.map(done), true)
    const takeOver = () => claim(pool, `heir ${round}`, COUNT)
    // Each of the two wins one round for certain; after that they race, each with the head start in turn.
    const early = round % 2 === 0 ? null : takeOver()
    if (round === 1) await early
    const settling = settle()
    if (round === 0) await settling
    const [settled, taken] = await Promise.all([settling, early ?? takeOver()])
    const states = new Map((await rowsIn(pool)).map((row) => [row.event_id, row]))
    for (const id of settled) expect(states.get(id)).toMatchObject({ status: 1, locked_by: null })
    for (const one of taken) {
      expect(settled.has(one.eventId)).toBe(false)
      expect(states.get(one.eventId)).toMatchObject({ status: 0, locked_by: one.token })
    }
    outcomes += settled.size
    takeovers += taken.length
  }
  expect(outcomes).toBeGreaterThanOrEqual(COUNT)
  expect(takeovers).toBeGreaterThanOrEqual(COUNT)
  expect(outcomes + takeovers).toBeLessThanOrEqual(15 * COUNT)
})

it('bull#1416: a worker that lost its lease writes nothing onto the event of the new owner', async () => {
  const pool = await withRows(1)
  const store = postgresStore(pool)
  const [stale] = await claim(pool, 'stale', 1)
  await pool.query(EXPIRED)
  const [owned] = await claim(pool, 'owner', 1)
  if (!stale || !owned) throw new Error('it was not claimed twice')
  const whole = async () => (await pool.query('select * from outbox_event')).rows
  const before = await whole()
  for (const outcome of [done(stale), dead(stale, { error: 'of the stale one' })]) {
    expect([...(await store.settleIfLeased([outcome], true))]).toEqual([])
    expect([...(await store.settleIfLeased([outcome], false))]).toEqual([])
  }
  expect([...(await store.renewIfLeased([stale], 60_000))]).toEqual([])
  expect(await whole()).toEqual(before)
  expect([...(await store.settleIfLeased([done(owned)], true))]).toEqual(['1'])
})

it('pg-boss#555: a handler whose time is over is told so, and its process runs no retry beside it', async () => {
  const pool = poolOn(await migratedDatabase())
  const { outbox } = outboxOn(pool, {
    poller: { pollIntervalMs: 20 },
    retry: { policy: fixedDelay(0), maxAttempts: 5 },
  })
  const finish = signal()
  const runs: string[] = []
  const told: unknown[] = []
  const handler = async (
    _one: unknown,
    { attempt, signal: over }: { attempt: number; signal: AbortSignal },
  ) => {
    runs.push(`${attempt} begins`)
    over.addEventListener('abort', () => told.push(over.reason))
    if (attempt === 1) await finish.promise
    runs.push(`${attempt} ends`)
  }
  outbox.on('thing.happened', 'slow', handler, { timeoutMs: 50 })
  let others = 0
  outbox.on('other', 'count', () => void others++)
  await outbox.start()
  await outbox.enqueue(event())
  await until('it is counted as a failure', async () => (await rowsIn(pool))[0]?.status === 2)
  // Claims go on: the retry has its chances.
  for (let n = 1; n <= 10; n++) {
    await outbox.enqueue(event('other'), { delayMs: 1 })
    await until('another one is handled', () => others === n)
  }
  expect(told).toMatchObject([{ code: 'HANDLER_TIMEOUT' }])
  expect(runs).toEqual(['1 begins'])
  finish.give()
  await until('it is done', async () => (await rowsIn(pool))[0]?.status === 1)
  expect(runs).toEqual(['1 begins', '1 ends', '2 begins', '2 ends'])
})

it('solid_queue#568: leases are kept until the last handler of a drain has ended', async () => {
  const url = await migratedDatabase()
  const observer = poolOn(url, { max: 2 })
  const poller = { leaseMs: 300, pollIntervalMs: 50 }
  const running = signal()
  const finish = signal()
  const runs: string[] = []
  const instance = (name: string) => {
    const { outbox } = outboxOn(poolOn(url), { poller, dispatcher: { drainTimeoutMs: 60_000 } })
    return outbox.on('thing.happened', 'work', async () => {
      runs.push(name)
      running.give()
      await finish.promise
    })
  }
  const [draining, other] = [instance('draining'), instance('other')] as const
  await draining.start()
  await draining.enqueue(event())
  await running.promise
  await other.start()
  const stopping = draining.stop()
  const leasedUntil = async () =>
    (await observer.query('select locked_until from outbox_event')).rows[0].locked_until.getTime() as number
  const first = await leasedUntil()
  await until('five leases have gone by', async () => (await leasedUntil()) > first + 5 * poller.leaseMs)
  finish.give()
  await stopping
  expect(runs).toEqual(['draining'])
  expect(await rowsIn(observer)).toMatchObject([{ status: 1, attempts: 0 }])
})

it('graphile-worker#222: what a killed process held is taken over within its lease, seconds and not hours', async () => {
  const database = await freshDatabase(inject('postgresUrl'))
  afterwards('drop the database', () => database.drop())
  const world = await openWorld(database.url)
  const settings = { poller: { leaseMs: 1_000, pollIntervalMs: 200 } }
  const victim = await startWorker(world, settings)
  await world.outbox().enqueue({ type: 'any.thing', eventId: 'e', payload: { act: 'hang' } })
  await victim.hears((one) => one.told === 'started')
  const heir = await startWorker(world, { ...settings, hangs: false })
  await victim.kill('SIGKILL')
  const killed = performance.now()
  await heir.hears((one) => one.told === 'ended' && one.id === 'e')
  // Its lease, a poll interval, and a slow machine.
  expect(performance.now() - killed).toBeLessThan(5_000)
  expect(settingsOf({ store: memoryStore() }).leaseMs).toBeLessThanOrEqual(60_000)
})
