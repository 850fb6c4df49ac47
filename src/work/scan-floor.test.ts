import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { ClaimResult } from '../store.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { ScanFloor } from './scan-floor.js'

function scanned(highSeq: number, cutAt?: number): ClaimResult {
  return { rows: [], highSeq, complete: cutAt === undefined, nextSeq: cutAt ?? 0, nextDueMs: null }
}

/** A scan floor that reads the time from a clock. */
function floorOf(now: () => number) {
  const floor = new ScanFloor(true)
  return {
    next: (isFullScan: boolean) => floor.next(now(), isFullScan),
    observe: (result: ClaimResult) => floor.observe(now(), result),
    lower: (seq: number) => floor.lower(seq),
  }
}

function world() {
  const clock = new VirtualClock()
  return { clock, floor: floorOf(() => clock.monotonic()) }
}

describe('ScanFloor', () => {
  it('starts at 0, and after a complete scan behind the highest seq that was drawn', () => {
    const { floor } = world()
    expect(floor.next(false)).toEqual({ fromSeq: 0, isTrailing: true })
    floor.observe(scanned(10))
    expect(floor.next(false)).toEqual({ fromSeq: 11, isTrailing: false })
  })

  it('goes on where a scan was cut short', () => {
    const { floor } = world()
    floor.next(false)
    floor.observe(scanned(1_000, 200))
    expect(floor.next(false).fromSeq).toBe(200)
    floor.observe(scanned(1_000, 400))
    expect(floor.next(false).fromSeq).toBe(400)
  })

  it('in its first seconds looks back to a little before the first row it took, not to 0', async () => {
    const { floor, clock } = world()
    floor.next(true)
    const rows = [{ seq: 500_200 }, { seq: 500_100 }] as unknown as ClaimResult['rows']
    floor.observe({ ...scanned(600_000, 500_300), rows })
    await clock.advance(1_000)
    expect(floor.next(false)).toEqual({ fromSeq: 500_300, isTrailing: false })
    floor.observe(scanned(600_000))
    expect(floor.next(false)).toEqual({ fromSeq: 490_100, isTrailing: true })
    const idle = world()
    idle.floor.next(true)
    idle.floor.observe(scanned(600_000))
    await idle.clock.advance(1_000)
    expect(idle.floor.next(false)).toEqual({ fromSeq: 0, isTrailing: true })
  })

  it('goes back to a row that was rung for, once', () => {
    const { floor } = world()
    floor.next(false)
    floor.observe(scanned(100))
    floor.lower(40)
    floor.lower(50)
    expect(floor.next(false).fromSeq).toBe(40)
    floor.observe(scanned(100))
    expect(floor.next(false).fromSeq).toBe(101)
  })

  it('returns to where it was after a scan of new rows only that a ring had started further back', () => {
    const { floor } = world()
    floor.next(false)
    floor.observe(scanned(100))
    floor.lower(40)
    expect(floor.next(false).fromSeq).toBe(40)
    floor.observe({ rows: [], highSeq: null, complete: true, nextSeq: 41, nextDueMs: null })
    expect(floor.next(false).fromSeq).toBe(101)
    floor.lower(40)
    floor.next(false)
    floor.observe({ rows: [], highSeq: null, complete: false, nextSeq: 60, nextDueMs: null })
    expect(floor.next(false).fromSeq).toBe(60)
    floor.observe({ rows: [], highSeq: null, complete: true, nextSeq: 130, nextDueMs: null })
    expect(floor.next(false).fromSeq).toBe(130)
  })

  it('looks back to a little before the first row it took, also if the first scan took one row', async () => {
    const { floor, clock } = world()
    floor.next(true)
    floor.observe({ ...scanned(600_000), rows: [{ seq: 500_000 }] as unknown as ClaimResult['rows'] })
    await clock.advance(1_000)
    expect(floor.next(false)).toEqual({ fromSeq: 490_000, isTrailing: true })
  })

  it('is not led ahead by a ring for a row that it has not reached', () => {
    const { floor } = world()
    floor.next(false)
    floor.observe(scanned(100))
    floor.lower(5_000)
    expect(floor.next(false).fromSeq).toBe(101)
  })

  it('does not lose a ring that comes while a scan is under way', () => {
    const { floor } = world()
    floor.next(false)
    floor.observe(scanned(100))
    floor.next(false)
    floor.lower(7)
    floor.observe(scanned(120))
    expect(floor.next(false).fromSeq).toBe(7)
  })

  it('starts at 0 for a sweep, whatever it knows', () => {
    const { floor } = world()
    floor.next(false)
    floor.observe(scanned(100))
    floor.lower(50)
    expect(floor.next(true)).toEqual({ fromSeq: 0, isTrailing: true })
  })

  it('starts once a second where things stood at least two seconds ago', async () => {
    const { floor, clock } = world()
    floor.next(true)
    const starts: number[] = []
    const trailing: number[] = []
    for (let at = 0; at < 4_000; at += 100) {
      const scan = floor.next(false)
      starts.push(scan.fromSeq)
      if (scan.isTrailing) trailing.push(at)
      floor.observe(scanned(at))
      await clock.advance(100)
    }
    expect(trailing).toEqual([1_000, 2_000, 3_000])
    for (const at of trailing.slice(2)) {
      const start = starts[at / 100] as number
      expect(start).toBeLessThanOrEqual(at - 2_000 + 1)
      expect(start).toBeGreaterThanOrEqual(at - 2_500)
    }
  })

  it('does not go back further than it has to after a quiet hour', async () => {
    const { floor, clock } = world()
    for (let n = 0; n < 300; n++) {
      floor.next(false)
      floor.observe(scanned(n))
      await clock.advance(n === 150 ? 3_600_000 : 20)
    }
    await clock.advance(1_000)
    const scan = floor.next(false)
    expect(scan.isTrailing).toBe(true)
    expect(scan.fromSeq).toBeGreaterThan(150)
  })
})

/** A table as scans see it: rows by seq, each there from its commit until a scan took it. */
class Table {
  readonly visible = new Map<number, number>()
  drawn = 0

  scan(fromSeq: number, limit: number): ClaimResult & { taken: number[] } {
    const found = [...this.visible.keys()].filter((seq) => seq >= fromSeq).sort((a, b) => a - b)
    const taken = found.slice(0, limit)
    for (const seq of taken) this.visible.delete(seq)
    const nextSeq = (taken.at(-1) ?? fromSeq - 1) + 1
    return { rows: [], highSeq: this.drawn, complete: found.length < limit, nextSeq, nextDueMs: null, taken }
  }
}

const SWEEP_MS = 5_000

describe('ScanFloor: writers that draw a seq and commit later, in any order', () => {
  const writer = fc.record({
    drawAt: fc.nat({ max: 12_000 }),
    openMs: fc.oneof(fc.constant(0), fc.nat({ max: 900 }), fc.nat({ max: 9_000 })),
    rings: fc.boolean(),
    // A ring is a hint that travels: it may come long after the commit.
    ringMs: fc.nat({ max: 300 }),
  })

  it('are missed for no longer than one sweep, and not at all when they ring', () => {
    const writers = fc.array(writer, { minLength: 1, maxLength: 60, size: 'max' })
    const scans = fc.array(fc.nat({ max: 700 }), { minLength: 20, maxLength: 60, size: 'max' })
    fc.assert(
      fc.property(writers, scans, fc.integer({ min: 1, max: 20 }), (all, pauses, limit) => {
        let now = 0
        const floor = floorOf(() => now)
        const table = new Table()
        const timeline: { at: number; order: number; run: () => void }[] = []
        const committedAt = new Map<number, number>()
        const rungAt = new Map<number, number>()
        all.forEach((one, order) => {
          let seq = 0
          timeline.push({ at: one.drawAt, order, run: () => (seq = ++table.drawn) })
          const commit = () => {
            table.visible.set(seq, now)
            committedAt.set(seq, now)
          }
          timeline.push({ at: one.drawAt + one.openMs, order: order + 1_000, run: commit })
          if (!one.rings) return
          const ring = () => {
            floor.lower(seq)
            rungAt.set(seq, now)
          }
          timeline.push({ at: one.drawAt + one.openMs + one.ringMs, order: order + 2_000, run: ring })
        })
        timeline.sort((a, b) => a.at - b.at || a.order - b.order)
        const takenAt = new Map<number, number>()
        let sweepAt = 0
        let step = 0
        /** One scan after the other until one is complete, as the poller does. Returns when it began. */
        const scan = () => {
          const sweep = now >= sweepAt
          if (sweep) sweepAt = now + SWEEP_MS
          for (let next = floor.next(sweep); ; next = floor.next(false)) {
            const result = table.scan(next.fromSeq, limit)
            for (const seq of result.taken) takenAt.set(seq, now)
            floor.observe(result)
            if (result.complete) return
          }
        }
        for (let event = timeline.shift(), scanAt = 0; event || now < 40_000; ) {
          if (event && event.at <= scanAt) {
            now = event.at
            event.run()
            event = timeline.shift()
            continue
          }
          now = scanAt
          scan()
          for (const seq of table.visible.keys()) {
            // Rung for, and the scan after the ring did not take it.
            expect(rungAt.has(seq), `seq ${seq} was rung for and passed over`).toBe(false)
          }
          scanAt = Math.min(now + 1 + (pauses[step++ % pauses.length] as number), Math.max(sweepAt, now + 1))
        }
        for (const [seq, at] of committedAt) {
          expect(takenAt.has(seq), `seq ${seq} was never taken`).toBe(true)
          expect((takenAt.get(seq) as number) - at).toBeLessThanOrEqual(SWEEP_MS)
        }
      }),
      { numRuns: 150 },
    )
  })

  // A scan that looks back a second, once a second, misses what was drawn before and committed just after the last.
  it('are found within two seconds without a ring, when they were open for less than one', () => {
    let now = 0
    const floor = floorOf(() => now)
    const table = new Table()
    floor.next(true)
    floor.observe(table.scan(0, 1_000))
    for (now = 100; now <= 4_000; now += 100) {
      if (now === 700) table.drawn = 1
      if (now === 1_100) table.visible.set(1, now)
      floor.observe(table.scan(floor.next(false).fromSeq, 1_000))
    }
    expect(table.visible.size).toBe(0)
  })
})
