import { describe, expect, it } from 'vitest'
import { dispatcherWorld, named } from '../../test/support/dispatcher-world.js'
import { gate } from '../testing/store-conformance/fixtures.js'

describe('Dispatcher: queues', () => {
  it('takes two hot events for each cold one, and neither starves', async () => {
    const { dispatcher, on, hot, cold, settle } = dispatcherWorld({ concurrency: 1 })
    const handled: string[] = []
    on('note', (one) => void handled.push(one.eventId))
    dispatcher.resume()
    cold(...['c1', 'c2', 'c3', 'c4'].map((id) => named(id)))
    hot('h1', 'h2', 'h3', 'h4', 'h5')
    await settle()
    expect(handled).toEqual(['h1', 'h2', 'c1', 'h3', 'h4', 'c2', 'h5', 'c3', 'c4'])
  })

  it('runs no more handlers at a time than it may, and each place is used again', async () => {
    const { dispatcher, on, cold, settle } = dispatcherWorld({ concurrency: 3 })
    let running = 0
    let most = 0
    let handled = 0
    const gates = Array.from({ length: 10 }, gate)
    on('note', async () => {
      most = Math.max(most, ++running)
      await gates[handled++]?.opened
      running--
    })
    dispatcher.resume()
    cold(...gates.map((_, n) => named(String(n))))
    await settle()
    expect(running).toBe(3)
    gates[0]?.open()
    await settle()
    expect(handled).toBe(4)
    for (const one of gates) one.open()
    await settle()
    expect(handled).toBe(10)
    expect(most).toBe(3)
  })

  it('starts what a claim brought in the turn of the event loop in which it came', async () => {
    const { dispatcher, on, cold, settle } = dispatcherWorld()
    const told: string[] = []
    on('note', (one) => void told.push(one.eventId))
    dispatcher.resume()
    const nextTurn = new Promise<void>((resolve) => {
      setImmediate(() => {
        told.push('next turn')
        resolve()
      })
    })
    cold(named('a'), named('b'))
    await nextTurn
    expect(told).toEqual(['a', 'b', 'next turn'])
    await settle()
  })

  it('starts nothing before it is resumed', async () => {
    const { on, hot, settle, dispatcher } = dispatcherWorld()
    const handled: string[] = []
    on('note', (one) => void handled.push(one.eventId))
    hot('a')
    await settle()
    expect(handled).toEqual([])
    dispatcher.resume()
    await settle()
    expect(handled).toEqual(['a'])
  })

  it('gives back what is claimed while it is paused, without an attempt', async () => {
    const { on, cold, settle, outcomes, inFlight } = dispatcherWorld()
    on('note', () => {})
    cold(named('a'))
    await settle()
    expect(outcomes).toEqual([{ eventId: 'a', token: 'me:1', outcome: 'release', delayMs: 0 }])
    expect(inFlight.size).toBe(0)
  })

  it('returns what waits when it is paused, and lets what runs go on', async () => {
    const { on, cold, hot, settle, outcomes, dispatcher } = dispatcherWorld({ concurrency: 1 })
    const run = gate()
    on('note', () => run.opened)
    dispatcher.resume()
    cold(named('running'), named('waiting'))
    await settle()
    hot('hot')
    dispatcher.suspend()
    run.open()
    await settle()
    expect(outcomes).toMatchObject([
      { eventId: 'hot', outcome: 'release', delayMs: 0 },
      { eventId: 'waiting', outcome: 'release', delayMs: 0 },
      { eventId: 'running', outcome: 'done' },
    ])
  })

  it('puts off an event that it holds already', async () => {
    const { on, cold, settle, outcomes, dispatcher } = dispatcherWorld()
    const run = gate()
    let calls = 0
    on('note', () => {
      calls++
      return run.opened
    })
    dispatcher.resume()
    cold(named('a', { token: 'me:1' }))
    await settle()
    cold(named('a', { token: 'me:2' }))
    await settle()
    expect(calls).toBe(1)
    expect(outcomes).toEqual([{ eventId: 'a', token: 'me:2', outcome: 'release', delayMs: 1_000 }])
    run.open()
    await settle()
    expect(outcomes.at(-1)).toEqual({ eventId: 'a', token: 'me:1', outcome: 'done' })
  })

  it('drops an event whose lease was over before it could start', async () => {
    const { on, cold, settle, dropped, dispatcher, clock, metrics, outcomes } = dispatcherWorld({
      concurrency: 1,
    })
    const first = gate()
    const handled: string[] = []
    on('note', async (one) => {
      handled.push(one.eventId)
      await first.opened
    })
    dispatcher.resume()
    const lost = named('lost')
    cold(named('first', { leasedUntil: 1e9 }), named('expired', { leasedUntil: 500 }), lost, named('last'))
    await settle()
    lost.lose(new Error('somebody else has it'))
    await clock.advance(500)
    first.open()
    await settle()
    expect(handled).toEqual(['first', 'last'])
    expect(dropped).toEqual(['expired', 'lost'])
    expect(outcomes.map((one) => one.eventId)).toEqual(['first', 'last'])
    expect(metrics.total('lease_lost')).toBe(2)
  })

  it('says that there is room when it takes a cold one, and not for a hot one', async () => {
    const { on, cold, hot, settle, dispatcher, spaceRequests } = dispatcherWorld()
    on('note', () => {})
    dispatcher.resume()
    hot('h')
    await settle()
    expect(spaceRequests()).toBe(0)
    cold(named('c'))
    await settle()
    expect(spaceRequests()).toBe(1)
  })
})
