import { describe, expect, it } from 'vitest'
import { delivery, dispatcherWorld, failing, named, run } from '../../test/support/dispatcher-world.js'
import type { EventEnvelope } from '../core/envelope.js'
import { gate } from '../testing/store-conformance/fixtures.js'

describe('Dispatcher: timeouts', () => {
  it('fail the attempt, tell the handler, and leave no timer behind', async () => {
    const { on, cold, clock, outcomes, dispatcher } = dispatcherWorld()
    const signals: AbortSignal[] = []
    const never = (_: EventEnvelope, { signal }: { signal: AbortSignal }) => {
      signals.push(signal)
      return new Promise(() => {})
    }
    on('slow', never, { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'))
    await clock.advance(49)
    expect(signals[0]?.aborted).toBe(false)
    await clock.advance(1)
    expect(signals[0]?.aborted).toBe(true)
    expect(signals[0]?.reason).toMatchObject({ code: 'HANDLER_TIMEOUT' })
    await clock.advance(5)
    expect(outcomes).toMatchObject([
      { outcome: 'retry', error: expect.stringContaining('HandlerTimeoutError') },
    ])
    expect(clock.timerCount).toBe(0)
  })

  it('let interceptors see the end of an event before the next one starts', async () => {
    const calls: string[] = []
    const { on, cold, clock, ends, dispatcher } = dispatcherWorld({
      concurrency: 1,
      interceptors: [{ afterDispatch: ({ eventId }) => void calls.push(`after ${eventId}`) }],
    })
    const start = ({ eventId }: EventEnvelope) => {
      calls.push(`start ${eventId}`)
      return new Promise(() => {})
    }
    on('slow', start, { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'), named('b'))
    await clock.advance(60)
    expect(calls).toEqual(['start a', 'after a', 'start b'])
    expect(ends()).toEqual(['a retry'])
  })

  it('do not matter to a handler that is in time', async () => {
    const { on, cold, settle, clock, outcomes, dispatcher } = dispatcherWorld()
    on('quick', async () => {}, { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'done' }])
    expect(clock.timerCount).toBe(0)
  })

  it('catch a handler that throws at once', async () => {
    const { on, cold, settle, clock, outcomes, dispatcher } = dispatcherWorld()
    on('broken', failing(), { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'))
    await settle()
    expect(outcomes).toMatchObject([{ outcome: 'retry' }])
    expect(clock.timerCount).toBe(0)
  })

  it('do not run the event beside its overdue run, and run it once that has ended', async () => {
    const { on, cold, clock, settle, outcomes, dispatcher, inFlight } = dispatcherWorld()
    const first = gate()
    let calls = 0
    let running = 0
    let most = 0
    on(
      'slow',
      async () => {
        most = Math.max(most, ++running)
        if (calls++ === 0) await first.opened
        running--
      },
      { timeoutMs: 50 },
    )
    dispatcher.resume()
    cold(named('a', { token: 'me:1' }))
    await clock.advance(60)
    expect(inFlight.size).toBe(0)
    cold(named('a', { token: 'me:2', attempts: 1 }))
    await settle()
    expect(outcomes.at(-1)).toEqual({ eventId: 'a', token: 'me:2', outcome: 'release', delayMs: 1_000 })
    first.open()
    await settle()
    cold(named('a', { token: 'me:3', attempts: 1 }))
    await settle()
    expect(outcomes.at(-1)).toEqual({ eventId: 'a', token: 'me:3', outcome: 'done' })
    expect({ calls, most }).toEqual({ calls: 2, most: 1 })
  })

  it('let a place be used again although the overdue handler never ends', async () => {
    const { on, cold, clock, outcomes, dispatcher } = dispatcherWorld({ concurrency: 1 })
    on('stuck', (one) => (one.eventId === 'a' ? new Promise(() => {}) : undefined), { timeoutMs: 50 })
    dispatcher.resume()
    cold(named('a'), named('b'))
    await clock.advance(60)
    expect(outcomes.map((one) => [one.eventId, one.outcome])).toEqual([
      ['a', 'retry'],
      ['b', 'done'],
    ])
  })

  // Today all handlers of an event share one signal.
  it('of one handler do not abort its neighbour', async () => {
    const { on, cold, clock, dispatcher } = dispatcherWorld()
    const signals: AbortSignal[] = []
    const neighbour = gate()
    on('slow', () => new Promise(() => {}), { timeoutMs: 50 })
    on('neighbour', (_, { signal }) => {
      signals.push(signal)
      return neighbour.opened
    })
    dispatcher.resume()
    cold(named('a'))
    await clock.advance(60)
    const aborted = signals[0]?.aborted
    neighbour.open()
    expect(aborted).toBe(false)
  })
})

describe('Dispatcher: timeouts of events with a key', () => {
  it('tell the handler at once, and fail the event only when the call has ended', async () => {
    const { on, cold, clock, settle, outcomes, ends, dispatcher, inFlight } = dispatcherWorld()
    const first = gate()
    const started: string[] = []
    const signals: AbortSignal[] = []
    on(
      'slow',
      (event, { signal }) => {
        started.push(event.eventId)
        signals.push(signal)
        return first.opened
      },
      { timeoutMs: 50 },
    )
    dispatcher.resume()
    cold(run('k', 'k1', 'k2'))
    await clock.advance(50)
    expect(signals[0]?.reason).toMatchObject({ code: 'HANDLER_TIMEOUT' })
    await clock.advance(10_000)
    expect({ started, outcomes, held: inFlight.size }).toEqual({ started: ['k1'], outcomes: [], held: 2 })
    first.open()
    await settle()
    expect({ started, ends: ends() }).toEqual({ started: ['k1'], ends: ['k1 retry', 'k2 release'] })
    expect(outcomes[0]).toMatchObject({ attempts: 1, error: expect.stringContaining('HandlerTimeoutError') })
    expect(clock.timerCount).toBe(0)
  })

  it.each([
    ['fails', () => Promise.reject(new Error('too late'))],
    ['succeeds', () => undefined],
  ])('count when the late call %s in the end', async (_, end) => {
    const { on, cold, clock, settle, outcomes, dispatcher } = dispatcherWorld()
    const first = gate()
    on('slow', () => first.opened.then(end), { timeoutMs: 50 })
    dispatcher.resume()
    cold(run('k', 'k1'))
    await clock.advance(100)
    first.open()
    await settle()
    expect(outcomes).toMatchObject([{ error: expect.stringContaining('HandlerTimeoutError'), attempts: 1 }])
  })

  it('keep no worker from the others meanwhile', async () => {
    const { on, cold, clock, ends, dispatcher } = dispatcherWorld({ concurrency: 1 })
    on('stuck', (one) => (one.orderingKey ? new Promise(() => {}) : undefined), { timeoutMs: 50 })
    dispatcher.resume()
    cold(run('k', 'k1'), run('l', 'l1'), named('free'))
    await clock.advance(40)
    expect(ends()).toEqual([])
    await clock.advance(80)
    expect(ends()).toEqual(['free done'])
  })

  it('hold the others of a batch only if they have a key too', async () => {
    const { onBatch, cold, clock, ends, dispatcher, inFlight } = dispatcherWorld()
    const first = gate()
    onBatch('batch', { size: 3, timeoutMs: 50 }, () => first.opened)
    dispatcher.resume()
    cold(
      delivery({ eventId: 'k1', orderingKey: 'k' }),
      named('free'),
      delivery({ eventId: 'l1', orderingKey: 'l' }),
    )
    await clock.advance(100)
    expect({ ends: ends(), held: inFlight.size }).toEqual({ ends: ['free retry'], held: 2 })
    first.open()
    await clock.advance(10)
    expect(ends()).toEqual(['free retry', 'k1 retry', 'l1 retry'])
  })
})
