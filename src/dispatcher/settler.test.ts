import { describe, expect, it } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { SettlementRejectedError } from '../core/errors.js'
import type { EventRecord, EventStatusName, Settlement } from '../store.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import type { Delivery } from './delivery.js'
import { Settler } from './settler.js'

const done = (n: number): Settlement => ({ eventId: `e${n}`, token: 'test:1', outcome: 'done' })
const ids = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => `e${from + n}`)

interface World {
  readonly settler: Settler
  readonly clock: VirtualClock
  readonly log: ReturnType<typeof recordingLogger>
  /** The ids of each statement that reached the store. */
  readonly batches: string[][]
  readonly outcomes: { id: string; settled: boolean }[]
  /** What the table says of an event, for those who ask. */
  readonly rows: Map<string, EventStatusName>
  /** How many deliveries the process holds. */
  held: number
  /** Called for each written outcome. */
  onSettled: (eventId: string) => void
  add(from: number, to: number): void
}

/** Stands for the database: it may wait, throw, or name the ids that had lost their lease. */
type Write = (batch: string[], call: number, settlements: readonly Settlement[]) => unknown

function world(write: Write = () => {}): World {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const batches: string[][] = []
  const outcomes: World['outcomes'] = []
  const rows = new Map<string, EventStatusName>()
  let calls = 0
  const settler = new Settler({
    clock,
    logger: log,
    metrics: undefined,
    keepDone: true,
    held: () => made.held,
    store: {
      list: async ({ eventIds = [] }) => {
        const found = eventIds.filter((id) => rows.has(id))
        return found.map((eventId) => ({ eventId, status: rows.get(eventId) }) as EventRecord)
      },
      async settleIfLeased(settlements) {
        const batch = settlements.map((one) => one.eventId)
        const lost = await write(batch, calls++, settlements)
        batches.push(batch)
        return new Set(batch.filter((id) => !(lost instanceof Set) || !lost.has(id)))
      },
    },
    onSettled: (_, settlement, settled) => {
      outcomes.push({ id: settlement.eventId, settled })
      made.onSettled(settlement.eventId)
    },
  })
  const add = (from: number, to: number) => {
    for (let n = from; n < to; n++) settler.add(done(n), null)
  }
  const made: World = {
    ...{ settler, clock, log, batches, outcomes, rows, held: Number.POSITIVE_INFINITY, add },
    onSettled: () => {},
  }
  return made
}

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
    expect(settler.full).toBe(false)
    await settler.whenRoom()
    add(2_000, 2_001)
    expect(settler.full).toBe(true)
    let woken = 0
    for (let worker = 0; worker < 4; worker++) void settler.whenRoom().then(() => woken++)
    await clock.advance(1_000)
    expect(woken).toBe(0)
    database.open()
    await clock.advance(0)
    expect(woken).toBe(4)
    expect(settler.full).toBe(false)
  })

  it('does not leave a worker waiting when it gives up', async () => {
    const { add, settler, clock } = world(() => Promise.reject(new Error('down')))
    add(0, 2_500)
    const room = settler.whenRoom()
    await clock.advance(10)
    settler.giveUp()
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
    settler.giveUp()
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
    settler.giveUp()
    add(0, 1)
    await clock.advance(60_000)
    expect(tries).toBe(1)
    expect(outcomes).toEqual([{ id: 'e0', settled: false }])
    expect(clock.timerCount).toBe(0)
  })

  it('writes what it can after it gave up', async () => {
    const { add, settler, clock, outcomes } = world()
    settler.giveUp()
    add(0, 1)
    await clock.advance(5)
    expect(outcomes).toEqual([{ id: 'e0', settled: true }])
  })

  it('goes on trying after it was opened again', async () => {
    const { add, settler, clock, outcomes } = world((_, call) => {
      if (call < 2) throw new Error('down')
    })
    settler.giveUp()
    settler.reopen()
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
    settler.giveUp()
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
    settler.giveUp()
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
    settler.giveUp()
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
