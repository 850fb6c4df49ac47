import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { TransactionRolledBackError } from '../../../src/index.js'
import type { MariadbServer } from '../../support/mariadb-server.js'
import { flavor, startOwnServer } from '../../support/mysql-flavor.js'
import { OrderPlaced, outboxOn, poolOn, rowsOf } from './kit.js'

/** A server of our own: what it does with a lock that is not to be had cannot be changed while it runs. */
describe.skipIf(inject('mysqlUrl') === null)(
  `${flavor}: a lock that is not to be had in time, swallowed,`,
  () => {
    let server: MariadbServer
    beforeAll(async () => {
      server = await startOwnServer({ settings: { 'innodb-rollback-on-timeout': 'ON' } })
    })
    afterAll(() => server?.stop())

    it('is a rollback where innodb_rollback_on_timeout is on: nothing is written behind it', async () => {
      const pool = poolOn(server.url)
      const outbox = outboxOn(pool)
      await outbox.migrate()
      await pool.query('create table t (id int primary key, n int)')
      await pool.query('insert into t values (1, 0), (2, 0)')
      const other = await pool.getConnection()
      await other.beginTransaction()
      await other.query('update t set n = 1 where id = 1')
      const transaction = outbox.transaction(async (tx) => {
        await tx.publish(OrderPlaced({ orderId: 'lost' }))
        await tx.client.query('set innodb_lock_wait_timeout = 1')
        await tx.client.query('update t set n = 2 where id = 1').catch(() => {})
        await tx.client.query('update t set n = 2 where id = 2').catch(() => {})
      })
      await expect(transaction).rejects.toThrow(TransactionRolledBackError)
      await other.rollback()
      other.release()
      expect(await rowsOf(pool)).toEqual([])
      expect(await rowsOf(pool, 'select n from t')).toEqual([{ n: 0 }, { n: 0 }])
    })
  },
)
