import { describe, expect, it } from 'vitest'
import { deepFreeze } from './plain.js'

describe('deepFreeze', () => {
  it('freezes objects and arrays all the way down', () => {
    const value = deepFreeze({ a: [{ b: { c: 1 } }] })
    expect(Object.isFrozen(value)).toBe(true)
    expect(Object.isFrozen(value.a)).toBe(true)
    expect(Object.isFrozen(value.a[0]?.b)).toBe(true)
  })

  it('goes into objects that were frozen at the top only', () => {
    const value = deepFreeze(Object.freeze({ list: [1] }))
    expect(Object.isFrozen(value.list)).toBe(true)
  })

  it('leaves Dates, bytes and class instances alone', () => {
    const value = deepFreeze({ at: new Date(0), bytes: new Uint8Array(1), own: new (class Own {})() })
    expect(Object.isFrozen(value.at)).toBe(false)
    expect(Object.isFrozen(value.bytes)).toBe(false)
    expect(Object.isFrozen(value.own)).toBe(false)
  })

  it('ends on cycles, and on 100,000 levels', () => {
    const cycle: Record<string, unknown> = {}
    cycle.self = Object.freeze({ cycle })
    expect(Object.isFrozen(deepFreeze(cycle))).toBe(true)
    const deep = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000)) as unknown
    expect(Object.isFrozen(deepFreeze(deep))).toBe(true)
  })

  it('takes scalars as they are', () => {
    expect(deepFreeze(null)).toBe(null)
    expect(deepFreeze('x')).toBe('x')
  })
})
