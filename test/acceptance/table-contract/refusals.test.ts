import { expect, it } from 'vitest'
import { numberProblem } from '../../../src/core/json-number.js'
import { fuzzSeeds } from '../../support/fuzz-seeds.js'
import { numberTexts } from '../../support/number-texts.js'
import {
  ACCEPTED,
  PARAMETERS,
  REFUSED,
  refusalByPublish,
  type SqlEvent,
} from '../../support/refused-by-sql.js'
import { onEveryPostgres, type World } from '../../support/world.js'

onEveryPostgres('outbox_publish', (newWorld) => {
  const callOn =
    ({ pool, table }: World) =>
    (event: SqlEvent) => {
      const given = PARAMETERS.filter((name) => event[name as keyof SqlEvent] !== undefined)
      const args = given.map((name, at) => `${name} => $${at + 1}`).join(', ')
      return pool.query(
        `select ${table}_publish(${args})`,
        given.map((name) => event[name as keyof SqlEvent]),
      )
    }

  it('refuses what publish() refuses, with the same message, and writes nothing', async () => {
    const world = await newWorld()
    const call = callOn(world)
    for (const [what, event] of Object.entries(REFUSED)) {
      const expected = refusalByPublish(event)
      expect(expected, `publish() accepts ${what}`).toBeDefined()
      const error = await call(event).then(
        () => null,
        (thrown) => thrown,
      )
      expect(error?.message, what).toBe(expected)
      expect(error.code, what).toBe('22023')
    }
    expect(await world.rows()).toEqual([])
  })

  it('accepts what publish() accepts, close to its limits', async () => {
    const world = await newWorld()
    const call = callOn(world)
    for (const [what, event] of Object.entries(ACCEPTED)) {
      expect(refusalByPublish(event), what).toBeUndefined()
      await expect(call(event), what).resolves.toBeDefined()
    }
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on('*', 'note', (event) => void handled.push(event.eventType))
    await outbox.drain()
    expect(handled).toHaveLength(Object.keys(ACCEPTED).length)
  })

  it('leaves out metadata that are null', async () => {
    const world = await newWorld()
    await callOn(world)({ event_type: 'a', metadata: '{"userId": null, "traceId": "t"}', headers: 'null' })
    const { rows } = await world.pool.query(`select metadata, headers from ${world.table}`)
    expect(rows).toEqual([{ metadata: { traceId: 't' }, headers: null }])
  })

  it('stores negative zero as 0, and the last value of a key that comes twice', async () => {
    const world = await newWorld()
    await callOn(world)({ event_type: 'a', payload: '{"n": -0, "k": 1, "k": 2}' })
    const { rows } = await world.pool.query(`select payload::text from ${world.table}`)
    expect(rows).toEqual([{ payload: '{"k": 2, "n": 0}' }])
  })

  it('refuses characters that jsonb cannot hold', async () => {
    const call = callOn(await newWorld())
    for (const text of ['"\\u0000"', '"\\ud800"', '{"\\udc00x": 1}']) {
      expect(refusalByPublish({ event_type: 'a', payload: text })).toBeDefined()
      await expect(call({ event_type: 'a', payload: text }), text).rejects.toThrow(
        /unsupported Unicode escape sequence|invalid input syntax for type json/,
      )
    }
  })

  it('does not depend on settings of the session', async () => {
    const world = await newWorld()
    const client = await world.pool.connect()
    try {
      for (const setting of [
        'standard_conforming_strings = off',
        'extra_float_digits = -15',
        'backslash_quote = off',
      ]) {
        await client.query(`set ${setting}`)
      }
      const call = callOn({ ...world, pool: client as never })
      for (const [what, event] of Object.entries(REFUSED)) {
        await expect(call(event), what).rejects.toThrow(refusalByPublish(event))
      }
      for (const [what, event] of Object.entries(ACCEPTED))
        await expect(call(event), what).resolves.toBeDefined()
    } finally {
      client.release(true)
    }
  })

  it('refuses the numbers that publish() refuses, and accepts all others', { timeout: 120_000 }, async () => {
    const world = await newWorld()
    await world.pool.query(`create function problem_of_${world.table}(payload text) returns text language plpgsql as $$
      begin
        perform ${world.table}_publish('a', payload::jsonb);
        return null;
      exception when others then
        return sqlerrm;
      end $$`)
    for (const seed of fuzzSeeds()) {
      const texts = numberTexts(seed, 7_000)
      for (let from = 0; from < texts.length; from += 1_000) {
        const { rows } = await world.pool.query<{ token: string; problem: string | null }>(
          `select t as token, problem_of_${world.table}('[' || t || ']') as problem from unnest($1::text[]) t`,
          [texts.slice(from, from + 1_000)],
        )
        for (const { token, problem } of rows) {
          // jsonb itself rejects larger exponents, even those of zero.
          if (/e[+-]?\d{5}/i.test(token)) continue
          const reason = numberProblem(token)
          expect(problem, `seed ${seed}: ${token}`).toBe(
            reason === undefined ? null : `Invalid payload at $: ${reason}.`,
          )
        }
      }
    }
  })

  it('accepts text with a nondeterministic collation', async () => {
    const { pool, table, ...world } = await newWorld()
    const ci = `ci_${table}`
    await pool.query(
      `create collation ${ci} (provider = icu, locale = 'und-u-ks-level2', deterministic = false)`,
    )
    const call = (list: string) => pool.query(`select ${table}_publish(${list})`)
    await call(`'order.placed' collate ${ci}`)
    await call(`'order.placed', '{"a": 1}', 'Order' collate ${ci}, 'o-1' collate ${ci}, 'id-1' collate ${ci},
      'k' collate ${ci}, 't' collate ${ci}, 1, '{"h": "v"}', '{"userId": "u"}'`)
    await expect(call(`E'a\\nb' collate ${ci}`)).rejects.toThrow(/control character/)
    await expect(call(`'a', '[12345678901234567890]', ordering_key => 'k' collate ${ci}`)).rejects.toThrow(
      /more digits/,
    )

    await pool.query(`
      create table users_${table} (id text primary key, email text collate ${ci} not null, city text collate "C");
      create function register_${table}() returns trigger language plpgsql as $$
      begin
        perform ${table}_publish('user.registered', to_jsonb(new), 'user', new.email, ordering_key => new.email,
          tenant_id => new.city);
        return new;
      end $$;
      create trigger register after insert on users_${table} for each row execute function register_${table}()`)
    await pool.query(`insert into users_${table} values ('1', 'A@example.com', 'Oslo')`)
    const { rows } = await pool.query(
      `select aggregate_id, ordering_key, tenant_id from ${table} where event_type = 'user.registered'`,
    )
    expect(rows).toEqual([
      { aggregate_id: 'A@example.com', ordering_key: 'A@example.com', tenant_id: 'Oslo' },
    ])
    expect(await world.rows()).toHaveLength(3)
  })
})
