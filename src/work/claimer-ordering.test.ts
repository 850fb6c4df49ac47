import { describe, expect, it } from 'vitest'
import { crowdedWorld, pollerWorld as world } from '../../test/support/poller-world.js'
import { fixedDelay } from '../core/backoff.js'

describe('Poller and ordering keys', () => {
  it('looks at them when it starts, and then with each poll at most', async () => {
    const { worker, clock, ordered, stop } = world()
    worker.on('a', 'note', () => {})
    await worker.start()
    await clock.advance(20_000)
    expect(ordered.length).toBeLessThanOrEqual(5)
    expect(new Set(ordered).size).toBe(ordered.length)
    await stop()
  })

  it('claims at once when the doorbell rings for one, and nothing else then', async () => {
    const { worker, clock, claims, publishOrdered, stop } = world()
    const handled: number[] = []
    worker.on('a', 'note', () => void handled.push(clock.monotonic()))
    await worker.start()
    await clock.advance(1_234)
    const before = claims.length
    await publishOrdered(1, 'k')
    await clock.advance(0)
    expect(handled).toEqual([1_234])
    expect(claims.length).toBe(before)
    await stop()
  })

  it('claims the next run of a key as soon as one is through', async () => {
    const { worker, clock, publishOrdered, stop } = world()
    const handled: unknown[] = []
    worker.on('a', 'note', (event) => void handled.push(event.payload))
    await worker.start()
    await publishOrdered(40, 'k')
    await clock.advance(100)
    expect(handled).toEqual(Array.from({ length: 40 }, (_, n) => n))
    await stop()
  })

  it('takes a delayed head and a retried head when it is due', async () => {
    const { worker, writer, clock, stop } = world({ retry: { policy: fixedDelay(321) } })
    const handled: number[] = []
    worker.on('a', 'note', () => {
      handled.push(clock.monotonic())
      if (handled.length === 1) throw new Error('broken')
    })
    await worker.start()
    await writer.enqueue({ type: 'a', orderingKey: 'k' }, { delayMs: 1_700 })
    await clock.advance(10_000)
    expect(handled).toEqual([1_700, 1_700 + 321])
    await stop()
  })

  it('keeps both kinds going when there is more than enough of each', async () => {
    const { worker, clock, publish, publishOrdered, stop } = world({
      dispatcher: { coldQueueSize: 20, concurrency: 2 },
      poller: { batchSize: 10 },
    })
    let plain = 0
    let ordered = 0
    worker.on('a', 'note', async (event) => {
      await new Promise<void>((resolve) => clock.setTimer(resolve, 1))
      if (event.orderingKey === undefined) plain++
      else ordered++
    })
    await publish(300)
    await publishOrdered(8, ...'abcdefghijklmnopqrst')
    await worker.start()
    await clock.advance(150)
    const half = { plain: plain > 30, ordered: ordered > 30 }
    await clock.advance(2_000)
    expect({ half, plain, ordered }).toEqual({
      half: { plain: true, ordered: true },
      plain: 300,
      ordered: 160,
    })
    await stop()
  })

  it('claims no more of them than the cold queue has room for', async () => {
    const { worker, clock, publishOrdered, stop, run, leased, handled } = crowdedWorld()
    await publishOrdered(3, ...'abcdefghijklmnop')
    await worker.start()
    await clock.advance(1_000)
    expect(await leased()).toBeLessThanOrEqual(10 + 4 + 4)
    run.open()
    await clock.advance(1_000)
    expect(handled()).toBe(48)
    await stop()
  })

  it('tries the head of a key whose process died alone, and then goes on with the rest', async () => {
    const { worker, clock, store, publishOrdered, stop } = world()
    await publishOrdered(3, 'k', 'l')
    const accept = { names: [], versions: [], prefixes: [''] }
    await store.claimOrdered({
      ...{ token: 'gone:1', leaseMs: 100, accept, keys: 10, runLength: 8, limit: 100, maxBytes: 1e9 },
      ...{ afterKey: '', suspects: 0, skipRecentMs: 0 },
    })
    await clock.advance(200)
    const handled: string[] = []
    let running = 0
    let most = 0
    worker.on('a', 'note', async (event) => {
      most = Math.max(most, ++running)
      await new Promise((resolve) => setImmediate(resolve))
      running--
      handled.push(`${event.orderingKey}${event.payload}`)
    })
    await worker.start()
    await clock.advance(60_000)
    expect(handled.filter((one) => one.startsWith('k'))).toEqual(['k0', 'k1', 'k2'])
    expect(handled.filter((one) => one.startsWith('l'))).toEqual(['l0', 'l1', 'l2'])
    expect((await store.list({})).map((row) => row.attempts)).toEqual([0, 0, 0, 0, 0, 0])
    await stop()
  })

  it('tries the heads of keys whose process died one at a time, also when groups of other rows do no harm', async () => {
    const { worker, clock, store, publish, publishOrdered, vanishWith, stop } = world({
      dispatcher: { concurrency: 20 },
    })
    const keys = ['k', 'l', 'm', 'n', 'o', 'p']
    await publishOrdered(1, ...keys)
    const accept = { names: [], versions: [], prefixes: [''] }
    await store.claimOrdered({
      ...{ token: 'gone:1', leaseMs: 100, accept, keys: 10, runLength: 8, limit: 100, maxBytes: 1e9 },
      ...{ afterKey: '', suspects: 0, skipRecentMs: 0 },
    })
    await publish(60)
    await vanishWith(60)
    const handled: string[] = []
    let running = 0
    let most = 0
    worker.on('a', 'note', async ({ orderingKey }) => {
      if (orderingKey !== undefined) most = Math.max(most, ++running)
      await new Promise<void>((resolve) => clock.setTimer(resolve, 50))
      if (orderingKey === undefined) return
      running--
      handled.push(orderingKey)
    })
    await worker.start()
    await clock.advance(60_000)
    expect(handled.sort()).toEqual(keys)
    expect(most).toBe(1)
    await stop()
  })

  it('tries one suspect of an ordering key at a time when a claim of ordering keys follows a trial that did no harm', async () => {
    const { worker, clock, store, publish, publishOrdered, vanishWith, stop } = world({
      dispatcher: { concurrency: 4, coldQueueSize: 64 },
      poller: { batchSize: 64 },
    })
    const keys = ['k', 'l', 'm', 'n', 'o', 'p']
    await publish(1)
    await vanishWith(1)
    await publishOrdered(1, ...keys)
    const accept = { names: [], versions: [], prefixes: [''] }
    await store.claimOrdered({
      ...{ token: 'gone:1', leaseMs: 100, accept, keys: 10, runLength: 8, limit: 100, maxBytes: 1e9 },
      ...{ afterKey: '', suspects: 0, skipRecentMs: 0 },
    })
    await clock.advance(200)
    // The first batch is full. It holds the unkeyed suspect, and leaves the claim of ordering keys to the next batch.
    await publish(200)
    const handled: string[] = []
    let running = 0
    let most = 0
    worker.on('a', 'note', async ({ orderingKey }) => {
      if (orderingKey !== undefined) most = Math.max(most, ++running)
      await new Promise<void>((resolve) => clock.setTimer(resolve, 50))
      if (orderingKey === undefined) return
      running--
      handled.push(orderingKey)
    })
    await worker.start()
    await clock.advance(60_000)
    expect(handled.sort()).toEqual(keys)
    expect(most).toBe(1)
    await stop()
  })

  it('goes on where it was after a claim of them has failed', async () => {
    let down = false
    const { worker, clock, publishOrdered, stop } = world({}, (method) => {
      if (method === 'claimOrdered' && down) throw new Error('down')
    })
    let handled = 0
    worker.on('a', 'note', () => void handled++)
    await worker.start()
    await clock.advance(1_000)
    down = true
    await publishOrdered(2, 'k')
    await clock.advance(200)
    down = false
    expect(handled).toBe(0)
    await clock.advance(500)
    expect(handled).toBe(2)
    await stop()
  })

  it('is not late in the eyes of a health check while everything is paused, or without handlers', async () => {
    const { worker, clock, stop } = world()
    await worker.start()
    await clock.advance(60_000)
    expect((await worker.health()).problems).toEqual([])
    worker.on('a', 'note', () => {})
    await worker.pause()
    await clock.advance(60_000)
    expect((await worker.health()).problems).toEqual([])
    await stop()
  })
})
