import { expect, it } from 'vitest'
import { DuplicateEventError } from '../../../src/index.js'
import { gate } from '../../../src/testing/store-conformance/fixtures.js'
import { recordingMetrics } from '../../support/recording.js'
import { until } from '../../support/until.js'
import { HOUR_MS, OrderPlaced, onEveryPostgres } from '../../support/world.js'

const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })

onEveryPostgres('duplicates', (newWorld) => {
  it('reports an id that exists, and leaves the transaction usable', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await outbox.enqueue(order('a'))
    await outbox.transaction(async (tx) => {
      const again = tx.publish(order('a'))
      await expect(again).rejects.toThrow(DuplicateEventError)
      await expect(again).rejects.toMatchObject({ eventIds: ['a'] })
      await tx.client.query('select 1')
      await tx.publish(order('b'))
    })
    expect((await world.rows()).map((row) => row.id)).toEqual(['a', 'b'])
  })

  it('writes nothing of a publishAll with one duplicate, and nothing of it goes hot', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    await outbox.enqueue(order('b'))
    await outbox.drain()
    await outbox.transaction(async (tx) => {
      await expect(tx.publishAll([order('a'), order('b'), order('c')])).rejects.toMatchObject({
        eventIds: ['b'],
      })
    })
    await outbox.drain()
    expect((await world.rows()).map((row) => row.id)).toEqual(['b'])
    expect(handled).toEqual(['b'])
  })

  it('writes a publishAll in one statement and returns the ids in order', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const events = Array.from({ length: 250 }, (_, i) => order(`e-${i}`))
    const statements: unknown[] = []
    const ids = await outbox.transaction(async (tx) => {
      const query = tx.client.query
      tx.client.query = function (this: unknown, ...args: unknown[]) {
        statements.push(args[0])
        return Reflect.apply(query, this, args)
      } as typeof query
      const published = await tx.publishAll(events)
      tx.client.query = query
      return published
    })
    expect(statements).toHaveLength(1)
    expect(ids).toEqual(events.map((event) => event.eventId))
    expect(new Set((await world.rows()).map((row) => row.id)).size).toBe(250)
  })

  it('reports one id that comes twice in a call', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    await outbox.transaction(async (tx) => {
      await expect(tx.publishAll([order('a'), order('a')])).rejects.toThrow(DuplicateEventError)
    })
    expect(await world.rows()).toEqual([])
  })

  it('writes the others when duplicates are to be ignored, and an ignored one never goes hot', async () => {
    const world = await newWorld()
    const metrics = recordingMetrics()
    const outbox = world.outbox({ metrics })
    const handled: string[] = []
    await outbox.enqueue(order('a'))
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
    await outbox.start()
    await until(() => handled.length === 1)
    await outbox.drain()
    await outbox.transaction((tx) => tx.publishAll([order('a'), order('b')], { onDuplicate: 'ignore' }))
    await outbox.drain()
    expect(handled).toEqual(['a', 'b'])
    expect(metrics.total('hot_enqueued')).toBe(1)
    expect(await world.rows()).toMatchObject([
      { id: 'a', status: 'DONE' },
      { id: 'b', status: 'DONE' },
    ])
  })

  it('lets one of two concurrent publishers of one id win, and the loser is told', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const outcomes = await Promise.allSettled([outbox.enqueue(order('a')), outbox.enqueue(order('a'))])
    expect(outcomes.map((one) => one.status).sort()).toEqual(['fulfilled', 'rejected'])
    expect(await world.rows()).toHaveLength(1)
  })

  it('publishes an id again when the first transaction rolled back', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const once = outbox.transaction(async (tx) => {
      await tx.publish(order('a'))
      throw new Error('no')
    })
    await expect(once).rejects.toThrow('no')
    expect(await outbox.enqueue(order('a'))).toBe('a')
  })
})

onEveryPostgres('delayed delivery', (newWorld) => {
  it('does not hand a delayed event over before its time, and does so then without a poll interval', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { pollIntervalMs: HOUR_MS } })
    const late: number[] = []
    outbox.on(OrderPlaced, 'note', async (event) => {
      const { rows } = await world.pool.query<{ late: number }>(
        `select date_part('epoch', clock_timestamp() - available_at) * 1000 as late from ${world.table} where event_id = $1`,
        [event.eventId],
      )
      late.push(rows[0]?.late ?? Number.NaN)
    })
    await outbox.start()
    await outbox.enqueue(order('by delay'), { delayMs: 400 })
    await outbox.enqueue(order('by moment'), { deliverAt: new Date(Date.now() + 400) })
    await until(() => late.length === 2)
    for (const ms of late) expect(ms).toBeGreaterThanOrEqual(0)
  })

  it('is not due for poll, drain or consumeOne while it waits', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.eventId))
    await outbox.enqueue(order('tomorrow'), { delayMs: 24 * HOUR_MS })
    await outbox.enqueue(order('also tomorrow'), { deliverAt: new Date(Date.now() + 24 * HOUR_MS) })
    expect(await outbox.poll()).toBe(0)
    expect(await outbox.consumeOne()).toBe(false)
    await outbox.drain()
    expect(handled).toEqual([])
    expect(await world.rows()).toMatchObject([{ status: 'NEW' }, { status: 'NEW' }])
  })

  it('hands over at once what was due in the past, also when a scan passed by before the commit', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.eventId))
    await outbox.start()
    const [written, polled] = [gate(), gate()]
    const publishing = outbox.transaction(async (tx) => {
      await tx.publish(order('overdue'), { deliverAt: new Date(Date.now() - HOUR_MS) })
      written.open()
      await polled.opened
    })
    await written.opened
    await outbox.poll()
    polled.open()
    await publishing
    await until(() => handled.length === 1, { timeoutMs: 5_000 })
  })

  it.each([
    { delayMs: -1 },
    { delayMs: Number.NaN },
    { delayMs: Number.POSITIVE_INFINITY },
    { deliverAt: new Date(Number.NaN) },
    { delayMs: 1, deliverAt: new Date() },
  ])('refuses %o and writes nothing', async (options) => {
    const world = await newWorld()
    const outbox = world.outbox()
    await expect(outbox.enqueue(order('a'), options)).rejects.toMatchObject({ code: 'INVALID_SETTING' })
    expect(await world.rows()).toEqual([])
  })
})
