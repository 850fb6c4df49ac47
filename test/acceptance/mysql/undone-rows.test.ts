import type { PoolConnection } from 'mysql2/promise'
import { expect, it } from 'vitest'
import { TransactionEndedError } from '../../../src/index.js'
import { untilWaiting } from '../../support/lock-waits.js'
import { isMariadb } from '../../support/mysql-flavor.js'
import { within } from '../../support/waiting.js'
import { cleanUp, newWorld, onMysql, rowsOf } from './kit.js'

type Send = (sql: string) => Promise<unknown>

/** An outbox with the transactions of an ORM. `around` wraps each statement of the outbox in such a transaction. */
async function newHost(around: (sql: string, send: () => Promise<unknown>, own: Send) => Promise<unknown>) {
  const { pool, outbox } = await newWorld()
  const transaction = outbox.transactionsOf<PoolConnection>({
    async transaction(body) {
      const connection = await pool.getConnection()
      await connection.beginTransaction()
      try {
        return await body(connection)
      } finally {
        await connection.rollback()
        connection.release()
      }
    },
    async query(connection, sql, params) {
      const send = async () => {
        const [rows] = await connection.query(sql, [...params])
        return rows
      }
      const rows = await around(sql, send, (own) => connection.query(own))
      return Array.isArray(rows) ? rows : []
    },
  })
  return { pool, outbox, transaction }
}

onMysql('a transaction of an ORM that has ended unseen', () => {
  // MariaDB refuses a row outside of a transaction in the statement itself.
  it.skipIf(isMariadb)(
    'removes the event that was written after its end while another transaction locks the row',
    async () => {
      let locked: (connection: PoolConnection) => void = () => {}
      const lock = new Promise<PoolConnection>((resolve) => {
        locked = resolve
      })
      const { pool, outbox, transaction } = await newHost(async (sql, send, own) => {
        if (!/^\s*insert into/.test(sql)) return send()
        await own('rollback')
        const result = await send()
        const other = await pool.getConnection()
        cleanUp(async () => other.destroy())
        await other.beginTransaction()
        await other.query('select seq from outbox_event for update')
        locked(other)
        return result
      })
      const published = transaction(() => outbox.publish({ type: 'x', payload: 1 }))
      const other = await lock
      await untilWaiting(pool, published)
      await other.rollback()
      await expect(published).rejects.toThrow(TransactionEndedError)
      expect(await rowsOf(pool)).toEqual([])
    },
  )

  it.skipIf(isMariadb)(
    'does not wait for its own event if the server does not say whether it is open',
    async () => {
      const { pool, outbox, transaction } = await newHost((sql, send) => {
        if (sql.includes('RELEASE SAVEPOINT')) throw new Error('no answer')
        return send()
      })
      const published = transaction(() => outbox.publish({ type: 'x', payload: 1 }))
      await expect(within('the event is refused', published, 10_000)).rejects.toThrow('no answer')
      expect(await rowsOf(pool)).toEqual([])
    },
  )
})
