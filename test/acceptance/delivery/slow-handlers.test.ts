import { expect, it } from 'vitest'
import { fixedDelay } from '../../../src/index.js'
import { recordingLogger } from '../../support/recording.js'
import { gate, until } from '../../support/until.js'
import { onEveryPostgres } from '../../support/world.js'

const soon = { pollIntervalMs: 50 }
const never = () => new Promise<void>(() => {})
const many = (type: string, count: number) =>
  Array.from({ length: count }, (_, payload) => ({ type, payload }))

onEveryPostgres('a handler that cannot keep up', (newWorld) => {
  it('leaves the others their workers, and gives back what it has no room for', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: soon, dispatcher: { drainTimeoutMs: 0 } })
    const handled: unknown[] = []
    outbox.on('slow', 'hangs', never, { concurrency: 1 })
    outbox.onBatch('batched', 'hangs', { size: 2 }, never)
    outbox.on('fast', 'note', (event) => void handled.push(event.payload))
    await outbox.transaction((tx) => tx.publishAll([...many('slow', 300), ...many('batched', 300)]))
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll([...many('slow', 100), ...many('fast', 3)]))
    await until(() => handled.length === 3)
    const held = async (type: string) =>
      (await outbox.store.list({ limit: 1_000, eventType: type })).filter((row) => row.lockedBy !== null)
        .length
    await until(async () => (await held('slow')) <= 101 && (await held('batched')) <= 102)
    await outbox.stop()
    const rows = await world.rows()
    expect(rows.every((row) => row.attempts === 0 && row.lockedBy === null && row.lastError === null)).toBe(
      true,
    )
  })

  it('handles all of its own in the end', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { pollIntervalMs: 60_000 } })
    let [running, most, handled] = [0, 0, 0]
    const handle = async () => {
      most = Math.max(most, ++running)
      await world.pool.query('select 1')
      running--
      handled++
    }
    outbox.on('slow', 'slow', handle, { concurrency: 2 })
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll(many('slow', 600)))
    await until(() => handled === 600)
    expect(most).toBe(2)
  })
})

onEveryPostgres('a call that outlives its timeout', (newWorld) => {
  it('keeps its key, on all instances, until it has ended', async () => {
    const world = await newWorld()
    const first = gate()
    const seen: string[] = []
    const make = () => {
      const outbox = world.outbox({
        ...{ poller: { ...soon, leaseMs: 300 }, dispatcher: { stuckAfterMs: 400 } },
        retry: { maxAttempts: 1, policy: fixedDelay(0) },
      })
      const handle = async ({ payload }: { payload: unknown }) => {
        seen.push(`${payload} begins`)
        if (payload === 0) await first.opened
        seen.push(`${payload} ends`)
      }
      return outbox.on('thing', 'slow', handle, { timeoutMs: 50 })
    }
    const outboxes = [make(), make()]
    for (const one of outboxes) await one.start()
    const events = many('thing', 2).map((one) => ({ ...one, orderingKey: 'k' }))
    await outboxes[0]?.transaction((tx) => tx.publishAll(events))
    const stuck = async () =>
      (await Promise.all(outboxes.map((one) => one.health()))).flatMap((one) => one.stuck)
    await until(async () => (await stuck()).length === 1)
    expect(seen).toEqual(['0 begins'])
    first.open()
    await until(async () => (await world.rows()).map((row) => row.status).join() === 'DEAD,DONE')
    expect(seen).toEqual(['0 begins', '0 ends', '1 begins', '1 ends'])
    expect(await stuck()).toEqual([])
  })
})

onEveryPostgres('what a batch handler returns', (newWorld) => {
  it('is told by its kind when it is no result, and never by its value', async () => {
    const world = await newWorld()
    const logger = recordingLogger()
    const outbox = world.outbox({ poller: soon, logger, retry: { maxAttempts: 1 } })
    const handle = (events: readonly { payload: unknown }[]) => events.map((one) => one.payload) as never
    outbox.onBatch('thing', 'careless', { size: 2 }, handle)
    await outbox.start()
    await outbox.transaction((tx) =>
      tx.publishAll(['4111-1111', '4222-2222'].map((payload) => ({ type: 'thing', payload }))),
    )
    await until(async () => (await world.rows()).every((row) => row.status === 'DEAD'))
    const rows = await outbox.store.list({})
    for (const { lastError } of rows) {
      expect(lastError).toMatch(/BatchResultError.*"careless" returned a value of type string at position \d/)
    }
    const told = JSON.stringify([logger.lines, rows.map((row) => [row.lastError, row.failures])])
    expect(told).not.toMatch(/4111|4222/)
  })
})
