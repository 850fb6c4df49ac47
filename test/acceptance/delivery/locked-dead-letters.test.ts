import type pg from 'pg'
import { expect, it, onTestFinished } from 'vitest'
import { until } from '../../support/until.js'
import { onEveryPostgres, type World } from '../../support/world.js'

/** An outbox with three dead events; the last one has an ordering key. */
async function newDeadLetters(world: World) {
  const outbox = world.outbox()
  await outbox.migrate()
  await world.pool.query(`insert into ${world.table} (event_id, event_type, payload, ordering_key, status, available_at)
    values ('e-1', 'order.placed', '1', null, 3, 'infinity'), ('e-2', 'order.placed', '1', null, 3, 'infinity'),
      ('e-3', 'order.placed', '1', 'key', 3, 'infinity')`)
  return outbox
}

/** Locks the row of an event in a transaction that the test ends. */
async function locked({ pool, table }: World, eventId: string): Promise<pg.PoolClient> {
  const client = await pool.connect()
  onTestFinished(() => client.release(true))
  await client.query('begin')
  await client.query(`select seq from ${table} where event_id = $1 for update`, [eventId])
  return client
}

/** Resolves when the call waits for a row lock. Rejects if the call ends without waiting. */
async function untilWaiting({ pool, table }: World, call: Promise<unknown>): Promise<void> {
  let hasEnded = false
  const end = () => {
    hasEnded = true
  }
  call.then(end, end)
  await until(async () => {
    if (hasEnded) throw new Error('The call ended without waiting for the row lock.')
    const { rows } = await pool.query(
      `select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%${table}%'`,
    )
    return rows.length > 0
  })
}

const SELECTIONS = {
  'a named event': 'e-2',
  'a named event with an ordering key': 'e-3',
  'events of a type': { eventType: 'order.placed' },
  'all events': { all: true },
} as const

onEveryPostgres('deadLetters', (newWorld) => {
  for (const method of ['retry', 'discard'] as const) {
    for (const [what, selection] of Object.entries(SELECTIONS)) {
      const isNamed = typeof selection === 'string'
      const id = isNamed ? selection : 'e-2'
      const expected = isNamed ? [selection] : ['e-1', 'e-2', 'e-3']

      it(`${method}() of ${what} waits for the lock of a row`, async () => {
        const world = await newWorld()
        const outbox = await newDeadLetters(world)
        const other = await locked(world, id)
        const call = outbox.deadLetters[method](selection)
        await untilWaiting(world, call)
        await other.query('rollback')
        expect((await call).toSorted()).toEqual(expected)
        expect(await outbox.deadLetters.list()).toHaveLength(3 - expected.length)
      })

      it(`${method}() of ${what} takes a row that another transaction has changed`, async () => {
        const world = await newWorld()
        const outbox = await newDeadLetters(world)
        const other = await locked(world, id)
        await other.query(`update ${world.table} set last_error = 'looked at' where event_id = $1`, [id])
        const call = outbox.deadLetters[method](selection)
        await untilWaiting(world, call)
        await other.query('commit')
        expect((await call).toSorted()).toEqual(expected)
        expect(await outbox.deadLetters.list()).toHaveLength(3 - expected.length)
      })
    }

    it(`${method}() leaves a row alone that is no longer dead when its lock is free`, async () => {
      const world = await newWorld()
      const outbox = await newDeadLetters(world)
      const other = await locked(world, 'e-2')
      await other.query(`update ${world.table} set status = 2, available_at = now() where event_id = 'e-2'`)
      const call = outbox.deadLetters[method]('e-2')
      await untilWaiting(world, call)
      await other.query('commit')
      expect(await call).toEqual([])
      expect((await world.rows()).map(({ id, status }) => [id, status])).toEqual([
        ['e-1', 'DEAD'],
        ['e-2', 'RETRY'],
        ['e-3', 'DEAD'],
      ])
    })
  }
})
