import { describe, expect, it } from 'vitest'
import { differingTypes } from './differences.js'

const instance = (handlers: Record<string, string[]>) => ({ handlers })

describe('differingTypes', () => {
  it('finds nothing where all have the same handlers, in whatever order', () => {
    const first = instance({ 'order.placed': ['mail', 'audit'], other: ['x'] })
    const second = instance({ 'order.placed': ['audit', 'mail'] })
    expect(differingTypes([first, second])).toEqual([])
    expect(differingTypes([])).toEqual([])
  })

  it('does not mind an instance that does not handle the type at all', () => {
    expect(differingTypes([instance({ a: ['x'] }), instance({ b: ['y'] })])).toEqual([])
  })

  it('names the types for which they differ', () => {
    const first = instance({ a: ['x', 'y'], b: ['z'] })
    const second = instance({ a: ['x'], b: ['z'] })
    expect(differingTypes([first, second])).toEqual(['a'])
  })

  it('takes patterns into account', () => {
    const first = instance({ 'order.placed': ['mail'], 'order.*': ['audit'] })
    const same = instance({ 'order.*': ['audit'], 'order.placed': ['mail'] })
    const second = instance({ 'order.placed': ['mail'] })
    expect(differingTypes([first, same])).toEqual([])
    expect(differingTypes([first, second])).toEqual(['order.placed'])
    expect(differingTypes([instance({ '*': ['a'] }), instance({ '*': ['b'] })])).toEqual(['*'])
  })

  it.each([
    ['a wider pattern', { 'order.*': ['x'] }, { 'order.paid.*': ['y'] }, 'order.paid.*'],
    ['everything', { '*': ['x'] }, { 'order.*': ['y'] }, 'order.*'],
    ['one aggregate type', { 'order/placed': ['x'] }, { placed: ['y'] }, 'order/placed'],
  ])('compares a route with %s', (_, first, second, route) => {
    expect(differingTypes([instance(first), instance(second)])).toEqual([route])
    expect(differingTypes([instance(first), instance(first)])).toEqual([])
  })
})
