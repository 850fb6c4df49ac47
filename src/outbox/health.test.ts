import { describe, expect, it } from 'vitest'
import { stopped, turns, world } from '../../test/support/runtime-world.js'
import { gate } from '../../test/support/until.js'
import { InMemoryEventBus } from '../buses/memory/index.js'
import { BrokerUnavailableError, InvalidSettingError } from '../core/errors.js'
import { memoryStore } from '../stores/memory/index.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { UnhandledTypes } from '../unhandled.js'
import { type Health, HealthMonitor } from './health.js'

const codes = ({ problems }: Health) => problems.map(({ code }) => code)
const never = () => new Promise<void>(() => {})

describe('health', () => {
  it('is live, ready and without problems while all is well', async () => {
    const { outbox, clock } = world()
    outbox.on('a', 'note', () => {})
    await outbox.start()
    await clock.advance(600_000)
    const well = { ok: true, live: true, ready: true, storeReachable: true, problems: [], waitingRelays: [] }
    expect(await outbox.health()).toMatchObject({ ...well, dead: 0, oldestLagMs: 0, stuck: [] })
    await stopped(outbox, clock)
  })

  it('is not live when workers are missing, and says how many are left', async () => {
    const clock = new VirtualClock()
    const monitor = new HealthMonitor({
      clock,
      store: memoryStore({ clock }),
      pollIntervalMs: 5_000,
      state: () => 'started',
      claimer: { lastClaimAt: 0, lastLoopAt: 0 },
      cold: { length: 0 },
      leaseKeeper: { stuck: () => [] },
      housekeeping: { differences: [] },
      unhandled: new UnhandledTypes(memoryStore(), clock),
      concurrency: 4,
      dispatcher: { usableSlots: 3 },
    })
    expect(await monitor.check({}, [])).toMatchObject({
      ...{ ok: false, live: false, ready: false, liveWorkers: 3 },
      problems: [{ code: 'WORKERS_MISSING', message: '3 of 4 workers are left; restart the process' }],
    })
  })

  it('does not count workers whose handlers are stuck as live', async () => {
    const { outbox, clock } = world({ dispatcher: { concurrency: 3, stuckAfterMs: 60_000 } })
    outbox.on('a', 'hang', never)
    outbox.on('b', 'hang in the background', never, { timeoutMs: 1_000 })
    await outbox.start()
    await outbox.transaction((tx) => tx.publishAll([{ type: 'a' }, { type: 'b' }]))
    await clock.advance(50_000)
    expect((await outbox.health()).liveWorkers).toBe(3)
    await clock.advance(20_000)
    expect(await outbox.health()).toMatchObject({ liveWorkers: 2, live: true, ready: true })
    await stopped(outbox, clock)
    expect(await outbox.health()).toMatchObject({ liveWorkers: 3 })
  })

  it('is live and not ready before the start, while stopping, and after the stop', async () => {
    const { outbox, clock } = world({ dispatcher: { drainTimeoutMs: 1_000 } })
    expect(await outbox.health()).toMatchObject({
      live: true,
      ready: false,
      problems: [{ code: 'NOT_STARTED' }],
    })
    outbox.on('a', 'hang', never)
    await outbox.start()
    await outbox.enqueue({ type: 'a' })
    await turns()
    const stopping = outbox.stop()
    await turns()
    expect(await outbox.health()).toMatchObject({
      live: true,
      ready: false,
      problems: [{ code: 'STOPPING' }],
    })
    await clock.advance(60_000)
    await stopping
    expect(codes(await outbox.health())).toContain('NOT_STARTED')
  })

  it('is live and not ready while the store cannot be reached, however long that takes', async () => {
    let isDown = false
    const { outbox, clock } = world({}, () => {
      if (isDown) throw Object.assign(new Error('user postgres at 10.0.0.1'), { code: 'ECONNREFUSED' })
    })
    outbox.on('a', 'note', () => {})
    await outbox.start()
    isDown = true
    await clock.advance(600_000)
    const health = await outbox.health()
    expect(health).toMatchObject({ ok: false, live: true, ready: false, storeReachable: false, dead: null })
    expect(codes(health)).toEqual(['STORE_UNREACHABLE', 'CLAIMS_LATE'])
    expect(health.problems[0]?.message).toBe('the store does not answer: Error ECONNREFUSED')
    isDown = false
    await clock.advance(10_000)
    expect(await outbox.health()).toMatchObject({ ok: true, live: true, ready: true })
    await stopped(outbox, clock)
  })

  it('answers in time when the store does not, and asks it once however many ask', async () => {
    let hangs = false
    const { outbox, clock, calls } = world({}, (method) =>
      hangs && method === 'stats' ? never() : undefined,
    )
    await outbox.start()
    hangs = true
    const before = calls.filter((one) => one === 'stats').length
    const asked = [outbox.health(), outbox.health({ timeoutMs: 100 }), outbox.health()]
    await clock.advance(100)
    expect(await asked[1]).toMatchObject({ live: true, ready: false, storeReachable: false })
    await clock.advance(1_900)
    for (const health of await Promise.all(asked)) expect(codes(health)).toEqual(['STORE_UNREACHABLE'])
    expect(calls.filter((one) => one === 'stats').length - before).toBe(1)
    await stopped(outbox, clock)
  })

  it('is not live when a claim never comes back: a restart mends that', async () => {
    let hangs = false
    const { outbox, clock } = world({}, (method) => (hangs && method === 'claim' ? never() : undefined))
    outbox.on('a', 'note', () => {})
    await outbox.start()
    hangs = true
    await clock.advance(60_000)
    expect(await outbox.health()).toMatchObject({
      live: true,
      ready: true,
      problems: [{ code: 'CLAIMS_LATE' }],
    })
    await clock.advance(60_000)
    const health = await outbox.health()
    expect(health).toMatchObject({ ok: false, live: false, ready: false, storeReachable: true })
    expect(codes(health)).toEqual(['CLAIMS_LATE', 'POLLER_STALLED'])
    await stopped(outbox, clock)
  })

  it('stays live while the poller waits for room behind handlers that take for ever', async () => {
    const dispatcher = { concurrency: 1, coldQueueSize: 1, hotQueueSize: 1, stuckAfterMs: 60_000 }
    const { outbox, clock } = world({ dispatcher })
    outbox.on('a', 'hang', never)
    await outbox.start()
    for (let n = 0; n < 10; n++) await outbox.enqueue({ type: 'a' })
    await clock.advance(600_000)
    const health = await outbox.health()
    expect(health).toMatchObject({ live: true, ready: true })
    expect(codes(health)).toEqual(['HANDLERS_STUCK'])
    expect(health.stuck).toHaveLength(1)
    expect(health.liveWorkers).toBe(0)
    await stopped(outbox, clock)
  })

  it('names a relay whose broker is down, and since when; that makes it neither dead nor unready', async () => {
    const { outbox, clock } = world()
    let isDown = false
    const bus = Object.assign(new InMemoryEventBus(), {
      send: async (events: readonly unknown[]) =>
        events.map(() => (isDown ? new BrokerUnavailableError('Paper', 'is away') : null)),
      check: async () => {
        if (isDown) throw new Error('away')
      },
    })
    outbox.relay(bus, { name: 'to-paper' })
    await outbox.start()
    isDown = true
    await outbox.enqueue({ type: 'a' })
    await clock.advance(10_000)
    const health = await outbox.health()
    expect(health).toMatchObject({
      ok: false,
      live: true,
      ready: true,
      problems: [{ code: 'BROKER_UNREACHABLE' }],
    })
    expect(health.waitingRelays).toEqual([{ name: 'to-paper', sinceMs: expect.any(Number) }])
    expect(health.waitingRelays[0]?.sinceMs).toBeGreaterThan(9_000)
    isDown = false
    await clock.advance(60_000)
    expect(await outbox.health()).toMatchObject({ ok: true, waitingRelays: [] })
    isDown = true
    await outbox.enqueue({ type: 'a' })
    await clock.advance(1_000)
    await stopped(outbox, clock)
    expect((await outbox.health()).waitingRelays).toEqual([])
  })

  it('does not name a relay whose first batch is not confirmed yet as long as the broker has not failed', async () => {
    const { outbox, clock } = world()
    const confirm = gate()
    let sends = 0
    const bus = Object.assign(new InMemoryEventBus(), {
      send: async (events: readonly unknown[]) => {
        sends++
        await confirm.opened
        return events.map(() => null)
      },
      check: async () => {},
    })
    outbox.relay(bus)
    await outbox.start()
    expect((await outbox.health()).waitingRelays).toEqual([])
    await outbox.enqueue({ type: 'a' })
    await clock.advance(10_000)
    expect(sends).toBe(1)
    expect(await outbox.health()).toMatchObject({ ok: true, waitingRelays: [], problems: [] })
    confirm.open()
    await clock.advance(1_000)
    expect(await outbox.health()).toMatchObject({ ok: true, waitingRelays: [] })
    await stopped(outbox, clock)
  })

  it('names a relay without a gap from its first failed batch until a batch is confirmed', async () => {
    const { outbox, clock } = world()
    const confirm = gate()
    let isDown = true
    const bus = Object.assign(new InMemoryEventBus(), {
      send: async (events: readonly unknown[]) => {
        if (isDown) return events.map(() => new BrokerUnavailableError('Paper', 'is away'))
        await confirm.opened
        return events.map(() => null)
      },
      check: async () => {
        if (isDown) throw new Error('away')
      },
    })
    outbox.relay(bus)
    await outbox.start()
    await outbox.enqueue({ type: 'a' })
    await clock.advance(5_000)
    isDown = false
    await clock.advance(10_000)
    // The broker answers, and has not confirmed the batch.
    const [relay] = (await outbox.health()).waitingRelays
    expect(relay?.sinceMs).toBeGreaterThan(14_000)
    expect(relay?.sinceMs).toBeLessThanOrEqual(15_000)
    confirm.open()
    await clock.advance(0)
    expect(await outbox.health()).toMatchObject({ ok: true, waitingRelays: [] })
    await stopped(outbox, clock)
  })

  it('does not name a relay whose broker is back, when others have sent what had waited for it', async () => {
    const { outbox, clock } = world()
    let isDown = true
    const bus = Object.assign(new InMemoryEventBus(), {
      send: async (events: readonly unknown[]) =>
        events.map(() => new BrokerUnavailableError('Paper', 'is away')),
      check: async () => {
        if (isDown) throw new Error('away')
      },
    })
    outbox.relay(bus)
    await outbox.start()
    await outbox.enqueue({ type: 'a' })
    await clock.advance(60_000)
    expect((await outbox.health()).waitingRelays).toHaveLength(1)
    // Nothing is claimed here any more, as if somebody else were faster.
    await outbox.pause()
    isDown = false
    await clock.advance(60_000)
    expect(await outbox.health()).toMatchObject({ ok: true, waitingRelays: [] })
    await stopped(outbox, clock)
  })

  it('takes lag and dead letters for problems when it is told how much is too much', async () => {
    const { outbox, clock } = world({ retry: { maxAttempts: 1 } })
    outbox.on('bad', 'fail', () => {
      throw new Error('no')
    })
    await outbox.start()
    await outbox.enqueue({ type: 'bad' })
    await clock.advance(1_000)
    await outbox.pause()
    await outbox.enqueue({ type: 'bad' })
    await clock.advance(30_000)
    expect(await outbox.health()).toMatchObject({ ok: true, dead: 1 })
    expect(await outbox.health({ maxDead: 1, maxLagMs: 60_000 })).toMatchObject({ ok: true })
    const health = await outbox.health({ maxDead: 0, maxLagMs: 10_000 })
    expect(health).toMatchObject({ ok: false, live: true, ready: true })
    expect(codes(health)).toEqual(['LAG', 'DEAD_LETTERS'])
    await stopped(outbox, clock)
  })

  it.each([{ timeoutMs: 0 }, { maxDead: -1 }, { maxLagMs: Number.NaN }, { maxLag: 1 }])(
    'refuses %j',
    async (options) => {
      const { outbox } = world()
      await expect(outbox.health(options)).rejects.toThrow(InvalidSettingError)
    },
  )
})
