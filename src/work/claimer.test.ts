import { describe, expect, it } from 'vitest'
import { crowdedWorld, pollerWorld as world } from '../../test/support/poller-world.js'
import { fixedDelay } from '../core/backoff.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox } from '../testing/test-outbox.js'

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

  it('looks at everything less often while there is a backlog, when that takes long', async () => {
    const { worker, clock, store, publish, stop } = world({ poller: { batchSize: 10 } })
    const sweeps: number[] = []
    const { claim } = store
    const slow: typeof claim = async (request) => {
      if (request.fromSeq === 0) {
        sweeps.push(clock.monotonic())
        await new Promise<void>((go) => clock.setTimer(go, 500))
      }
      return claim(request)
    }
    Object.assign(store, { claim: slow })
    worker.on('a', 'note', () => new Promise<void>((go) => void clock.setTimer(go, 100)))
    await publish(6_000)
    await worker.start()
    await clock.advance(41_000)
    expect((await worker.stats()).pending).toBeGreaterThan(100)
    expect(sweeps.map((at) => Math.round(at / 1_000))).toEqual([0, 10, 20, 30, 40])
    await clock.advance(200_000)
    expect((await worker.stats()).pending).toBe(0)
    sweeps.length = 0
    await clock.advance(20_000)
    expect(sweeps).toHaveLength(4)
    await stop()
  })

  it('looks at everything once more when that was asked for while it did so', async () => {
    for (const rows of [0, 100]) {
      const { worker, clock, store, publish, stop } = world({ poller: { batchSize: 10 } })
      const from: number[] = []
      const sweeping = gate()
      const { claim } = store
      const slow: typeof claim = async (request) => {
        from.push(request.fromSeq)
        if (from.length === 1) await sweeping.opened
        return claim(request)
      }
      Object.assign(store, { claim: slow })
      worker.on('a', 'note', () => {})
      await publish(rows)
      await worker.start()
      await clock.advance(500)
      const polled = worker.poll()
      sweeping.open()
      await polled
      expect(from.slice(0, 2)).toEqual([0, 0])
      await stop()
    }
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

  it('asks for new rows only while a backlog is worked off and no delayed row was left', async () => {
    const { worker, clock, store, publish, stop } = world({ poller: { batchSize: 10 } })
    const asked: boolean[] = []
    const { claim } = store
    Object.assign(store, {
      claim: (request: Parameters<typeof claim>[0]) => {
        asked.push(request.freshOnly === true)
        return claim(request)
      },
    })
    const handled: string[] = []
    worker.on('a', 'note', (event) => void handled.push(event.eventId))
    await publish(100)
    await worker.start()
    await clock.advance(100)
    expect(handled).toHaveLength(100)
    expect(asked.slice(0, 10)).toEqual([false, ...Array.from({ length: 9 }, () => true)])
    asked.length = 0
    await publish(30, 1_000)
    await clock.advance(2_000)
    expect(handled).toHaveLength(130)
    expect(asked.slice(0, 2)).toEqual([false, false])
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
    const { worker, clock, publish, stop, run, leased, handled } = crowdedWorld()
    await publish(100)
    await worker.start()
    await clock.advance(1_000)
    expect(await leased()).toBeLessThanOrEqual(11)
    run.open()
    await clock.advance(1_000)
    expect(handled()).toBe(100)
    await stop()
  })

  // When its alarm rings while it waits for room it claims one row after the other, with no pause between them.
  it('does not claim at all while the cold queue has no room, however long that is', async () => {
    const { worker, clock, publish, claims, leased } = crowdedWorld()
    await worker.start()
    await clock.advance(1_000)
    await publish(100)
    await clock.advance(100)
    const before = claims.length
    await clock.advance(20_000)
    expect(await leased()).toBeLessThanOrEqual(11)
    expect(claims.length - before).toBe(0)
  })

  it('tries rows of a process that died one at a time at first, then in groups that grow', async () => {
    const { worker, clock, publish, vanishWith, stop } = world({ dispatcher: { concurrency: 100 } })
    await publish(100)
    await vanishWith(100)
    const together: number[] = []
    worker.on('a', 'note', async () => {
      const last = together.length - 1
      together[last] = (together[last] ?? 0) + 1
      await new Promise((resolve) => clock.setTimer(() => resolve(together.push(0)), 50))
    })
    together.push(0)
    await worker.start()
    await clock.advance(30_000)
    expect(together.filter((count) => count > 0)).toEqual([1, 2, 4, 8, 16, 32, 32, 5])
    await stop()
  })

  it('tries rows alone that were in a group that died, or alone when their process did', async () => {
    const { worker, clock, store, publish, vanishWith, stop } = world({ dispatcher: { concurrency: 100 } })
    await publish(13)
    await vanishWith(3)
    await vanishWith(2, 2)
    await vanishWith(1, 1)
    await vanishWith(10)
    let running = 0
    const beside = new Map<string, number>()
    worker.on('a', 'note', async ({ eventId }) => {
      beside.set(eventId, ++running)
      await new Promise((resolve) => clock.setTimer(() => resolve(running--), 50))
    })
    const suspects = (await store.list({ limit: 20 })).filter((row) => /:so(lo|me)$/.test(row.lockedBy ?? ''))
    expect(suspects).toHaveLength(3)
    await worker.start()
    await clock.advance(30_000)
    expect(suspects.map(({ eventId }) => beside.get(eventId))).toEqual([1, 1, 1])
    expect([...beside.values()].filter((count) => count > 1)).not.toEqual([])
    expect((await store.list({ status: 'DONE', limit: 20 })).length).toBe(13)
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

  it('claims after a restart, also if a claim from before the stop fails later', async () => {
    let fail = (_: Error) => {}
    let isHanging = false
    const { worker, clock, publish, stop } = world({}, (method) => {
      if (method !== 'claim' || !isHanging) return undefined
      return new Promise((_, reject) => {
        fail = reject
      })
    })
    const handled: number[] = []
    worker.on('a', 'note', () => void handled.push(clock.monotonic()))
    await worker.start()
    await clock.advance(1_000)
    isHanging = true
    await clock.advance(5_000)
    const stopping = worker.stop()
    await clock.advance(60_000)
    await stopping
    isHanging = false
    await worker.start()
    fail(new Error('the connection is gone'))
    await clock.advance(1_000)
    await publish(1)
    await clock.advance(10_000)
    expect(handled).toHaveLength(1)
    await stop()
  })
})
