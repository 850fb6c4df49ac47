import type { Pool, PoolConnection } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { untilWaiting } from '../../support/lock-waits.js'
import { cleanUp, newWorld, onMysql, rowsOf } from './kit.js'

/** An outbox with three dead events; the last one has an ordering key. */
async function newDeadLetters() {
  const { pool, outbox } = await newWorld()
  for (const [id, key] of Object.entries({ 'e-1': null, 'e-2': null, 'e-3': 'key' })) {
    await pool.query(
      `insert into outbox_event (event_id, event_type, payload, ordering_key, status, available_at)
       values (?, 'order.placed', '1', ?, 3, '9999-12-31 23:59:59.999999')`,
      [id, key],
    )
  }
  return { pool, outbox }
}

/** Locks the row of an event in a transaction that the test ends. */
async function locked(pool: Pool, eventId: string): Promise<PoolConnection> {
  const connection = await pool.getConnection()
  cleanUp(async () => connection.destroy())
  await connection.query('start transaction')
  await connection.query('select seq from outbox_event where event_id = ? for update', [eventId])
  return connection
}

const SELECTIONS = {
  'a named event': 'e-2',
  'a named event with an ordering key': 'e-3',
  'events of a type': { eventType: 'order.placed' },
  'all events': { all: true },
} as const

onMysql('deadLetters', () => {
  for (const method of ['retry', 'discard'] as const) {
    for (const [what, selection] of Object.entries(SELECTIONS)) {
      const isNamed = typeof selection === 'string'
      const id = isNamed ? selection : 'e-2'
      const expected = isNamed ? [selection] : ['e-1', 'e-2', 'e-3']

      it(`${method}() of ${what} waits for the lock of a row`, async () => {
        const { pool, outbox } = await newDeadLetters()
        const other = await locked(pool, id)
        const call = outbox.deadLetters[method](selection)
        await untilWaiting(pool, call)
        await other.query('rollback')
        expect((await call).toSorted()).toEqual(expected)
        expect(await outbox.deadLetters.list()).toHaveLength(3 - expected.length)
      })

      it(`${method}() of ${what} takes a row that another transaction has changed`, async () => {
        const { pool, outbox } = await newDeadLetters()
        const other = await locked(pool, id)
        await other.query(`update outbox_event set last_error = 'looked at' where event_id = ?`, [id])
        const call = outbox.deadLetters[method](selection)
        await untilWaiting(pool, call)
        await other.query('commit')
        expect((await call).toSorted()).toEqual(expected)
        expect(await outbox.deadLetters.list()).toHaveLength(3 - expected.length)
      })
    }

    it(`${method}() leaves a row alone that is no longer dead when its lock is free`, async () => {
      const { pool, outbox } = await newDeadLetters()
      const other = await locked(pool, 'e-2')
      await other.query(
        `update outbox_event set status = 2, available_at = utc_timestamp(6) where event_id = 'e-2'`,
      )
      const call = outbox.deadLetters[method]('e-2')
      await untilWaiting(pool, call)
      await other.query('commit')
      expect(await call).toEqual([])
      expect(await rowsOf(pool)).toMatchObject([{ status: 3 }, { status: 2 }, { status: 3 }])
    })
  }
})
