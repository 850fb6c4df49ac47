import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { delivery } from '../../test/support/dispatcher-world.js'
import { currentEvent, runHandling } from '../ambient.js'
import { EventEnvelope } from '../core/envelope.js'
import type { BatchFunction, BatchResults } from '../handler.js'
import { silentLogger } from '../observe/logger.js'
import { HOSTILE_VALUES } from '../testing/hostile-values.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import type { Delivery } from './delivery.js'
import { HandlerCalls } from './handler-call.js'
import type { HandlerQueue } from './handler-queue.js'
import { NotStarted } from './not-started.js'

type Init = Parameters<typeof delivery>[0]

interface Options {
  readonly size?: number
  readonly waitMs?: number
  readonly concurrency?: number
  readonly timeoutMs?: number
}

function world(handle: BatchFunction, options: Options = {}) {
  const clock = new VirtualClock()
  const overdue: string[] = []
  const state = { isStopped: false }
  const calls = new HandlerCalls({
    ...{ clock, logger: silentLogger, createScope: undefined, redact: undefined, onSaturationChange() {} },
    queues: [],
    inFlight: { overruns: ({ event }) => void overdue.push(event.eventId) },
    mayStart: (each) => !each.lost && !state.isStopped,
  })
  const { size = 3, waitMs = 50, concurrency = 1, timeoutMs = 0 } = options
  const handler = calls.createHandler({
    ...{ name: 'batch', handle, batch: { size, waitMs }, concurrency, timeoutMs },
    ...{ eventType: '*', aggregateType: null, exclusive: false },
  })
  const queue = handler.queue as HandlerQueue
  const ends = new Map<string, unknown>()
  const deliveries = new Map<string, Delivery>()
  const addOne = (init: Init) => {
    const added = delivery(init)
    const { eventId } = added.event
    added.running = true
    deliveries.set(eventId, added)
    queue.admit(added)
    queue.call(added).then(
      () => ends.set(eventId, 'done'),
      (error) => ends.set(eventId, error),
    )
  }
  const add = (...ids: string[]) => {
    for (const eventId of ids) addOne({ eventId })
  }
  const lose = (id: string) => deliveries.get(id)?.lose(new Error(`${id} is lost`))
  return { clock, queue, add, addOne, ends: () => Object.fromEntries(ends), lose, overdue, state }
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

describe('Batches: what comes together', () => {
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
    const { add, queue, clock } = world(handle)
    add('a')
    queue.flush()
    expect(batches).toEqual([['a']])
    queue.flush()
    expect({ batches: batches.length, timers: clock.timerCount }).toEqual({ batches: 1, timers: 0 })
  })

  it('goes out early when it holds 8 MiB of payload, and keeps no more waiting', async () => {
    const { handle, batches, letGo } = held()
    const { addOne, queue, clock } = world(handle, { size: 1_000 })
    const payload = 'x'.repeat(1_000_000)
    for (const eventId of 'abcdefghijkl') addOne({ eventId, payload })
    expect(batches).toEqual([[...'abcdefghi']])
    expect(queue.accepts(delivery())).toBe(true)
    for (const eventId of 'mnopqr') addOne({ eventId, payload })
    expect(queue.accepts(delivery())).toBe(false)
    letGo(0)
    await clock.advance(0)
    expect(batches[1]).toEqual([...'jklmnopqr'])
  })

  it('keeps no more waiting than fill two batches, or a hundred', () => {
    for (const [size, most] of [
      [5, 100],
      [500, 1_000],
    ] as const) {
      const { handle } = held()
      const { add, queue } = world(handle, { size, concurrency: 1 })
      add(...Array.from({ length: size + most - 1 }, (_, n) => `e${n}`))
      expect(queue.accepts(delivery())).toBe(true)
      add('last')
      expect(queue.accepts(delivery())).toBe(false)
    }
  })

  it('is given back in part, and the others wait on', async () => {
    const { handle, batches } = held()
    const { add, queue, clock, ends } = world(handle)
    add('a')
    await clock.advance(20)
    add('b')
    queue.release(({ event }) => event.eventId === 'a')
    await clock.advance(49)
    expect(batches).toEqual([])
    await clock.advance(1)
    expect({ batches, ends: ends() }).toEqual({ batches: [['b']], ends: { a: expect.any(NotStarted) } })
  })

  it('takes nothing while nothing may start, and keeps no timer', async () => {
    const { handle, batches } = held()
    const { add, state, clock, ends } = world(handle)
    state.isStopped = true
    add('a')
    await clock.advance(0)
    expect({ ends: ends(), timers: clock.timerCount }).toEqual({
      ends: { a: expect.any(NotStarted) },
      timers: 0,
    })
    state.isStopped = false
    add('b')
    await clock.advance(50)
    expect(batches).toEqual([['b']])
  })

  it('is given back before it goes out, and not afterwards', async () => {
    const { handle, letGo } = held()
    const { add, queue, clock, ends } = world(handle)
    add(...'abcd')
    queue.release(() => true)
    letGo(0)
    await clock.advance(100)
    expect(ends()).toEqual({ a: 'done', b: 'done', c: 'done', d: expect.any(NotStarted) })
    expect(clock.timerCount).toBe(0)
  })
})

describe('Batches: results', () => {
  it.each<[string, BatchResults | undefined]>([
    ['nothing', undefined],
    ['an array of nothing', [null, undefined, null]],
  ])('%s: all went well', async (_, results) => {
    const { add, clock, ends } = world(async () => results)
    add(...'abc')
    await clock.advance(0)
    expect(ends()).toEqual({ a: 'done', b: 'done', c: 'done' })
  })

  it('one for each event: its error, or how its promise was settled', async () => {
    const error = new Error('broken')
    const foreign = runInNewContext('new Error("foreign")')
    const { add, clock, ends } = world(
      async () => [null, error, foreign, ...(await Promise.allSettled([1, Promise.reject('text')]))],
      { size: 5 },
    )
    add(...'abcde')
    await clock.advance(0)
    expect(ends()).toEqual({ a: 'done', b: error, c: foreign, d: 'done', e: 'text' })
  })

  it.each<[string, unknown, RegExp]>([
    ['null', null, /"batch" returned null\./],
    ['too few', [null], /returned 1 entries for 3 events/],
    ['too many', [null, null, null, null], /returned 4 entries for 3 events/],
    ['no array', { secret: null }, /returned a value of type object/],
    ['a number', 4111, /returned a value of type number/],
    ['a promise', [null, Promise.resolve()], /returned 2 entries/],
  ])('%s: all of them failed, with a word of what is wrong and no value', async (_, results, message) => {
    const { add, clock, ends } = world(() => results as BatchResults)
    add(...'abc')
    await clock.advance(0)
    const expected = expect.objectContaining({
      code: 'BATCH_RESULT',
      message: expect.stringMatching(message),
    })
    expect(ends()).toEqual({ a: expected, b: expected, c: expected })
    expect(String((ends().a as Error).message)).not.toMatch(/secret|4111/)
  })

  it.each<[string, unknown, string]>([
    ['a text', 'secret 4111', 'returned a value of type string at position 1.'],
    ['a boolean', true, 'returned a value of type boolean at position 1.'],
    ['an object', { secret: 1, status: 'secret' }, 'returned a value of type object at position 1.'],
    ['a promise', Promise.resolve('secret'), 'returned a promise at position 1.'],
  ])('an entry that is %s fails its own event only, without showing the value', async (_, entry, message) => {
    const { add, clock, ends } = world(() => [null, entry, null] as BatchResults)
    add(...'abc')
    await clock.advance(0)
    const failed = { code: 'BATCH_RESULT', message: expect.stringContaining(message) }
    expect(ends()).toEqual({ a: 'done', b: expect.objectContaining(failed), c: 'done' })
    expect(String((ends().b as Error).message)).not.toMatch(/secret|4111/)
  })

  it('entries that cannot be read fail their own events only', async () => {
    for (const [name, make] of Object.entries(HOSTILE_VALUES)) {
      const { add, clock, ends } = world(() => [null, make(), null] as BatchResults)
      add(...'abc')
      await clock.advance(0)
      expect(Object.keys(ends()), name).toEqual(['a', 'b', 'c'])
      expect([ends().a, ends().c], name).toEqual(['done', 'done'])
    }
  })

  it('promises that fail are no unhandled rejections', async () => {
    const unhandled: unknown[] = []
    const note = (error: unknown) => void unhandled.push(error)
    process.on('unhandledRejection', note)
    const late = gate()
    const fails = () => late.opened.then(() => Promise.reject(new Error('too late')))
    const { add, clock, ends } = world(() => [fails(), fails(), fails()] as unknown as BatchResults)
    add(...'abc')
    await clock.advance(0)
    late.open()
    await new Promise((resolve) => setTimeout(resolve, 5))
    process.off('unhandledRejection', note)
    expect({ unhandled, ends: Object.keys(ends()) }).toEqual({ unhandled: [], ends: ['a', 'b', 'c'] })
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

describe('Batches: leases and timeouts', () => {
  it('leaves out events that are lost when the batch goes out; without any it is not called', async () => {
    const { handle, batches } = held()
    const { add, lose, clock, ends } = world(handle)
    add('a', 'b')
    lose('a')
    await clock.advance(50)
    expect(batches).toEqual([['b']])
    const alone = world(handle)
    alone.add('x')
    alone.lose('x')
    await alone.clock.advance(50)
    expect(batches).toHaveLength(1)
    expect({ ...ends(), ...alone.ends() }).toEqual({ a: expect.any(NotStarted), x: expect.any(NotStarted) })
  })

  it('tells the handler the attempts of its events, and when the last of them is lost', async () => {
    const told: unknown[] = []
    const { add, lose } = world((_, { signal, attempts }) => {
      signal.addEventListener('abort', () => told.push(signal.reason))
      told.push(attempts)
      return new Promise(() => {})
    })
    add(...'abc')
    lose('b')
    lose('a')
    expect(told).toEqual([[1, 1, 1]])
    lose('c')
    expect(told).toEqual([[1, 1, 1], new Error('c is lost')])
  })

  it('hands out copies: what the handler does to them changes nothing', async () => {
    const { add, clock, ends, overdue } = world(
      (events) => {
        ;(events as unknown[]).length = 0
        return new Promise(() => {})
      },
      { timeoutMs: 10 },
    )
    add(...'abc')
    await clock.advance(10)
    expect(Object.keys(ends())).toEqual(['a', 'b', 'c'])
    expect(overdue).toEqual(['a', 'b', 'c'])
  })

  it('holds those with a key until a batch that takes too long has ended, and its place too', async () => {
    const { handle, batches, letGo } = held()
    const { addOne, clock, ends, overdue } = world(handle, { timeoutMs: 1_000, size: 2 })
    addOne({ eventId: 'keyed', orderingKey: 'k' })
    addOne({ eventId: 'free' })
    addOne({ eventId: 'next' })
    await clock.advance(5_000)
    const late = expect.objectContaining({ code: 'HANDLER_TIMEOUT' })
    expect({ ends: ends(), overdue, batches: batches.length }).toEqual({
      ...{ ends: { free: late }, overdue: ['free'], batches: 1 },
    })
    letGo(0)
    await clock.advance(0)
    expect(ends()).toEqual({ free: late, keyed: late })
    expect(batches).toEqual([['keyed', 'free'], ['next']])
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
    expect(overdue).toEqual(['a', 'b', 'c'])
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
