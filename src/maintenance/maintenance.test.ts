import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { EventCatalog } from '../core/catalog.js'
import { union } from '../registry.js'
import { ANY_VERSION, type SeenInstance, type TypeFilter } from '../store.js'
import { compileFilter } from '../stores/memory/accepts.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { UnhandledTypes } from '../unhandled.js'
import { Routes } from '../work/routes.js'
import { Heartbeat } from './heartbeat.js'
import { Housekeeping } from './housekeeping.js'
import { Pruner } from './pruner.js'
import { UnhandledReporter } from './unhandled-reporter.js'
import { UnroutableSweeper } from './unroutable-sweeper.js'

const POLL_MS = 5_000
const HEARTBEAT_MS = 10_000
const NOTHING: TypeFilter = { names: [], versions: [], prefixes: [] }

interface Setup {
  readonly doneMs?: number
  readonly unroutableGraceMs?: number
  /** Ids of the others, and how long ago each was seen; a negative age means that it stopped. */
  readonly others?: Readonly<Record<string, number>>
  /** What the calls of `pruneDone` answer, one after the other; then 0. */
  readonly pruned?: readonly number[]
  /** The same for `pruneProcessed`. */
  readonly forgotten?: readonly number[]
  /** Event types without a handler at that time. */
  readonly unhandled?: (at: number) => readonly string[]
  readonly onCall?: (what: string) => unknown
}

function world(setup: Setup = {}) {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const calls: { at: number; what: string }[] = []
  const known: TypeFilter[] = []
  const pruned = [...(setup.pruned ?? [])]
  const forgotten = [...(setup.forgotten ?? [])]
  const call = async (what: string) => {
    calls.push({ at: clock.monotonic(), what })
    await setup.onCall?.(what)
  }
  const seen = (id: string, age: number): SeenInstance => ({
    ...{ id, host: 'h', pid: 1, version: '0', handlers: {}, counters: { done: 0, failed: 0, dead: 0 } },
    accept: { names: [`of ${id}`], versions: [1], prefixes: [] },
    startedAt: new Date(0),
    lastSeenAt: new Date(clock.now() - Math.abs(age)),
    stoppedAt: age < 0 ? new Date(clock.now()) : null,
  })
  const routes = new Routes(new EventCatalog())
  const handler = { aggregateType: null, exclusive: false, timeoutMs: 0, handle: () => {}, batch: null }
  const limits = { concurrency: Number.POSITIVE_INFINITY, queue: undefined }
  routes.add([{ ...handler, ...limits, name: 'mine', eventType: 'mine' }])
  const store = {
    async instances() {
      await call('instances')
      return [seen('m', 0), ...Object.entries(setup.others ?? {}).map(([id, age]) => seen(id, age))]
    },
    async pruneDone() {
      await call('pruneDone')
      return pruned.shift() ?? 0
    },
    async unhandled() {
      await call('unhandled')
      return { eventTypes: setup.unhandled?.(clock.monotonic()) ?? [], after: null }
    },
    pruneInstances: () => call('pruneInstances'),
    async pruneProcessed(olderThanMs: number) {
      await call(`pruneProcessed ${olderThanMs}`)
      return forgotten.shift() ?? 0
    },
  }
  const unroutableGraceMs = setup.unroutableGraceMs ?? 60_000
  const common = { store, clock, logger: log, instance: 'm', pollIntervalMs: POLL_MS, unroutableGraceMs }
  const sweeper = new UnroutableSweeper({
    ...common,
    ownFilter: () => routes.filter(),
    async claimUnroutable(filter) {
      known.push(filter)
      await call('claimUnroutable')
      return 3
    },
  })
  const pruner = new Pruner({ ...common, doneMs: setup.doneMs ?? 1_000, processedMs: 2_000 })
  const housekeeping = new Housekeeping({ ...common, sweeper, pruner })
  const unhandled = new UnhandledTypes(store, clock)
  const heartbeat = new Heartbeat({
    ...common,
    housekeeping,
    unhandledReporter: new UnhandledReporter({ unhandled, logger: log }),
    beat: () => call('heartbeat'),
  })
  const times = (what: string) => calls.filter((one) => one.what === what).map((one) => one.at)
  return { clock, log, calls, known, heartbeat, housekeeping, sweeper, times }
}

describe('Heartbeat', () => {
  it('does not start when the instance cannot be registered', async () => {
    const { heartbeat, clock } = world({ onCall: () => Promise.reject(new Error('down')) })
    await expect(heartbeat.start()).rejects.toThrow('down')
    expect(clock.timerCount).toBe(0)
  })

  it('comes at the start and every second poll interval', async () => {
    const { heartbeat, clock, times } = world()
    await heartbeat.start()
    await clock.advance(35_000)
    expect(times('heartbeat')).toEqual([0, 10_000, 20_000, 30_000])
  })

  it('goes on after failures, which are logged', async () => {
    let down = false
    const { heartbeat, clock, times, log } = world({
      onCall: () => {
        if (down) throw new Error('down')
      },
    })
    await heartbeat.start()
    down = true
    await clock.advance(20_000)
    down = false
    await clock.advance(10_000)
    expect(times('heartbeat')).toHaveLength(4)
    expect(log.lines.map((line) => line.fields)).toMatchObject([{ task: 'heartbeat' }, { task: 'heartbeat' }])
  })

  it('does nothing after it was stopped, and leaves no timer', async () => {
    const { heartbeat, clock, calls } = world()
    await heartbeat.start()
    await heartbeat.stop()
    await heartbeat.stop()
    await clock.advance(600_000)
    expect(calls.map((one) => one.what)).toEqual(['heartbeat'])
    expect(clock.timerCount).toBe(0)
  })

  it('stops only after its work has ended', async () => {
    const slow = gate()
    const { heartbeat, clock, calls } = world({
      onCall: (what) => (what === 'pruneDone' ? slow.opened : undefined),
    })
    await heartbeat.start()
    await clock.advance(60_000)
    expect(calls.at(-1)?.what).toBe('pruneDone')
    let hasStopped = false
    const stopping = heartbeat.stop().then(() => {
      hasStopped = true
    })
    await clock.advance(0)
    expect(hasStopped).toBe(false)
    slow.open()
    await stopping
    expect(calls.at(-1)?.what).toBe('pruneDone')
  })

  it.each(['unhandled', 'heartbeat'])('stops only after the call %s has ended', async (what) => {
    const slow = gate()
    let isSlow = false
    const { heartbeat, clock, calls } = world({
      onCall: (call) => (isSlow && call === what ? slow.opened : undefined),
    })
    await heartbeat.start()
    isSlow = true
    await clock.advance(HEARTBEAT_MS)
    expect(calls.at(-1)?.what).toBe(what)
    let hasStopped = false
    const stopping = heartbeat.stop().then(() => {
      hasStopped = true
    })
    await clock.advance(60_000)
    expect(calls.at(-1)?.what).toBe(what)
    expect(hasStopped).toBe(false)
    slow.open()
    await stopping
    const count = calls.length
    await clock.advance(600_000)
    expect(calls.slice(count)).toEqual([])
    expect(clock.timerCount).toBe(0)
  })

  it('registers again at once when handlers are added, while it runs', async () => {
    const { heartbeat, clock, times } = world()
    heartbeat.beatNow()
    expect(times('heartbeat')).toEqual([])
    await heartbeat.start()
    await clock.advance(100)
    heartbeat.beatNow()
    expect(times('heartbeat')).toEqual([0, 100])
  })
})

describe('Maintenance: cleaning', () => {
  it('comes once a minute by default, and not at the start', async () => {
    const { heartbeat, clock, times } = world()
    await heartbeat.start()
    await clock.advance(59_000)
    expect(times('pruneDone')).toEqual([])
    await clock.advance(121_000)
    expect(times('pruneDone')).toEqual([60_000, 120_000, 180_000])
  })

  it('comes as often as a short grace needs', async () => {
    const { heartbeat, clock, times } = world({ unroutableGraceMs: 0 })
    await heartbeat.start()
    await clock.advance(20_000)
    expect(times('claimUnroutable')).toEqual([5_000, 10_000, 15_000, 20_000])
  })

  it.each([
    ['an instance with a lower id is alive', { a: 0 }, false],
    ['that one was seen a little while ago', { a: HEARTBEAT_MS * 2 }, false],
    ['that one was not seen for long', { a: HEARTBEAT_MS * 3 }, true],
    ['that one has stopped', { a: -1 }, true],
    ['only higher ones are alive', { z: 0, x: 0 }, true],
    ['it is alone', {}, true],
  ])('when %s: %j → %s', async (_, others, expected) => {
    const { heartbeat, clock, times } = world({ others })
    await heartbeat.start()
    await clock.advance(60_000)
    expect(times('instances').length).toBeGreaterThan(0)
    expect(times('pruneDone').length > 0).toBe(expected)
    expect(times('claimUnroutable').length > 0).toBe(expected)
  })

  it('prunes until a batch is short', async () => {
    const { heartbeat, clock, times } = world({ pruned: [1_000, 1_000, 999, 1_000] })
    await heartbeat.start()
    await clock.advance(60_000)
    expect(times('pruneDone')).toHaveLength(3)
  })

  it('rests as long as each batch took, and not when it is to stop', async () => {
    const { heartbeat, clock, times } = world({
      pruned: Array(1_000).fill(1_000),
      onCall: (what) =>
        what === 'pruneDone' ? new Promise<void>((go) => clock.setTimer(go, 50)) : undefined,
    })
    await heartbeat.start()
    await clock.advance(60_000)
    await clock.advance(1_000)
    expect(times('pruneDone').slice(0, 4)).toEqual([60_000, 60_100, 60_200, 60_300])
    const stopping = heartbeat.stop()
    await clock.advance(50)
    await stopping
    expect(clock.timerCount).toBe(0)
  })

  it('ends the rest between two batches at once when it is to stop', async () => {
    const { heartbeat, clock, times } = world({
      pruned: Array(1_000).fill(1_000),
      onCall: (what) =>
        what === 'pruneDone' ? new Promise<void>((go) => clock.setTimer(go, 5_000)) : undefined,
    })
    await heartbeat.start()
    await clock.advance(66_000)
    expect(times('pruneDone')).toEqual([60_000])
    const stopping = heartbeat.stop()
    await clock.advance(0)
    await stopping
    expect(clock.monotonic()).toBe(66_000)
    expect(clock.timerCount).toBe(0)
  })

  it('looks for old rows ten times in the time they are kept, and once an hour at least', async () => {
    const { heartbeat, clock, times } = world({ doneMs: 7 * 24 * 3_600_000 })
    await heartbeat.start()
    await clock.advance(3 * 3_600_000)
    expect(times('pruneDone')).toEqual([60_000, 3_660_000, 7_260_000])
    const short = world({ doneMs: 1_800_000 })
    await short.heartbeat.start()
    await short.clock.advance(600_000)
    expect(short.times('pruneDone')).toEqual([60_000, 240_000, 420_000, 600_000])
  })

  it('stops pruning in the middle of it', async () => {
    const { heartbeat, clock, times } = world({ pruned: Array(1_000).fill(1_000), onCall: () => tick() })
    await heartbeat.start()
    await clock.advance(60_000)
    await heartbeat.stop()
    const before = times('pruneDone').length
    expect(before).toBeLessThan(1_000)
    await clock.advance(0)
    expect(times('pruneDone')).toHaveLength(before)
  })

  it('forgets what was processed longer ago than it is to be remembered, until a batch is short', async () => {
    const { heartbeat, clock, times } = world({ forgotten: [1_000, 1_000, 999, 1_000] })
    await heartbeat.start()
    await clock.advance(60_000)
    expect(times('pruneProcessed 2000')).toEqual([60_000, 60_000, 60_000])
  })

  it('stops forgetting in the middle of it', async () => {
    const { heartbeat, clock, times } = world({ forgotten: Array(1_000).fill(1_000), onCall: () => tick() })
    await heartbeat.start()
    await clock.advance(60_000)
    await heartbeat.stop()
    const before = times('pruneProcessed 2000').length
    expect(before).toBeLessThan(1_000)
    await clock.advance(0)
    expect(times('pruneProcessed 2000')).toHaveLength(before)
  })

  it('prunes no done events when none are kept', async () => {
    const { heartbeat, clock, times } = world({ doneMs: 0 })
    await heartbeat.start()
    await clock.advance(60_000)
    expect(times('claimUnroutable')).toHaveLength(1)
    expect(times('pruneDone')).toEqual([])
    expect(times('pruneProcessed 2000')).toHaveLength(1)
  })

  it('goes on after a failure, which is logged', async () => {
    let failures = 1
    const { heartbeat, clock, times, log } = world({
      onCall: (what) => {
        if (what === 'claimUnroutable' && failures-- > 0) throw new Error('down')
      },
    })
    await heartbeat.start()
    await clock.advance(120_000)
    expect(log.lines.map((line) => line.fields)).toMatchObject([{ task: 'housekeeping' }])
    expect(times('claimUnroutable')).toEqual([60_000, 120_000])
    expect(times('pruneDone')).toEqual([120_000])
  })

  it('does not hold up the heartbeat, and does not run twice at once', async () => {
    const slow = gate()
    const { heartbeat, clock, times } = world({
      onCall: (what) => (what === 'pruneDone' ? slow.opened : undefined),
    })
    await heartbeat.start()
    await clock.advance(180_000)
    expect(times('heartbeat').at(-1)).toBe(180_000)
    expect(times('pruneDone')).toHaveLength(1)
    slow.open()
  })

  it('spares what any registered instance can handle, whatever the version, and what it can handle itself', async () => {
    const { sweeper, known } = world({ others: { a: 0, gone: -3_600_000 } })
    expect(await sweeper.sweep()).toBe(3)
    expect(known[0]?.names.toSorted()).toEqual(['mine', 'of a', 'of gone', 'of m'])
    expect(known[0]?.versions).toEqual(known[0]?.names.map(() => ANY_VERSION))
  })
})

describe('union of filters', () => {
  it('of nothing accepts nothing', () => {
    expect(union([])).toEqual(NOTHING)
  })

  const types = ['a.x', 'a.y', 'b']
  const eventType = fc.constantFrom(...types)
  const version = fc.integer({ min: 1, max: 3 })
  const events = types.flatMap((type) =>
    ['one', 'two'].flatMap((aggregateType) =>
      [1, 2, 3, 4].map((of) => ({ eventType: type, aggregateType, version: of })),
    ),
  )

  it('accepts whatever one of them accepts, when it is asked for any version', () => {
    const bound = fc.tuple(fc.constantFrom('one', 'two'), eventType).map(([one, type]) => `${one}\x1f${type}`)
    const filter = fc
      .record({
        limits: fc.dictionary(fc.oneof(eventType, bound), version, { maxKeys: 3 }),
        prefixes: fc.uniqueArray(fc.constantFrom('', 'a.', 'c.'), { maxLength: 2 }),
      })
      .map(({ limits, prefixes }) => ({
        names: Object.keys(limits),
        versions: Object.values(limits),
        prefixes,
      }))
    fc.assert(
      fc.property(fc.array(filter, { maxLength: 3 }), (filters) => {
        const any = filters.map(compileFilter)
        const known = union(filters)
        const all = compileFilter(known)
        for (const one of events) {
          const taken = any.some((accepts) => accepts(one))
          if (taken) expect(all(one), `${JSON.stringify(one)} is taken, and counts as unroutable`).toBe(true)
        }
      }),
      { numRuns: 300 },
    )
  })
})

async function tick(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve))
}
