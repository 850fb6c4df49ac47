import { describe, expect, it } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { event, gate } from '../testing/store-conformance/fixtures.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { Delivery } from '../work/delivery.js'
import { InFlight } from '../work/in-flight.js'
import { LeaseKeeper } from './lease-keeper.js'

const LEASE_MS = 3_000

/** `renew` stands for the database: it names what it has lost, waits, or throws. */
function world(renew: (ids: string[], call: number) => unknown = () => {}) {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const inFlight = new InFlight()
  const calls: { at: number; ids: string[] }[] = []
  const keeper = new LeaseKeeper({
    clock,
    inFlight,
    logger: log,
    leaseMs: LEASE_MS,
    stuckAfterMs: 10_000,
    store: {
      async renewIfLeased(claims) {
        const ids = claims.map((claim) => claim.eventId)
        calls.push({ at: clock.monotonic(), ids })
        const lost = await renew(ids, calls.length)
        return new Set(ids.filter((id) => !(lost instanceof Set) || !lost.has(id)))
      },
    },
  })
  const hold = (eventId: string, { running = true } = {}) => {
    const delivery = new Delivery({
      event: event({ eventId }),
      token: 'me:1',
      leasedUntil: clock.monotonic() + LEASE_MS,
      attempts: 0,
      handledBy: [],
      source: 'cold',
      suspect: false,
      unroutable: false,
    })
    if (running) {
      delivery.running = true
      delivery.startedAt = Math.max(clock.monotonic(), 0.001)
    }
    inFlight.add(delivery)
    return delivery
  }
  return { clock, log, inFlight, calls, keeper, hold }
}

describe('LeaseKeeper', () => {
  it('asks for nothing while nothing is in flight', async () => {
    const { keeper, clock, calls } = world()
    keeper.start()
    await clock.advance(60_000)
    expect(calls).toEqual([])
  })

  it('renews at a third of the lease, for the whole lease from when it asked', async () => {
    const { keeper, clock, calls, hold } = world()
    keeper.start()
    const one = hold('a')
    await clock.advance(999)
    expect(calls).toEqual([])
    await clock.advance(1)
    expect(calls).toEqual([{ at: 1_000, ids: ['a'] }])
    expect(one.leasedUntil).toBe(1_000 + LEASE_MS)
    await clock.advance(30_000)
    expect(one.lost).toBe(false)
    expect(one.leasedUntil).toBeGreaterThan(clock.monotonic())
  })

  it('never lets a lease get old, whenever it began', async () => {
    const { keeper, clock, hold } = world()
    keeper.start()
    const all: Delivery[] = []
    for (let at = 0; at < 12_000; at += 70) {
      if (at < 4_000) all.push(hold(String(at)))
      await clock.advance(70)
      for (const one of all) expect(one.leasedUntil - clock.monotonic()).toBeGreaterThan(LEASE_MS / 3)
    }
  })

  it('leaves a lease alone that is young', async () => {
    const { keeper, clock, calls, hold } = world()
    keeper.start()
    hold('old')
    await clock.advance(500)
    hold('young')
    await clock.advance(500)
    expect(calls).toEqual([{ at: 1_000, ids: ['old'] }])
  })

  it('counts from before it asked: a slow answer makes the lease shorter, not longer', async () => {
    const answer = gate()
    const { keeper, clock, hold } = world(() => answer.opened)
    keeper.start()
    const one = hold('a')
    await clock.advance(1_500)
    answer.open()
    await clock.advance(0)
    expect(one.leasedUntil).toBe(1_000 + LEASE_MS)
  })

  it('declares each lease lost at its own end while the database does not answer', async () => {
    const { keeper, clock, hold } = world(() => Promise.reject(new Error('down')))
    keeper.start()
    const all: Delivery[] = []
    for (const at of [200, 500, 900]) {
      await clock.advance(at - clock.monotonic())
      all.push(hold(`until ${at + LEASE_MS}`))
    }
    const lost = () => all.map((one) => one.lost)
    await clock.advance(3_199 - clock.monotonic())
    expect(lost()).toEqual([false, false, false])
    await clock.advance(1)
    expect(lost()).toEqual([true, false, false])
    await clock.advance(299)
    expect(lost()).toEqual([true, false, false])
    await clock.advance(1)
    expect(lost()).toEqual([true, true, false])
    await clock.advance(400)
    expect(lost()).toEqual([true, true, true])
    await keeper.stop()
  })

  it('asks for at most a thousand at once', async () => {
    const { keeper, clock, calls, hold } = world()
    keeper.start()
    for (let n = 0; n < 2_500; n++) hold(String(n))
    await clock.advance(1_000)
    expect(calls.map((call) => call.ids.length)).toEqual([1_000, 1_000, 500])
  })

  it('tells the handler of a lost lease, once, and asks for it no more', async () => {
    const { keeper, clock, log, calls, hold } = world((_, call) => (call === 1 ? new Set(['a']) : undefined))
    keeper.start()
    const [a, b] = [hold('a'), hold('b')]
    const reasons: unknown[] = []
    a.signal.addEventListener('abort', () => reasons.push(a.signal.reason))
    await clock.advance(3_000)
    expect(a.lost).toBe(true)
    expect(reasons).toMatchObject([{ code: 'LEASE_LOST' }])
    expect(b.lost).toBe(false)
    expect(b.signal.aborted).toBe(false)
    expect(calls.map((call) => call.ids)).toEqual([['a', 'b'], ['b'], ['b']])
    expect(log.lines.filter((line) => line.message === 'a lease was lost')).toHaveLength(1)
  })

  it('marks one that waits in a queue as lost, so that it is never started', async () => {
    const { keeper, clock, hold } = world((ids) => new Set(ids))
    keeper.start()
    const waiting = hold('a', { running: false })
    await clock.advance(1_000)
    expect(waiting.lost).toBe(true)
  })

  it('does not call lost what was settled while it asked', async () => {
    const answer = gate()
    const { keeper, clock, inFlight, hold, log } = world(async (ids) => {
      await answer.opened
      return new Set(ids)
    })
    keeper.start()
    const settled = hold('settled')
    const ended = hold('waits to be written')
    await clock.advance(1_000)
    inFlight.remove(settled)
    ended.running = false
    answer.open()
    await clock.advance(0)
    expect([settled.lost, ended.lost]).toEqual([false, false])
    expect(log.lines).toEqual([])
  })

  it('keeps its leases through a short outage', async () => {
    const { keeper, clock, hold, log } = world((_, call) => {
      if (call <= 2) throw new Error('down')
    })
    keeper.start()
    const one = hold('a')
    await clock.advance(3_000 - 1)
    expect(one.lost).toBe(false)
    expect(log.lines.map((line) => line.message)).toContain('leases could not be renewed; trying again')
  })

  it('gives up what could not be renewed until the lease was over', async () => {
    const { keeper, clock, hold } = world(() => Promise.reject(new Error('down')))
    keeper.start()
    const running = hold('running')
    const waiting = hold('waiting', { running: false })
    await clock.advance(2_999)
    expect(running.lost).toBe(false)
    await clock.advance(1)
    expect(running.lost).toBe(true)
    expect(running.signal.aborted).toBe(true)
    expect(waiting.lost).toBe(true)
  })

  // The end of a lease is noticed at the next tick only, up to a third of a lease late.
  it('notices the end of a lease when it comes, while the database is down', async () => {
    const { keeper, clock, hold } = world(() => Promise.reject(new Error('down')))
    keeper.start()
    await clock.advance(500)
    const one = hold('a')
    await clock.advance(LEASE_MS)
    expect(one.lost).toBe(true)
  })

  // While a renewal hangs nothing is ever declared lost.
  it('notices the end of a lease while a renewal hangs', async () => {
    const { keeper, clock, hold } = world(() => new Promise(() => {}))
    keeper.start()
    const one = hold('a')
    await clock.advance(LEASE_MS * 10)
    expect(one.lost).toBe(true)
  })

  it('reports a handler that does not return once, and goes on renewing its lease', async () => {
    const { keeper, clock, hold, log, calls } = world()
    await clock.advance(1)
    keeper.start()
    const stuck = hold('a')
    hold('in a queue', { running: false })
    await clock.advance(9_000)
    expect(keeper.stuck()).toEqual([])
    await clock.advance(50_000)
    expect(keeper.stuck()).toEqual([stuck])
    const reports = log.lines.filter((line) => line.message.includes('has not returned'))
    expect(reports).toHaveLength(1)
    expect(reports[0]?.fields).toMatchObject({ event_id: 'a', duration_ms: 10_000 })
    expect(calls.at(-1)?.at).toBe(59_001)
    stuck.running = false
    expect(keeper.stuck()).toEqual([])
  })

  it('reports a call that outlives its timeout in the same way, from its start on and until it ends', async () => {
    const { keeper, clock, inFlight, hold, log } = world()
    await clock.advance(1)
    keeper.start()
    const delivery = hold('a')
    const call = gate()
    await clock.advance(5_000)
    inFlight.overruns(delivery, 1, call.opened)
    inFlight.remove(delivery)
    await clock.advance(4_999)
    expect(keeper.stuck()).toEqual([])
    await clock.advance(50_000)
    expect(keeper.stuck().map(({ event }) => event.eventId)).toEqual(['a'])
    const reports = log.lines.filter((line) => line.message.includes('has not returned'))
    expect(reports.map(({ fields }) => fields)).toMatchObject([{ event_id: 'a', duration_ms: 10_000 }])
    call.open()
    await clock.advance(0)
    expect(keeper.stuck()).toEqual([])
  })

  it('leaves no timer when it is stopped, also while it asks', async () => {
    const answer = gate()
    const { keeper, clock, hold } = world(() => answer.opened)
    keeper.start()
    hold('a')
    await clock.advance(1_000)
    let stopped = false
    const stopping = keeper.stop().then(() => {
      stopped = true
    })
    await clock.advance(0)
    expect(stopped).toBe(false)
    answer.open()
    await stopping
    expect(clock.timerCount).toBe(0)
  })

  it('starts once, however often it is told to', async () => {
    const { keeper, clock } = world()
    keeper.start()
    keeper.start()
    expect(clock.timerCount).toBe(1)
    await keeper.stop()
    keeper.start()
    expect(clock.timerCount).toBe(1)
  })

  // Both the new start and the end of the old renewal set a timer; only one of them is ever cancelled.
  it('runs once when it is started again before the last renewal has ended', async () => {
    const answer = gate()
    const { keeper, clock, hold } = world(() => answer.opened)
    keeper.start()
    hold('a')
    await clock.advance(1_000)
    const stopping = keeper.stop()
    keeper.start()
    answer.open()
    await stopping
    await clock.advance(0)
    expect(clock.timerCount).toBe(1)
  })
})
