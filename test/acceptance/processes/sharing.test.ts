import { expect, it } from 'vitest'
import { startWorker, type Told, type Worker } from '../../support/child.js'
import { until } from '../../support/until.js'
import { onEveryPostgres } from '../../support/world.js'

const events = (count: number, name = 'e') =>
  Array.from({ length: count }, (_, i) => ({ type: 'any.thing', eventId: `${name}-${i}`, payload: {} }))

onEveryPostgres('two processes on one table', (newWorld) => {
  it('handle 5,000 events once each, never two at a time on one, and both work', {
    timeout: 60_000,
  }, async () => {
    const world = await newWorld()
    const writer = world.outbox()
    const settings = { poller: { pollIntervalMs: 100, batchSize: 50 }, dispatcher: { coldQueueSize: 100 } }
    const workers = [await startWorker(world, settings), await startWorker(world, settings)] as const
    const all = events(5_000)
    for (let at = 0; at < all.length; at += 500) {
      await writer.transaction((tx) => tx.publishAll(all.slice(at, at + 500)))
    }
    const runs = () => workers.flatMap((worker) => worker.told.filter((one) => one.told === 'ended'))
    await until(() => runs().length >= 5_000, { timeoutMs: 45_000, what: '5,000 handler runs' })
    await until(async () => (await writer.stats()).pending === 0)

    expect(overlaps(runs())).toEqual([])
    expect(runs()).toHaveLength(5_000)
    expect(new Set(runs().map((one) => one.id)).size).toBe(5_000)
    for (const worker of workers) expect(worker.ids('ended').length).toBeGreaterThan(100)
    const { rows } = await world.pool.query(
      `select status, attempts, count(*)::int from ${world.table} group by 1, 2`,
    )
    expect(rows).toEqual([{ status: 1, attempts: 0, count: 5_000 }])
  })

  it('go on beside each other while both also publish and handle their own events', async () => {
    const world = await newWorld()
    const settings = { poller: { pollIntervalMs: 50 } }
    const workers = [await startWorker(world, settings), await startWorker(world, settings)] as const
    for (const [n, worker] of workers.entries()) worker.order('publish', { events: events(200, `of-${n}`) })
    const ended = () => workers.flatMap((worker) => worker.ids('ended'))
    await until(() => ended().length >= 400)
    await until(async () => (await world.rows()).every((row) => row.status === 'DONE'))
    expect(new Set(ended()).size).toBe(400)
    expect(ended()).toHaveLength(400)
  })
})

onEveryPostgres('the doorbell', (newWorld) => {
  const idle = async (worker: Worker) => {
    await worker.hears((one) => one.told === 'claimed', 'the first scan')
    return worker
  }

  it('wakes another process at a commit although its next poll is a minute away', async () => {
    const world = await newWorld()
    const worker = await idle(
      await startWorker(world, { doorbell: true, poller: { pollIntervalMs: 60_000 } }),
    )
    const writer = world.outbox({ doorbell: true })
    for (const event of events(3)) {
      await writer.transaction((tx) => tx.publish(event))
      await until(() => worker.ids('ended').includes(event.eventId), { timeoutMs: 3_000 })
    }
  })

  it('does not ring for a rollback, and rings for what is committed afterwards', async () => {
    const world = await newWorld()
    const worker = await idle(
      await startWorker(world, { doorbell: true, poller: { pollIntervalMs: 60_000 } }),
    )
    const writer = world.outbox({ doorbell: true })
    const [lost, kept] = events(2)
    const failing = writer.transaction(async (tx) => {
      if (lost) await tx.publish(lost)
      throw new Error('no')
    })
    await expect(failing).rejects.toThrow('no')
    if (kept) await writer.transaction((tx) => tx.publish(kept))
    await until(() => worker.ids('ended').length > 0, { timeoutMs: 3_000 })
    expect(worker.ids('ended')).toEqual(['e-1'])
  })

  it('is hung up again by itself after its connection was cut', async () => {
    const world = await newWorld()
    const worker = await idle(
      await startWorker(world, { doorbell: true, poller: { pollIntervalMs: 60_000 } }),
    )
    const { rowCount } = await world.pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where pid <> pg_backend_pid() and datname = current_database()
          and (query ilike 'LISTEN%' or query ilike '%${world.table}_instance%')`,
    )
    expect(rowCount).toBeGreaterThan(0)
    const writer = world.outbox({ doorbell: true })
    await writer.transaction((tx) => tx.publishAll(events(1)))
    await until(() => worker.ids('ended').length === 1, { timeoutMs: 10_000 })
    await writer.transaction((tx) => tx.publishAll(events(1, 'second')))
    await until(() => worker.ids('ended').length === 2, { timeoutMs: 3_000 })
  })
})

/** Ids of events that two runs worked on at the same time, by the monotonic clock that processes share. */
function overlaps(runs: readonly Told[]): string[] {
  const byId = new Map<string, { from: bigint; to: bigint }[]>()
  for (const { id = '', from = '0', to = '0' } of runs) {
    const span = { from: BigInt(from), to: BigInt(to) }
    byId.set(id, [...(byId.get(id) ?? []), span])
  }
  return [...byId].flatMap(([id, spans]) =>
    spans.some((a) => spans.some((b) => a !== b && a.from < b.to && b.from < a.to)) ? [id] : [],
  )
}
