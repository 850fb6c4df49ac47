import { describe, expect, it } from 'vitest'
import type { EventEnvelope } from '../../../src/index.js'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { findPsql, psql } from '../../support/psql.js'
import { until } from '../../support/until.js'
import { onEveryPostgres, type World } from '../../support/world.js'

const hasPsql = findPsql() !== null

/** A started worker that notes every event, and can be waited for. */
async function listening(world: World) {
  const outbox = world.outbox({ doorbell: true })
  const events: EventEnvelope[] = []
  outbox.on('*', 'note', (event) => void events.push(event))
  await outbox.start()
  return { outbox, events, has: (count: number) => until(() => events.length >= count) }
}

const publishOf = ({ table }: World) => `${table}_publish`

onEveryPostgres('publishing by SQL', (newWorld) => {
  it.skipIf(!hasPsql)(
    'one statement in psql is an event, handled at once although the next poll is an hour away',
    async () => {
      const world = await newWorld()
      const { events, has } = await listening(world)
      const id = psql(world.url, `select ${publishOf(world)}('order.placed', '{"orderId": "o-1"}')`)
      await has(1)
      expect(events[0]).toMatchObject({ eventId: id, eventType: 'order.placed', version: 1 })
      expect(events[0]?.payload).toEqual({ orderId: 'o-1' })
      await until(async () => (await world.rows())[0]?.status === 'DONE')
    },
  )

  it('takes every optional column by name', async () => {
    const world = await newWorld()
    const { events, has } = await listening(world)
    await world.pool.query(`select ${publishOf(world)}(
      event_type => 'order.placed', payload => '{"n": [1, "ü"]}', aggregate_type => 'order', aggregate_id => 'o-1',
      event_id => 'given-1', ordering_key => 'order-1', tenant_id => 'acme', version => 3,
      headers => '{"source": "billing"}', metadata => '{"correlationId": "c-1", "userId": "u-1"}')`)
    await has(1)
    expect(events[0]).toMatchObject({
      eventId: 'given-1',
      eventType: 'order.placed',
      aggregateType: 'order',
      aggregateId: 'o-1',
      orderingKey: 'order-1',
      tenantId: 'acme',
      version: 3,
      headers: { source: 'billing' },
      metadata: { correlationId: 'c-1', userId: 'u-1' },
    })
    expect(events[0]?.payload).toEqual({ n: [1, 'ü'] })
  })

  it('a delayed one waits, and then comes by itself', async () => {
    const world = await newWorld()
    const { events, has } = await listening(world)
    const { rows } = await world.pool.query(
      `select ${publishOf(world)}('late', delay_ms => 300), extract(epoch from clock_timestamp()) * 1000 as at`,
    )
    await has(1)
    const { rows: after } = await world.pool.query(
      'select extract(epoch from clock_timestamp()) * 1000 as at',
    )
    expect(events[0]?.payload).toBeNull()
    expect(Number(after[0].at) - Number(rows[0].at)).toBeGreaterThanOrEqual(290)
  })

  it('from a trigger: an event for each row that is committed, none for one that is rolled back', async () => {
    const world = await newWorld()
    const { events, has } = await listening(world)
    const orders = `${world.table}_order`
    await world.pool.query(`
      create table ${orders} (id int primary key, total int);
      create function ${orders}_placed() returns trigger language plpgsql as $$ begin
        perform ${publishOf(world)}('order.placed', to_jsonb(new), ordering_key => 'order-' || new.id);
        return new;
      end $$;
      create trigger placed after insert on ${orders} for each row execute function ${orders}_placed();`)
    await world.pool.query(`begin; insert into ${orders} values (1, 10); rollback`)
    await world.pool.query(`insert into ${orders} values (2, 20), (3, 30)`)
    await has(2)
    expect(events.map((event) => event.payload)).toEqual([
      { id: 2, total: 20 },
      { id: 3, total: 30 },
    ])
    expect(await world.rows()).toHaveLength(2)
  })

  it('whatever the search_path of the writer is', async () => {
    const world = await newWorld()
    const { has } = await listening(world)
    await world.pool.query(`begin; set local search_path = pg_catalog;
      select public.${publishOf(world)}('order.placed'); commit`)
    await has(1)
  })

  it('a writer needs no right but to insert, and to draw numbers', async () => {
    const world = await newWorld()
    const { has } = await listening(world)
    const role = `writer_${world.table}`
    await world.pool.query(`create role ${role};
      grant insert on ${world.table} to ${role}; grant usage on sequence ${world.table}_seq to ${role}`)
    const client = await world.pool.connect()
    try {
      await client.query(`set role ${role}`)
      await client.query(`select ${publishOf(world)}('order.placed')`)
      await expect(client.query(`select * from ${world.table}`)).rejects.toMatchObject({ code: '42501' })
      await client.query(`reset role; drop owned by ${role}; drop role ${role}`)
    } finally {
      client.release()
    }
    await has(1)
  })

  it('refuses a delay out of range, a large payload and an id that exists, and writes nothing', async () => {
    const world = await newWorld()
    const call = (args: string) => world.pool.query(`select ${publishOf(world)}(${args})`)
    const bad = {
      [`'a', delay_ms => 'infinity'`]: /^Invalid setting delayMs: /,
      [`'a', delay_ms => 'nan'`]: /^Invalid setting delayMs: /,
      [`'a', delay_ms => -1`]: /^Invalid setting delayMs: /,
      [`'a', to_jsonb(repeat('x', 1100000))`]: /^The payload is larger than 1048576 bytes/,
    }
    for (const [args, message] of Object.entries(bad)) await expect(call(args), args).rejects.toThrow(message)
    await expect(call(`'a', '{not json'`)).rejects.toThrow(/invalid input syntax for type json/)
    await call(`'a', event_id => 'one'`)
    await expect(call(`'a', event_id => 'one'`)).rejects.toMatchObject({ code: '23505' })
    expect(await world.rows()).toHaveLength(1)
  })

  it('each table has its own function, whatever its name', async () => {
    const { pool } = await newWorld()
    const name = `n${Date.now()}`
    for (const table of [name, `${name}_event`]) await postgresStore(pool, { table }).migrate()
    await pool.query(`select ${name}_publish('first'), ${name}_event_publish('second')`)
    const typesIn = async (table: string) =>
      (await postgresStore(pool, { table }).list({})).map((row) => row.eventType)
    expect([await typesIn(name), await typesIn(`${name}_event`)]).toEqual([['first'], ['second']])
  })

  it('a plain INSERT with nothing but type and payload is an event as well, found by the next poll', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const seen: unknown[] = []
    outbox.on('order.placed', 'note', (event) => void seen.push(event.payload))
    await world.pool.query(
      `insert into ${world.table} (event_id, event_type, payload) values (gen_random_uuid(), 'order.placed', '{"n": 1}')`,
    )
    await outbox.drain()
    expect(seen).toEqual([{ n: 1 }])
  })

  it('becomes dead when its payload is larger than a payload may be, and its neighbours are handled', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ doorbell: true, poller: { pollIntervalMs: 250 } })
    const seen: number[] = []
    outbox.on('order.placed', 'note', (event) => void seen.push((event.payload as string).length))
    await outbox.start()
    const insert = async (length: number) => {
      const { rows } = await world.pool.query(
        `insert into ${world.table} (event_id, event_type, payload)
           values (gen_random_uuid(), 'order.placed', to_json((select string_agg(md5(n::text), '') from generate_series(1, $1::int / 32) n)))
           returning seq`,
        [length],
      )
      await world.pool.query('select pg_notify($1, $2)', [world.table, rows[0].seq])
    }
    for (const length of [320, 6_400_000, 3_200]) await insert(length)
    await until(async () =>
      (await world.rows()).every((row) => row.status === 'DONE' || row.status === 'DEAD'),
    )
    expect(seen.sort((a, b) => a - b)).toEqual([320, 3_200])
    expect((await world.rows()).map((row) => row.status)).toEqual(['DONE', 'DEAD', 'DONE'])
  })
})

describe('the printed migrations', () => {
  onEveryPostgres('run by hand', (newWorld) => {
    it.skipIf(!hasPsql)('make the same schema, also when they are run twice', async () => {
      const world = await newWorld()
      const store = postgresStore(world.pool, { table: `${world.table}_by_hand` })
      expect(await store.pendingMigrations()).toEqual(store.migrations())
      const sql = store.migrations().map((migration) => migration.sql)
      for (const script of [...sql, ...sql]) psql(world.url, script)
      expect(await store.pendingMigrations()).toEqual([])
      expect(await store.migrate()).toEqual([])
      const id = psql(world.url, `select ${world.table}_by_hand_publish('order.placed')`)
      expect((await store.list({})).map((row) => row.eventId)).toEqual([id])
    })
  })
})
