import { describe, expect, it } from 'vitest'
import { recordingLogger } from '../../test/support/recording.js'
import { gate } from '../testing/store-conformance/fixtures.js'
import { VirtualClock } from '../testing/virtual-clock.js'
import { DebouncedDoorbell } from './doorbell.js'

function world(ring: (call: number) => unknown = () => {}, doorbell = true) {
  const clock = new VirtualClock()
  const log = recordingLogger()
  const rings: { at: number; seq: number | null }[] = []
  const capabilities = {
    ...{ durable: true, multiProcess: true, doorbell },
    ...{ callerTransactions: true, concurrentTransactions: true },
  }
  const store = {
    capabilities,
    async ring(seq: number | null) {
      rings.push({ at: clock.monotonic(), seq })
      await ring(rings.length)
    },
  }
  return { clock, log, rings, bell: new DebouncedDoorbell(store, clock, log) }
}

describe('DebouncedDoorbell', () => {
  it('rings the first time at once', async () => {
    const { bell, rings } = world()
    bell.ring(7)
    expect(rings).toEqual([{ at: 0, seq: 7 }])
  })

  it('rings at most once per five milliseconds, for the lowest seq of those that came', async () => {
    const { bell, rings, clock } = world()
    for (let at = 0; at < 20; at++) {
      bell.ring(1_000 - at)
      await clock.advance(1)
    }
    expect(rings).toEqual([
      { at: 0, seq: 1_000 },
      { at: 5, seq: 996 },
      { at: 10, seq: 991 },
      { at: 15, seq: 986 },
      { at: 20, seq: 981 },
    ])
  })

  it('rests longer while very many come, at most twenty milliseconds, and no longer when they stop', async () => {
    const { bell, rings, clock } = world()
    const come = async (ms: number, each: number) => {
      for (let at = 0; at < ms; at++) {
        for (let one = 0; one < each; one++) bell.ring(1)
        await clock.advance(1)
      }
    }
    await come(80, 4)
    expect(rings.map((one) => one.at)).toEqual([0, 5, 15, 35, 55, 75])
    await come(20, 2)
    expect(rings.map((one) => one.at).slice(6)).toEqual([95, 100])
  })

  it('says that everything is worth a look when anybody did, and otherwise what is new', async () => {
    const { bell, rings, clock } = world()
    bell.ring(null)
    bell.ring(9)
    bell.ring('ordered')
    await clock.advance(5)
    bell.ring(10)
    bell.ring(null)
    bell.ring('ordered')
    await clock.advance(5)
    expect(rings.map((one) => one.seq)).toEqual([null, 9, 'ordered', null])
  })

  it('does not ring for what was rung already', async () => {
    const { bell, rings, clock } = world()
    bell.ring(1)
    await clock.advance(1_000)
    bell.ring(50)
    await clock.advance(1_000)
    expect(rings.map((one) => one.seq)).toEqual([1, 50])
    expect(clock.timerCount).toBe(0)
  })

  it('does not ring while a ring is under way, however long that takes', async () => {
    const slow = gate()
    const { bell, rings, clock } = world((call) => (call === 1 ? slow.opened : undefined))
    bell.ring(5)
    bell.ring(4)
    await clock.advance(1_000)
    bell.ring(3)
    expect(rings).toHaveLength(1)
    slow.open()
    await clock.advance(5)
    expect(rings.map((one) => one.seq)).toEqual([5, 3])
  })

  it('goes on after a ring that failed', async () => {
    const { bell, rings, clock, log } = world((call) =>
      call === 1 ? Promise.reject(new Error('down')) : null,
    )
    bell.ring(1)
    bell.ring(2)
    await clock.advance(5)
    expect(rings.map((one) => one.seq)).toEqual([1, 2])
    expect(log.lines.map((line) => line.level)).toEqual(['debug'])
  })

  it('waits 5 ms after lend(), also when the rest had grown to 20 ms under load', async () => {
    const { bell, rings, clock } = world()
    for (let at = 0; at < 75; at++) {
      for (let one = 0; one < 4; one++) bell.ring(1)
      await clock.advance(1)
    }
    expect(rings.map((one) => one.at)).toEqual([0, 5, 15, 35, 55, 75])
    await clock.advance(1_000)
    rings.length = 0
    expect(bell.lend()).toBe(true)
    bell.ring(7)
    expect(bell.lend()).toBe(false)
    await clock.advance(4)
    expect(rings).toEqual([])
    await clock.advance(1)
    expect(rings).toEqual([{ at: 1_080, seq: 7 }])
    await clock.advance(1_000)
    expect(bell.lend()).toBe(true)
    await bell.close()
    expect(rings).toHaveLength(1)
    expect(clock.timerCount).toBe(0)
  })

  it('returns false from lend() while a ring is under way, and on a store without a doorbell', async () => {
    const slow = gate()
    const { bell } = world(() => slow.opened)
    bell.ring(1)
    expect(bell.lend()).toBe(false)
    slow.open()
    await bell.close()
    expect(world(() => {}, false).bell.lend()).toBe(false)
  })

  it('sends what is waiting when it is closed, and leaves no timer', async () => {
    const { bell, rings, clock } = world()
    bell.ring(3)
    bell.ring(2)
    bell.ring(1)
    await bell.close()
    expect(rings).toEqual([
      { at: 0, seq: 3 },
      { at: 0, seq: 1 },
    ])
    expect(clock.timerCount).toBe(0)
  })

  it('waits for the ring under way when it is closed', async () => {
    const slow = gate()
    const { bell, clock } = world(() => slow.opened)
    bell.ring(1)
    let closed = false
    const closing = bell.close().then(() => {
      closed = true
    })
    await clock.advance(0)
    expect(closed).toBe(false)
    slow.open()
    await closing
    expect(clock.timerCount).toBe(0)
  })

  it('closes also when every ring fails, or when it never rang', async () => {
    const { bell, clock } = world(() => Promise.reject(new Error('down')))
    bell.ring(1)
    bell.ring(2)
    await bell.close()
    expect(clock.timerCount).toBe(0)
    await world().bell.close()
  })

  it('does nothing on a store without a doorbell', async () => {
    const { bell, rings, clock } = world(() => {}, false)
    bell.ring(1)
    await bell.close()
    expect(rings).toEqual([])
    expect(clock.timerCount).toBe(0)
  })
})
