import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { pollerWorld } from '../../test/support/poller-world.js'
import { ScanPlan } from './scan-plan.js'

/** A handler with little room has its event type left out of claims for a while. */
const HOUR_MS = 3_600_000

function busyWorld() {
  const asked: (readonly string[])[] = []
  const world = pollerWorld({ poller: { pollIntervalMs: HOUR_MS, batchSize: 50 } })
  const { store, clock } = world
  const claim = store.claim.bind(store)
  store.claim = async (request) => {
    const { names, excludedTypes = [] } = request.accept
    asked.push(names.filter((name) => !excludedTypes.includes(name)))
    return claim(request)
  }
  const handled: string[] = []
  const take = (type: string, ms: number) =>
    world.worker.on(
      type,
      'take',
      () =>
        new Promise<void>((resolve) => {
          clock.setTimer(() => {
            handled.push(type)
            resolve()
          }, ms)
        }),
      { concurrency: 1 },
    )
  const publish = (type: string, count: number, delayMs = 0) =>
    world.writer.transaction((tx) => tx.publishAll(Array(count).fill({ type }), { delayMs }))
  const handledOf = (type: string) => handled.filter((one) => one === type).length
  return { ...world, asked, take, publish, handledOf }
}

/** Counts the full scans from now on. */
function watchFullScans(): () => number {
  const next = vi.spyOn(ScanPlan.prototype, 'next')
  onTestFinished(() => next.mockRestore())
  return () => next.mock.results.filter(({ value }) => value?.isFullScan).length
}

describe('event types of a saturated handler queue', () => {
  it('go on where they were left, without a look at everything, when nothing else was taken meanwhile', async () => {
    const { worker, clock, asked, take, publish, handledOf, stop } = busyWorld()
    take('a', 1)
    await publish('a', 600)
    const fullScans = watchFullScans()
    await worker.start()
    await clock.advance(2_000)
    expect(handledOf('a')).toBe(600)
    expect(fullScans()).toBe(1)
    expect(asked.length).toBeLessThan(600 / 50 + 5)
    await stop()
  })

  it('are looked for from the start when others were taken meanwhile', async () => {
    const { worker, clock, asked, take, publish, handledOf, stop } = busyWorld()
    take('a', 1)
    take('b', 0)
    for (let n = 0; n < 6; n++) {
      await publish('a', 100)
      await publish('b', 10)
    }
    const fullScans = watchFullScans()
    await worker.start()
    await clock.advance(2_000)
    expect([handledOf('a'), handledOf('b')]).toEqual([600, 60])
    // While there was no room for the one the others were taken.
    expect(asked).toContainEqual(['b'])
    expect(fullScans()).toBeGreaterThan(1)
    await stop()
  })

  it('are not late for one of them that came due meanwhile', async () => {
    const { worker, clock, take, publish, handledOf, stop } = busyWorld()
    take('a', 10)
    await publish('a', 1, 100)
    await publish('a', 80)
    await worker.start()
    await clock.advance(790)
    expect(handledOf('a')).toBeGreaterThanOrEqual(78)
    await clock.advance(30)
    expect(handledOf('a')).toBe(81)
    await stop()
  })
})
