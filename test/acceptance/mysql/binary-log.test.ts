import { afterAll, beforeAll, expect, it } from 'vitest'
import type { MariadbServer } from '../../support/mariadb-server.js'
import { startOwnServer } from '../../support/mysql-flavor.js'
import { OrderPlaced, onMysql, outboxOn, poolOn, rowsOf } from './kit.js'

const isRefused = expect.objectContaining({
  code: 'BINARY_LOG_FORMAT',
  message: expect.stringMatching(/Set binlog_format = ROW/),
})

onMysql('a server whose binary log has the format STATEMENT', () => {
  let server: MariadbServer
  beforeAll(async () => {
    server = await startOwnServer({ settings: { 'log-bin': 'binlog', 'binlog-format': 'STATEMENT' } })
  })
  afterAll(() => server?.stop())

  it('is refused at the start and by every write under READ COMMITTED, with what to set', async () => {
    const pool = poolOn(server.url)
    const outbox = outboxOn(pool)
    await outbox.migrate()
    await expect(outbox.start()).rejects.toEqual(isRefused)
    await expect(outbox.pause('x')).rejects.toEqual(isRefused)
    await outbox.transaction((tx) => tx.publish(OrderPlaced({ orderId: 'a' })))
    expect(await rowsOf(pool)).toHaveLength(1)
    await pool.query(`set global binlog_format = 'MIXED'`)
    const anew = outboxOn(poolOn(server.url))
    await anew.start()
    await anew.pause('x')
  })
})
