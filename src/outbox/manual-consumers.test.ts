import { describe, expect, it } from 'vitest'
import { recordingLogger, recordingMetrics } from '../../test/support/recording.js'
import { stopped, world } from '../../test/support/runtime-world.js'
import { REGISTERED_MS } from '../registry.js'
import { createTestOutbox, type TestOutboxOptions } from '../testing/test-outbox.js'

const MINUTE_MS = 60_000
const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS

/** A database, and processes that come and go on it. */
function deployment() {
  const { clock, store, calls } = world()
  const process = (options: TestOutboxOptions = {}) => createTestOutbox({ clock, store, ...options })
  /** A process of a cron job, with an instance id of its own. */
  const script = (type: string, handled: unknown[] = []) => {
    const outbox = process()
    outbox.on(type, 'note', (event) => void handled.push(event.payload))
    return outbox
  }
  const statusOf = async (type: string) => (await store.list({ eventType: type })).map((row) => row.status)
  const rows = async () => (await store.instances(REGISTERED_MS)).map((one) => one.id)
  return { clock, store, calls, process, script, statusOf, rows }
}

describe('a manual consumer next to a started instance', () => {
  it.each([
    ['drain', (outbox: ReturnType<typeof createTestOutbox>) => outbox.drain()],
    ['poll', (outbox: ReturnType<typeof createTestOutbox>) => outbox.poll()],
    ['consumeOne', (outbox: ReturnType<typeof createTestOutbox>) => outbox.consumeOne()],
  ])(
    'handles all its events by %s every five minutes, beside a worker with a grace of a minute',
    async (_, run) => {
      const { clock, process, script, statusOf } = deployment()
      const worker = process({ dispatcher: { unroutableGraceMs: 60_000 } })
      worker.on('order.placed', 'receipt', () => {})
      await worker.start()
      const handled: unknown[] = []
      await run(script('report.due', handled))
      for (let n = 1; n <= 3; n++) {
        await worker.enqueue({ type: 'report.due', payload: n })
        await clock.advance(5 * MINUTE_MS)
        await run(script('report.due', handled))
      }
      expect(handled).toEqual([1, 2, 3])
      expect(await statusOf('report.due')).toEqual(['DONE', 'DONE', 'DONE'])
      await stopped(worker, clock)
    },
  )

  it('finds its events when it runs for the first time 23 hours after the publish', async () => {
    const { clock, process, script, statusOf } = deployment()
    const worker = process()
    worker.on('order.placed', 'receipt', () => {})
    await worker.start()
    for (let n = 1; n <= 3; n++) await worker.enqueue({ type: 'report.due', payload: n })
    await clock.advance(23 * HOUR_MS)
    await script('report.due').drain()
    expect(await statusOf('report.due')).toEqual(['DONE', 'DONE', 'DONE'])
    await stopped(worker, clock)
  })

  it('keeps its events routable for seven days after its last run, not longer', async () => {
    const { clock, process, script, statusOf } = deployment()
    const worker = process({ poller: { pollIntervalMs: 10 * MINUTE_MS } })
    await worker.start()
    await script('report.due').drain()
    await worker.enqueue({ type: 'report.due' })
    await clock.advance(REGISTERED_MS - MINUTE_MS)
    expect(await statusOf('report.due')).toEqual(['NEW'])
    await clock.advance(3 * HOUR_MS)
    expect(await statusOf('report.due')).toEqual(['DEAD'])
    await stopped(worker, clock)
  })

  it('registers before it claims, and again when a handler is added', async () => {
    const { calls, script, store } = deployment()
    const outbox = script('report.due')
    await outbox.drain()
    expect(calls.indexOf('registerStopped')).toBeGreaterThanOrEqual(0)
    expect(calls.indexOf('registerStopped')).toBeLessThan(calls.indexOf('claim'))
    outbox.on('report.late', 'note', () => {})
    await outbox.consumeOne()
    const names = (await store.instances(REGISTERED_MS)).flatMap((one) => one.accept.names)
    expect(names).toContain('report.late')
  })

  it('claims nothing when it cannot register', async () => {
    let isDown = true
    const { outbox, calls } = world({}, (method) => {
      if (method === 'registerStopped' && isDown) throw new Error('down')
    })
    outbox.on('a', 'note', () => {})
    await outbox.enqueue({ type: 'a' })
    await expect(outbox.drain()).rejects.toThrow('down')
    expect(calls).not.toContain('claim')
    isDown = false
    await outbox.drain()
    expect((await outbox.records())[0]?.status).toBe('DONE')
  })

  it('renews its registration while it polls for days without an event', async () => {
    const { clock, script, store } = deployment()
    const outbox = script('report.due')
    for (let hours = 0; hours < 24 * 10; hours += 2) {
      await outbox.poll()
      await clock.advance(2 * HOUR_MS)
    }
    expect(await store.instances(3 * HOUR_MS)).toHaveLength(1)
  })

  it('does not write to the registry with every call that finds nothing', async () => {
    const { calls, script } = deployment()
    const outbox = script('report.due')
    for (let n = 0; n < 100; n++) await outbox.poll()
    expect(calls.filter((call) => call === 'registerStopped')).toHaveLength(1)
  })

  it('does not count as a live instance in the election and in the comparison of handlers', async () => {
    const log = recordingLogger()
    const { clock, calls, process, script, store } = deployment()
    const worker = process({ logger: log })
    worker.on('order.placed', 'receipt', () => {})
    await worker.start()
    // Has another handler for the type of the worker.
    await script('order.placed').drain()
    const cleanings = () => calls.filter((call) => call === 'pruneInstances').length
    await clock.advance(5 * MINUTE_MS)
    expect(cleanings()).toBe(5)
    expect((await worker.health()).problems).toEqual([])
    expect(log.lines).toEqual([])
    const live = (await store.instances(MINUTE_MS)).filter((one) => one.stoppedAt === null)
    expect(live.map((one) => one.id)).toEqual([worker.instanceId])
    await stopped(worker, clock)
  })
})

describe('the registry', () => {
  it('has one row for all runs of a cron job, whatever their ids, hosts and counters', async () => {
    const { clock, process, rows, store } = deployment()
    const publisher = process()
    for (let run = 0; run < 2_016; run++) {
      if (run % 100 === 0) await publisher.enqueue({ type: 'report.due' })
      const outbox = process()
      outbox.on('report.due', 'note', () => {})
      outbox.on('report.*', 'audit', () => {})
      await outbox.drain()
      await clock.advance(5 * MINUTE_MS)
    }
    expect(await rows()).toHaveLength(1)
    expect((await store.stats()).counters.done).toBe(21)
  })

  it('has one row for all runs that start and stop, and keeps their counters', async () => {
    const { clock, process, rows, store } = deployment()
    for (let run = 0; run < 50; run++) {
      const outbox = process()
      outbox.on('report.due', 'note', () => {})
      await outbox.start()
      await outbox.enqueue({ type: 'report.due' })
      await outbox.drain()
      await stopped(outbox, clock)
    }
    expect(await rows()).toHaveLength(1)
    expect((await store.stats()).counters.done).toBe(50)
  })

  it('knows consumers of different types apart', async () => {
    const { process, script, rows } = deployment()
    await script('a').drain()
    await script('b').drain()
    await script('a').consumeOne()
    const both = process()
    both.on('b', 'note', () => {})
    both.on('a', 'other', () => {})
    await both.poll()
    expect(await rows()).toHaveLength(3)
  })

  it('counts every event once when an outbox works by hand, starts, stops and works by hand again', async () => {
    const { clock, script, process } = deployment()
    const outbox = script('a')
    const observer = process()
    const doneEverywhere = async () => [(await outbox.stats()).done, (await observer.stats()).done]
    await outbox.enqueue({ type: 'a' })
    await outbox.drain()
    expect(await doneEverywhere()).toEqual([1, 1])
    for (let expected = 3; expected <= 7; expected += 2) {
      await outbox.start()
      await outbox.enqueue({ type: 'a' })
      await outbox.drain()
      await clock.advance(MINUTE_MS)
      expect(await doneEverywhere()).toEqual([expected - 1, expected - 1])
      await stopped(outbox, clock)
      await outbox.enqueue({ type: 'a' })
      await outbox.consumeOne()
      expect(await doneEverywhere()).toEqual([expected, expected])
    }
  })
})

describe('stats() of another process', () => {
  it.each(['drain', 'poll', 'consumeOne'] as const)(
    'counts what %s has handled, failed and lost',
    async (method) => {
      const { process, script, store } = deployment()
      const observer = process()
      for (const type of ['good', 'bad']) await observer.enqueue({ type })
      await script('good')[method]()
      const failing = process({ retry: { maxAttempts: 1 } })
      failing.on('bad', 'note', () => {
        throw new Error('broken')
      })
      await failing[method]()
      expect(await observer.stats()).toMatchObject({ done: 1, failed: 1, dead: 1 })
      expect((await store.stats()).counters).toEqual({ done: 1, failed: 1, dead: 1 })
    },
  )

  it('counts what was handled although the counters could not be written at first', async () => {
    const log = recordingLogger()
    let failures = 0
    const { outbox, store } = world({ logger: log }, (method) => {
      if (method === 'registerStopped' && ++failures === 2) throw new Error('down')
    })
    outbox.on('a', 'note', () => {})
    await outbox.enqueue({ type: 'a' })
    await outbox.drain()
    expect((await store.stats()).counters.done).toBe(0)
    expect((await outbox.stats()).done).toBe(1)
    expect(log.lines.map((line) => line.level)).toContain('warn')
    await outbox.enqueue({ type: 'a' })
    await outbox.drain()
    expect((await store.stats()).counters.done).toBe(2)
  })
})

describe('events of others', () => {
  it.each(['drain', 'poll', 'consumeOne'] as const)(
    '%s leaves events alone that it has no handler for, however old they are',
    async (method) => {
      const { clock, process, script, store } = deployment()
      const publisher = process()
      await publisher.enqueue({ type: 'theirs' })
      await publisher.enqueue({ type: 'theirs', orderingKey: 'k' })
      await clock.advance(30 * DAY_MS)
      await process()[method]()
      await script('mine')[method]()
      expect(await store.list({})).toMatchObject([
        { status: 'NEW', attempts: 0, lockedBy: null },
        { status: 'NEW', attempts: 0, lockedBy: null },
      ])
    },
  )

  it('a script without any handler does not register', async () => {
    const { process, rows } = deployment()
    await process().drain()
    expect(await rows()).toEqual([])
  })
})

describe('in a test, without start()', () => {
  it('drain() makes an event without a handler DEAD when unroutableGraceMs is 0', async () => {
    const outbox = createTestOutbox({ dispatcher: { unroutableGraceMs: 0 } })
    outbox.on('known', 'note', () => {})
    await outbox.enqueue({ type: 'unknown' })
    await outbox.drain()
    expect(await outbox.records()).toMatchObject([
      { status: 'DEAD', lastError: expect.stringMatching(/^UnroutableEventError: /) },
    ])
  })

  it('drain() leaves an event without a handler alone with any other grace', async () => {
    const outbox = createTestOutbox({ dispatcher: { unroutableGraceMs: 1 } })
    await outbox.enqueue({ type: 'unknown' })
    await outbox.clock.advance(DAY_MS)
    await outbox.drain()
    expect(await outbox.records()).toMatchObject([{ status: 'NEW' }])
  })
})

describe('a publisher that is deployed before its first worker', () => {
  it.each([
    ['an hour', HOUR_MS],
    ['almost a day', DAY_MS - MINUTE_MS],
  ])(
    'a publisher without a worker loses nothing in %s, and reports which handler is missing',
    async (_, ms) => {
      const log = recordingLogger()
      const metrics = recordingMetrics()
      const { clock, process, statusOf } = deployment()
      const publisher = process({ logger: log, metrics })
      await publisher.start()
      for (let n = 0; n < 3; n++) await publisher.enqueue({ type: 'order.placed', payload: n })
      await clock.advance(59_000)
      expect(await publisher.health()).toMatchObject({ ok: true, unhandled: [] })
      await clock.advance(1_000)
      expect(await publisher.health()).toMatchObject({
        ...{ ok: false, live: true, ready: true, unhandled: ['order.placed'] },
        problems: [{ code: 'NO_HANDLER', message: expect.stringContaining('"order.placed"') }],
      })
      await clock.advance(ms - MINUTE_MS)
      expect(await statusOf('order.placed')).toEqual(['NEW', 'NEW', 'NEW'])
      const said = log.lines.filter((line) => line.level === 'warn')
      expect(said.map((line) => line.fields)).toEqual([{ event_types: ['order.placed'], count: 1 }])
      expect(metrics.gauges('unhandled')).toEqual({ 'order.placed': 1 })
      const worker = process()
      const handled: unknown[] = []
      worker.on('order.placed', 'receipt', (event) => void handled.push(event.payload))
      await worker.start()
      await clock.advance(MINUTE_MS)
      expect(handled).toEqual([0, 1, 2])
      expect(await publisher.health()).toMatchObject({ ok: true, unhandled: [] })
      expect(metrics.gauges('unhandled')).toEqual({ 'order.placed': 0 })
      await stopped(worker, clock)
      await stopped(publisher, clock)
    },
  )

  it('health() of a publisher that is not started names the types without a handler', async () => {
    const { clock, process } = deployment()
    const publisher = process()
    await publisher.enqueue({ type: 'order.placed' })
    await publisher.enqueue({ type: 'order.shipped', orderingKey: 'o-1' })
    await publisher.enqueue({ type: 'order.reminded' }, { delayMs: DAY_MS })
    await clock.advance(MINUTE_MS)
    expect((await publisher.health()).unhandled).toEqual(['order.placed', 'order.reminded', 'order.shipped'])
  })

  it('events without a handler are DEAD after a day, with the reason', async () => {
    const { clock, process, store } = deployment()
    const publisher = process()
    await publisher.start()
    await publisher.enqueue({ type: 'order.placed' })
    await clock.advance(DAY_MS - MINUTE_MS)
    expect((await store.list({}))[0]?.status).toBe('NEW')
    await clock.advance(3 * MINUTE_MS)
    expect(await store.list({})).toMatchObject([
      {
        status: 'DEAD',
        attempts: 1,
        lastError: expect.stringMatching(/^UnroutableEventError: .*order\.placed/),
      },
    ])
    await stopped(publisher, clock)
  })

  it("events without a handler are retried in 'retry' mode, and their type stays reported", async () => {
    const log = recordingLogger()
    const { clock, process, store } = deployment()
    const dispatcher = { onUnroutable: 'retry', unroutableGraceMs: 0 } as const
    const publisher = process({ logger: log, dispatcher, retry: { maxAttempts: 20 } })
    await publisher.start()
    await publisher.enqueue({ type: 'order.placed' })
    const said = new Set<string>()
    for (let n = 0; n < 20; n++) {
      await clock.advance(20_000)
      if (n >= 4) said.add(JSON.stringify((await publisher.health()).unhandled))
    }
    expect([...said]).toEqual(['["order.placed"]'])
    expect((await store.list({}))[0]).toMatchObject({ status: 'RETRY' })
    const missing = log.lines.filter((line) => line.message.includes('registered a handler'))
    expect(missing).toHaveLength(1)
    await stopped(publisher, clock)
  })
})
