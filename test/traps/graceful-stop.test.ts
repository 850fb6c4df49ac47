import { describe, expect, it } from 'vitest'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until, within } from '../support/waiting.js'

/** No new work; what runs may finish; the rest is given back at once, unhandled and uncharged. */

const LONG_LEASE = { leaseMs: 60_000, pollIntervalMs: 60_000 }

describe('stop()', () => {
  it('waits for the handlers under way and writes their outcome', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool, { dispatcher: { drainTimeoutMs: 10_000 } })
    const running = signal()
    const finish = signal()
    outbox.on('thing.happened', 'work', async () => {
      running.give()
      await finish.promise
    })
    await outbox.start()
    await outbox.enqueue(event())
    await running.promise
    let stopped = false
    const stopping = outbox.stop().then(() => {
      stopped = true
    })
    await until('the stop has begun', async () => !(await outbox.health()).started)
    expect(stopped).toBe(false)
    finish.give()
    await stopping
    expect(await rowsIn(pool)).toMatchObject([{ status: 1, attempts: 0, locked_by: null }])
  })

  it('gives queued events back at once: another instance takes them while the first still drains', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 2 })
    const first = outboxOn(poolOn(url), {
      poller: LONG_LEASE,
      dispatcher: { concurrency: 1, drainTimeoutMs: 20_000 },
    }).outbox
    const second = outboxOn(poolOn(url), { poller: { ...LONG_LEASE, pollIntervalMs: 100 } }).outbox
    const running = signal()
    const finish = signal()
    const handled: string[] = []
    first.on('thing.happened', 'work', async () => {
      running.give()
      await finish.promise
    })
    second.on('thing.happened', 'work', (one, { attempt }) => void handled.push(`${one.eventId} ${attempt}`))
    await first.start()
    await first.enqueue(event())
    await running.promise
    const hot = await first.transaction((tx) => tx.publishAll([event(), event(), event()]))
    const cold = await Promise.all([1, 2, 3].map(() => first.enqueue(event(), { delayMs: 1 })))
    await until('the delayed ones are due', async () =>
      (await rowsIn(observer)).every((row) => row.due_in_s <= 0),
    )
    const claimed = first.poll()
    await until('all are leased', async () => (await rowsIn(observer)).every((row) => row.leased))
    await second.start()
    const stopping = first.stop()
    await until('the other one has them', () => handled.length === 6, 5_000)
    expect(handled.sort()).toEqual([...hot, ...cold].map((id) => `${id} 1`).sort())
    finish.give()
    await stopping
    await claimed
    await second.drain()
    expect((await rowsIn(observer)).every((row) => row.status === 1 && row.attempts === 0)).toBe(true)
  })

  it('aborts a stuck handler at drainTimeoutMs, releases its row, and does not wait any longer', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 1 })
    const { outbox } = outboxOn(poolOn(url), { poller: LONG_LEASE, dispatcher: { drainTimeoutMs: 300 } })
    const running = signal()
    const aborted = signal<unknown>()
    outbox.on('thing.happened', 'hang', (_one, context) => {
      context.signal.addEventListener('abort', () => aborted.give(context.signal.reason))
      running.give()
      return new Promise(() => {})
    })
    await outbox.start()
    await outbox.enqueue(event())
    await running.promise
    const began = performance.now()
    await within('stop', outbox.stop(), 3_000)
    expect(performance.now() - began).toBeGreaterThanOrEqual(295)
    expect(await within('the signal', aborted.promise, 1)).toMatchObject({ code: 'SHUTDOWN' })
    expect(await rowsIn(observer)).toMatchObject([{ status: 0, attempts: 0, locked_by: null, leased: false }])
    const next = outboxOn(poolOn(url)).outbox
    const taken = signal<number>()
    next.on('thing.happened', 'hang', (_one, { attempt }) => taken.give(attempt))
    await next.start()
    expect(await within('the next instance takes it', taken.promise, 3_000)).toBe(1)
  })

  it('keeps renewing leases while it drains', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 1 })
    const { outbox } = outboxOn(poolOn(url), {
      poller: { leaseMs: 300, pollIntervalMs: 100 },
      dispatcher: { drainTimeoutMs: 20_000 },
    })
    const running = signal()
    const finish = signal()
    let runs = 0
    outbox.on('thing.happened', 'work', async () => {
      runs++
      running.give()
      await finish.promise
    })
    await outbox.start()
    await outbox.enqueue(event())
    await running.promise
    const stopping = outbox.stop()
    const began = performance.now()
    await until('four leases have gone by', async () => {
      expect(await rowsIn(observer)).toMatchObject([{ leased: true, attempts: 0 }])
      return performance.now() - began > 1_200
    })
    finish.give()
    await stopping
    expect(await rowsIn(observer)).toMatchObject([{ status: 1, attempts: 0 }])
    expect(runs).toBe(1)
  })

  it('and a second start in the same process do not run an event beside its abandoned handler', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 1 })
    const { outbox } = outboxOn(poolOn(url), {
      poller: { leaseMs: 300, pollIntervalMs: 50 },
      dispatcher: { drainTimeoutMs: 50 },
    })
    let running = 0
    let most = 0
    let runs = 0
    const finish = signal()
    outbox.on('thing.happened', 'work', async () => {
      runs++
      most = Math.max(most, ++running)
      if (runs === 1) await finish.promise
      running--
    })
    await outbox.start()
    await outbox.enqueue(event())
    await until('it runs', () => running === 1)
    await outbox.stop()
    await outbox.start()
    const began = performance.now()
    await until('the poller had its chances', () => performance.now() - began > 1_500)
    expect(most).toBe(1)
    finish.give()
    await until('it is done', async () => (await rowsIn(observer))[0]?.status === 1)
    expect(most).toBe(1)
  })

  it('publishes go on during the stop and are left to others, without a lease', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 1 })
    const { outbox } = outboxOn(poolOn(url), { dispatcher: { drainTimeoutMs: 10_000 } })
    const running = signal()
    const finish = signal()
    outbox.on('thing.happened', 'work', async () => {
      running.give()
      await finish.promise
    })
    await outbox.start()
    await outbox.enqueue(event())
    await running.promise
    const stopping = outbox.stop()
    const late = await outbox.enqueue(event())
    finish.give()
    await stopping
    const row = (await rowsIn(observer)).find((one) => one.event_id === late)
    expect(row).toMatchObject({ status: 0, locked_by: null, attempts: 0 })
  })

  it('gives back what a transaction that was open during the stop committed afterwards', async () => {
    const url = await migratedDatabase()
    const observer = poolOn(url, { max: 1 })
    const { outbox } = outboxOn(poolOn(url), { poller: LONG_LEASE })
    outbox.on('thing.happened', 'work', () => {})
    await outbox.start()
    const published = signal()
    const commit = signal()
    const transaction = outbox.transaction(async (tx) => {
      await tx.publish(event())
      published.give()
      await commit.promise
    })
    await published.promise
    await outbox.stop()
    commit.give()
    await transaction
    await until('the row is free', async () => (await rowsIn(observer))[0]?.locked_by === null, 3_000)
    expect(await rowsIn(observer)).toMatchObject([{ status: 0, attempts: 0 }])
  })
})
