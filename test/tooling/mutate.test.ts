import { describe, expect, it } from 'vitest'
import { mutantsOf } from '../../scripts/mutate.mjs'

/** Every mutated source, in the order of its position. */
function mutated(source: string): string[] {
  return mutantsOf(source).map(({ start, end, text }) => source.slice(0, start) + text + source.slice(end))
}

describe('mutantsOf', () => {
  it('swaps an operator without touching its operands', () => {
    expect(mutated('const a = b - c')).toEqual(['const a = b + c'])
  })

  it('makes a condition always true and always false', () => {
    expect(mutated('if (a) b = c')).toEqual(['if (true) b = c', 'if (false) b = c', 'if (a) ;'])
  })

  it('removes a call whose result is not used', () => {
    expect(mutated('f(x);')).toEqual([';'])
  })

  it('stops waiting for a promise', () => {
    expect(mutated('const a = await f()')).toEqual(['const a = void f()'])
  })

  it('leaves types alone', () => {
    expect(mutated('type A<T> = T extends true ? 1 : 2')).toEqual([])
    expect(mutated('const a: 1 = b as 1')).toEqual([])
  })

  it('leaves text concatenation alone', () => {
    expect(mutated("const a = 'x' + b")).toEqual([])
  })
})
