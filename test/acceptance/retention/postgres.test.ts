import { expect, it } from 'vitest'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { until } from '../../support/until.js'
import { HOUR_MS, onEveryPostgres, type World } from '../../support/world.js'

/** Rows that were done an hour or a moment ago, as many pages as rows. */
async function fill({ pool, table }: World, count: number, done: 'old' | 'young'): Promise<void> {
  await pool.query(`alter table ${table} set (fillfactor = 10)`)
  const at = done === 'old' ? `now() - interval '1 hour'` : 'now()'
  await pool.query(
    `insert into ${table} (event_id, event_type, payload, status, done_at, last_error)
     select '${done}-' || gen_random_uuid(), 'a', 'null', 1, ${at}, repeat('x', 500) from generate_series(1, $1)`,
    [count],
  )
}

async function pruneAll(store: { pruneDone(ms: number, limit: number): Promise<number> }, limit: number) {
  const counts: number[] = []
  do counts.push(await store.pruneDone(60_000, limit))
  while (counts.at(-1) === limit)
  return counts
}

onEveryPostgres('pruning', (newWorld) => {
  it('deletes what is old in bounded batches, and nothing else', async () => {
    const world = await newWorld()
    await fill(world, 2_500, 'old')
    await fill(world, 10, 'young')
    const store = postgresStore(world.pool, { table: world.table })
    expect(await pruneAll(store, 1_000)).toEqual([1_000, 1_000, 500])
    expect(await world.rows()).toHaveLength(10)
  })

  it('goes round the whole table, from wherever it stopped, and finds all of it', async () => {
    const world = await newWorld()
    await fill(world, 1_000, 'old')
    await fill(world, 500, 'young')
    await fill(world, 20, 'old')
    const store = postgresStore(world.pool, { table: world.table })
    expect(await store.pruneDone(60_000, 600)).toBe(600)
    expect(await store.pruneDone(60_000, 600)).toBe(420)
    await fill(world, 10, 'old')
    expect(await store.pruneDone(60_000, 600)).toBe(10)
    expect(await world.rows()).toHaveLength(500)
  })

  it('ends early when the outbox stops', async () => {
    const world = await newWorld()
    await fill(world, 1_000, 'old')
    const store = postgresStore(world.pool, { table: world.table })
    expect(await store.pruneDone(60_000, 600, AbortSignal.abort())).toBe(0)
    expect(await world.rows()).toHaveLength(1_000)
  })

  it('looks at a window of pages by their numbers', async () => {
    const world = await newWorld()
    await fill(world, 2_000, 'old')
    const { rows } = await world.pool.query(
      `explain select ctid from ${world.table} where ctid >= '(0,0)'::tid and ctid < '(128,0)'::tid and status = 1 limit 10`,
    )
    expect(JSON.stringify(rows)).toContain('Tid Range Scan')
  })

  it('is done by a started outbox, by one instance at a time, and old marks go too', async () => {
    const world = await newWorld()
    await fill(world, 1_500, 'old')
    await world.pool.query(
      `insert into ${world.table}_inbox (handler, event_id, processed_at) values ('h', 'old', now() - interval '1 year'), ('h', 'new', now())`,
    )
    const options = { retention: { doneMs: 60_000 }, poller: { pollIntervalMs: 50 } }
    const outboxes = [world.outbox(options), world.outbox(options)]
    for (const outbox of outboxes) outbox.on('a', 'note', () => {})
    await Promise.all(outboxes.map((outbox) => outbox.start()))
    await until(async () => (await world.rows()).length === 0)
    await until(async () => {
      const { rows } = await world.pool.query(`select event_id from ${world.table}_inbox`)
      return rows.length === 1 && rows[0].event_id === 'new'
    })
  })

  it('rows are deleted on completion with doneMs 0', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ retention: { doneMs: 0 }, poller: { pollIntervalMs: HOUR_MS } })
    outbox.on('a', 'note', () => {})
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 50 }, () => ({ type: 'a' }))))
    await until(async () => (await outbox.stats()).done === 50)
    expect(await world.rows()).toEqual([])
  })
})
