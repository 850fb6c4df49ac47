import { describe, expect, it } from 'vitest'
import { done, ids, world } from '../../test/support/settler-world.js'
import type { EventStatusName, Settlement } from '../store.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import type { Delivery } from './delivery.js'

describe('Settler: batches', () => {
  it('reports all outcomes of a batch when what one of them triggers throws', async () => {
    const made = world()
    made.onSettled = (eventId) => {
      if (eventId === 'e1') throw new Error('broken')
    }
    made.add(0, 3)
    await made.clock.advance(10)
    made.add(3, 4)
    await made.clock.advance(10)
    expect(made.outcomes.map(({ id }) => id)).toEqual(ids(0, 4))
    expect(made.log.lines).toMatchObject([
      {
        level: 'error',
        message: 'unexpected error after an outcome was written',
        fields: { event_id: 'e1', error_message: 'broken' },
      },
    ])
  })

  it('never writes two outcomes of one event with one statement: the answer could not tell them apart', async () => {
    const { settler, clock, batches, outcomes } = world((_, call) =>
      call === 0 ? new Set(['e1']) : undefined,
    )
    settler.add(done(0), null)
    settler.add(done(1), null)
    settler.add({ eventId: 'e1', token: 'test:2', outcome: 'release', delayMs: 0 }, null)
    settler.add(done(2), null)
    await clock.advance(10)
    expect(batches).toEqual([
      ['e0', 'e1'],
      ['e1', 'e2'],
    ])
    expect(outcomes).toEqual([
      { id: 'e0', settled: true },
      { id: 'e1', settled: false },
      { id: 'e1', settled: true },
      { id: 'e2', settled: true },
    ])
  })

  it('waits five milliseconds for company', async () => {
    const { add, clock, batches } = world()
    add(0, 1)
    await clock.advance(3)
    add(1, 2)
    await clock.advance(1)
    expect(batches).toEqual([])
    await clock.advance(1)
    expect(batches).toEqual([['e0', 'e1']])
    expect(clock.timerCount).toBe(0)
  })

  it('waits longer while many come by the hot path, but not with anything else', async () => {
    const { settler, clock, batches } = world()
    const addFrom = (source: string, upTo: number) => {
      for (let i = 0; i < upTo; i++) settler.add(done(i), { source } as Delivery)
    }
    addFrom('hot', 20)
    await clock.advance(5)
    addFrom('hot', 20)
    await clock.advance(19)
    expect(batches).toEqual([ids(0, 20)])
    await clock.advance(1)
    addFrom('hot', 2)
    addFrom('cold', 1)
    await clock.advance(5)
    expect(batches).toHaveLength(3)
  })

  it('waits for nobody once 1,000 are there, and leaves the rest to the next batch', async () => {
    const { add, clock, batches } = world()
    add(0, 999)
    await clock.advance(0)
    expect(batches).toEqual([])
    add(999, 1_003)
    await clock.advance(0)
    expect(batches).toEqual([ids(0, 1_000)])
    await clock.advance(5)
    expect(batches).toEqual([ids(0, 1_000), ids(1_000, 1_003)])
  })

  it('does not wait with what the next events of ordering keys wait for, once nothing else is under way', async () => {
    const first = gate()
    const made = world((_, call) => (call === 0 ? first.opened : undefined))
    const { settler, clock, batches } = made
    const ordered = { isOrdered: true } as Delivery
    made.held = 3
    settler.add(done(0), ordered)
    settler.add(done(1), ordered)
    await clock.advance(4)
    expect(batches).toEqual([])
    settler.add(done(2), ordered)
    made.held = 4
    settler.add(done(3), ordered)
    first.open()
    await clock.advance(0)
    expect(batches).toEqual([['e0', 'e1', 'e2']])
    // Those are not held any more.
    made.held = 1
    await clock.advance(5)
    made.held = 2
    settler.add(done(4), ordered)
    await clock.advance(0)
    settler.add(done(5), ordered)
    await clock.advance(0)
    expect(batches).toEqual([['e0', 'e1', 'e2'], ['e3'], ['e4', 'e5']])
    made.held = 1
    settler.add(done(6), { isOrdered: false } as Delivery)
    await clock.advance(4)
    expect(batches).toHaveLength(3)
  })

  it('never runs two statements at once', async () => {
    const first = gate()
    let running = 0
    let most = 0
    const { add, clock, batches } = world(async () => {
      most = Math.max(most, ++running)
      await first.opened
      running--
    })
    add(0, 1_000)
    add(1_000, 3_200)
    await clock.advance(100)
    expect(batches).toEqual([])
    first.open()
    await clock.advance(10)
    expect(most).toBe(1)
    expect(batches.map((batch) => batch.length)).toEqual([1_000, 1_000, 1_000, 200])
  })

  it('tells for each outcome whether it counted', async () => {
    const { add, clock, outcomes } = world(() => new Set(['e1']))
    add(0, 3)
    await clock.advance(5)
    expect(outcomes).toEqual([
      { id: 'e0', settled: true },
      { id: 'e1', settled: false },
      { id: 'e2', settled: true },
    ])
  })

  it('does not wait while somebody waits for the outcomes', async () => {
    const { add, settler, clock, batches } = world()
    const work = gate()
    add(0, 1)
    const eager = settler.eagerly(() => work.opened)
    await clock.advance(0)
    expect(batches).toEqual([['e0']])
    add(1, 2)
    await clock.advance(0)
    expect(batches).toEqual([['e0'], ['e1']])
    work.open()
    await eager
    add(2, 3)
    await clock.advance(4)
    expect(batches).toHaveLength(2)
    await clock.advance(1)
    expect(batches).toHaveLength(3)
  })

  it('waits for company again after eager work that failed', async () => {
    const { add, settler, clock, batches } = world()
    await expect(settler.eagerly(() => Promise.reject(new Error('broken')))).rejects.toThrow('broken')
    add(0, 1)
    await clock.advance(4)
    expect(batches).toEqual([])
  })

  it('flushes everything, also what comes while it writes', async () => {
    const first = gate()
    const { add, settler, batches } = world((_, call) => (call === 0 ? first.opened : undefined))
    add(0, 3)
    const flushed = settler.flush()
    add(3, 700)
    first.open()
    await flushed
    expect(batches.flat()).toEqual(ids(0, 700))
  })

  it('flushes nothing when there is nothing', async () => {
    const { settler, batches, clock } = world()
    await settler.flush()
    expect(batches).toEqual([])
    expect(clock.timerCount).toBe(0)
  })
})

describe('Settler: backpressure', () => {
  it('is full at 2,000 outcomes and calls the waiting workers when there is room', async () => {
    const database = gate()
    const { add, settler, clock } = world(() => database.opened)
    add(0, 1)
    await clock.advance(5)
    add(1, 2_000)
    expect(settler.isFull).toBe(false)
    await settler.whenCapacity()
    add(2_000, 2_001)
    expect(settler.isFull).toBe(true)
    let woken = 0
    for (let worker = 0; worker < 4; worker++) void settler.whenCapacity().then(() => woken++)
    await clock.advance(1_000)
    expect(woken).toBe(0)
    database.open()
    await clock.advance(0)
    expect(woken).toBe(4)
    expect(settler.isFull).toBe(false)
  })

  it('does not leave a worker waiting when it gives up', async () => {
    const { add, settler, clock } = world(() => Promise.reject(new Error('down')))
    add(0, 2_500)
    const room = settler.whenCapacity()
    await clock.advance(10)
    settler.close()
    await clock.advance(0)
    await room
  })
})

describe('Settler: a database that cannot be reached', () => {
  it('keeps all outcomes, with those that come meanwhile, and in their order when it is short', async () => {
    for (const failures of [1, 2, 3, 4, 7]) {
      const { add, clock, batches, outcomes, log } = world((_, call) => {
        if (call < failures) throw new Error('down')
      })
      add(0, 700)
      await clock.advance(20)
      add(700, 702)
      await clock.advance(30_000)
      const written = batches.flat()
      if (failures <= 3) expect(written).toEqual(ids(0, 702))
      expect(written.toSorted()).toEqual(ids(0, 702).toSorted())
      expect(outcomes.map((one) => one.id)).toEqual(written)
      expect(outcomes.every((one) => one.settled)).toBe(true)
      expect(log.lines.filter((line) => line.level === 'warn')).toHaveLength(1)
      expect(clock.timerCount).toBe(0)
    }
  })

  it('writes later outcomes in full batches after a batch was repeated or split', async () => {
    for (const failures of [1, 2, 3, 4, 5, 9]) {
      const { add, clock, batches, outcomes } = world((_, call) => {
        if (call < failures) throw new Error('down')
      })
      add(0, 16)
      await clock.advance(60_000)
      expect(outcomes).toHaveLength(16)
      const before = batches.length
      add(16, 1_116)
      await clock.advance(5)
      add(1_116, 1_126)
      await clock.advance(5)
      expect(batches.slice(before).map((batch) => batch.length)).toEqual([1_000, 100, 10])
      expect(clock.timerCount).toBe(0)
    }
  })

  it('repeats a later batch in one statement although an earlier batch was split', async () => {
    let failures = 5
    const { add, clock, batches } = world(() => {
      if (failures-- > 0) throw new Error('down')
    })
    add(0, 4)
    await clock.advance(60_000)
    const before = batches.length
    expect(before).toBeGreaterThan(1)
    failures = 1
    add(4, 24)
    await clock.advance(5)
    add(24, 44)
    await clock.advance(60)
    expect(batches.slice(before).map((batch) => batch.length)).toEqual([20, 20])
  })

  it('writes all the others within a lease when one outcome can never be written', async () => {
    const { add, clock, outcomes } = world((batch) => {
      if (batch.includes('e50')) throw new Error('invalid text')
    })
    add(0, 100)
    await clock.advance(30_000)
    expect(outcomes.map((one) => one.id).toSorted()).toEqual(
      ids(0, 100)
        .filter((id) => id !== 'e50')
        .toSorted(),
    )
  })

  it('tries after 50, 200, 1,000 and then every 2,000 ms', async () => {
    const tries: number[] = []
    const { add, clock } = world(() => {
      tries.push(clock.monotonic())
      throw new Error('down')
    })
    add(0, 1)
    await clock.advance(10_000)
    expect(tries).toEqual([5, 55, 255, 1_255, 3_255, 5_255, 7_255, 9_255])
  })

  it('starts with short waits again after it worked once', async () => {
    const tries: number[] = []
    const { add, clock, log } = world((_, call) => {
      tries.push(clock.monotonic())
      if (call !== 3) throw new Error('down')
    })
    add(0, 1)
    await clock.advance(1_255)
    expect(tries).toEqual([5, 55, 255, 1_255])
    add(1, 2)
    await clock.advance(60)
    expect(tries.slice(4)).toEqual([1_260, 1_310])
    expect(log.lines.filter((line) => line.level === 'warn')).toHaveLength(2)
  })

  it('drops what it cannot write when it gives up, and says so of each', async () => {
    const { add, settler, clock, batches, outcomes } = world(() => Promise.reject(new Error('down')))
    add(0, 600)
    await clock.advance(20)
    const flushed = settler.flush()
    settler.close()
    await flushed
    expect(batches).toEqual([])
    expect(outcomes).toEqual(ids(0, 600).map((id) => ({ id, settled: false })))
    expect(clock.timerCount).toBe(0)
  })

  it('tries once, and no more, what comes after it gave up', async () => {
    let tries = 0
    const { add, settler, clock, outcomes } = world(() => {
      tries++
      throw new Error('down')
    })
    settler.close()
    add(0, 1)
    await clock.advance(60_000)
    expect(tries).toBe(1)
    expect(outcomes).toEqual([{ id: 'e0', settled: false }])
    expect(clock.timerCount).toBe(0)
  })

  it('writes what it can after it gave up', async () => {
    const { add, settler, clock, outcomes } = world()
    settler.close()
    add(0, 1)
    await clock.advance(5)
    expect(outcomes).toEqual([{ id: 'e0', settled: true }])
  })

  it('goes on trying after it was opened again', async () => {
    const { add, settler, clock, outcomes } = world((_, call) => {
      if (call < 2) throw new Error('down')
    })
    settler.close()
    settler.open()
    add(0, 1)
    await clock.advance(300)
    expect(outcomes).toEqual([{ id: 'e0', settled: true }])
  })

  it('counts what was written although the reply was lost, and nothing that was not', async () => {
    const { settler, rows, clock, outcomes } = world((batch, call) => {
      if (call === 0) throw new Error('reply lost')
      return new Set(batch)
    })
    const failed = { error: 'x', failures: [], handledBy: [], delayMs: 0, attempts: 1 }
    const add = (eventId: string, outcome: 'done' | 'dead' | 'retry', status: EventStatusName | null) => {
      settler.add({ ...failed, eventId, token: 'test:1', outcome } as Settlement, null)
      if (status) rows.set(eventId, status)
    }
    add('done and kept', 'done', 'DONE')
    add('done and deleted', 'done', null)
    add('done too late', 'done', 'NEW')
    add('dead', 'dead', 'DEAD')
    add('dead too late', 'dead', 'DONE')
    add('nobody knows', 'retry', 'RETRY')
    await clock.advance(1_000)
    expect(outcomes.filter((one) => one.settled).map((one) => one.id)).toEqual([
      'done and kept',
      'done and deleted',
      'dead',
    ])
    expect(outcomes).toHaveLength(6)
  })

  it('does not ask what the table says when all went well', async () => {
    const { add, rows, clock, outcomes } = world((batch) => new Set(batch))
    rows.set('e0', 'DONE')
    add(0, 1)
    await clock.advance(5)
    expect(outcomes).toEqual([{ id: 'e0', settled: false }])
  })
})
