import { describe, expect, it } from 'vitest'
import { currentEvent, runHandling } from '../ambient.js'
import { EventEnvelope } from '../core/envelope.js'
import { silentLogger } from '../observe/logger.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { Batcher, type BatchFunction, type BatchOptions } from './batcher.js'
import { NotStarted } from './outcome.js'
import type { HandlerContext } from './routing.js'

function world(handle: BatchFunction, options: Partial<BatchOptions> = {}) {
  const clock = new VirtualClock()
  const overdue = new Map<string, Promise<unknown>>()
  const batcher = new Batcher({
    ...{ name: 'batch', size: 3, waitMs: 50, concurrency: 1, timeoutMs: 0, handle },
    ...options,
  })
  batcher.use({ clock, outlives: (eventId, run) => void overdue.set(eventId, run) })
  const ends = new Map<string, unknown>()
  const controllers = new Map<string, AbortController>()
  const add = (...ids: string[]) => {
    for (const eventId of ids) {
      const controller = new AbortController()
      controllers.set(eventId, controller)
      const context: HandlerContext = {
        ...{ attempt: 1, signal: controller.signal, handler: 'batch', log: silentLogger, scope: undefined },
      }
      const event = EventEnvelope.create({ eventId, eventType: 'order.placed', payload: {} })
      batcher.add(event, context).then(
        () => ends.set(eventId, 'done'),
        (error) => ends.set(eventId, error),
      )
    }
  }
  return { clock, batcher, add, ends: () => Object.fromEntries(ends), controllers, overdue }
}

/** Writes down the batches, and holds each until it is let go. */
function held() {
  const batches: string[][] = []
  const gates: ReturnType<typeof gate>[] = []
  const handle: BatchFunction = (events) => {
    batches.push(events.map((one) => one.eventId))
    const one = gate()
    gates.push(one)
    return one.opened
  }
  return { batches, handle, letGo: (n: number) => gates[n]?.open() }
}

describe('Batcher: what comes together', () => {
  it('goes out at once when it is full, and after a while when it is not', async () => {
    const { handle, batches } = held()
    const { add, clock } = world(handle, { concurrency: 9 })
    add('a', 'b', 'c', 'd')
    expect(batches).toEqual([['a', 'b', 'c']])
    await clock.advance(49)
    expect(batches).toHaveLength(1)
    await clock.advance(1)
    expect(batches[1]).toEqual(['d'])
    expect(clock.timerCount).toBe(0)
  })

  it('waits no longer than the first of its events may', async () => {
    const { handle, batches } = held()
    const { add, clock } = world(handle)
    add('a')
    await clock.advance(40)
    add('b')
    await clock.advance(10)
    expect(batches).toEqual([['a', 'b']])
  })

  it('waits for a place when there is none, and grows meanwhile', async () => {
    const { handle, batches, letGo } = held()
    const { add, clock } = world(handle)
    add('a', 'b', 'c', 'd')
    await clock.advance(60)
    add('e')
    expect(batches).toHaveLength(1)
    letGo(0)
    await clock.advance(0)
    expect(batches[1]).toEqual(['d', 'e'])
  })

  it('waits its time for company, also when a batch before it has ended', async () => {
    const { handle, batches, letGo } = held()
    const { add, clock } = world(handle)
    add('a', 'b', 'c')
    await clock.advance(10)
    add('d')
    letGo(0)
    await clock.advance(49)
    expect(batches).toHaveLength(1)
    await clock.advance(1)
    expect(batches[1]).toEqual(['d'])
  })

  it('is never more than its size, and no more batches run at a time than may', async () => {
    const { handle, batches, letGo } = held()
    const { add, clock } = world(handle, { concurrency: 2 })
    add(...'abcdefghij')
    expect(batches.map((one) => one.join(''))).toEqual(['abc', 'def'])
    letGo(1)
    await clock.advance(0)
    expect(batches.map((one) => one.join(''))).toEqual(['abc', 'def', 'ghi'])
  })

  it('goes out when it is told to', () => {
    const { handle, batches } = held()
    const { add, batcher, clock } = world(handle)
    add('a')
    batcher.flush()
    expect(batches).toEqual([['a']])
    batcher.flush()
    expect({ batches: batches.length, timers: clock.timerCount }).toEqual({ batches: 1, timers: 0 })
  })

  it('has no room when the next batch is full', async () => {
    const { handle, letGo } = held()
    const { add, batcher, clock } = world(handle)
    add(...'abcde')
    expect(batcher.room()).toBeNull()
    add('f')
    let roomy = false
    void batcher.room()?.then(() => {
      roomy = true
    })
    await clock.advance(0)
    expect(roomy).toBe(false)
    letGo(0)
    await clock.advance(0)
    expect(roomy).toBe(true)
  })

  it('is given back before it goes out, and not afterwards', async () => {
    const { handle, letGo } = held()
    const { add, batcher, clock, ends } = world(handle)
    add(...'abcd')
    batcher.giveBack()
    letGo(0)
    await clock.advance(100)
    expect(ends()).toEqual({ a: 'done', b: 'done', c: 'done', d: expect.any(NotStarted) })
    expect(clock.timerCount).toBe(0)
  })
})

describe('Batcher: results', () => {
  it.each([
    ['nothing', undefined],
    ['null', null],
    ['an array of nothing', [null, undefined, null]],
  ])('%s: all went well', async (_, results) => {
    const { add, clock, ends } = world(async () => results)
    add(...'abc')
    await clock.advance(0)
    expect(ends()).toEqual({ a: 'done', b: 'done', c: 'done' })
  })

  it('one for each event: what is not null went wrong', async () => {
    const error = new Error('broken')
    const { add, clock, ends } = world(() => [null, error, 'text'])
    add(...'abc')
    await clock.advance(0)
    expect(ends()).toEqual({ a: 'done', b: error, c: 'text' })
  })

  it.each([
    ['too few', [null]],
    ['too many', [null, null, null, null]],
    ['no array', { a: null }],
    ['a number', 3],
  ])('%s: all of them failed, with a word of what is expected', async (_, results) => {
    const { add, clock, ends } = world(() => results)
    add(...'abc')
    await clock.advance(0)
    const expected = expect.objectContaining({ message: expect.stringMatching(/for each of the 3 events/) })
    expect(ends()).toEqual({ a: expected, b: expected, c: expected })
  })

  it('a throw fails all of them, and the next batch goes out all the same', async () => {
    let calls = 0
    const { add, clock, ends } = world(() => {
      if (calls++ === 0) throw new Error('broken')
    })
    add(...'abcdef')
    await clock.advance(0)
    const broken = expect.objectContaining({ message: 'broken' })
    expect(ends()).toEqual({ a: broken, b: broken, c: broken, d: 'done', e: 'done', f: 'done' })
  })
})

describe('Batcher: leases and timeouts', () => {
  it('leaves out events that are lost when the batch goes out; without any it is not called', async () => {
    const { handle, batches } = held()
    const { add, controllers, clock, ends } = world(handle)
    add('a', 'b')
    controllers.get('a')?.abort()
    await clock.advance(50)
    expect(batches).toEqual([['b']])
    const alone = world(handle)
    alone.add('x')
    alone.controllers.get('x')?.abort()
    await alone.clock.advance(50)
    expect(batches).toHaveLength(1)
    expect({ ...ends(), ...alone.ends() }).toEqual({ a: expect.any(NotStarted), x: expect.any(NotStarted) })
  })

  it('tells the handler when one of its events is lost, and their attempts', async () => {
    const told: unknown[] = []
    const { add, controllers } = world((_, { signal, attempts }) => {
      signal.addEventListener('abort', () => told.push(signal.reason))
      told.push(attempts)
      return new Promise(() => {})
    })
    add(...'abc')
    controllers.get('b')?.abort('lost')
    expect(told).toEqual([[1, 1, 1], 'lost'])
  })

  it('counts a batch that takes too long as failed, and says that it runs on', async () => {
    const signals: AbortSignal[] = []
    const { add, clock, ends, overdue } = world(
      (_, { signal }) => {
        signals.push(signal)
        return new Promise(() => {})
      },
      { timeoutMs: 1_000 },
    )
    add(...'abc')
    await clock.advance(999)
    expect(ends()).toEqual({})
    await clock.advance(1)
    const late = expect.objectContaining({ code: 'HANDLER_TIMEOUT' })
    expect(ends()).toEqual({ a: late, b: late, c: late })
    expect(signals[0]?.reason).toMatchObject({ code: 'HANDLER_TIMEOUT' })
    expect([...overdue.keys()]).toEqual(['a', 'b', 'c'])
    expect(clock.timerCount).toBe(0)
  })

  it('survives a batch that fails after its timeout', async () => {
    const late = gate()
    const { add, clock, ends } = world(() => late.opened.then(() => Promise.reject(new Error('too late'))), {
      timeoutMs: 10,
    })
    add(...'abc')
    await clock.advance(10)
    late.open()
    await clock.advance(0)
    expect(ends()).toMatchObject({ a: { code: 'HANDLER_TIMEOUT' } })
    expect(clock.timerCount).toBe(0)
  })

  it('runs the handler in the context of none of its events', async () => {
    const seen: unknown[] = []
    const { add } = world(() => void seen.push(currentEvent()))
    const event = EventEnvelope.create({ eventType: 'order.placed', payload: {} })
    runHandling(event, () => add(...'abc'), undefined)
    expect(seen).toEqual([undefined])
  })
})
