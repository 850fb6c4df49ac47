import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import type { MariadbServer } from '../../support/mariadb-server.js'
import { flavor, startOwnServer } from '../../support/mysql-flavor.js'
import { until } from '../../support/until.js'
import { OrderPlaced, outboxOn, poolOn, rowsOf } from './kit.js'

/** A server of our own, to be killed. */
describe.skipIf(inject('mysqlUrl') === null)(`${flavor}: a server that`, () => {
  let server: MariadbServer
  beforeAll(async () => {
    server = await startOwnServer()
  })
  afterAll(() => server?.stop())

  it('is killed in the middle of the work: it resumes by itself, and nothing is lost', async () => {
    const problems: unknown[] = []
    const note = (problem: unknown) => void problems.push(problem)
    process.on('unhandledRejection', note)
    process.on('uncaughtException', note)
    try {
      const pool = poolOn(server.url)
      const outbox = outboxOn(pool, { poller: { pollIntervalMs: 100, leaseMs: 2_000 } })
      const handled = new Set<string>()
      outbox.on(OrderPlaced, 'note', async ({ payload }) => {
        await new Promise((resolve) => setTimeout(resolve, 2))
        handled.add(payload.orderId)
      })
      await outbox.migrate()
      await outbox.start()
      const committed: string[] = []
      const publish = async (orderId: string) => {
        await outbox.transaction((tx) => tx.publish(OrderPlaced({ orderId })))
        committed.push(orderId)
      }
      for (let round = 0; round < 2; round++) {
        for (let n = 0; n < 50; n++) await publish(`before ${round}.${n}`)
        const floating = Array.from({ length: 5 }, (_, n) => publish(`during ${round}.${n}`).catch(() => {}))
        await server.kill()
        await Promise.all(floating)
        await expect(publish('while it is down')).rejects.toThrow()
        await server.start()
        await publish(`after ${round}`)
      }
      await until(() => committed.every((id) => handled.has(id)), { timeoutMs: 20_000 })
      await until(async () => (await rowsOf(pool)).every((row) => row.status === 1), { timeoutMs: 20_000 })
      await outbox.stop()
      expect(problems).toEqual([])
    } finally {
      process.off('unhandledRejection', note)
      process.off('uncaughtException', note)
    }
  }, 60_000)
})
