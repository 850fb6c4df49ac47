import { describe, expect, it } from 'vitest'
import { delivery, dispatcherWorld, named, run } from '../../test/support/dispatcher-world.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import type { Delivery } from './delivery.js'

const second = (one: Delivery) => one.next as Delivery

describe('Dispatcher: runs of an ordering key', () => {
  it('one after the other in their order, and other keys meanwhile', async () => {
    const { on, cold, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 2 })
    const gates = new Map(['a1', 'a2', 'a3', 'b1'].map((id) => [id, gate()]))
    const started: string[] = []
    on('note', (event) => {
      started.push(event.eventId)
      return gates.get(event.eventId)?.opened
    })
    dispatcher.resume()
    cold(run('a', 'a1', 'a2', 'a3'), run('b', 'b1'))
    await settle()
    expect(started).toEqual(['a1', 'b1'])
    gates.get('a1')?.open()
    await settle()
    expect(started).toEqual(['a1', 'b1', 'a2'])
    for (const one of gates.values()) one.open()
    await settle()
    expect(started).toEqual(['a1', 'b1', 'a2', 'a3'])
    expect(ends()).toEqual(['a1 done', 'a2 done', 'b1 done', 'a3 done'])
  })

  it('keeps one worker, however long the run', async () => {
    const { on, cold, settle, dispatcher } = dispatcherWorld({ concurrency: 1 })
    const handled: string[] = []
    on('note', async (event) => void handled.push(event.eventId))
    dispatcher.resume()
    cold(run('a', 'a1', 'a2', 'a3'), run('b', 'b1', 'b2'), named('c'))
    await settle()
    expect(handled).toEqual(['a1', 'a2', 'a3', 'b1', 'b2', 'c'])
  })

  it('goes on without a worker slot if all its handlers have queues', async () => {
    const { onType, cold, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 1 })
    const first = gate()
    onType('queued', 'queued', () => first.opened, { concurrency: 1 })
    onType('direct', 'direct', () => new Promise(() => {}))
    dispatcher.resume()
    cold(run('a', 'a1:queued', 'a2:queued', 'a3:queued'), delivery({ eventId: 'b', eventType: 'direct' }))
    await settle()
    first.open()
    await settle()
    expect(ends()).toEqual(['a1 done', 'a2 done', 'a3 done'])
  })

  it('what is behind a failure is given back, without an attempt', async () => {
    const { on, cold, settle, outcomes, dispatcher, inFlight } = dispatcherWorld()
    const started: string[] = []
    on('note', (event) => {
      started.push(event.eventId)
      if (event.eventId === 'a2') throw new Error('broken')
    })
    dispatcher.resume()
    cold(run('a', 'a1', 'a2', 'a3', 'a4'))
    await settle()
    expect(started).toEqual(['a1', 'a2'])
    expect(outcomes).toMatchObject([
      { eventId: 'a1', outcome: 'done' },
      { eventId: 'a2', outcome: 'retry' },
      { eventId: 'a3', outcome: 'release', delayMs: 0 },
      { eventId: 'a4', outcome: 'release', delayMs: 0 },
    ])
    expect(inFlight.size).toBe(0)
  })

  it('what is behind a dead one is given back: whether the key goes on is for the store to say', async () => {
    const { on, cold, settle, ends, dispatcher } = dispatcherWorld({ maxAttempts: 1 })
    on('note', (event) => {
      if (event.eventId === 'a1') throw new Error('broken')
    })
    dispatcher.resume()
    cold(run('a', 'a1', 'a2'))
    await settle()
    expect(ends()).toEqual(['a1 dead', 'a2 release'])
  })

  it('what is behind an event that nobody handles here is given back', async () => {
    const { onType, cold, settle, ends, dispatcher } = dispatcherWorld()
    onType('known', 'note', () => {})
    dispatcher.resume()
    cold(run('a', 'a1:known', 'a2:unknown', 'a3:known'))
    await settle()
    expect(ends()).toEqual(['a1 done', 'a2 release', 'a3 release'])
  })

  it('ends when a lease is lost: what can be given back is, the rest is dropped', async () => {
    const { on, cold, settle, ends, dropped, dispatcher, inFlight } = dispatcherWorld()
    const first = gate()
    on('note', () => first.opened)
    dispatcher.resume()
    const a1 = run('a', 'a1', 'a2', 'a3')
    cold(a1)
    await settle()
    a1.lose(new Error('lost'))
    second(a1).lose(new Error('lost'))
    first.open()
    await settle()
    expect(ends()).toEqual(['a1 done', 'a3 release'])
    expect(dropped).toEqual(['a2'])
    expect(inFlight.size).toBe(0)
  })

  it('ends when the next one has lost its lease', async () => {
    const { on, cold, settle, ends, dropped, dispatcher } = dispatcherWorld()
    const first = gate()
    const started: string[] = []
    on('note', (event) => {
      started.push(event.eventId)
      return first.opened
    })
    dispatcher.resume()
    const a1 = run('a', 'a1', 'a2', 'a3')
    cold(a1)
    await settle()
    second(a1).leasedUntil = 5
    first.open()
    await settle()
    expect(started).toEqual(['a1'])
    expect(ends()).toEqual(['a1 done', 'a3 release'])
    expect(dropped).toEqual(['a2'])
  })

  it('goes on no further when everything is paused, and the rest is given back', async () => {
    const { on, cold, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 1 })
    const first = gate()
    on('note', () => first.opened)
    dispatcher.resume()
    cold(run('a', 'a1', 'a2'), run('b', 'b1', 'b2'))
    await settle()
    dispatcher.suspend()
    first.open()
    await settle()
    expect(ends()).toEqual(['b1 release', 'b2 release', 'a1 done', 'a2 release'])
  })

  it('stops before an event whose type is paused, not behind it', async () => {
    const { on, cold, settle, ends, dispatcher, routes } = dispatcherWorld()
    const started: string[] = []
    const first = gate()
    on('note', (event) => {
      started.push(event.eventId)
      return first.opened
    })
    dispatcher.resume()
    cold(run('a', 'a1:x', 'a2:y', 'a3:x'), run('b', 'b1:y', 'b2:x'))
    await settle()
    routes.setPausedTypes(['y'])
    dispatcher.releasePaused()
    first.open()
    await settle()
    expect(started).toEqual(['a1', 'b1', 'b2'])
    expect(ends().sort()).toEqual(['a1 done', 'a2 release', 'a3 release', 'b1 done', 'b2 done'])
  })

  it('is put off as a whole when one of its events still runs here', async () => {
    const { on, cold, settle, outcomes, dispatcher, inFlight } = dispatcherWorld()
    on('note', () => {})
    dispatcher.resume()
    inFlight.overruns(named('a2'), 0, new Promise(() => {}))
    cold(run('a', 'a1', 'a2'))
    await settle()
    expect(outcomes).toMatchObject([
      { eventId: 'a1', outcome: 'release', delayMs: 1_000 },
      { eventId: 'a2', outcome: 'release', delayMs: 1_000 },
    ])
  })

  it('is put off while an earlier event of its key runs here without its lease, and others are not', async () => {
    const { on, cold, settle, ends, outcomes, dispatcher } = dispatcherWorld()
    const [first, other] = [gate(), gate()]
    const started: string[] = []
    on('note', (event) => {
      started.push(event.eventId)
      if (event.eventId === 'a1') return first.opened
      return event.eventId === 'c1' ? other.opened : undefined
    })
    dispatcher.resume()
    const a1 = run('a', 'a1')
    cold(a1, run('c', 'c1'))
    await settle()
    a1.lose(new Error('lost'))
    cold(run('a', 'a2', 'a3'), run('b', 'b1'), named('free'))
    await settle()
    expect(started).toEqual(['a1', 'c1', 'b1', 'free'])
    expect(outcomes.filter((one) => one.outcome === 'release')).toMatchObject([
      { eventId: 'a2', delayMs: 1_000 },
      { eventId: 'a3', delayMs: 1_000 },
    ])
    first.open()
    await settle()
    cold(run('a', 'a2', 'a3'))
    await settle()
    expect(started).toEqual(['a1', 'c1', 'b1', 'free', 'a2', 'a3'])
    expect(ends().slice(-2)).toEqual(['a2 done', 'a3 done'])
  })

  it('is put off as well where nobody knows yet that the lease is lost, and where a batch runs', async () => {
    const { onBatch, cold, settle, ends, dispatcher } = dispatcherWorld()
    const call = gate()
    const started: string[] = []
    onBatch('collect', { size: 2 }, (events) => {
      started.push(events.map((one) => one.eventId).join('+'))
      return call.opened
    })
    dispatcher.resume()
    cold(run('a', 'a1'), run('b', 'b1'))
    await settle()
    cold(run('a', 'a2'), run('c', 'c1'), run('d', 'd1'))
    await settle()
    expect({ started, ends: ends() }).toEqual({ started: ['a1+b1'], ends: ['a2 release'] })
    call.open()
    await settle()
    expect(started).toEqual(['a1+b1', 'c1+d1'])
    cold(run('a', 'a2'), run('b', 'b2'))
    await settle()
    expect(started).toEqual(['a1+b1', 'c1+d1', 'a2+b2'])
  })

  it('takes as many places in the queue as it has events, and gives them all back', async () => {
    const { on, cold, coldQueue, dispatcher, settle } = dispatcherWorld({ concurrency: 1 })
    const first = gate()
    on('note', () => first.opened)
    dispatcher.resume()
    cold(named('first'))
    await settle()
    cold(run('a', 'a1', 'a2', 'a3'))
    expect(coldQueue.free).toBe(1_000 - 3)
    expect(coldQueue.length).toBe(1)
    first.open()
    await settle()
    expect(coldQueue.free).toBe(1_000)
    expect(coldQueue.freeBytes).toBe(coldQueue.maxBytes)
  })

  it('of a handler with a limit waits its turn event by event', async () => {
    const { on, cold, settle, ends, dispatcher } = dispatcherWorld({ concurrency: 2 })
    const started: string[] = []
    const gates = new Map(['a1', 'b1', 'a2'].map((id) => [id, gate()]))
    on(
      'limited',
      (event) => {
        started.push(event.eventId)
        return gates.get(event.eventId)?.opened
      },
      { concurrency: 1 },
    )
    dispatcher.resume()
    cold(run('a', 'a1', 'a2'), run('b', 'b1', 'b2'))
    await settle()
    expect(started).toEqual(['a1'])
    gates.get('a1')?.open()
    await settle()
    expect(started).toEqual(['a1', 'b1'])
    gates.get('b1')?.open()
    await settle()
    expect(started).toEqual(['a1', 'b1', 'a2'])
    gates.get('a2')?.open()
    await settle()
    expect(ends()).toEqual(['a1 done', 'b1 done', 'a2 done', 'b2 done'])
  })

  it('gives back a run of which nothing has started', async () => {
    const { dispatcher, settle, outcomes, dropped } = dispatcherWorld()
    const lost = delivery({ eventId: 'lost' })
    lost.lose(new Error('lost'))
    dispatcher.release([...run('a', 'a1', 'a2').run, lost])
    await settle()
    expect(outcomes.map((one) => [one.eventId, one.outcome])).toEqual([
      ['a1', 'release'],
      ['a2', 'release'],
    ])
    expect(dropped).toEqual(['lost'])
  })
})
