import { expect, it } from 'vitest'
import { until } from '../../support/until.js'
import { onEveryPostgres } from '../../support/world.js'

const COUNT = 3_000

onEveryPostgres('many events whose time comes at once', (newWorld) => {
  it('are taken one batch after the other, and not one batch an interval', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { pollIntervalMs: 60_000, batchSize: 100 } })
    let handled = 0
    outbox.on('a', 'note', () => void handled++)
    await outbox.start()
    const events = Array.from({ length: COUNT }, () => ({ type: 'a' }))
    await outbox.transaction((tx) => tx.publishAll(events, { delayMs: 500 }))
    await until(() => handled === COUNT, {
      timeoutMs: 20_000,
      what: `${COUNT} events, of which ${handled} came`,
    })
    expect(handled).toBe(COUNT)
  })
})
