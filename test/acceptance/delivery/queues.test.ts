import { expect, it } from 'vitest'
import { counted, recordingLogger, recordingMetrics } from '../../support/recording.js'
import { gate, until } from '../../support/until.js'
import { OrderPlaced, onEveryPostgres } from '../../support/world.js'

const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })

onEveryPostgres('queues', (newWorld) => {
  it('publishes although the hot queue is full, and the poller handles the rest at once', async () => {
    const world = await newWorld()
    const logger = recordingLogger()
    const metrics = recordingMetrics()
    const outbox = world.outbox({ logger, metrics, dispatcher: { hotQueueSize: 1 } })
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.eventId))
    await outbox.start()
    const ids = await outbox.transaction((tx) => tx.publishAll(['a', 'b', 'c', 'd', 'e'].map(order)))
    expect(ids).toHaveLength(5)
    // The next poll is an hour away and a lease lasts 30 s: only being woken explains this.
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'), { timeoutMs: 3_000 })
    expect(handled.sort()).toEqual(['a', 'b', 'c', 'd', 'e'])
    expect(metrics.total('hot_dropped')).toBe(4)
    expect(metrics.total('cold_enqueued')).toBe(4)
    const warnings = logger.lines.filter(
      (line) => line.level === 'warn' && /hot queue is full/.test(line.message),
    )
    expect(warnings).toHaveLength(1)
  })

  it('bounds the hot queue by bytes as well', async () => {
    const world = await newWorld()
    const metrics = recordingMetrics()
    const outbox = world.outbox({ metrics, dispatcher: { queueBytes: 1_000 } })
    const handled: string[] = []
    outbox.on('big.thing', 'note', (event) => void handled.push(event.eventId))
    await outbox.start()
    const big = { type: 'big.thing', payload: 'x'.repeat(600) }
    await outbox.transaction((tx) => tx.publishAll([big, big, big]))
    await until(() => handled.length === 3)
    expect(metrics.total('hot_dropped')).toBe(2)
  })

  it('never runs more handlers at once than its concurrency', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ dispatcher: { concurrency: 3 } })
    let running = 0
    let most = 0
    let handled = 0
    outbox.on(OrderPlaced, 'work', async () => {
      most = Math.max(most, ++running)
      await world.pool.query('select 1')
      running--
      handled++
    })
    await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 60 }, (_, i) => order(`cold ${i}`))))
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 60 }, (_, i) => order(`hot ${i}`))))
    await until(() => handled === 120)
    expect(most).toBe(3)
  })

  it('takes two hot events for each cold one while there are both, and neither waits for the other to end', async () => {
    const world = await newWorld()
    const writer = world.outbox()
    const metrics = recordingMetrics()
    const outbox = world.outbox({ metrics, dispatcher: { concurrency: 1 }, poller: { pollIntervalMs: 50 } })
    const [plugged, held] = [gate(), gate()]
    const handled: string[] = []
    outbox.on('plug', 'hold', () => {
      plugged.open()
      return held.opened
    })
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.eventId.slice(0, 1)))
    await outbox.start()
    await outbox.enqueue({ type: 'plug' })
    await plugged.opened
    await writer.transaction((tx) => tx.publishAll(Array.from({ length: 10 }, (_, i) => order(`c${i}`))))
    await until(() => metrics.total('cold_enqueued') === 10)
    await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 20 }, (_, i) => order(`h${i}`))))
    held.open()
    await until(() => handled.length === 30)
    const sequence = handled.slice(0, 27).join('')
    expect(sequence).not.toMatch(/hhh|cc/)
    expect(sequence.match(/c/g)).toHaveLength(9)
  })

  it('does not claim more than the cold queue holds while handlers are busy', async () => {
    const world = await newWorld()
    const writer = world.outbox()
    const outbox = world.outbox({ dispatcher: { concurrency: 1, coldQueueSize: 5 } })
    const held = gate()
    let handled = 0
    outbox.on(OrderPlaced, 'hold', async () => {
      await held.opened
      handled++
    })
    await writer.transaction((tx) => tx.publishAll(Array.from({ length: 40 }, (_, i) => order(`o-${i}`))))
    await outbox.start()
    const leased = async () => (await world.rows()).filter((row) => row.lockedBy !== null).length
    await until(async () => (await leased()) > 0)
    expect(await leased()).toBeLessThanOrEqual(11)
    held.open()
    await until(() => handled === 40)
  })

  it('renews the lease of a handler that takes longer than a lease, so that nobody else runs it', async () => {
    const world = await newWorld()
    const poller = { leaseMs: 300, pollIntervalMs: 50 }
    const runs: string[] = []
    const held = gate()
    const workers = ['one', 'two'].map((name) =>
      world.outbox({ poller }).on(OrderPlaced, 'slow', async () => {
        runs.push(name)
        await held.opened
      }),
    )
    for (const worker of workers) await worker.start()
    await workers[0]?.enqueue(order('o-1'))
    await until(() => runs.length === 1)
    await world.pool.query('select pg_sleep(1)')
    held.open()
    await until(async () => (await world.rows())[0]?.status === 'DONE')
    expect(runs).toEqual(['one'])
  })

  it('renews it also for drain() without start()', async () => {
    const world = await newWorld()
    const poller = { leaseMs: 300, pollIntervalMs: 50 }
    const runs: string[] = []
    const held = gate()
    const byHand = world.outbox({ poller }).on(OrderPlaced, 'slow', async () => {
      runs.push('by hand')
      await held.opened
    })
    const worker = world.outbox({ poller }).on(OrderPlaced, 'slow', () => void runs.push('worker'))
    await byHand.enqueue(order('o-1'))
    const drained = byHand.drain()
    await until(() => runs.length === 1)
    await worker.start()
    await world.pool.query('select pg_sleep(1)')
    held.open()
    await drained
    expect(runs).toEqual(['by hand'])
    expect(await world.rows()).toMatchObject([{ status: 'DONE', attempts: 0 }])
  })

  it('does not run an event beside itself after a restart that a handler outlived', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { pollIntervalMs: 50 }, dispatcher: { drainTimeoutMs: 50 } })
    const held = gate()
    let running = 0
    let most = 0
    let runs = 0
    outbox.on(OrderPlaced, 'deaf', async (event) => {
      if (event.eventId !== 'o-1') return
      most = Math.max(most, ++running)
      if (++runs === 1) await held.opened
      running--
    })
    await outbox.start()
    await outbox.enqueue(order('o-1'))
    await until(() => runs === 1)
    await outbox.stop()
    expect(await world.rows()).toMatchObject([{ status: 'NEW', attempts: 0, lockedBy: null }])
    await outbox.start()
    // A neighbour that is handled afterwards shows that the new start has looked at the table.
    const neighbour = world.outbox()
    await neighbour.enqueue(order('o-2'))
    await until(async () => (await world.rows())[1]?.status === 'DONE')
    held.open()
    await until(async () => (await world.rows())[0]?.status === 'DONE')
    expect(most).toBe(1)
  })

  it('still takes over from dead processes after it met a row of its own that it had lost', async () => {
    const world = await newWorld()
    const held = gate()
    let claims = () => 0
    const outbox = world.outbox({
      poller: { pollIntervalMs: 50, leaseMs: 60_000 },
      wrap: (store) => {
        const watched = counted(store)
        claims = () => watched.calls('claim')
        return watched.store
      },
    })
    const runs: string[] = []
    outbox.on(OrderPlaced, 'work', async (event) => {
      runs.push(event.eventId)
      if (event.eventId === 'mine') await held.opened
    })
    await outbox.start()
    await outbox.enqueue(order('mine'))
    await until(() => runs.length === 1)
    // As after a long pause of this process: its lease ran out while the handler goes on.
    await world.pool.query(`update ${world.table} set locked_until = now() - interval '1 s'`)
    const seen = claims()
    await until(() => claims() > seen + 2)
    held.open()

    await world.pool.query(
      `insert into ${world.table} (event_id, event_type, payload, locked_by, locked_until)
       values ('of a dead process', 'order.placed', '{"orderId": "x"}', 'dead:0', now() - interval '1 s')`,
    )
    await until(() => runs.includes('of a dead process'), { timeoutMs: 5_000 })
  })
})
