import { describe, expect, it } from 'vitest'
import { VirtualClock } from '../testing/virtual-clock.js'
import { Alarm } from './alarm.js'

function world() {
  const clock = new VirtualClock()
  const alarm = new Alarm(clock)
  let woken = 0
  return { clock, alarm, sleep: () => void alarm.sleep().then(() => woken++), woken: () => woken }
}

describe('Alarm', () => {
  it('sleeps for ever when no time is set, and leaves no timer', async () => {
    const { clock, sleep, woken } = world()
    sleep()
    await clock.advance(1e9)
    expect(woken()).toBe(0)
    expect(clock.timerCount).toBe(0)
  })

  it('wakes at the time that was set, before the sleep or during it', async () => {
    const { clock, alarm, sleep, woken } = world()
    alarm.set(100)
    sleep()
    await clock.advance(99)
    expect(woken()).toBe(0)
    await clock.advance(1)
    expect(woken()).toBe(1)
    expect(alarm.rang()).toBe(true)
    sleep()
    alarm.set(150)
    await clock.advance(50)
    expect(woken()).toBe(2)
  })

  it('keeps the earliest of several times', async () => {
    const { clock, alarm, sleep, woken } = world()
    alarm.set(100)
    sleep()
    alarm.set(500)
    alarm.set(40)
    alarm.set(60)
    expect(clock.timerCount).toBe(1)
    await clock.advance(40)
    expect(woken()).toBe(1)
  })

  it('wakes when it is rung, and cancels its timer', async () => {
    const { clock, alarm, sleep, woken } = world()
    alarm.set(100)
    sleep()
    alarm.ring()
    await clock.advance(0)
    expect(woken()).toBe(1)
    expect(clock.timerCount).toBe(0)
  })

  it('remembers its time when it was rung before', async () => {
    const { clock, alarm, sleep, woken } = world()
    alarm.set(100)
    sleep()
    alarm.ring()
    expect(alarm.rang()).toBe(false)
    sleep()
    await clock.advance(100)
    expect(woken()).toBe(2)
  })

  it('says once that its time has come', async () => {
    const { clock, alarm } = world()
    alarm.set(100)
    expect(alarm.rang()).toBe(false)
    await clock.advance(100)
    expect(alarm.rang()).toBe(true)
    expect(alarm.rang()).toBe(false)
  })

  it('does not remember a ring that nobody slept through', async () => {
    const { clock, alarm, sleep, woken } = world()
    alarm.ring()
    sleep()
    await clock.advance(1_000)
    expect(woken()).toBe(0)
  })

  it('wakes at once for a time that is over', async () => {
    const { clock, alarm, sleep, woken } = world()
    await clock.advance(100)
    alarm.set(50)
    sleep()
    await clock.advance(0)
    expect(woken()).toBe(1)
  })
})
