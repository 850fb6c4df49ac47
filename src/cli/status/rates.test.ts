import { describe, expect, it } from 'vitest'
import type { SeenInstance } from '../../store.js'
import { History, sparkline } from './history.js'
import { RateMeter } from './rates.js'

function instance(id: string, seenAfterMs: number, done: number, failed = 0): SeenInstance {
  return {
    id,
    host: 'h',
    pid: 1,
    version: '1',
    handlers: {},
    accept: { names: [], versions: [], prefixes: [] },
    counters: { done, failed, dead: 0 },
    startedAt: new Date(0),
    lastSeenAt: new Date(seenAfterMs),
    stoppedAt: null,
  }
}

describe('the rate', () => {
  it('is the average since the start at first, then that between two heartbeats', () => {
    const meter = new RateMeter()
    expect(meter.measure([instance('a', 10_000, 100)])).toEqual({
      donePerSecond: 10,
      failedPerSecond: 0,
      basis: 'start',
    })
    expect(meter.measure([instance('a', 20_000, 600, 20)])).toEqual({
      donePerSecond: 50,
      failedPerSecond: 2,
      basis: 'heartbeats',
    })
  })

  it('stays what it was until the next heartbeat, and is no jump when two come at once', () => {
    const meter = new RateMeter()
    meter.measure([instance('a', 10_000, 0)])
    meter.measure([instance('a', 20_000, 1_000)])
    for (const [seenAfterMs, done] of [
      [20_000, 1_000],
      [20_001, 1_900],
    ] as const) {
      expect(meter.measure([instance('a', seenAfterMs, done)])?.donePerSecond).toBe(100)
    }
    expect(meter.measure([instance('a', 30_000, 2_000)])?.donePerSecond).toBe(100)
  })

  it('is the sum over those that run; nobody has none', () => {
    const meter = new RateMeter()
    expect(meter.measure([])).toBeNull()
    const both = [instance('a', 10_000, 100), instance('b', 10_000, 30)]
    expect(meter.measure(both)?.donePerSecond).toBe(13)
    expect(meter.measure(both.slice(1))?.donePerSecond).toBe(3)
    expect(meter.measure([])).toBeNull()
  })

  it('of an instance that was just born, or came back with lower counters, is 0', () => {
    const meter = new RateMeter()
    expect(meter.measure([instance('a', 0, 0)])?.donePerSecond).toBe(0)
    meter.measure([instance('b', 10_000, 500)])
    expect(meter.measure([instance('b', 20_000, 0)])?.donePerSecond).toBe(0)
  })
})

describe('a sparkline', () => {
  it('goes from 0 to the largest value that it shows, and has a gap where nothing is known', () => {
    expect(sparkline([0, 1, 50, 100, null, 100], 10)).toBe('▁▂▅█ █')
  })

  it('shows the last values only, and nothing but zeros as a flat line', () => {
    expect(sparkline([900, 1, 2], 2)).toBe('▅█')
    expect(sparkline([0, 0, 0], 10)).toBe('▁▁▁')
    expect(sparkline([], 10)).toBe('')
  })

  it('is bounded however long one watches', () => {
    const history = new History()
    for (let n = 0; n < 5_000; n++) history.add(null)
    expect(history.rate.length).toBeLessThanOrEqual(400)
  })
})
