import { describe, expect, it } from 'vitest'
import { delivery, dispatcherWorld, failing, named, run } from '../../test/support/dispatcher-world.js'
import { gate } from '../testing/store-conformance/fixtures.js'

const many = (count: number) => Array.from({ length: count }, (_, n) => named(`e${n}`))

/** Counts how many calls are under way, and the most there ever were. */
function counter() {
  const open = gate()
  const state = { running: 0, most: 0, calls: 0 }
  const handle = async () => {
    state.calls++
    state.most = Math.max(state.most, ++state.running)
    await open.opened
    state.running--
  }
  return { state, handle, open: open.open }
}

describe('Dispatcher: handlers with a limit', () => {
  it('run no more calls at a time than that, more than there are workers if it is higher', async () => {
    const { on, cold, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 4 })
    const two = counter()
    const eight = counter()
    on('two', two.handle, { concurrency: 2 })
    on('eight', eight.handle, { concurrency: 8 })
    dispatcher.resume()
    cold(...many(20))
    await settle()
    expect({ two: two.state.running, eight: eight.state.running }).toEqual({ two: 2, eight: 8 })
    two.open()
    eight.open()
    await settle()
    expect({ two: two.state, eight: eight.state }).toMatchObject({
      two: { most: 2, calls: 20 },
      eight: { most: 8, calls: 20 },
    })
    expect(ends()).toHaveLength(20)
  })

  it('keep no worker while they wait', async () => {
    const { onType, cold, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 1 })
    const slow = counter()
    onType('order.placed', 'slow', slow.handle, { concurrency: 1 })
    onType('other', 'quick', () => {})
    dispatcher.resume()
    cold(...many(50), delivery({ eventId: 'other', eventType: 'other' }))
    await settle()
    expect(ends()).toEqual(['other done'])
    slow.open()
    await settle()
    expect(ends()).toHaveLength(51)
  })

  it('keep none either when they come later in a run', async () => {
    const { onType, cold, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 1 })
    const slow = counter()
    onType('slow', 'slow', slow.handle, { concurrency: 1 })
    onType('quick', 'quick', () => {})
    dispatcher.resume()
    cold(run('a', 'a1:quick', 'a2:slow'), run('b', 'b1:quick', 'b2:slow', 'b3:quick'), run('c', 'c1:quick'))
    await settle()
    expect(ends().toSorted()).toEqual(['a1 done', 'b1 done', 'c1 done'])
    slow.open()
    await settle()
    expect(ends().slice(3)).toEqual(['a2 done', 'b2 done', 'b3 done'])
  })

  it('use a place again after a failure, and after a timeout when the call has really ended', async () => {
    const { on, cold, clock, ends, dispatcher } = dispatcherWorld()
    const second = gate()
    on(
      'limited',
      (event) => {
        if (event.eventId === 'e0') throw new Error('broken')
        if (event.eventId === 'e1') return second.opened
      },
      { concurrency: 1, timeoutMs: 50 },
    )
    dispatcher.resume()
    cold(...many(3))
    await clock.advance(1_000)
    expect(ends()).toEqual(['e0 retry', 'e1 retry'])
    second.open()
    await clock.advance(10)
    expect(ends()).toEqual(['e0 retry', 'e1 retry', 'e2 done'])
  })

  it('do not count the time of waiting towards the timeout', async () => {
    const { on, cold, clock, ends, dispatcher } = dispatcherWorld()
    const wait = (ms: number) => new Promise<void>((resolve) => clock.setTimer(resolve, ms))
    on('limited', () => wait(40), { concurrency: 1, timeoutMs: 50 })
    dispatcher.resume()
    cold(...many(3))
    await clock.advance(200)
    expect(ends()).toEqual(['e0 done', 'e1 done', 'e2 done'])
  })

  it('are not started when the lease has run out while they waited', async () => {
    const { on, cold, settle, clock, outcomes, dispatcher } = dispatcherWorld()
    const first = gate()
    const started: string[] = []
    on(
      'limited',
      (event) => {
        started.push(event.eventId)
        return first.opened
      },
      { concurrency: 1 },
    )
    dispatcher.resume()
    const lost = named('lost')
    cold(named('first', { leasedUntil: 1e9 }), named('expired', { leasedUntil: 500 }), lost, named('last'))
    await settle()
    lost.lose(new Error('lost'))
    await clock.advance(500)
    first.open()
    await settle()
    expect(started).toEqual(['first', 'last'])
    expect(outcomes).toMatchObject([
      { eventId: 'first', outcome: 'done' },
      { eventId: 'expired', outcome: 'release' },
      { eventId: 'lost', outcome: 'release' },
      { eventId: 'last', outcome: 'done' },
    ])
  })

  it('give back what waits when everything is paused, and let what runs go on', async () => {
    const { on, cold, settle, ends, dispatcher, inFlight } = dispatcherWorld({ concurrency: 1 })
    const limited = counter()
    on('limited', limited.handle, { concurrency: 2 })
    dispatcher.resume()
    cold(...many(5))
    await settle()
    dispatcher.suspend()
    await settle()
    expect(ends()).toEqual(['e2 release', 'e3 release', 'e4 release'])
    limited.open()
    await settle()
    expect(ends().slice(3)).toEqual(['e0 done', 'e1 done'])
    expect({ calls: limited.state.calls, held: inFlight.size }).toEqual({ calls: 2, held: 0 })
  })
})

describe('Dispatcher: neighbours of a handler with a limit', () => {
  it('run no more at a time than there are workers', async () => {
    const { on, cold, settle, ends, coldQueue, dispatcher } = dispatcherWorld({ concurrency: 3 })
    const neighbour = counter()
    on('limited', () => {}, { concurrency: 1 })
    on('neighbour', neighbour.handle)
    dispatcher.resume()
    cold(...many(100))
    await settle()
    expect(neighbour.state.running).toBe(3)
    expect(coldQueue.length).toBeGreaterThan(90)
    neighbour.open()
    await settle()
    expect({ most: neighbour.state.most, ended: ends().length }).toEqual({ most: 3, ended: 100 })
  })

  it('leave other events their turn', async () => {
    const { onType, cold, hot, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 1 })
    let handled = 0
    onType('order.placed', 'limited', () => {}, { concurrency: 1 })
    onType('order.placed', 'neighbour', async () => void handled++)
    dispatcher.resume()
    cold(...many(20))
    hot('h')
    await settle()
    expect({ handled, ended: ends().length }).toEqual({ handled: 21, ended: 21 })
  })

  it('are given back with it when they wait for a worker and everything is paused', async () => {
    const { on, cold, settle, outcomes, dispatcher, inFlight } = dispatcherWorld({ concurrency: 1 })
    const neighbour = counter()
    const limited = counter()
    on('limited', limited.handle, { concurrency: 1 })
    on('neighbour', neighbour.handle)
    dispatcher.resume()
    cold(...many(4))
    await settle()
    dispatcher.suspend()
    await settle()
    expect(outcomes.every((one) => one.outcome === 'release')).toBe(true)
    limited.open()
    neighbour.open()
    await settle()
    expect(outcomes.at(-1)).toMatchObject({ eventId: 'e0', outcome: 'done' })
    expect({ calls: neighbour.state.calls, held: inFlight.size }).toEqual({ calls: 1, held: 0 })
  })

  it('count slow interceptors among them, before and after', async () => {
    const before = counter()
    const after = counter()
    const { on, cold, settle, ends, coldQueue, dispatcher } = dispatcherWorld({
      concurrency: 2,
      interceptors: [{ beforeDispatch: before.handle, afterDispatch: after.handle }],
    })
    on('limited', () => {}, { concurrency: 10 })
    dispatcher.resume()
    cold(...many(100))
    await settle()
    expect(before.state.running).toBe(2)
    expect(coldQueue.length).toBeGreaterThan(90)
    before.open()
    await settle()
    expect(after.state.running).toBe(2)
    expect(coldQueue.length).toBeGreaterThan(70)
    after.open()
    await settle()
    expect({ before: before.state.most, after: after.state.most }).toEqual({ before: 2, after: 2 })
    expect(ends()).toHaveLength(100)
  })
})

describe('Dispatcher: batches', () => {
  it('come together up to their size, and each event has its own outcome', async () => {
    const { onBatch, cold, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 1 })
    const batches: string[][] = []
    onBatch('batch', { size: 3 }, (events) => {
      batches.push(events.map((one) => one.eventId))
      return events.map((one) => (one.eventId === 'e1' ? new Error('bad luck') : null))
    })
    dispatcher.resume()
    cold(...many(6))
    await settle()
    expect(batches).toEqual([
      ['e0', 'e1', 'e2'],
      ['e3', 'e4', 'e5'],
    ])
    expect(ends()).toEqual(['e0 done', 'e1 retry', 'e2 done', 'e3 done', 'e4 done', 'e5 done'])
  })

  it('go out with what has come when the time is over', async () => {
    const { onBatch, cold, clock, settle, dispatcher } = dispatcherWorld()
    const batches: number[][] = []
    onBatch(
      'batch',
      { size: 10, waitMs: 200 },
      (events) => void batches.push([events.length, clock.monotonic()]),
    )
    dispatcher.resume()
    cold(...many(2))
    await clock.advance(150)
    cold(named('late'))
    await clock.advance(49)
    expect(batches).toEqual([])
    await clock.advance(1)
    await settle()
    expect(batches).toEqual([[3, 200]])
  })

  it('do not wait for company when they are to hurry, and still come together', async () => {
    const { onBatch, on, cold, ends, dispatcher, inFlight, settler } = dispatcherWorld({ concurrency: 2 })
    const sizes: number[] = []
    onBatch('batch', { size: 10 }, (events) => void sizes.push(events.length))
    on('neighbour', async () => {})
    dispatcher.resume()
    cold(...many(25))
    await settler.eagerly(() => dispatcher.eagerly(() => inFlight.idle()))
    expect(sizes).toEqual([10, 10, 5])
    expect(ends()).toHaveLength(25)
  })

  it('are given back while they wait, with what their neighbours did', async () => {
    const { onBatch, on, cold, settle, outcomes, dispatcher, clock } = dispatcherWorld()
    let calls = 0
    onBatch('batch', { size: 10 }, () => void calls++)
    on('neighbour', () => {})
    dispatcher.resume()
    cold(...many(2))
    await settle()
    dispatcher.suspend()
    await clock.advance(1_000)
    expect(outcomes).toMatchObject([
      { eventId: 'e0', outcome: 'retry', attempts: 0, delayMs: 0, handledBy: ['neighbour'] },
      { eventId: 'e1', outcome: 'retry', attempts: 0, delayMs: 0, handledBy: ['neighbour'] },
    ])
    expect({ calls, timers: clock.timerCount }).toEqual({ calls: 0, timers: 0 })
  })

  it('leave out an event whose lease was lost while it waited', async () => {
    const { onBatch, cold, settle, clock, ends, dispatcher } = dispatcherWorld()
    const batches: string[][] = []
    onBatch('batch', { size: 10 }, (events) => void batches.push(events.map((one) => one.eventId)))
    dispatcher.resume()
    const lost = named('lost')
    cold(named('a'), lost)
    await settle()
    lost.lose(new Error('lost'))
    await clock.advance(60)
    expect(batches).toEqual([['a']])
    expect(ends().sort()).toEqual(['a done', 'lost release'])
  })

  it('are tried again event by event, with those that succeeded left out', async () => {
    const { onBatch, on, cold, clock, outcomes, dispatcher } = dispatcherWorld()
    onBatch('batch', { size: 2, retry: { maxAttempts: 2 } }, failing('all of it'))
    on('fine', () => {})
    dispatcher.resume()
    cold(named('first'), named('second', { attempts: 1, handledBy: ['fine'] }))
    await clock.advance(100)
    expect([...outcomes].sort((a, b) => (a.eventId < b.eventId ? -1 : 1))).toMatchObject([
      { eventId: 'first', outcome: 'retry', attempts: 1, handledBy: ['fine'] },
      { eventId: 'second', outcome: 'dead', attempts: 1, error: 'batch: Error: all of it' },
    ])
  })
})
