import { describe, expect, it } from 'vitest'
import { InvalidSettingError, systemClock } from '../../src/index.js'
import { event, migratedDatabase, outboxOn, poolOn, rowsIn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

/** setTimeout fires at once beyond 2^31 ms; databases have limits of their own. */

const DAY = 86_400_000

describe('a delay of more than 2^31 ms', () => {
  it.each([
    ['30 days', { delayMs: 30 * DAY }],
    ['just over the limit', { delayMs: 2 ** 31 }],
    ['a hundred years', { delayMs: 36_525 * DAY }],
    ['a date in 60 days', { deliverAt: new Date(Date.now() + 60 * DAY) }],
  ])('of %s is not delivered at once', async (_what, options) => {
    const pool = poolOn(await migratedDatabase())
    const { outbox } = outboxOn(pool, { poller: { pollIntervalMs: 20 } })
    const handled: unknown[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.payload))
    await outbox.start()
    await outbox.enqueue(event('thing.happened', 'late'), options)
    for (let n = 0; n < 20; n++) {
      const id = await outbox.enqueue(event('thing.happened', n), { delayMs: 1 })
      await until('a later one is handled', () => handled.includes(n))
      expect(id).toBeDefined()
    }
    expect(handled).not.toContain('late')
    const [row] = await rowsIn(pool)
    expect(row).toMatchObject({ status: 0, attempts: 0, locked_by: null })
    expect(row?.due_in_s).toBeGreaterThan(20 * 86_400)
  })

  it('as poll interval, lease, timeouts and retention is accepted and does not spin', async () => {
    const pool = poolOn(await migratedDatabase())
    let claims = 0
    pool.on('connect', (client) => {
      const { query } = client
      client.query = function (this: typeof client, ...args: unknown[]) {
        if (JSON.stringify(args[0]).includes('suspect as materialized')) claims++
        return (query as (...all: unknown[]) => unknown).apply(this, args)
      } as typeof query
    })
    const { outbox, log } = outboxOn(pool, {
      poller: { pollIntervalMs: 2 ** 33, leaseMs: 2 ** 33 },
      dispatcher: { stuckAfterMs: 2 ** 40, unroutableGraceMs: 2 ** 40 },
      retention: { doneMs: 2 ** 40 },
    })
    const handled: string[] = []
    outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId), { timeoutMs: 2 ** 40 })
    await outbox.start()
    const id = await outbox.enqueue(event())
    await until('it is handled', () => handled.includes(id))
    await outbox.drain()
    const before = claims
    await outbox.enqueue(event())
    await until('another', () => handled.length === 2)
    expect(claims - before).toBeLessThan(3)
    expect(log.lines('warn')).toEqual([])
  })

  it.each([Number.MAX_SAFE_INTEGER, 1e300, Number.MAX_VALUE, Number.POSITIVE_INFINITY, Number.NaN, -5, 0.5])(
    'from a retry policy that answers %d loses nothing and stalls nobody',
    async (delayMs) => {
      const pool = poolOn(await migratedDatabase())
      const { outbox } = outboxOn(pool, { retry: { policy: { delayMs: () => delayMs } } })
      const handled: string[] = []
      outbox.on('thing.fails', 'fail', () => {
        throw new Error('later')
      })
      outbox.on('thing.happened', 'see', (one) => void handled.push(one.eventId))
      await outbox.start()
      const failing = await outbox.enqueue(event('thing.fails'))
      await outbox.enqueue(event())
      await until('the other is settled', async () => (await rowsIn(pool))[1]?.status === 1, 3_000)
      await until('the failure is recorded', async () => ((await rowsIn(pool))[0]?.attempts ?? 0) > 0, 3_000)
      const [row] = await rowsIn(pool)
      expect(row?.event_id).toBe(failing)
      if (delayMs >= Number.MAX_SAFE_INTEGER) expect(row?.due_in_s).toBeGreaterThan(30)
    },
  )
})

describe('a moment that the database cannot hold', () => {
  it.each([
    ['the earliest Date', new Date(-8.64e15)],
    ['before the common era', new Date(Date.UTC(-5_000, 0))],
    ['the latest Date', new Date(8.64e15)],
  ])(
    '%s: is refused before the database sees it, or works; the transaction stays usable',
    async (_what, deliverAt) => {
      const pool = poolOn(await migratedDatabase())
      const { outbox } = outboxOn(pool)
      await outbox.transaction(async (tx) => {
        const outcome = await tx.publish(event(), { deliverAt }).catch((error: unknown) => error)
        if (typeof outcome !== 'string') expect(outcome).toBeInstanceOf(InvalidSettingError)
        await tx.publish(event('other'))
      })
      expect((await rowsIn(pool)).map((row) => row.event_type)).toContain('other')
    },
  )

  it('a retention of Number.MAX_SAFE_INTEGER, which means for ever, keeps the housekeeping going', async () => {
    const pool = poolOn(await migratedDatabase())
    const { outbox, log } = outboxOn(pool, {
      poller: { pollIntervalMs: 20 },
      dispatcher: { unroutableGraceMs: 0 },
      retention: { doneMs: Number.MAX_SAFE_INTEGER },
    })
    outbox.on('thing.happened', 'see', () => {})
    await outbox.start()
    await outbox.enqueue(event())
    const began = performance.now()
    await until('some rounds of housekeeping', () => performance.now() - began > 500)
    expect(log.lines('warn')).toEqual([])
    expect(await rowsIn(pool)).toHaveLength(1)
  })
})

describe('the clock', () => {
  it('does not fire early for what setTimeout cannot hold', async () => {
    let fired = false
    const timers = [2 ** 31, 2 ** 40, Number.MAX_SAFE_INTEGER, Number.POSITIVE_INFINITY].map((ms) =>
      systemClock.setTimer(() => {
        fired = true
      }, ms),
    )
    await new Promise<void>((resolve) => systemClock.setTimer(resolve, 20))
    for (const timer of timers) timer.cancel()
    expect(fired).toBe(false)
  })
})
