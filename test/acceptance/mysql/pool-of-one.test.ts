import { expect, it } from 'vitest'
import { createOutbox, silentLogger } from '../../../src/index.js'
import { mysqlStore } from '../../../src/stores/mysql/index.js'
import { inside, NEEDS_A_SESSION, refusesToWaitForHandlers } from '../../support/outbox-calls.js'
import { freshUrl, onMysql, poolOn } from './kit.js'

onMysql('a pool of one connection', () => {
  it('refuses in a transaction what needs another connection', { timeout: 60_000 }, async () => {
    const pool = poolOn(await freshUrl(), { connectionLimit: 1 })
    const outbox = createOutbox({ store: mysqlStore(pool), logger: silentLogger })
    await outbox.migrate()
    for (const [name, call] of Object.entries(NEEDS_A_SESSION)) {
      const error = await inside(outbox as never, call)
      expect(error, name).toMatchObject({ code: 'NESTED_TRANSACTION' })
      expect((error as Error).message).toContain(
        `${name}() cannot run inside the open transaction: the pool has 1`,
      )
      await pool.query('delete from outbox_event')
    }
  })

  it('refuses calls that wait for handlers in a transaction, also with free connections', async () => {
    for (const connectionLimit of [1, 10]) {
      const outbox = createOutbox({
        store: mysqlStore(poolOn(await freshUrl(), { connectionLimit })),
        logger: silentLogger,
      })
      await outbox.migrate()
      await refusesToWaitForHandlers(outbox as never)
    }
  })
})
