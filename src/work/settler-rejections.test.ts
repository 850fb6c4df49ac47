import { describe, expect, it } from 'vitest'
import { done, ids, world } from '../../test/support/settler-world.js'
import { SettlementRejectedError } from '../core/errors.js'
import type { Settlement } from '../store.js'

describe('Settler: an outcome that the database rejects', () => {
  const rejected = () => new SettlementRejectedError('SQLSTATE 23514')
  const failed = (n: number, error: string): Settlement => ({
    eventId: `e${n}`,
    token: 'test:1',
    outcome: 'dead',
    error,
    failures: [{ handler: 'send', instance: 'i-1', message: error }],
    handledBy: ['log'],
    delayMs: 0,
    attempts: 1,
  })
  const has = (text: string, settlements: readonly Settlement[]) =>
    settlements.some((one) => 'error' in one && one.error.includes(text))

  it('delays the other outcomes of its batch by one further try', async () => {
    const { add, clock, outcomes } = world((batch) => {
      if (batch.includes('e777')) throw rejected()
    })
    add(0, 1_000)
    await clock.advance(49)
    expect(outcomes).toEqual([])
    await clock.advance(1)
    expect(outcomes.map((one) => one.id).toSorted()).toEqual(
      ids(0, 1_000)
        .filter((id) => id !== 'e777')
        .toSorted(),
    )
    expect(outcomes.every((one) => one.settled)).toBe(true)
  })

  it('delays no outcome of a later batch', async () => {
    const { add, clock, batches, outcomes } = world((batch) => {
      if (batch.includes('e1')) throw rejected()
    })
    add(0, 3)
    await clock.advance(60)
    for (let n = 3; n < 100; n += 2) {
      add(n, n + 2)
      await clock.advance(100)
      expect(batches.at(-1)).toEqual([`e${n}`, `e${n + 1}`])
    }
    expect(outcomes).toHaveLength(100)
    expect(clock.timerCount).toBe(1)
  })

  it('is tried again after 2, 4, 8, … seconds, at most one minute, until the database takes it', async () => {
    const tries: number[] = []
    let isRefused = true
    const { add, clock, outcomes, log } = world(() => {
      tries.push(clock.monotonic())
      if (isRefused) throw rejected()
    })
    add(0, 1)
    await clock.advance(200_000)
    const [first = 0, second = 0, ...others] = tries
    expect(second - first).toBe(50)
    const waits = others.map((at, n) => (at - ([second, ...others][n] ?? 0)) / 1_000)
    expect(waits).toEqual([2, 4, 8, 16, 32, 60, 60])
    expect(log.lines.map(({ message, fields }) => [message, fields.event_id ?? null])).toEqual([
      ['outcomes could not be written; trying again', null],
      ['the database rejected an outcome, will retry', 'e0'],
    ])
    isRefused = false
    await clock.advance(60_000)
    expect(outcomes).toEqual([{ id: 'e0', settled: true }])
    expect(clock.timerCount).toBe(0)
  })

  it('is taken when a further try of the whole batch succeeds', async () => {
    const { add, clock, batches } = world((_, call) => {
      if (call === 0) throw rejected()
    })
    add(0, 5)
    await clock.advance(55)
    expect(batches).toEqual([ids(0, 5)])
    add(5, 10)
    await clock.advance(5)
    expect(batches).toEqual([ids(0, 5), ids(5, 10)])
  })

  it('is written with another error text when its own is the reason', async () => {
    const written: Settlement[] = []
    const { settler, clock, log, outcomes } = world((_batch, _call, settlements) => {
      if (has('forbidden', settlements)) throw rejected()
      written.push(...settlements)
    })
    settler.add(failed(0, 'plain'), null)
    settler.add(failed(1, 'forbidden'), null)
    settler.add(done(2), null)
    await clock.advance(55)
    expect(outcomes).toHaveLength(3)
    const message = 'error text could not be stored: SQLSTATE 23514'
    expect(written.find(({ eventId }) => eventId === 'e1')).toEqual({
      ...failed(1, message),
      failures: [{ handler: 'send', instance: 'i-1', message }],
    })
    expect(written.find(({ eventId }) => eventId === 'e0')).toEqual(failed(0, 'plain'))
    expect(log.lines.at(-1)).toMatchObject({
      level: 'warn',
      message: 'the database rejected the error text of an event; the error text was replaced',
      fields: { event_id: 'e1', reason: 'SQLSTATE 23514' },
    })
    expect(clock.timerCount).toBe(0)
  })

  it('keeps its error text for later when another text is rejected as well', async () => {
    let isRefused = true
    const written: Settlement[] = []
    const { settler, clock } = world((_batch, _call, settlements) => {
      if (isRefused) throw rejected()
      written.push(...settlements)
    })
    settler.add(failed(0, 'plain'), null)
    await clock.advance(60)
    isRefused = false
    await clock.advance(2_000)
    expect(written).toEqual([failed(0, 'plain')])
  })

  it('keeps its error text through an outage', async () => {
    const written: Settlement[] = []
    const { settler, add, clock } = world((_batch, call, settlements) => {
      if (call < 30) throw new Error('down')
      written.push(...settlements)
    })
    settler.add(failed(0, 'plain'), null)
    add(1, 9)
    await clock.advance(120_000)
    expect(written).toHaveLength(9)
    expect(written).toContainEqual(failed(0, 'plain'))
  })

  it('is dropped, and the other outcomes are written, when the settler gives up', async () => {
    const { add, settler, clock, outcomes } = world((batch) => {
      if (batch.includes('e3')) throw rejected()
    })
    add(0, 8)
    await clock.advance(100)
    settler.close()
    add(8, 10)
    await settler.flush()
    expect(outcomes.filter((one) => !one.settled)).toEqual([{ id: 'e3', settled: false }])
    expect(outcomes).toHaveLength(10)
    expect(clock.timerCount).toBe(0)
  })

  it('does not take the other outcomes with it when it is rejected after the settler gave up', async () => {
    const { add, settler, outcomes } = world((batch) => {
      if (batch.includes('e3')) throw rejected()
    })
    settler.close()
    add(0, 8)
    await settler.flush()
    expect(outcomes.filter((one) => !one.settled)).toEqual([{ id: 'e3', settled: false }])
    expect(outcomes).toHaveLength(8)
  })

  it('is tried once more by a flush, which waits for it until the settler gives up', async () => {
    let tries = 0
    const { add, settler, clock, outcomes } = world(() => {
      tries++
      throw rejected()
    })
    add(0, 1)
    await clock.advance(100)
    const before = tries
    const flushed = settler.flush()
    await clock.advance(0)
    expect(tries).toBe(before + 1)
    settler.close()
    await flushed
    expect(outcomes).toEqual([{ id: 'e0', settled: false }])
    expect(clock.timerCount).toBe(0)
  })
})

describe('Settler: an outcome whose row cannot be locked', () => {
  it('is tried less and less often while other outcomes are written', async () => {
    let tries = 0
    const { add, clock, outcomes } = world((batch) => {
      if (!batch.includes('e0')) return
      if (batch.length === 1) tries++
      throw new Error('lock timeout')
    })
    add(0, 2)
    for (let n = 2; n < 602; n += 2) {
      add(n, n + 2)
      await clock.advance(1_000)
    }
    expect(outcomes).toHaveLength(601)
    expect(tries).toBeLessThan(12)
  })
})
