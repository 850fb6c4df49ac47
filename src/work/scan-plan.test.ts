import { describe, expect, it } from 'vitest'
import type { ClaimedRow, ClaimResult, OrderedClaimResult } from '../store.js'
import { CrashSuspects } from './crash-suspects.js'
import { type PlainScan, ScanPlan, type ScanPlanOptions, waitForDue } from './scan-plan.js'
import type { PendingWakeups } from './wakeups.js'

const POLL_MS = 5_000
const ALL_TYPES = { none: false, areSaturated: false }

/** A plan whose time and results are numbers in the test. */
class World {
  readonly suspects = new CrashSuspects(30_000)
  readonly plan: ScanPlan
  now = 0

  constructor(options: Partial<ScanPlanOptions> = {}) {
    const { suspects } = this
    this.plan = new ScanPlan({ hasDoorbell: true, pollIntervalMs: POLL_MS, suspects, ...options })
  }

  begin(wakeups: Partial<PendingWakeups> = {}, types = ALL_TYPES): void {
    this.plan.begin({ ...NOTHING, ...wakeups }, this.now, types)
  }

  next(limit = 200) {
    return this.plan.next(this.now, limit, 1_000)
  }

  /** Runs a round in which nothing is found. Returns the kinds of its scans. */
  round(wakeups: Partial<PendingWakeups> = {}, limit?: number): string[] {
    this.begin(wakeups)
    const kinds: string[] = []
    for (let scan = this.next(limit); scan; scan = this.next(limit)) {
      kinds.push(scan.kind)
      if (scan.kind === 'plain') this.plan.observePlain(scan, found(0), this.now)
      else this.plan.observeOrdered(foundKeys(0))
    }
    return kinds
  }

  /** The plain scan with which a round begins. */
  plain(wakeups: Partial<PendingWakeups> = {}): PlainScan {
    this.begin(wakeups)
    const scan = this.next()
    if (scan?.kind !== 'plain') throw new Error(`a ${scan?.kind} scan`)
    return scan
  }
}

const NOTHING: PendingWakeups = {
  ...{ new: false, lowestSeq: Number.POSITIVE_INFINITY, ordered: false, everything: false },
  ...{ suspects: false, capacity: false, due: false },
}

const rows = (count: number, suspect = false) =>
  Array.from({ length: count }, (_, seq) => ({ seq, suspect, orderingKey: 'k' })) as unknown as ClaimedRow[]

function found(count: number, more: Partial<ClaimResult> = {}): ClaimResult {
  return { rows: rows(count), highSeq: 10, complete: true, nextSeq: 11, nextDueMs: null, ...more }
}

function foundKeys(count: number, afterKey: string | null = null): OrderedClaimResult {
  return { rows: rows(count), afterKey, nextDueMs: null }
}

describe('ScanPlan', () => {
  it('begins with a full scan of both kinds of rows', () => {
    const world = new World()
    expect(world.plain()).toMatchObject({ isFullScan: true, fromSeq: 0, dueWithinMs: null, freshOnly: false })
    expect(new World().round()).toEqual(['plain', 'ordered'])
  })

  it('scans nothing after that, until there is a reason', () => {
    const world = new World()
    world.round()
    expect(world.round()).toEqual([])
    expect(world.plan.isComplete).toBe(true)
  })

  it.each<[Partial<PendingWakeups>, string[]]>([
    [{ new: true }, ['plain']],
    [{ ordered: true }, ['ordered']],
    [{ due: true }, ['plain', 'ordered']],
    [{ everything: true }, ['plain', 'ordered']],
    [{ suspects: true }, ['plain', 'ordered']],
    [{ capacity: true }, ['plain']],
  ])('answers %o with these scans: %o', (wakeups, kinds) => {
    const world = new World()
    world.round()
    expect(world.round(wakeups)).toEqual(kinds)
  })

  it('makes a full scan once per poll interval', () => {
    const world = new World()
    world.round()
    world.now = POLL_MS - 1
    expect(world.round()).toEqual([])
    world.now = POLL_MS
    expect(world.plain().isFullScan).toBe(true)
  })

  it('delays the next full scan by twenty times its duration while there is a backlog, within four poll intervals', () => {
    const world = new World()
    const slow = (tookMs: number) => {
      const scan = world.plain({ everything: true })
      world.plan.observePlain(scan, found(200, { complete: false }), world.now + tookMs)
      return world.plan.fullScanAt - world.now
    }
    expect([slow(1), slow(400), slow(10_000)]).toEqual([POLL_MS, 8_000, 4 * POLL_MS])
  })

  it('reads only new rows between trailing scans, from where the last scan ended', () => {
    const world = new World()
    world.round()
    world.now = 10
    expect(world.plain({ new: true })).toMatchObject({ isFullScan: false, freshOnly: true, fromSeq: 11 })
  })

  it('starts at a lower row that the doorbell names', () => {
    const world = new World()
    world.round()
    world.now = 10
    expect(world.plain({ new: true, lowestSeq: 4 }).fromSeq).toBe(4)
  })

  it('goes on with the same kind while a scan finds more than it may take', () => {
    const world = new World()
    world.plan.observePlain(world.plain(), found(200, { complete: false, nextSeq: 5 }), 0)
    world.plan.observeOrdered(foundKeys(0))
    expect(world.next(0)).toBeNull()
    expect(world.plan.isComplete).toBe(false)
    expect(world.plain()).toMatchObject({ isFullScan: false, fromSeq: 5 })
  })

  it('gives the ordered rows the next turn after plain rows have filled a round', () => {
    const world = new World()
    world.plan.observePlain(world.plain(), found(200, { complete: false }), 0)
    expect(world.next(0)).toBeNull()
    world.begin()
    expect(world.next()?.kind).toBe('ordered')
    world.plan.observeOrdered(foundKeys(3, 'k'))
    expect(world.next()?.kind).toBe('plain')
  })

  it('repeats the ordered scan behind the last key until it has claimed rows or seen all keys', () => {
    const world = new World()
    world.round()
    world.begin({ ordered: true })
    expect(world.next()).toMatchObject({ kind: 'ordered', afterKey: '' })
    world.plan.observeOrdered(foundKeys(0, 'f'))
    expect(world.next()).toMatchObject({ kind: 'ordered', afterKey: 'f' })
    world.plan.observeOrdered(foundKeys(2, 'm'))
    expect(world.next()).toBeNull()
    expect(world.plan.isComplete).toBe(false)
  })

  it('keeps a full scan and a due row for the next round if the limit is used up', () => {
    const world = new World()
    world.round()
    world.begin({ due: true, everything: true })
    expect(world.next(0)).toBeNull()
    world.begin()
    expect(world.next()?.kind, 'the ordered rows come first then').toBe('ordered')
    world.plan.observeOrdered(foundKeys(0))
    expect(world.next()).toMatchObject({ kind: 'plain', isFullScan: true, freshOnly: false })
  })

  it('scans nothing while no type can be claimed, and keeps a due row for later', () => {
    const world = new World()
    world.round()
    world.begin({ due: true }, { none: true, areSaturated: true })
    expect(world.next()).toBeNull()
    expect(world.plan.isComplete).toBe(true)
    expect(world.plain().freshOnly).toBe(false)
  })

  it.each([true, false])(
    'looks at all rows when types are claimable again only if scans passed them: %s',
    (passed) => {
      const world = new World()
      world.round()
      if (passed) world.begin({ new: true }, { none: false, areSaturated: true })
      expect(world.plain({ capacity: true }).isFullScan).toBe(passed)
    },
  )

  it('looks at all rows after a failed scan', () => {
    const world = new World()
    world.round()
    world.plan.failed()
    expect(world.round()).toEqual(['plain', 'ordered'])
  })

  it('tries groups of crash suspects that double, and single rows once a group finds none', () => {
    const world = new World()
    const asked = () => {
      const scan = world.plain({ suspects: true })
      return scan.suspects
    }
    expect(asked()).toBe(1)
    const tried = { startedAt: 1 } as never
    world.suspects.begin(tried)
    expect(asked()).toBe(0)
    world.suspects.end(tried, 2)
    const scan = world.plain({ suspects: true })
    expect(scan.suspects).toBe(2)
    world.plan.observePlain(scan, found(0), 0)
    expect(world.plain()).toMatchObject({ suspects: 1 })
  })

  it('leaves deferred keys to other processes from their due time on, for 250 ms, and not in manual calls', () => {
    const world = new World()
    world.round()
    world.plan.yieldKeys(0, 1_000)
    const kindsAt = (now: number) => {
      world.now = now
      return world.round({ ordered: true })
    }
    expect(kindsAt(999)).toEqual(['ordered'])
    expect(kindsAt(1_000)).toEqual([])
    expect([world.plan.isComplete, world.plan.waitForYieldedKeys(1_000)]).toEqual([true, 250])
    expect(kindsAt(1_250)).toEqual(['ordered'])
    world.plan.yieldKeys(2_000, 1_000)
    world.plan.claimAllKeys()
    expect(kindsAt(3_000)).toEqual(['ordered'])
  })

  it('looks for unannounced rows soon after rows came and less and less often, unless there is a doorbell', () => {
    const { plan } = new World({ hasDoorbell: false })
    expect([0, 400, 4_000].map((now) => plan.waitForUnannounced(now, 0))).toEqual([20, 100, 1_000])
    expect(new World().plan.waitForUnannounced(400, 0)).toBeNull()
  })
})

describe('waitForDue', () => {
  it('waits for the next due row, at least 20 ms', () => {
    expect([null, 3, 500].map((nextDueMs) => waitForDue({ nextDueMs }))).toEqual([null, 20, 500])
  })
})
