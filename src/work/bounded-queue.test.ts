import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { BoundedQueue } from './bounded-queue.js'

const item = (bytes: number, name = '') => ({ weight: 1, runBytes: bytes, name })

describe('BoundedQueue', () => {
  it('refuses a place beyond its capacity, and changes nothing by it', () => {
    const queue = new BoundedQueue(2, 100)
    expect(queue.reserve(1)).toBe(true)
    expect(queue.reserve(1)).toBe(true)
    expect(queue.reserve(1)).toBe(false)
    expect(queue).toMatchObject({ free: 0, freeBytes: 98, length: 0 })
  })

  it('refuses a place beyond its bytes, and takes a smaller one', () => {
    const queue = new BoundedQueue(10, 100)
    expect(queue.reserve(60)).toBe(true)
    expect(queue.reserve(41)).toBe(false)
    expect(queue.reserve(40)).toBe(true)
    expect(queue).toMatchObject({ free: 8, freeBytes: 0 })
  })

  it('takes one item of any size when it is empty, and then nothing beside it', () => {
    const queue = new BoundedQueue(10, 100)
    expect(queue.reserve(5_000)).toBe(true)
    expect(queue.freeBytes).toBe(0)
    expect(queue.reserve(0)).toBe(false)
    queue.addReserved(item(5_000))
    expect(queue.reserve(1)).toBe(false)
    queue.take()
    expect(queue).toMatchObject({ free: 10, freeBytes: 100 })
  })

  it('takes no oversized item beside another one', () => {
    const queue = new BoundedQueue(10, 100)
    queue.reserve(0)
    expect(queue.reserve(101)).toBe(false)
  })

  it('gives a cancelled place back', () => {
    const queue = new BoundedQueue(1, 100)
    queue.reserve(70)
    queue.cancelReservation(70)
    expect(queue).toMatchObject({ free: 1, freeBytes: 100 })
    expect(queue.reserve(100)).toBe(true)
  })

  it('shows a reserved place as taken and not as an item', () => {
    const queue = new BoundedQueue(3, 100)
    queue.reserve(10)
    expect(queue).toMatchObject({ length: 0, free: 2, freeBytes: 90 })
    expect(queue.take()).toBeUndefined()
    queue.addReserved(item(10))
    expect(queue).toMatchObject({ length: 1, free: 2, freeBytes: 90 })
  })

  it('adds what was claimed already, whatever the room, and never reports less than none', () => {
    const queue = new BoundedQueue(1, 10)
    queue.add(item(8))
    queue.add(item(8))
    expect(queue).toMatchObject({ length: 2, free: 0, freeBytes: 0 })
    queue.take()
    expect(queue).toMatchObject({ length: 1, free: 0, freeBytes: 2 })
  })

  it('keeps the order over more items than it ever compacts at once', () => {
    const queue = new BoundedQueue<ReturnType<typeof item>>(20_000, 1e9)
    const taken: string[] = []
    for (let n = 0; n < 10_000; n++) queue.add(item(1, String(n)))
    for (let n = 0; n < 9_000; n++) taken.push(queue.take()?.name ?? '')
    for (let n = 10_000; n < 12_000; n++) queue.add(item(1, String(n)))
    for (let one = queue.take(); one; one = queue.take()) taken.push(one.name)
    expect(taken).toEqual(Array.from({ length: 12_000 }, (_, n) => String(n)))
    expect(queue).toMatchObject({ length: 0, free: 20_000, freeBytes: 1e9 })
  })

  it('behaves as a list with two sums, over thousands of operations', () => {
    const bytes = fc.nat({ max: 60 })
    const operation = fc.oneof(
      fc.record({ do: fc.constant('reserve' as const), bytes }),
      fc.record({ do: fc.constant('put' as const), bytes: fc.constant(0) }),
      fc.record({ do: fc.constant('cancel' as const), bytes: fc.constant(0) }),
      fc.record({ do: fc.constant('add' as const), bytes }),
      fc.record({ do: fc.constant('take' as const), bytes: fc.constant(0) }),
    )
    const operations = fc.array(operation, { maxLength: 400, size: 'max' })
    fc.assert(
      fc.property(operations, fc.integer({ min: 1, max: 12 }), (steps, capacity) => {
        const maxBytes = 100
        const queue = new BoundedQueue<ReturnType<typeof item>>(capacity, maxBytes)
        const reserved: number[] = []
        const items: ReturnType<typeof item>[] = []
        let names = 0
        for (const step of steps) {
          const taken = [...reserved, ...items.map((one) => one.runBytes)]
          const sum = taken.reduce((total, one) => total + one, 0)
          if (step.do === 'reserve') {
            const fits = taken.length < capacity && (taken.length === 0 || sum + step.bytes <= maxBytes)
            expect(queue.reserve(step.bytes)).toBe(fits)
            if (fits) reserved.push(step.bytes)
          } else if (step.do === 'put' && reserved.length > 0) {
            const one = item(reserved.shift() as number, String(names++))
            queue.addReserved(one)
            items.push(one)
          } else if (step.do === 'cancel' && reserved.length > 0) {
            queue.cancelReservation(reserved.pop() as number)
          } else if (step.do === 'add') {
            const one = item(step.bytes, String(names++))
            queue.add(one)
            items.push(one)
          } else if (step.do === 'take') {
            expect(queue.take()).toBe(items.shift())
          }
          const left = [...reserved, ...items.map((one) => one.runBytes)]
          const leftBytes = left.reduce((total, one) => total + one, 0)
          expect(queue.length).toBe(items.length)
          expect(queue.free).toBe(Math.max(0, capacity - left.length))
          expect(queue.freeBytes).toBe(Math.max(0, maxBytes - leftBytes))
        }
      }),
      { numRuns: 60 },
    )
  })
})
