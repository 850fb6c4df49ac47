import { randomBytes } from 'node:crypto'
import type pg from 'pg'
import { expect, it, onTestFinished } from 'vitest'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { onEveryPostgres, type World } from '../../support/world.js'

interface Victim {
  /** Connected as a role that may execute nothing but the SECURITY DEFINER function. */
  readonly attacker: pg.PoolClient
  /** Calls the SECURITY DEFINER function, which publishes one event. */
  publish(): Promise<unknown>
  /** Event types in the real table. */
  published(): Promise<readonly string[]>
  /** Roles under which code of the attacker ran. */
  ranAs(): Promise<readonly string[]>
  readonly table: string
}

/** An outbox whose owner lets a weak role publish through a SECURITY DEFINER function. */
async function newVictim(world: World, schema?: string): Promise<Victim> {
  const { pool, table } = world
  const role = `attacker_${randomBytes(6).toString('hex')}`
  const home = schema ?? 'public'
  await pool.query(`create role ${role};
    create table public.${table}_ran_as (who text);
    grant insert on public.${table}_ran_as to ${role};
    grant create, usage on schema public to ${role}`)
  if (schema !== undefined) {
    await pool.query(`create schema ${schema}`)
    await postgresStore(pool, { table, schema }).migrate()
  }
  await pool.query(`create function public.${table}_place() returns text language plpgsql security definer as $$
    begin return ${home}.${table}_publish('order.placed', '{"n": 1}', headers => '{"a": "b"}'); end $$`)
  const attacker = await pool.connect()
  await attacker.query(`set role ${role}`)
  onTestFinished(async () => {
    await attacker.query(`discard temp; reset role; drop owned by ${role} cascade; drop role ${role}`)
    attacker.release()
  })
  const textsOf = async (sql: string) => (await pool.query({ text: sql, rowMode: 'array' })).rows.flat()
  return {
    attacker,
    table,
    publish: () => attacker.query(`select public.${table}_place()`),
    published: () => textsOf(`select event_type from ${home}.${table}`),
    ranAs: () => textsOf(`select distinct who from public.${table}_ran_as`),
  }
}

/** A temporary table that looks like the outbox, with a trigger that notes who runs it, and a sequence beside it. */
function temporaryTable({ attacker, table }: Victim) {
  return attacker.query(`
    create temp sequence ${table}_seq;
    select nextval('pg_temp.${table}_seq');
    create temp table ${table} (seq bigint, event_id text, event_type text, aggregate_type text, aggregate_id text,
      tenant_id text, ordering_key text, version int, payload json, payload_size int, headers json, metadata json,
      available_at timestamptz);
    create function pg_temp.note() returns trigger language plpgsql as $$
      begin insert into public.${table}_ran_as values (current_user); return new; end $$;
    create trigger note before insert on pg_temp.${table} for each row execute function pg_temp.note()`)
}

/** Functions and operators in front of the built-in ones, for whoever lets them be found. */
function temporaryFunctions({ attacker, table }: Victim) {
  const note = `begin insert into public.${table}_ran_as values (current_user);`
  const functions = ['pg_temp', 'public'].flatMap((schema) => [
    `${schema}.pg_notify(text, text) returns void language plpgsql as $$ ${note} end $$`,
    `${schema}.jsonb_typeof(jsonb) returns text language plpgsql as $$ ${note} return 'object'; end $$`,
    `${schema}.octet_length(text) returns int language plpgsql as $$ ${note} return 1; end $$`,
    `${schema}.gen_random_uuid() returns uuid language plpgsql as $$ ${note} return null; end $$`,
    `${schema}.currval(regclass) returns bigint language plpgsql as $$ ${note} return 1; end $$`,
    `${schema}.at_least(text, int) returns boolean language plpgsql as $$ ${note} return true; end $$`,
  ])
  const operators = ['pg_temp', 'public'].map(
    (schema) => `create operator ${schema}.> (leftarg = text, rightarg = int, function = ${schema}.at_least)`,
  )
  const sql = [...functions.map((one) => `create function ${one}`), ...operators]
  return attacker.query(`${sql.join(';')}; set search_path = pg_temp, public, pg_catalog`)
}

const temporarySequence = ({ attacker, table }: Victim) =>
  attacker.query(`create temp sequence ${table}_seq; select nextval('pg_temp.${table}_seq')`)

const ATTACKS: Readonly<Record<string, (victim: Victim) => Promise<unknown>>> = {
  'a temporary table with a trigger': temporaryTable,
  'functions and operators of the same name': temporaryFunctions,
  'a temporary sequence': temporarySequence,
}

onEveryPostgres('outbox_publish inside a SECURITY DEFINER function', (newWorld) => {
  for (const [name, attack] of Object.entries(ATTACKS)) {
    for (const schema of [undefined, 'own schema']) {
      it(`runs no code of a caller who has made ${name}, and keeps the event (${schema ?? 'no schema'})`, async () => {
        const world = await newWorld()
        const victim = await newVictim(world, schema && `s_${randomBytes(6).toString('hex')}`)
        await attack(victim)
        await victim.publish()
        expect(await victim.ranAs()).toEqual([])
        expect(await victim.published()).toEqual(['order.placed'])
      })
    }
  }

  it('is repaired by migrate() in a database of an earlier version, and keeps its grants', async () => {
    const world = await newWorld()
    const { pool } = world
    const table = `e_${randomBytes(6).toString('hex')}`
    const store = postgresStore(pool, { table })
    for (const { version, sql } of store.migrations()) if (version <= 3) await pool.query(sql)
    await pool.query(`revoke execute on function ${table}_publish from public`)
    expect(await store.migrate()).toContain(4)
    const victim = await newVictim({ ...world, table })
    await temporaryTable(victim)
    await victim.publish()
    expect(await victim.ranAs()).toEqual([])
    expect(await victim.published()).toEqual(['order.placed'])
    await expect(victim.attacker.query(`select ${table}_publish('x')`)).rejects.toMatchObject({
      code: '42501',
    })
  })

  it('writes to the table beside which it was created, whatever the name of that schema', async () => {
    const world = await newWorld()
    for (const schema of [`o'brien`, 'a "b".c', '$aftercommit$', 'back\\slash', 'UPPER {{schema}}']) {
      const quoted = `"${schema.replaceAll('"', '""')}"`
      await world.pool.query(`create schema ${quoted}`)
      const client = await world.pool.connect()
      try {
        await client.query(`set search_path = ${quoted}, public`)
        for (const { sql } of postgresStore(world.pool, { table: 'odd' }).migrations())
          await client.query(sql)
        await client.query('reset search_path')
        await client.query(`select ${quoted}.odd_publish('order.placed')`)
        const { rows } = await client.query(`select event_type from ${quoted}.odd`)
        expect(rows, schema).toEqual([{ event_type: 'order.placed' }])
      } finally {
        client.release(true)
      }
    }
  })

  it('pins the search_path of every function that the migrations create, with pg_temp at its end', async () => {
    const { pool, table } = await newWorld()
    const { rows } = await pool.query(
      `select proname, proconfig from pg_proc where proname like $1 and pronamespace = 'public'::regnamespace order by 1`,
      [`${table}%`],
    )
    expect(rows.map(({ proname }) => proname.slice(table.length))).toEqual([
      '_publish',
      '_ranges_taken',
      '_take_range',
    ])
    for (const { proconfig } of rows) expect(proconfig).toContain('search_path=pg_catalog, pg_temp')
  })

  it('does not read the tables of a caller who shadows them when ranges are claimed', async () => {
    const { pool, table } = await newWorld()
    await pool.query(`insert into ${table} (event_id, event_type, payload)
      select 'e' || n, 'a', '1' from generate_series(1, 1000) n`)
    const client = await pool.connect()
    try {
      await client.query(`create temp table ${table}_range (like public.${table}_range);
        insert into pg_temp.${table}_range values ('x', 1, 5000, now() + interval '1 hour');
        create temp table ${table} (like public.${table});
        create temp table ${table}_instance (like public.${table}_instance)`)
      const { rows } = await client.query(`select ${table}_ranges_taken()::text as taken`)
      expect(rows).toEqual([{ taken: '{}' }])
      const { rows: ranges } = await client.query(`select * from ${table}_take_range('me:1', 0, 100, 1000)`)
      expect(ranges).toEqual([{ first_seq: '1', last_seq: '100' }])
    } finally {
      client.release(true)
    }
  })
})
