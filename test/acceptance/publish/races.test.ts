import { expect, it } from 'vitest'
import { DeadLetters } from '../../../src/outbox/dead-letters.js'
import { until } from '../../support/until.js'
import { noting, OrderPlaced, onEveryPostgres } from '../../support/world.js'

onEveryPostgres('publishing in a hurry', (newWorld) => {
  it('writes nothing behind a rollback that is under way', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    const late: Promise<unknown>[] = []
    const failing = outbox.transaction(async (tx) => {
      const other = tx.client.query('select 1').then(() => tx.publish(OrderPlaced({ orderId: 'beside' })))
      late.push(other)
      await Promise.all([tx.client.query('select 1/0'), other])
    })
    await expect(failing).rejects.toThrow('division by zero')
    await Promise.allSettled(late)
    await outbox.drain()
    expect(await world.rows()).toEqual([])
    expect(handled).toEqual([])
  })

  it('refuses a publish between the failure of the body and the answer to ROLLBACK', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    const late: Promise<unknown>[] = []
    const failing = outbox.transaction(async (tx) => {
      const publish = () =>
        void late.push(tx.publish(OrderPlaced({ orderId: 'late' })).catch((error) => error.code))
      queueMicrotask(() => queueMicrotask(publish))
      process.nextTick(publish)
      setImmediate(publish)
      throw new Error('no')
    })
    await expect(failing).rejects.toThrow('no')
    await until(() => late.length === 3)
    await Promise.all(late)
    await outbox.drain()
    expect(await world.rows()).toEqual([])
    expect(handled).toEqual([])
  })

  it('lets a publish escape from a failing inner transaction neither', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    const late: Promise<unknown>[] = []
    await outbox.transaction(async (tx) => {
      const inner = tx.transaction(async (nested) => {
        process.nextTick(() => late.push(nested.publish(OrderPlaced({ orderId: 'late' })).catch(() => {})))
        throw new Error('inner')
      })
      await expect(inner).rejects.toThrow('inner')
      await until(() => late.length === 1)
      await Promise.all(late)
    })
    await outbox.drain()
    expect(await world.rows()).toEqual([])
    expect(handled).toEqual([])
  })

  it('delivers the second event of an id whose first was rolled back with its savepoint, and only that', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    await outbox.transaction(async (tx) => {
      const inner = tx.transaction(async (nested) => {
        await nested.publish(OrderPlaced({ orderId: 'rolled back' }, { eventId: 'same' }))
        throw new Error('inner')
      })
      await expect(inner).rejects.toThrow('inner')
      await tx.publish(OrderPlaced({ orderId: 'committed' }, { eventId: 'same' }))
    })
    await outbox.drain()
    expect(handled).toEqual(['committed'])
    expect(await world.rows()).toMatchObject([{ id: 'same', status: 'DONE' }])
  })

  it('loses no event that the outer transaction publishes while an inner one fails', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled = noting(outbox)
    await outbox.start()
    await outbox.transaction(async (tx) => {
      const inner = tx.transaction(async (nested) => {
        await nested.client.query('select 1')
        throw new Error('inner')
      })
      await Promise.allSettled([inner, tx.publish(OrderPlaced({ orderId: 'outer' }))])
    })
    await outbox.drain()
    expect(handled).toEqual(['outer'])
  })

  it('does not depend on metrics that throw', async () => {
    const world = await newWorld()
    const broken = () => {
      throw new Error('metrics down')
    }
    const outbox = world.outbox({ metrics: { count: broken, gauge: broken, duration: broken } })
    const handled = noting(outbox)
    await outbox.start()
    for (const orderId of ['a', 'b', 'c', 'd', 'e', 'f']) await outbox.enqueue(OrderPlaced({ orderId }))
    await outbox.drain()
    await outbox.stop()
    expect(handled).toHaveLength(6)
  })

  it('ends a drain with the stop of its outbox', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { batchSize: 10 } })
    let handled = 0
    outbox.on(OrderPlaced, 'count', async () => {
      handled++
      await new Promise((resolve) => setImmediate(resolve))
    })
    const events = Array.from({ length: 2_000 }, (_, n) => OrderPlaced({ orderId: String(n) }))
    await world.outbox().transaction((tx) => tx.publishAll(events))
    await outbox.start()
    const drained = outbox.drain()
    await until(() => handled > 20)
    await outbox.stop()
    const atStop = handled
    await drained
    expect(handled).toBe(atStop)
  })

  it('wakes a worker in time for a delayed event of another process', async () => {
    const world = await newWorld()
    const worker = world.outbox({ doorbell: true, poller: { pollIntervalMs: 60_000 } })
    const handled = noting(worker)
    await worker.start()
    await world.outbox({ doorbell: true }).enqueue(OrderPlaced({ orderId: 'soon' }), { delayMs: 200 })
    await until(() => handled.length === 1)
  })

  it('refuses a store that another outbox has started, and a pool that is too small for both', async () => {
    const world = await newWorld()
    let store: unknown
    const one = world.outbox({
      wrap: (given) => {
        store = given
        return given
      },
    })
    await one.start()
    const two = world.outbox({ wrap: () => store as never })
    await expect(two.start()).rejects.toMatchObject({ code: 'STORE_IN_USE' })
  })
})

it('refuses a selection of dead letters that says nothing', async () => {
  const calls: unknown[] = []
  const act = async (filter: unknown) => {
    calls.push(filter)
    return []
  }
  const silent = { debug() {}, info() {}, warn() {}, error() {} }
  const overview = async () => ({ types: [], leases: [] })
  const store = { list: act, overview, retryDead: act, discardDead: act }
  const letters = new DeadLetters(store, silent, () => {})
  for (const bad of [{}, { eventType: undefined }, { type: 'x' }, { all: false }, '', undefined, null]) {
    await expect(letters.discard(bad as never)).rejects.toThrow('dead letters')
    await expect(letters.retry(bad as never)).rejects.toThrow('dead letters')
  }
  for (const limit of [0, -1, 1.5, Number.NaN]) {
    await expect(letters.discard({ all: true }, { limit })).rejects.toThrow('limit')
    await expect(letters.retry({ all: true }, { limit })).rejects.toThrow('limit')
  }
  expect(calls).toEqual([])
})
