import { describe, expect, it } from 'vitest'
import { fixedDelay } from '../core/backoff.js'
import { memoryStore } from '../stores/memory/index.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox, type TestOutboxOptions } from '../testing/test-outbox.js'
import { VirtualClock } from '../testing/virtual-clock.js'

/** A writer that is not started, and a worker that claims all of it from the store. */
function world(options: TestOutboxOptions = {}, fault: (method: string) => void | Promise<void> = () => {}) {
  const clock = new VirtualClock()
  const claims: number[] = []
  const ordered: number[] = []
  const store = memoryStore({
    clock,
    onCall: (method) => {
      if (method === 'claim') claims.push(clock.monotonic())
      if (method === 'claimOrdered') ordered.push(clock.monotonic())
      if (claims.length + ordered.length > 10_000) throw new Error('claims without end')
      return fault(method)
    },
  })
  const writer = createTestOutbox({ store, clock })
  const worker = createTestOutbox({ store, clock, ...options })
  const publish = async (count: number, delayMs = 0) => {
    await writer.transaction((tx) =>
      tx.publishAll(
        Array.from({ length: count }, () => ({ type: 'a' })),
        { delayMs },
      ),
    )
  }
  const stop = async () => {
    const stopping = worker.stop()
    await clock.advance(60_000)
    await stopping
    await writer.stop()
  }
  /** So many events in each of the keys. */
  const publishOrdered = async (count: number, ...keys: string[]) => {
    const events = keys.flatMap((orderingKey) =>
      Array.from({ length: count }, (_, n) => ({ type: 'a', orderingKey, payload: n })),
    )
    await writer.transaction((tx) => tx.publishAll(events))
  }
  return { clock, store, claims, ordered, writer, worker, publish, publishOrdered, stop }
}

describe('Poller', () => {
  it('polls every interval when nothing rings', async () => {
    const { worker, clock, claims, stop } = world()
    worker.on('a', 'note', () => {})
    await worker.start()
    await clock.advance(20_000)
    expect(claims).toEqual([0, 5_000, 10_000, 15_000, 20_000])
    await stop()
    expect(clock.timerCount).toBe(0)
  })

  it('looks at everything less often when that takes long', async () => {
    const { worker, clock, claims, stop } = world({}, (method) =>
      method === 'claim' && clockOf().monotonic() < 60_000
        ? new Promise((go) => clockOf().setTimer(() => go(), 500))
        : undefined,
    )
    const clockOf = () => clock
    worker.on('a', 'note', () => {})
    await worker.start()
    await clock.advance(45_000)
    expect(claims).toEqual([0, 10_000, 20_000, 30_000, 40_000])
    await clock.advance(30_000)
    await stop()
  })

  it('claims nothing without handlers', async () => {
    const { worker, clock, claims, stop } = world()
    await worker.start()
    await clock.advance(20_000)
    expect(claims).toEqual([])
    await stop()
  })

  it('claims at once when the doorbell rings', async () => {
    const { worker, clock, publish, stop } = world()
    const handled: number[] = []
    worker.on('a', 'note', () => void handled.push(clock.monotonic()))
    await worker.start()
    await clock.advance(1_234)
    await publish(1)
    await clock.advance(0)
    expect(handled).toEqual([1_234])
    await stop()
  })

  it('looks often while there is work where nobody rings, and less and less when there is none', async () => {
    const { store, clock, claims, writer, publish, stop, worker: ringing } = world()
    const worker = createTestOutbox({
      clock,
      store: { ...store, capabilities: { ...store.capabilities, doorbell: false }, open: async () => {} },
    })
    const handled: number[] = []
    worker.on('a', 'note', () => void handled.push(clock.monotonic()))
    await worker.start()
    await clock.advance(60_000)
    const idle = claims.splice(0)
    expect(idle.slice(0, 4)).toEqual([0, 20, 40, 60])
    expect(idle.length).toBeLessThan(50)
    expect(idle.slice(1).every((at, n) => at - (idle[n] ?? 0) <= 5_000)).toBe(true)
    await publish(1)
    await clock.advance(5_000)
    expect(handled).toHaveLength(1)
    await clock.advance(5_000 - (clock.monotonic() % 5_000) + 100)
    for (let n = 0; n < 3; n++) {
      await publish(1)
      await clock.advance(1_000)
    }
    expect(handled).toHaveLength(4)
    const stopping = worker.stop()
    await clock.advance(60_000)
    await Promise.all([stopping, ringing.stop(), writer.stop(), stop()])
    expect(clock.timerCount).toBe(0)
  })

  it('claims again at once after a full batch', async () => {
    const { worker, clock, publish, stop } = world({ poller: { batchSize: 10 } })
    let handled = 0
    worker.on('a', 'note', () => void handled++)
    await publish(95)
    await worker.start()
    await clock.advance(100)
    expect(handled).toBe(95)
    await stop()
  })

  it('takes a delayed event when it is due, not an interval later', async () => {
    const { worker, clock, publish, stop } = world()
    const handled: number[] = []
    worker.on('a', 'note', () => void handled.push(clock.monotonic()))
    await publish(1, 1_700)
    await worker.start()
    await clock.advance(10_000)
    expect(handled).toEqual([1_700])
    await stop()
  })

  it('takes a retry when it is due', async () => {
    const { worker, clock, publish, stop } = world({ retry: { policy: fixedDelay(321) } })
    const tried: number[] = []
    worker.on('a', 'note', () => {
      tried.push(clock.monotonic())
      if (tried.length < 3) throw new Error('broken')
    })
    await publish(1)
    await worker.start()
    await clock.advance(10_000)
    expect(tried.map((at, n) => at - (tried[n - 1] ?? at))).toEqual([0, 326, 326])
    await stop()
  })

  it('waits 100, 500, 2,000 and then 5,000 ms while the database is down, however often it rings', async () => {
    let down = false
    const tried: number[] = []
    const { worker, writer, clock, stop } = world({}, (method) => {
      if (method !== 'claim' || !down) return
      tried.push(clock.monotonic())
      throw new Error('down')
    })
    const handled: number[] = []
    worker.on('a', 'note', () => void handled.push(clock.monotonic()))
    await worker.start()
    await clock.advance(1_000)
    down = true
    for (let n = 0; n < 140; n++) {
      await writer.enqueue({ type: 'a' })
      await clock.advance(100)
    }
    expect(tried).toEqual([1_000, 1_100, 1_600, 3_600, 8_600, 13_600])
    down = false
    await clock.advance(5_000)
    expect(handled).toHaveLength(140)
    await stop()
  })

  it('claims no more than the cold queue has room for, and goes on when there is room', async () => {
    const { worker, clock, publish, stop, store } = world({
      dispatcher: { concurrency: 1, coldQueueSize: 10 },
      poller: { batchSize: 5 },
    })
    const run = gate()
    let handled = 0
    worker.on('a', 'note', async () => {
      await run.opened
      handled++
    })
    await publish(100)
    await worker.start()
    await clock.advance(1_000)
    const leased = (await store.list({ limit: 1_000 })).filter((row) => row.lockedBy !== null)
    expect(leased.length).toBeLessThanOrEqual(11)
    run.open()
    await clock.advance(1_000)
    expect(handled).toBe(100)
    await stop()
  })

  // When its alarm rings while it waits for room it claims one row after the other, with no pause between them.
  it('does not claim at all while the cold queue has no room, however long that is', async () => {
    const { worker, clock, publish, claims, store } = world({
      dispatcher: { concurrency: 1, coldQueueSize: 10 },
      poller: { batchSize: 5 },
    })
    worker.on('a', 'note', () => new Promise(() => {}))
    await worker.start()
    await clock.advance(1_000)
    await publish(100)
    await clock.advance(100)
    const before = claims.length
    await clock.advance(20_000)
    const leased = (await store.list({ limit: 1_000 })).filter((row) => row.lockedBy !== null)
    expect({ leased: leased.length <= 11, claims: claims.length - before }).toEqual({
      leased: true,
      claims: 0,
    })
  })

  it('tries rows of a process that died one at a time', async () => {
    const { worker, clock, store, publish, stop } = world({ dispatcher: { concurrency: 4 } })
    await publish(3)
    const accept = { names: [], versions: [], prefixes: [''] }
    const bounds = { limit: 10, maxBytes: 1e9, fromSeq: 0, suspects: 0, skipRecentMs: 0 }
    await store.claim({ token: 'gone:1', leaseMs: 100, accept, ...bounds })
    await clock.advance(200)
    let running = 0
    let most = 0
    let handled = 0
    worker.on('a', 'note', async () => {
      most = Math.max(most, ++running)
      await new Promise((resolve) => setImmediate(resolve))
      running--
      handled++
    })
    await worker.start()
    await clock.advance(30_000)
    expect({ most, handled }).toEqual({ most: 1, handled: 3 })
    await stop()
  })

  it('looks again at everything when a handler is added', async () => {
    const { worker, clock, publish, stop } = world()
    worker.on('b', 'note', () => {})
    await publish(1)
    await worker.start()
    await clock.advance(1_000)
    const handled: number[] = []
    worker.on('a', 'note', () => void handled.push(clock.monotonic()))
    await clock.advance(0)
    expect(handled).toEqual([1_000])
    await stop()
  })

  it('looks again at everything when dead letters are retried', async () => {
    const { worker, clock, publish, stop } = world({ retry: { maxAttempts: 1 } })
    let broken = true
    const tried: number[] = []
    worker.on('a', 'note', () => {
      tried.push(clock.monotonic())
      if (broken) throw new Error('broken')
    })
    await publish(1)
    await worker.start()
    await clock.advance(1_000)
    broken = false
    expect(await worker.deadLetters.retry({ all: true })).toHaveLength(1)
    await clock.advance(0)
    expect(tried).toEqual([0, 1_000])
    await stop()
  })
})

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
    expect(handled).toEqual([1_700, 1_700 + 5 + 321])
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
    const { worker, clock, publishOrdered, stop, store } = world({
      dispatcher: { concurrency: 1, coldQueueSize: 10 },
      poller: { batchSize: 5 },
    })
    const run = gate()
    let handled = 0
    worker.on('a', 'note', async () => {
      await run.opened
      handled++
    })
    await publishOrdered(3, ...'abcdefghijklmnop')
    await worker.start()
    await clock.advance(1_000)
    const leased = (await store.list({ limit: 1_000 })).filter((row) => row.lockedBy !== null)
    expect(leased.length).toBeLessThanOrEqual(10 + 4 + 4)
    run.open()
    await clock.advance(1_000)
    expect(handled).toBe(48)
    await stop()
  })

  it('tries the head of a key whose process died alone, and then goes on with the rest', async () => {
    const { worker, clock, store, publishOrdered, stop } = world()
    await publishOrdered(3, 'k', 'l')
    const accept = { names: [], versions: [], prefixes: [''] }
    await store.claimOrdered({
      ...{ token: 'gone:1', leaseMs: 100, accept, keys: 10, runLength: 4, maxBytes: 1e9 },
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
