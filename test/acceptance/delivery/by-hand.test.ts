import { expect, it } from 'vitest'
import { recordingLogger } from '../../support/recording.js'
import { gate, until } from '../../support/until.js'
import { HOUR_MS, OrderPlaced, onEveryPostgres, type World } from '../../support/world.js'

const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })

onEveryPostgres('delivery by hand, without start()', (newWorld) => {
  it('poll() handles one batch and says how many', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { batchSize: 3 } })
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.eventId))
    await outbox.transaction((tx) => tx.publishAll(['a', 'b', 'c', 'd'].map(order)))
    expect(handled).toEqual([])
    expect(await outbox.poll()).toBe(3)
    expect(handled).toEqual(['a', 'b', 'c'])
    expect(await outbox.poll()).toBe(1)
    expect(await outbox.poll()).toBe(0)
    expect((await world.rows()).every((row) => row.status === 'DONE')).toBe(true)
  })

  it('consumeOne() takes a single event', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.eventId))
    await outbox.transaction((tx) => tx.publishAll(['a', 'b'].map(order)))
    expect(await outbox.consumeOne()).toBe(true)
    expect(handled).toEqual(['a'])
    expect(await outbox.consumeOne()).toBe(true)
    expect(await outbox.consumeOne()).toBe(false)
    expect(handled).toEqual(['a', 'b'])
  })

  it('consumeOne() takes a single event also when there are retries, delayed ones and ones of dead processes', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    const handled: string[] = []
    outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.eventId))
    await outbox.transaction((tx) =>
      tx.publishAll(['fresh 1', 'fresh 2', 'retry', 'dead process'].map(order)),
    )
    await world.pool.query(`update ${world.table} set status = 2 where event_id = 'retry'`)
    await world.pool.query(
      `update ${world.table} set locked_by = 'gone:1', locked_until = now() - interval '1 s' where event_id = 'dead process'`,
    )
    for (let n = 1; n <= 4; n++) {
      expect(await outbox.consumeOne()).toBe(true)
      expect(handled).toHaveLength(n)
    }
    expect(await outbox.consumeOne()).toBe(false)
  })

  it('drain() goes on until nothing is due: follow-ups, retries and several batches', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ poller: { batchSize: 7 } })
    const handled: string[] = []
    outbox.on(OrderPlaced, 'chain', async (event, { attempt }) => {
      const n = Number(event.payload.orderId)
      if (n % 5 === 0 && attempt === 1) throw new Error('once')
      handled.push(event.payload.orderId)
      if (n < 30) await outbox.enqueue(OrderPlaced({ orderId: String(n + 10) }))
    })
    await outbox.transaction((tx) =>
      tx.publishAll(Array.from({ length: 10 }, (_, n) => OrderPlaced({ orderId: String(n) }))),
    )
    await outbox.drain()
    expect(handled.map(Number).sort((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, n) => n))
    expect(await outbox.stats()).toMatchObject({ pending: 0, dead: 0 })
  })

  it('drain() of a started outbox goes on to the last event of a long key', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ doorbell: true, poller: { pollIntervalMs: 60_000 } })
    const handled: unknown[] = []
    outbox.on('moved', 'note', async (event) => void handled.push(event.payload))
    await outbox.start()
    const events = Array.from({ length: 60 }, (_, n) => ({ type: 'moved', orderingKey: 'k', payload: n }))
    await outbox.transaction((tx) => tx.publishAll(events))
    await outbox.drain()
    expect(handled).toEqual(events.map((event) => event.payload))
  })

  it('drain() of a started outbox waits for what is in its buffers', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ dispatcher: { concurrency: 1 } })
    let handled = 0
    outbox.on(OrderPlaced, 'slow', async () => {
      await world.pool.query('select pg_sleep(0.01)')
      handled++
    })
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll(Array.from({ length: 20 }, (_, i) => order(`o-${i}`))))
    await outbox.drain()
    expect(handled).toBe(20)
    expect((await world.rows()).every((row) => row.status === 'DONE')).toBe(true)
  })

  it('leaves what it has no handler for to others', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    outbox.on('something.else', 'other', () => {})
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(await world.rows()).toMatchObject([{ status: 'NEW', lockedBy: null, attempts: 0 }])
  })
})

async function withDead(world: World, ids: readonly string[], state: { broken: boolean }) {
  const logger = recordingLogger()
  const outbox = world.outbox({ logger, retry: { maxAttempts: 1 } })
  const handled: string[] = []
  outbox.on('*', 'work', (event) => {
    if (state.broken) throw new Error(`no ${event.eventId}`)
    handled.push(event.eventId)
  })
  for (const eventId of ids) {
    await outbox.enqueue({ type: eventId.startsWith('b') ? 'type.b' : 'type.a', eventId, payload: { n: 1 } })
  }
  await outbox.drain()
  return {
    outbox,
    handled,
    acts: () => logger.lines.filter((line) => line.fields.act).map((line) => line.fields),
  }
}

onEveryPostgres('dead letters', (newWorld) => {
  it('are listed with their story, oldest first, in pages', async () => {
    const world = await newWorld()
    const { outbox } = await withDead(world, ['a1', 'b1', 'a2'], { broken: true })
    const all = await outbox.deadLetters.list()
    expect(all.map((one) => one.eventId)).toEqual(['a1', 'b1', 'a2'])
    expect(all[0]).toMatchObject({ status: 'DEAD', attempts: 1, lastError: expect.stringContaining('no a1') })
    expect(await outbox.deadLetters.list({ eventType: 'type.b' })).toMatchObject([{ eventId: 'b1' }])
    const [first] = await outbox.deadLetters.list({ limit: 1 })
    const rest = await outbox.deadLetters.list({ afterSeq: first?.seq ?? 0, limit: 1 })
    expect(rest).toMatchObject([{ eventId: 'b1' }])
  })

  it('are retried one by one, by type, or all, with a fresh count of attempts, and each act is logged', async () => {
    const world = await newWorld()
    const state = { broken: true }
    const { outbox, handled, acts } = await withDead(world, ['a1', 'b1', 'a2', 'b2'], state)
    state.broken = false
    expect(await outbox.deadLetters.retry('a2')).toEqual(['a2'])
    await outbox.drain()
    expect(handled).toEqual(['a2'])
    expect((await outbox.deadLetters.retry({ eventType: 'type.b' })).toSorted()).toEqual(['b1', 'b2'])
    expect(await outbox.deadLetters.retry({ all: true })).toEqual(['a1'])
    await outbox.drain()
    expect(handled.sort()).toEqual(['a1', 'a2', 'b1', 'b2'])
    expect((await world.rows()).map((row) => [row.status, row.attempts])).toEqual(Array(4).fill(['DONE', 0]))
    expect(acts()).toMatchObject([
      { act: 'retry', count: 1, event_ids: ['a2'] },
      { act: 'retry', count: 2 },
      { act: 'retry', count: 1 },
    ])
  })

  it('are picked up at once by a started outbox after a retry', async () => {
    const world = await newWorld()
    const state = { broken: true }
    const { outbox, handled } = await withDead(world, ['a1'], state)
    await outbox.start()
    state.broken = false
    await outbox.deadLetters.retry('a1')
    await until(() => handled.length === 1)
  })

  it('are discarded for good, and nothing else is', async () => {
    const world = await newWorld()
    const { outbox, acts } = await withDead(world, ['a1', 'b1'], { broken: true })
    await outbox.enqueue({ type: 'type.b', eventId: 'alive' }, { delayMs: HOUR_MS })
    expect(await outbox.deadLetters.discard('alive')).toEqual([])
    expect(await outbox.deadLetters.retry('alive')).toEqual([])
    expect(await outbox.deadLetters.discard({ eventType: 'type.b' })).toEqual(['b1'])
    expect((await world.rows()).map((row) => row.id)).toEqual(['a1', 'alive'])
    expect(acts().filter((one) => one.count !== 0)).toMatchObject([{ act: 'discard', event_ids: ['b1'] }])
  })
})

onEveryPostgres('stats and health', (newWorld) => {
  it('count what is pending, done, failed and dead, and the lag of the oldest', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ retry: { maxAttempts: 1 } })
    outbox.on(OrderPlaced, 'work', (event) => {
      if (event.eventId === 'bad') throw new Error('no')
    })
    await outbox.transaction((tx) => tx.publishAll(['a', 'b', 'bad'].map(order)))
    await outbox.drain()
    await outbox.enqueue(order('later'), { delayMs: HOUR_MS })
    expect(await outbox.stats()).toEqual({ pending: 1, dead: 1, done: 2, failed: 1, oldestLagMs: 0 })
    await outbox.enqueue(order('waiting'))
    await world.pool.query(
      `update ${world.table} set created_at = now() - interval '90 s', available_at = now() - interval '90 s' where event_id = 'waiting'`,
    )
    const { oldestLagMs } = await outbox.stats()
    expect(oldestLagMs).toBeGreaterThan(89_000)
    expect(oldestLagMs).toBeLessThan(100_000)
  })

  it('say that a started outbox is well', async () => {
    const world = await newWorld()
    const outbox = world.outbox()
    expect(await outbox.health()).toMatchObject({
      started: false,
      storeReachable: true,
      lastClaimAgoMs: null,
    })
    await outbox.start()
    const health = await outbox.health()
    expect(health).toMatchObject({
      ok: true,
      started: true,
      storeReachable: true,
      dead: 0,
      stuck: [],
      problems: [],
    })
    await outbox.stop()
    expect(await outbox.health()).toMatchObject({ started: false })
  })

  it('name the events whose handler does not return', async () => {
    const world = await newWorld()
    const logger = recordingLogger()
    const outbox = world.outbox({ logger, dispatcher: { stuckAfterMs: 50 }, poller: { leaseMs: 300 } })
    const [running, held] = [gate(), gate()]
    outbox.on(OrderPlaced, 'hang', () => {
      running.open()
      return held.opened
    })
    await outbox.start()
    await outbox.enqueue(order('o-1'))
    await running.opened
    await until(async () => (await outbox.health()).stuck.includes('o-1'))
    expect(await outbox.health()).toMatchObject({
      ok: false,
      problems: [{ code: 'HANDLERS_STUCK', message: expect.stringContaining('1 handlers') }],
    })
    await until(() => logger.lines.some((line) => /has not returned/.test(line.message)))
    held.open()
    await outbox.drain()
    expect(await outbox.health()).toMatchObject({ ok: true, stuck: [] })
  })
})
