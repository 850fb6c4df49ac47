import { describe, expect, it } from 'vitest'
import { delivery, dispatcherWorld, named, run } from '../../test/support/dispatcher-world.js'
import { gate } from '../testing/store-conformance/fixtures.js'

const many = (count: number, eventType = 'order.placed') =>
  Array.from({ length: count }, (_, n) => delivery({ eventId: `${eventType} ${n}`, eventType }))

/** Of a handler with a limit of one: one runs, and as many wait as may. */
async function fill({ cold, settle }: ReturnType<typeof dispatcherWorld>, eventType: string): Promise<void> {
  cold(...many(100, eventType))
  await settle()
  cold(delivery({ eventId: `${eventType} 100`, eventType }))
  await settle()
}

const never = () => new Promise<void>(() => {})

describe('Dispatcher: a handler whose queue is full', () => {
  it.each(['limit', 'batch'])('of a %s gives back what is too much, and keeps no worker', async (kind) => {
    const { onType, onBatch, cold, hot, settle, outcomes, ends, dispatcher, inFlight } = dispatcherWorld({
      concurrency: 1,
    })
    if (kind === 'limit') onType('slow', 'slow', never, { concurrency: 1 })
    else onBatch('slow', { size: 1 }, never, 'slow')
    onType('order.placed', 'quick', () => {})
    dispatcher.resume()
    cold(...many(300, 'slow'), named('other'))
    hot('hot')
    await settle()
    expect(ends().filter((one) => one.endsWith('done'))).toEqual(['hot done', 'other done'])
    const released = outcomes.filter((one) => one.outcome === 'release')
    expect(released).toHaveLength(300 - 100)
    expect(released.every((one) => one.delayMs === 0)).toBe(true)
    expect(inFlight.size).toBe(100)
  })

  it('leaves its type out of claims, and of nothing else, until most of those that wait have started', async () => {
    const world = dispatcherWorld()
    const { onType, cold, settle, routes, dispatcher, capacityRequests } = world
    const open: (() => void)[] = []
    onType('slow.*', 'slow', () => new Promise<void>((resolve) => open.push(resolve)), { concurrency: 1 })
    onType('quick', 'quick', () => {})
    dispatcher.resume()
    const letGo = async (count: number) => {
      for (let n = 0; n < count; n++) {
        open.shift()?.()
        await settle()
      }
    }
    cold(...many(74, 'slow.a'))
    await settle()
    expect(routes.filter().excludedTypes).toBeUndefined()
    // Three quarters of those that may wait do: the next claim is not to bring more of it.
    cold(...['one more', 'another'].map((eventId) => delivery({ eventId, eventType: 'slow.a' })))
    expect(routes.filter().excludedTypes).toEqual(['slow.a'])
    cold(...many(27, 'slow.b'))
    await settle()
    const told = () => ({
      excludedTypes: routes.filter().excludedTypes,
      hot: [routes.isClaimable('slow.a'), routes.isClaimable('slow.b')],
      shown: [routes.isPaused('slow.b'), routes.registered().excludedTypes],
      capacityRequests: capacityRequests(),
    })
    const shown = [false, undefined]
    const both = ['slow.a', 'slow.b']
    expect(told()).toEqual({ excludedTypes: both, hot: [false, false], shown, capacityRequests: 0 })
    await letGo(74)
    expect(told()).toEqual({ excludedTypes: both, hot: [false, false], shown, capacityRequests: 0 })
    await letGo(1)
    expect(told()).toEqual({ excludedTypes: undefined, hot: [true, true], shown, capacityRequests: 1 })
  })

  it('is left out together with what is paused', async () => {
    const { onType, cold, settle, routes, dispatcher } = dispatcherWorld()
    onType('slow', 'slow', never, { concurrency: 1 })
    dispatcher.resume()
    routes.setPausedTypes(['other'])
    cold(...many(102, 'slow'))
    await settle()
    expect(routes.filter().excludedTypes).toEqual(['other', 'slow'])
    expect(routes.registered().excludedTypes).toEqual(['other'])
    routes.setPausedTypes([])
    expect(routes.filter().excludedTypes).toEqual(['slow'])
  })

  it('comes back when what waited was given back', async () => {
    const { onType, cold, settle, routes, dispatcher, capacityRequests } = dispatcherWorld()
    onType('slow', 'slow', never, { concurrency: 1 })
    dispatcher.resume()
    cold(...many(200, 'slow'))
    await settle()
    dispatcher.suspend()
    await settle()
    expect({ excludedTypes: routes.filter().excludedTypes, capacityRequests: capacityRequests() }).toEqual({
      excludedTypes: undefined,
      capacityRequests: 1,
    })
  })

  it('gives back the rest of a run', async () => {
    const world = dispatcherWorld()
    const { onType, cold, settle, ends, dispatcher } = world
    onType('slow', 'slow', never, { concurrency: 1 })
    onType('quick', 'quick', () => {})
    dispatcher.resume()
    await fill(world, 'slow')
    cold(run('k', 'k1:quick', 'k2:slow', 'k3:quick'))
    await settle()
    expect(ends()).toEqual(['k1 done', 'k2 release', 'k3 release'])
  })

  it('matters only to events that it has not handled yet', async () => {
    const world = dispatcherWorld()
    const { onType, cold, settle, ends, dispatcher } = world
    onType('slow', 'slow', never, { concurrency: 1 })
    onType('slow', 'quick', () => {})
    dispatcher.resume()
    await fill(world, 'slow')
    cold(delivery({ eventId: 'again', eventType: 'slow' }, { attempts: 1, handledBy: ['slow'] }))
    await settle()
    expect(ends()).toEqual(['again done'])
  })

  it('keeps no more than 8 MiB waiting', async () => {
    const { on, cold, settle, ends, dispatcher } = dispatcherWorld()
    on('slow', never, { concurrency: 1 })
    dispatcher.resume()
    const payload = 'x'.repeat(1_000_000)
    cold(...Array.from({ length: 20 }, (_, n) => delivery({ eventId: `e${n}`, payload })))
    await settle()
    expect(ends()).toHaveLength(20 - 9)
  })
})

describe('Dispatcher: what was paused or stopped meanwhile', () => {
  const slowly = (first: ReturnType<typeof gate>) => ({
    interceptors: { interceptors: [{ beforeDispatch: () => first.opened }] },
    scope: { createScope: () => first.opened.then(() => ({})) },
  })

  it.each([
    ['interceptors', 'plain', 'pause'],
    ['interceptors', 'limit', 'pause'],
    ['interceptors', 'batch', 'pause'],
    ['interceptors', 'plain', 'stop'],
    ['interceptors', 'batch', 'stop'],
    ['scope', 'plain', 'pause'],
    ['scope', 'limit', 'pause'],
    ['scope', 'batch', 'pause'],
    ['scope', 'plain', 'stop'],
    ['scope', 'batch', 'stop'],
  ] as const)('is not started after slow %s: %s, %s', async (what, kind, how) => {
    const first = gate()
    const world = dispatcherWorld(slowly(first)[what])
    const { on, onBatch, cold, clock, settle, ends, dispatcher, routes } = world
    let calls = 0
    const handle = () => void calls++
    if (kind === 'batch') onBatch('note', { size: 10, waitMs: 1_000 }, handle)
    else on('note', handle, kind === 'limit' ? { concurrency: 1 } : {})
    dispatcher.resume()
    cold(named('a'), named('b'))
    await settle()
    if (how === 'stop') dispatcher.suspend()
    else {
      routes.setPausedTypes(['order.placed'])
      dispatcher.releasePaused()
    }
    first.open()
    await settle()
    expect({ calls, ends: ends().sort(), timers: clock.timerCount }).toEqual({
      ...{ calls: 0, ends: ['a release', 'b release'], timers: 0 },
    })
  })

  it('keeps the waiting events of other types when a type is paused', async () => {
    const { on, onBatch, cold, settle, clock, ends, dispatcher, routes, metrics } = dispatcherWorld()
    const first = gate()
    const batches: string[][] = []
    on('limited', () => first.opened, { concurrency: 1 })
    onBatch(
      'batch',
      { size: 10, waitMs: 100 },
      (events) => void batches.push(events.map((one) => one.eventId)),
    )
    dispatcher.resume()
    const a = () => delivery({ eventId: 'a', eventType: 'a' })
    cold(named('first'), a(), named('last'))
    await settle()
    routes.setPausedTypes(['zzz'])
    dispatcher.releasePaused()
    await settle()
    expect(ends()).toEqual([])
    routes.setPausedTypes(['a'])
    dispatcher.releasePaused()
    await settle()
    expect(ends()).toEqual(['a release'])
    first.open()
    await clock.advance(100)
    expect(batches).toEqual([['first', 'last']])
    expect(ends()).toEqual(['a release', 'first done', 'last done'])
    expect(metrics.total('failure')).toBe(0)
  })

  it('shows interceptors no error', async () => {
    const errors: unknown[] = []
    const { on, cold, settle, ends, dispatcher } = dispatcherWorld({
      interceptors: [{ afterDispatch: (_, error) => void errors.push(error) }],
    })
    on('limited', never, { concurrency: 1 })
    dispatcher.resume()
    cold(named('runs'), named('waits'))
    await settle()
    dispatcher.suspend()
    await settle()
    expect({ ends: ends(), errors }).toEqual({ ends: ['waits release'], errors: [null] })
  })
})

describe('Dispatcher: leases of a batch', () => {
  it('that run out while it waits leave their event out, although nobody has noticed yet', async () => {
    const { onBatch, cold, clock, ends, dispatcher } = dispatcherWorld()
    const batches: string[][] = []
    onBatch(
      'batch',
      { size: 10, waitMs: 600 },
      (events) => void batches.push(events.map((one) => one.eventId)),
    )
    dispatcher.resume()
    cold(named('expired', { leasedUntil: 500 }), named('good'))
    await clock.advance(700)
    expect(batches).toEqual([['good']])
    expect(ends().sort()).toEqual(['expired release', 'good done'])
  })

  it('that are lost one by one do not disturb it, and all of them tell it', async () => {
    const { onBatch, cold, settle, dispatcher } = dispatcherWorld()
    const signals: AbortSignal[] = []
    onBatch('batch', { size: 2 }, (_, { signal }) => {
      signals.push(signal)
      return never()
    })
    dispatcher.resume()
    const [a, b] = [named('a'), named('b')]
    cold(a, b)
    await settle()
    a.lose(new Error('lost'))
    expect(signals[0]?.aborted).toBe(false)
    b.lose(new Error('lost'))
    expect(signals[0]?.aborted).toBe(true)
  })
})
