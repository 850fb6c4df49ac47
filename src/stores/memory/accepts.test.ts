import { describe, expect, it } from 'vitest'
import { compileFilter } from './accepts.js'

const row = (eventType: string, version = 1, aggregateType = '__GLOBAL__') => ({
  eventType,
  version,
  aggregateType,
})

describe('compileFilter', () => {
  it('refuses a version that is too new, also when a prefix would take the type', () => {
    const accepts = compileFilter({ names: ['order.placed'], versions: [1], prefixes: ['order.', ''] })
    expect(accepts(row('order.placed', 2))).toBe(false)
    expect(accepts(row('order.placed', 1))).toBe(true)
    expect(accepts(row('order.shipped', 9))).toBe(true)
  })

  it('takes a type that is bound to another aggregate type by its prefix only', () => {
    const bound = { names: ['invoice\u001fplaced'], versions: [1] }
    expect(compileFilter({ ...bound, prefixes: [] })(row('placed', 1, 'order'))).toBe(false)
    expect(compileFilter({ ...bound, prefixes: ['pl'] })(row('placed', 1, 'order'))).toBe(true)
    expect(compileFilter({ ...bound, prefixes: ['pl'] })(row('placed', 2, 'invoice'))).toBe(false)
  })

  it('goes by the newest version when a name is listed twice', () => {
    const accepts = compileFilter({ names: ['a', 'a', 'x\u001fa'], versions: [2, 1, 3], prefixes: [] })
    expect(accepts(row('a', 2))).toBe(true)
    expect(accepts(row('a', 3))).toBe(false)
    expect(accepts(row('a', 3, 'x'))).toBe(true)
  })

  it('refuses what is excepted, whatever else it says', () => {
    const wide = { names: ['a', 'x\u001fa'], versions: [9, 9], prefixes: [''] }
    const accepts = compileFilter({ ...wide, excludedTypes: ['a', 'b.*'] })
    expect(accepts(row('a', 1, 'x'))).toBe(false)
    expect(accepts(row('b.c'))).toBe(true)
    expect(compileFilter({ ...wide, excludedTypes: ['*'] })(row('c'))).toBe(false)
    expect(compileFilter({ ...wide, excludedTypes: [] })(row('a'))).toBe(true)
  })
})
