import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, inject, it, onTestFinished } from 'vitest'
import { freshDatabase } from '../../support/database.js'
import { until } from '../../support/until.js'
import { openWorld, type World } from '../../support/world.js'

const AGGREGATES = 200
const EVENTS = 20_000

function start(script: string, options: object): ChildProcess {
  const file = fileURLToPath(new URL(`../children/${script}`, import.meta.url))
  const child = fork(file, [JSON.stringify(options)], {
    execArgv: [],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  onTestFinished(() => void child.kill('SIGKILL'))
  return child
}

async function tables({ pool, table }: World): Promise<void> {
  await pool.query(`create table ${table}_aggregate (id text primary key, version int not null default 0)`)
  await pool.query(
    `insert into ${table}_aggregate select 'agg-' || n from generate_series(0, ${AGGREGATES - 1}) n`,
  )
  await pool.query(
    `create table ${table}_call (id bigserial primary key, key text, version int, worker text, began timestamptz, ended timestamptz)`,
  )
}

/** Versions come from the aggregate's own row: an oracle that knows nothing of `seq`. */
async function outOfOrder({ pool, table }: World): Promise<unknown[]> {
  const { rows } = await pool.query(`
    with first as (select key, version, min(id) as id from ${table}_call group by 1, 2),
    numbered as (select key, version, row_number() over (partition by key order by id) as place from first)
    select * from numbered where version <> place order by key, place limit 10`)
  return rows
}

/** Two calls of one key at the same time, each of them seen to its end. */
async function overlaps({ pool, table }: World): Promise<unknown[]> {
  const { rows } = await pool.query(`
    select * from (select key, version, worker, began, ended, lead(began) over (partition by key order by began) as next
      from ${table}_call where ended is not null) calls where next < ended limit 10`)
  return rows
}

it('keeps the order of every key while three producers, three workers, failures and a SIGKILL contend for them', {
  timeout: 240_000,
}, async () => {
  const database = await freshDatabase(inject('postgresUrl') as string)
  onTestFinished(() => database.drop())
  const world = await openWorld(database.url)
  const { url, table, pool } = world
  await tables(world)
  const workers = ['one', 'two', 'three'].map((name) => start('ordered-worker.js', { url, table, name }))
  await Promise.all(workers.map((worker) => once(worker, 'message')))
  const counts = [6_666, 6_667, 6_667]
  const producers = counts.map((count, n) =>
    start('ordered-producer.js', { url, table, count, aggregates: AGGREGATES, seed: n + 1 }),
  )
  const produced = Promise.all(producers.map((producer) => once(producer, 'exit')))

  const called = async () => Number((await pool.query(`select count(*) from ${table}_call`)).rows[0].count)
  await until(async () => (await called()) > EVENTS / 4, { timeoutMs: 120_000, what: 'a quarter is handled' })
  workers[0]?.kill('SIGKILL')
  expect(await produced).toEqual([
    [0, null],
    [0, null],
    [0, null],
  ])
  const open = async () =>
    (await pool.query(`select exists (select 1 from ${table} where status <> 1) as open`)).rows[0].open
  await until(async () => !(await open()), { timeoutMs: 120_000, what: 'everything is handled' })

  expect(await outOfOrder(world)).toEqual([])
  expect(await overlaps(world)).toEqual([])
  const { rows } = await pool.query(`
    select (select count(*)::int from ${table}) as events, (select sum(version)::int from ${table}_aggregate) as versions,
      (select count(distinct (key, version))::int from ${table}_call) as handled,
      (select count(distinct worker)::int from ${table}_call) as workers`)
  expect(rows).toEqual([{ events: EVENTS, versions: EVENTS, handled: EVENTS, workers: 3 }])
  expect(await called()).toBeGreaterThan(EVENTS)
})
