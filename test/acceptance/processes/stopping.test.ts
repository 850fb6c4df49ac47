import { expect, it } from 'vitest'
import { startWorker } from '../../support/child.js'
import { until } from '../../support/until.js'
import { onEveryPostgres } from '../../support/world.js'

const event = (eventId: string, act = 'note') => ({ type: 'any.thing', eventId, payload: { act } })
// No lease runs out and no poll comes by in any of these tests.
const SLOW = { doorbell: true, poller: { leaseMs: 60_000, pollIntervalMs: 60_000 } }

onEveryPostgres('a process that stops', (newWorld) => {
  it('ends by itself afterwards: no timer, socket or listener is left', async () => {
    const world = await newWorld()
    const worker = await startWorker(world, SLOW)
    worker.order('publish', { events: [event('e-1'), event('e-2')] })
    await until(() => worker.ids('ended').length === 2)
    worker.order('stop')
    await worker.hears((one) => one.told === 'stopped')
    await worker.exits()
    expect((await world.rows()).map((row) => row.status)).toEqual(['DONE', 'DONE'])
  })

  it('waits for the handler under way and records its outcome', async () => {
    const world = await newWorld()
    const worker = await startWorker(world, { ...SLOW, dispatcher: { drainTimeoutMs: 20_000 } })
    await world.outbox({ doorbell: true }).enqueue(event('e', 'hang'))
    await worker.hears((one) => one.told === 'started')
    worker.order('stop')
    worker.order('release')
    await worker.hears((one) => one.told === 'stopped')
    expect(await world.rows()).toMatchObject([{ status: 'DONE', attempts: 0 }])
  })

  it('gives back at once what it had not begun, and at the deadline what does not end', {
    timeout: 40_000,
  }, async () => {
    const world = await newWorld()
    const writer = world.outbox({ doorbell: true })
    const ids = ['hung', 'waiting-1', 'waiting-2', 'waiting-3']
    await writer.transaction((tx) => tx.publishAll(ids.map((id) => event(id, 'hang'))))
    const worker = await startWorker(world, { ...SLOW, dispatcher: { concurrency: 1, drainTimeoutMs: 500 } })
    await worker.hears((one) => one.told === 'started')
    await until(async () => (await world.rows()).every((row) => row.lockedBy !== null))
    worker.order('stop')
    await until(async () => (await world.rows()).filter((row) => row.lockedBy === null).length === 3)
    await worker.hears(
      (one) => one.told === 'aborted' && one.code === 'SHUTDOWN',
      'the signal of the deadline',
    )
    await worker.hears((one) => one.told === 'stopped')
    await worker.exits()
    expect(worker.ids('started')).toEqual(['hung'])
    expect(await world.rows()).toMatchObject(ids.map(() => ({ status: 'NEW', attempts: 0, lockedBy: null })))

    const heir = await startWorker(world, { ...SLOW, hangs: false })
    await until(() => heir.ids('ended').length === 4, { timeoutMs: 5_000 })
  })

  it('leaves its hot queue to the others without losing an event', async () => {
    const world = await newWorld()
    const worker = await startWorker(world, { ...SLOW, dispatcher: { concurrency: 1, drainTimeoutMs: 200 } })
    worker.order('publish', { events: Array.from({ length: 30 }, (_, i) => event(`e-${i}`, 'hang')) })
    await worker.hears((one) => one.told === 'started')
    await worker.hears((one) => one.told === 'published')
    const other = await startWorker(world, { ...SLOW, hangs: false })
    worker.order('stop')
    await worker.hears((one) => one.told === 'stopped')
    // The other one has to learn of them: its own next poll is a minute away.
    await until(() => other.ids('ended').length === 30, { timeoutMs: 10_000 })
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'))
  })
})
