import { describe, expect, it } from 'vitest'
import { delivery, named } from '../../test/support/dispatcher-world.js'
import { MOST_BYTES, WaitingRoom } from './waiting-room.js'

describe('WaitingRoom', () => {
  it('is full with as many as it holds, and tells once when three quarters of them have left', () => {
    const room = new WaitingRoom(8)
    const all = Array.from({ length: 8 }, (_, n) => named(`e${n}`))
    for (const one of all.slice(1)) room.enter(one)
    room.enter(all[1] as (typeof all)[0])
    expect(room.isFull).toBe(false)
    room.enter(all[0] as (typeof all)[0])
    expect(room.isFull).toBe(true)
    let told = 0
    room.whenRoomy(() => told++)
    const tellings = all.map((one) => {
      room.leave(one)
      room.leave(one)
      return told
    })
    expect(tellings).toEqual([0, 0, 0, 0, 0, 1, 1, 1])
  })

  it('is full with so many bytes, however few events that are', () => {
    const room = new WaitingRoom(1_000)
    const payload = 'x'.repeat(900_000)
    const all = Array.from({ length: 10 }, (_, n) => delivery({ eventId: `e${n}`, payload }))
    let entered = 0
    for (const one of all) {
      if (room.isFull) break
      room.enter(one)
      entered++
    }
    expect(entered).toBe(Math.ceil(MOST_BYTES / 900_002))
    let roomy = false
    room.whenRoomy(() => {
      roomy = true
    })
    for (const one of all.slice(0, 7)) room.leave(one)
    expect(roomy).toBe(false)
    room.leave(all[7] as (typeof all)[0])
    expect(roomy).toBe(true)
  })
})
