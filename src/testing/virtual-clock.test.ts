import { describe, expect, it } from 'vitest'
import { VirtualClock } from './virtual-clock.js'

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('VirtualClock', () => {
  it('runs no timer before its time, and none by itself', async () => {
    const clock = new VirtualClock()
    const log: string[] = []
    clock.setTimer(() => log.push('due'), 10)
    await turn()
    await clock.advance(9)
    expect(log).toEqual([])
    await clock.advance(1)
    expect(log).toEqual(['due'])
  })

  it('runs timers in the order of their times, then of their making, and shows each its own time', async () => {
    const clock = new VirtualClock(1_000)
    const log: string[] = []
    const at = (name: string, delayMs: number) =>
      clock.setTimer(() => log.push(`${name} ${clock.now()}`), delayMs)
    at('late', 20)
    at('early', 5)
    at('also late', 20)
    at('negative', -5)
    await clock.advance(20)
    expect(log).toEqual(['negative 1000', 'early 1005', 'late 1020', 'also late 1020'])
  })

  it('runs timers that timers and their promises set, as far as they fall due', async () => {
    const clock = new VirtualClock()
    const log: number[] = []
    const again = async (): Promise<void> => {
      log.push(clock.monotonic())
      await turn()
      await Promise.resolve()
      clock.setTimer(() => void again(), 10)
    }
    clock.setTimer(() => void again(), 10)
    await clock.advance(35)
    expect(log).toEqual([10, 20, 30])
    expect(clock.monotonic()).toBe(35)
  })

  it('does not run a timer that was cancelled, also by another one at the same time', async () => {
    const clock = new VirtualClock()
    const log: string[] = []
    const cancelled = clock.setTimer(() => log.push('cancelled'), 5)
    cancelled.cancel()
    cancelled.cancel()
    clock.setTimer(() => second.cancel(), 5)
    const second = clock.setTimer(() => log.push('second'), 5)
    await clock.advance(10)
    expect(log).toEqual([])
    expect(clock.timerCount).toBe(0)
  })

  it('waits for ever for an infinite delay and refuses one that is no number', async () => {
    const clock = new VirtualClock()
    clock.setTimer(() => expect.unreachable(), Number.POSITIVE_INFINITY)
    await clock.advance(1e12)
    expect(clock.timerCount).toBe(1)
    expect(() => clock.setTimer(() => {}, Number.NaN)).toThrow('delayMs')
    expect(() => clock.advance(-1)).toThrow('ms')
  })

  it('rejects with what a callback throws, and goes on with the next advance', async () => {
    const clock = new VirtualClock()
    clock.setTimer(() => {
      throw new Error('in a timer')
    }, 5)
    await expect(clock.advance(10)).rejects.toThrow('in a timer')
    await clock.advance(5)
    expect(clock.monotonic()).toBe(10)
  })

  it('queues calls that overlap', async () => {
    const clock = new VirtualClock()
    await Promise.all([clock.advance(10), clock.advance(20)])
    expect(clock.monotonic()).toBe(30)
  })

  it('steps the wall clock without letting time pass', async () => {
    const clock = new VirtualClock(1_000_000)
    let isDue = false
    clock.setTimer(() => {
      isDue = true
    }, 10)
    clock.step(-3_600)
    await clock.advance(9)
    expect([clock.now(), clock.monotonic(), isDue]).toEqual([996_409, 9, false])
    clock.step(3_600)
    await clock.advance(1)
    expect([clock.now(), isDue]).toEqual([1_000_010, true])
  })
})
