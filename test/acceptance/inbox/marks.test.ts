import { expect, it } from 'vitest'
import { exactlyOnce, idempotent, processedEvents } from '../../../src/inbox/index.js'
import { deliverAgain, effectsIn } from '../../support/effects.js'
import { until } from '../../support/until.js'
import { OrderPlaced, onEveryPostgres, type World } from '../../support/world.js'

const order = (orderId: string) => OrderPlaced({ orderId }, { eventId: orderId })
const DAY_MS = 24 * 3_600_000

async function marked(world: World): Promise<string[]> {
  const { rows } = await world.pool.query<{ id: string }>(
    `select handler || ' ' || event_id as id from ${world.table}_inbox order by 1`,
  )
  return rows.map(({ id }) => id)
}

async function age(world: World, eventId: string, ms: number): Promise<void> {
  await world.pool.query(
    `update ${world.table}_inbox set processed_at = clock_timestamp() - $2 * interval '1 ms' where event_id = $1`,
    [eventId, ms],
  )
}

onEveryPostgres('marks in the database', (newWorld) => {
  it('are one for each handler and event, and none of a handler that failed', async () => {
    const world = await newWorld()
    const outbox = world.outbox({ retry: { maxAttempts: 1 } })
    const marks = processedEvents(outbox)
    outbox.on(
      OrderPlaced,
      'once',
      exactlyOnce(() => {}, outbox),
    )
    outbox.on(
      OrderPlaced,
      'idempotent',
      idempotent(() => {}, marks),
    )
    outbox.on(OrderPlaced, 'once, but fails', exactlyOnce(fail, outbox))
    outbox.on(OrderPlaced, 'idempotent, but fails', idempotent(fail, marks))
    await outbox.enqueue(order('o-1'))
    await outbox.drain()
    expect(await marked(world)).toEqual(['idempotent o-1', 'once o-1'])
    expect(await marks.contains({ handler: 'once', eventId: 'o-1' })).toBe(true)
    expect(await marks.contains({ handler: 'once', eventId: 'o-2' })).toBe(false)
  })

  it('let an idempotent handler skip in the next process what this one has done', async () => {
    const world = await newWorld()
    const runs: string[] = []
    for (let process = 1; process <= 2; process++) {
      const outbox = world.outbox()
      outbox.on(
        OrderPlaced,
        'marked',
        idempotent(() => void runs.push('marked'), processedEvents(outbox)),
      )
      outbox.on(OrderPlaced, 'plain', () => void runs.push('plain'))
      if (process === 1) await outbox.enqueue(order('o-1'))
      else await deliverAgain(world)
      await outbox.drain()
      await outbox.stop()
    }
    expect(runs.sort()).toEqual(['marked', 'plain', 'plain'])
  })

  it('are kept for 30 days', async () => {
    const world = await newWorld()
    const outbox = world.outbox({
      poller: { pollIntervalMs: 10 },
      dispatcher: { unroutableGraceMs: 0, onUnroutable: 'retry' },
    })
    const marks = processedEvents(outbox)
    for (const id of ['young', 'old']) await marks.markProcessed({ handler: 'once', eventId: id })
    await age(world, 'young', 30 * DAY_MS - 60_000)
    await age(world, 'old', 30 * DAY_MS + 60_000)
    await outbox.start()
    await until(async () => !(await marks.contains({ handler: 'once', eventId: 'old' })))
    expect(await marked(world)).toEqual(['once young'])
  })

  it('are kept for as long as retention.processedMs says, with nobody’s help, also thousands', async () => {
    const world = await newWorld()
    await world.pool.query(
      `insert into ${world.table}_inbox select 'once', 'o-' || n, now() - interval '2 s' from generate_series(1, 2500) n`,
    )
    const outbox = world.outbox({
      retention: { processedMs: 1_000, doneMs: 0 },
      poller: { pollIntervalMs: 10 },
      dispatcher: { unroutableGraceMs: 0, onUnroutable: 'retry' },
    })
    await outbox.start()
    await until(async () => (await marked(world)).length === 0)
  })

  it('can be deleted by hand, by age', async () => {
    const world = await newWorld()
    const marks = processedEvents(world.outbox())
    await world.pool.query(
      `insert into ${world.table}_inbox select 'once', 'o-' || n, now() - interval '2 h' from generate_series(1, 2500) n`,
    )
    await marks.markProcessed({ handler: 'once', eventId: 'young' })
    expect(await marks.deleteBefore(new Date(Date.now() - 3 * 3_600_000))).toBe(0)
    expect(await marks.deleteBefore(new Date(Date.now() - 3_600_000))).toBe(2_500)
    expect(await marked(world)).toEqual(['once young'])
    expect(await marks.deleteBefore(new Date(-8_640_000_000_000_000))).toBe(0)
    expect(await marks.deleteBefore(new Date(8_640_000_000_000_000))).toBe(1)
  })

  it('forgotten too early mean a second effect: they must outlive every redelivery', async () => {
    const world = await newWorld()
    const effects = await effectsIn(world)
    for (const process of [1, 2]) {
      const outbox = world.outbox()
      outbox.on(OrderPlaced, 'once', exactlyOnce(effects.add, outbox))
      if (process === 1) await outbox.enqueue(order('o-1'))
      else await deliverAgain(world)
      await outbox.drain()
      await processedEvents(outbox).deleteBefore(new Date(Date.now() + DAY_MS))
    }
    expect(await effects.counts()).toEqual({ once: 2 })
  })
})

function fail(): never {
  throw new Error('no')
}
