import { describe, expect, it } from 'vitest'
import { fixedDelay } from '../core/backoff.js'
import { defineEvent } from '../core/define-event.js'
import { RetryAfter, Unrecoverable } from '../core/errors.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { createTestOutbox, type TestOutbox } from '../testing/test-outbox.js'

const Viewed = defineEvent<number>('page.viewed')

function publish(outbox: TestOutbox, numbers: readonly number[], more: { orderingKey?: string } = {}) {
  return outbox.transaction((tx) =>
    tx.publishAll(numbers.map((n) => ({ type: 'page.viewed', eventId: `e${n}`, payload: n, ...more }))),
  )
}

async function stopped(outbox: TestOutbox): Promise<void> {
  const stopping = outbox.stop()
  await outbox.clock.advance(60_000)
  await stopping
  expect(outbox.clock.timerCount).toBe(0)
}

const upTo = (count: number) => Array.from({ length: count }, (_, n) => n)

describe('batches', () => {
  it('are handed over by drain in full, without waiting for company', async () => {
    const outbox = createTestOutbox()
    const batches: number[][] = []
    outbox.onBatch(
      Viewed,
      'count',
      { size: 4 },
      (events) => void batches.push(events.map((one) => one.payload)),
    )
    await publish(outbox, upTo(10))
    await outbox.drain()
    expect(batches).toEqual([
      [0, 1, 2, 3],
      [4, 5, 6, 7],
      [8, 9],
    ])
    expect((await outbox.stats()).pending).toBe(0)
    await outbox.clock.advance(5)
    expect(outbox.clock.timerCount).toBe(0)
  })

  it('wait for company in a started outbox, from hot and cold alike', async () => {
    const outbox = createTestOutbox()
    const batches: [number, number][] = []
    const start = outbox.clock.monotonic()
    outbox.onBatch(Viewed, 'count', { size: 100, waitMs: 30 }, (events) => {
      batches.push([events.length, outbox.clock.monotonic() - start])
    })
    await publish(outbox, [1])
    await outbox.start()
    await publish(outbox, [2])
    await outbox.clock.advance(20)
    await publish(outbox, [3])
    await outbox.clock.advance(9)
    expect(batches).toEqual([])
    await outbox.clock.advance(1)
    expect(batches).toEqual([[3, 30]])
    await stopped(outbox)
  })

  it('have a result for each event: done, tried again, put off, or dead', async () => {
    const outbox = createTestOutbox({ retry: { policy: fixedDelay(100) } })
    let calls = 0
    outbox.onBatch(Viewed, 'count', { size: 10 }, (events) => {
      if (calls++ > 0) return undefined
      const errors = [null, new Error('broken'), new RetryAfter(500), new Unrecoverable('hopeless')]
      return events.map((one) => errors[one.payload])
    })
    await publish(outbox, upTo(4))
    await outbox.drain()
    const rows = await outbox.records()
    expect(rows.map((row) => [row.status, row.attempts])).toEqual([
      ['DONE', 0],
      ['RETRY', 1],
      ['RETRY', 0],
      ['DEAD', 1],
    ])
    await outbox.clock.advance(500)
    await outbox.drain()
    expect((await outbox.records()).map((row) => row.status)).toEqual(['DONE', 'DONE', 'DONE', 'DEAD'])
  })

  it('know the attempts of their events, and are limited by their own policy', async () => {
    const outbox = createTestOutbox()
    const seen: (readonly number[])[] = []
    const retry = { maxAttempts: 3, policy: fixedDelay(0) }
    outbox.onBatch(Viewed, 'count', { size: 10, retry }, (_, { attempts }) => {
      seen.push(attempts)
      throw new Error('broken')
    })
    await publish(outbox, upTo(2))
    await outbox.drain()
    expect(seen).toEqual([
      [1, 1],
      [2, 2],
      [3, 3],
    ])
    expect((await outbox.records()).map((row) => row.status)).toEqual(['DEAD', 'DEAD'])
  })

  it('stand beside other handlers of the event; what has succeeded is not called again', async () => {
    const outbox = createTestOutbox({ retry: { policy: fixedDelay(0) } })
    const alone: string[] = []
    let batches = 0
    outbox.onBatch(Viewed, 'count', { size: 10 }, () => {
      if (batches++ === 0) throw new Error('broken')
    })
    outbox.on(Viewed, 'alone', (event) => void alone.push(event.eventId))
    await publish(outbox, upTo(3))
    await outbox.drain()
    expect({ batches, alone }).toEqual({ batches: 2, alone: ['e0', 'e1', 'e2'] })
    expect((await outbox.records()).map((row) => row.status)).toEqual(['DONE', 'DONE', 'DONE'])
  })

  it('hold one event of an ordering key at a time, in order, with those of other keys', async () => {
    const outbox = createTestOutbox()
    const batches: number[][] = []
    outbox.onBatch(
      Viewed,
      'count',
      { size: 10 },
      (events) => void batches.push(events.map((one) => one.payload)),
    )
    await publish(outbox, [10, 11, 12], { orderingKey: 'a' })
    await publish(outbox, [20, 21], { orderingKey: 'b' })
    await outbox.drain()
    expect(batches.map((one) => one.sort())).toEqual([[10, 20], [11, 21], [12]])
  })

  it('that take too long fail, and their events are not run beside them', async () => {
    const outbox = createTestOutbox({ retry: { policy: fixedDelay(0) } })
    const first = gate()
    let calls = 0
    outbox.onBatch(Viewed, 'count', { size: 2, timeoutMs: 1_000 }, async () => {
      if (calls++ === 0) await first.opened
    })
    await outbox.start()
    await publish(outbox, upTo(2))
    await outbox.clock.advance(10_000)
    expect(calls).toBe(1)
    expect((await outbox.records()).map((row) => [row.status, row.attempts])).toEqual([
      ['RETRY', 1],
      ['RETRY', 1],
    ])
    first.open()
    await outbox.clock.advance(10_000)
    expect((await outbox.records()).map((row) => row.status)).toEqual(['DONE', 'DONE'])
    await stopped(outbox)
  })

  it('publish what is caused by none of their events in particular', async () => {
    const outbox = createTestOutbox()
    outbox.onBatch(Viewed, 'count', { size: 10 }, async () => {
      await outbox.enqueue({ type: 'counted' })
    })
    await publish(outbox, upTo(2))
    await outbox.drain()
    const [counted] = await outbox.published('counted')
    expect(counted?.metadata.causationId).toBeUndefined()
  })

  it('that wait are given back by a stop, without an attempt', async () => {
    const outbox = createTestOutbox()
    let calls = 0
    outbox.onBatch(Viewed, 'count', { size: 10, waitMs: 60_000 }, () => void calls++)
    await outbox.start()
    await publish(outbox, upTo(2))
    await outbox.clock.advance(100)
    await stopped(outbox)
    expect(calls).toBe(0)
    expect((await outbox.records()).map((row) => [row.status, row.attempts, row.lockedBy])).toEqual([
      ['NEW', 0, null],
      ['NEW', 0, null],
    ])
  })

  it('that wait keep their leases', async () => {
    const outbox = createTestOutbox({ poller: { leaseMs: 3_000 } })
    let calls = 0
    outbox.onBatch(Viewed, 'count', { size: 10, waitMs: 20_000 }, () => void calls++)
    await outbox.start()
    await publish(outbox, upTo(2))
    await outbox.clock.advance(20_010)
    expect(calls).toBe(1)
    expect((await outbox.records()).map((row) => [row.status, row.attempts])).toEqual([
      ['DONE', 0],
      ['DONE', 0],
    ])
    await stopped(outbox)
  })

  it('do not hold back more than a hundred events from the other instances', async () => {
    const outbox = createTestOutbox()
    const first = gate()
    outbox.onBatch(Viewed, 'count', { size: 5 }, () => first.opened)
    await publish(outbox, upTo(900))
    await outbox.start()
    await outbox.clock.advance(1_000)
    const leased = (await outbox.records()).filter((row) => row.lockedBy !== null)
    expect(leased).toHaveLength(100)
    first.open()
    await outbox.clock.advance(1_000)
    expect((await outbox.stats()).pending).toBe(0)
    await stopped(outbox)
  })
})
