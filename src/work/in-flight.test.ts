import { describe, expect, it } from 'vitest'
import { event, gate } from '../testing/store-conformance/fixtures.js'
import { Delivery } from './delivery.js'
import { InFlight } from './in-flight.js'

function delivery(eventId: string, orderingKey?: string): Delivery {
  return new Delivery({
    event: event({ eventId, orderingKey }),
    token: 'test:1',
    leasedUntil: 30_000,
    attempts: 0,
    handledBy: [],
    source: 'cold',
    suspect: false,
    unroutable: false,
  })
}

async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve))
}

describe('InFlight', () => {
  it('holds a delivery until it is removed', () => {
    const inFlight = new InFlight()
    const one = delivery('a')
    inFlight.add(one)
    expect(inFlight.hasEvent('a')).toBe(true)
    expect([...inFlight.deliveries()]).toEqual([one])
    inFlight.remove(one)
    expect(inFlight.hasEvent('a')).toBe(false)
    expect(inFlight.size).toBe(0)
  })

  it('does not let go of an event for another delivery of it', () => {
    const inFlight = new InFlight()
    inFlight.add(delivery('a'))
    inFlight.remove(delivery('a'))
    expect(inFlight.hasEvent('a')).toBe(true)
  })

  it('is idle only when the last one is through', async () => {
    const inFlight = new InFlight()
    const [a, b] = [delivery('a'), delivery('b')]
    inFlight.add(a)
    inFlight.add(b)
    let idle = 0
    for (let waiting = 0; waiting < 2; waiting++) void inFlight.idle().then(() => idle++)
    inFlight.remove(a)
    await settled()
    expect(idle).toBe(0)
    inFlight.remove(b)
    await settled()
    expect(idle).toBe(2)
    await inFlight.idle()
  })

  it('knows a run that was given up until that ends, also when it ends with an error', async () => {
    const inFlight = new InFlight()
    const run = gate()
    inFlight.overruns(
      delivery('a'),
      0,
      run.opened.then(() => Promise.reject(new Error('too late'))),
    )
    expect(inFlight.hasEvent('a')).toBe(true)
    run.open()
    await settled()
    expect(inFlight.hasEvent('a')).toBe(false)
  })

  it('waits for each of several runs of one event', async () => {
    const inFlight = new InFlight()
    const [first, second] = [gate(), gate()]
    inFlight.overruns(delivery('a'), 0, first.opened)
    inFlight.overruns(delivery('a'), 0, second.opened)
    first.open()
    await settled()
    expect(inFlight.hasEvent('a')).toBe(true)
    second.open()
    await settled()
    expect(inFlight.hasEvent('a')).toBe(false)
  })

  it('tells which runs were given up, and since when they run', async () => {
    const inFlight = new InFlight()
    const run = gate()
    const abandoned = delivery('b')
    abandoned.startedAt = 7
    inFlight.overruns(delivery('a'), 5, run.opened)
    inFlight.abort(abandoned)
    const told = () => inFlight.overrunningCalls().map(({ event, startedAt }) => [event.eventId, startedAt])
    expect(told()).toEqual([
      ['a', 5],
      ['b', 7],
    ])
    run.open()
    await settled()
    expect([inFlight.endAborted(abandoned), inFlight.endAborted(abandoned)]).toEqual([true, false])
    expect(told()).toEqual([])
  })

  it('knows the ordering keys that run here, also without their lease, until the run has ended', () => {
    const inFlight = new InFlight()
    const [running, lost, abandoned] = [delivery('a', 'k'), delivery('b', 'l'), delivery('c', 'm')]
    for (const one of [running, lost, abandoned, delivery('d')]) {
      one.running = true
      inFlight.add(one)
    }
    inFlight.add(delivery('e', 'queued'))
    lost.lose(new Error('lost'))
    inFlight.abort(abandoned)
    inFlight.remove(abandoned)
    expect([...inFlight.runningKeys()]).toEqual(['k', 'l', 'm'])
    for (const one of [running, lost]) one.running = false
    inFlight.endAborted(abandoned)
    expect([...inFlight.runningKeys()]).toEqual([])
  })

  it('does not wait for runs that were given up: they hold no lease', async () => {
    const inFlight = new InFlight()
    inFlight.overruns(delivery('a'), 0, new Promise(() => {}))
    expect(inFlight.size).toBe(0)
    await inFlight.idle()
  })
})
