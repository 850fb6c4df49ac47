import { expect, it } from 'vitest'
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
})
