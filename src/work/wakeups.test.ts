import { describe, expect, it } from 'vitest'
import { VirtualClock } from '../testing/virtual-clock.js'
import { ScanWakeups } from './wakeups.js'

const FOR_EVER = Number.POSITIVE_INFINITY

function world() {
  const clock = new VirtualClock()
  const wakeups = new ScanWakeups(clock)
  let woken = 0
  const count = (waiting: Promise<void>) => void waiting.then(() => woken++)
  return {
    ...{ clock, wakeups, count },
    sleep: (until = FOR_EVER) => count(wakeups.sleep(until)),
    due: (inMs: number) => wakeups.request({ reason: 'due', inMs }),
    woken: () => woken,
  }
}

describe('ScanWakeups: sleep', () => {
  it('lasts without end if nothing is requested, and leaves no timer', async () => {
    const { clock, sleep, woken } = world()
    sleep()
    await clock.advance(1e9)
    expect(woken()).toBe(0)
    expect(clock.timerCount).toBe(0)
  })

  it('ends at its latest time', async () => {
    const { clock, sleep, woken } = world()
    sleep(100)
    await clock.advance(99)
    expect(woken()).toBe(0)
    await clock.advance(1)
    expect(woken()).toBe(1)
  })

  it('ends when a row is due, whether that was requested before the sleep or during it', async () => {
    const { clock, wakeups, sleep, woken, due } = world()
    due(100)
    sleep()
    await clock.advance(99)
    expect(woken()).toBe(0)
    await clock.advance(1)
    expect(woken()).toBe(1)
    expect(wakeups.take().due).toBe(true)
    sleep()
    due(50)
    await clock.advance(50)
    expect(woken()).toBe(2)
  })

  it('ends at the earliest of several due times, with one timer', async () => {
    const { clock, sleep, woken, due } = world()
    due(100)
    sleep()
    for (const ms of [500, 40, 60]) due(ms)
    expect(clock.timerCount).toBe(1)
    await clock.advance(40)
    expect(woken()).toBe(1)
  })

  it('ends with a request, and cancels its timer', async () => {
    const { clock, wakeups, sleep, woken } = world()
    sleep(100)
    wakeups.request({ reason: 'ordered' })
    await clock.advance(0)
    expect(woken()).toBe(1)
    expect(clock.timerCount).toBe(0)
  })

  it('keeps a due time that has not come when a request ends it', async () => {
    const { clock, wakeups, sleep, woken, due } = world()
    due(100)
    sleep()
    wakeups.request({ reason: 'ordered' })
    expect(wakeups.take()).toMatchObject({ ordered: true, due: false })
    sleep()
    await clock.advance(100)
    expect(woken()).toBe(2)
  })

  it('ends at once for a due time that is over', async () => {
    const { clock, sleep, woken, due } = world()
    due(50)
    await clock.advance(100)
    sleep()
    await clock.advance(0)
    expect(woken()).toBe(1)
  })

  it('is not ended by space in the cold queue', async () => {
    const { clock, wakeups, sleep, woken } = world()
    sleep()
    wakeups.request({ reason: 'space' })
    await clock.advance(1_000)
    expect(woken()).toBe(0)
  })
})

describe('ScanWakeups: requests', () => {
  it('are merged, with the lowest seq that is known, and returned once', () => {
    const { wakeups } = world()
    expect(wakeups.isPending).toBe(false)
    for (const fromSeq of [null, 7, 3, 5]) wakeups.request({ reason: 'new', fromSeq })
    for (const reason of ['ordered', 'capacity'] as const) wakeups.request({ reason })
    expect(wakeups.isPending).toBe(true)
    expect(wakeups.take()).toEqual({
      ...{ new: true, lowestSeq: 3, ordered: true, capacity: true },
      ...{ everything: false, suspects: false, due: false },
    })
    expect(wakeups.isPending).toBe(false)
    expect(wakeups.take()).toMatchObject({ new: false, ordered: false, capacity: false })
  })

  it('report a due row once', async () => {
    const { clock, wakeups, due } = world()
    due(100)
    expect(wakeups.take().due).toBe(false)
    await clock.advance(100)
    expect(wakeups.take().due).toBe(true)
    expect(wakeups.take().due).toBe(false)
  })
})

describe('ScanWakeups: other waits', () => {
  it('until there is space ends only with space, however much is requested', async () => {
    const { clock, wakeups, count, woken, due } = world()
    let hasSpace = false
    count(wakeups.untilSpace(() => hasSpace))
    due(10)
    wakeups.request({ reason: 'new', fromSeq: 1 })
    wakeups.request({ reason: 'space' })
    await clock.advance(1_000)
    expect(woken()).toBe(0)
    hasSpace = true
    wakeups.request({ reason: 'space' })
    await clock.advance(0)
    expect(woken()).toBe(1)
    expect(wakeups.take()).toMatchObject({ new: true, due: true })
  })

  it('a pause ends after its time, however much is requested', async () => {
    const { clock, wakeups, count, woken } = world()
    count(wakeups.pause(500))
    wakeups.request({ reason: 'everything' })
    await clock.advance(499)
    expect(woken()).toBe(0)
    await clock.advance(1)
    expect(woken()).toBe(1)
    expect(wakeups.take().everything).toBe(true)
  })

  it.each(['sleep', 'space', 'pause'])(
    'interrupt() ends a wait for %s, and leaves no timer',
    async (what) => {
      const { clock, wakeups, count, woken } = world()
      if (what === 'sleep') count(wakeups.sleep(1_000))
      else if (what === 'space') count(wakeups.untilSpace(() => false))
      else count(wakeups.pause(1_000))
      wakeups.interrupt()
      await clock.advance(0)
      expect({ woken: woken(), timers: clock.timerCount }).toEqual({ woken: 1, timers: 0 })
    },
  )
})
