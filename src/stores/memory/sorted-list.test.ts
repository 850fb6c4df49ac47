import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { SortedList } from './sorted-list.js'

const numbers = () => new SortedList<number>((a, b) => a - b)

describe('SortedList', () => {
  it('answers like a sorted array after any series of additions and deletions', () => {
    const step = fc.record({ add: fc.boolean(), value: fc.integer({ min: 0, max: 3_000 }) })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 4_000, size: 'max' }), fc.nat(3_000), (steps, from) => {
        const list = numbers()
        const model = new Set<number>()
        for (const { add, value } of steps) {
          if (!add) {
            list.delete(value)
            model.delete(value)
          } else if (!model.has(value)) {
            list.add(value)
            model.add(value)
          }
        }
        const sorted = [...model].sort((a, b) => a - b)
        expect([...list]).toEqual(sorted)
        expect([...list.from((value) => value >= from)]).toEqual(sorted.filter((value) => value >= from))
        expect([list.size, list.first()]).toEqual([sorted.length, sorted[0]])
      }),
      { numRuns: 20 },
    )
  })

  it('holds when its chunks split and empty', () => {
    const list = numbers()
    for (let value = 5_000; value > 0; value--) list.add(value)
    for (let value = 1; value <= 5_000; value += 2) list.delete(value)
    expect([...list]).toEqual(Array.from({ length: 2_500 }, (_, index) => 2 * index + 2))
    for (let value = 2; value <= 5_000; value += 2) list.delete(value)
    expect([list.size, list.first(), [...list]]).toEqual([0, undefined, []])
  })

  it('ignores the deletion of what it does not hold', () => {
    const list = numbers()
    list.delete(1)
    list.add(2)
    list.delete(1)
    list.delete(3)
    expect([...list]).toEqual([2])
  })
})
