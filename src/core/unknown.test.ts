import { describe, expect, it } from 'vitest'
import { HOSTILE_VALUES } from '../testing/hostile-values.js'
import { causesOf, describeError, ignoreRejection, isA, isThenable, read, settled } from './unknown.js'

const values = Object.entries(HOSTILE_VALUES)

describe.each(values)('%s', (_name, make) => {
  it('can be inspected without an exception', () => {
    expect(typeof isA(make(), Error)).toBe('boolean')
    expect(typeof isThenable(make())).toBe('boolean')
    for (const key of ['name', 'then', 'cause', Symbol.iterator]) read(make(), key)
    for (const cause of causesOf(make())) expect(typeof cause).toBe('object')
    const { name, message } = describeError(make())
    expect(name.length).toBeLessThanOrEqual(100)
    expect(message.length).toBeLessThanOrEqual(4_000)
    expect(`${name}${message}`).not.toMatch(/\0|[\ud800-\udfff]/)
  })

  it('settles once, in a native promise, when it is awaited', async () => {
    let ends = 0
    await settled(make()).then(
      () => ends++,
      () => ends++,
    )
    ignoreRejection(make())
    expect(ends).toBe(1)
  })
})

describe('ignoreRejection', () => {
  it('calls no method of a value that cannot be awaited', () => {
    let reads = 0
    const get = () => void reads++
    ignoreRejection(Object.defineProperty({}, 'then', { get }))
    expect(reads).toBe(1)
  })
})

describe('causesOf', () => {
  it('returns an error and its causes, the outermost first, up to ten', () => {
    const inner = new Error('inner')
    const outer = new Error('outer', { cause: inner })
    expect(causesOf(outer)).toEqual([outer, inner])
    expect(causesOf('text')).toEqual([])
    const circle: Error = new Error('circle')
    circle.cause = circle
    expect(causesOf(circle)).toHaveLength(10)
  })
})

describe('describeError', () => {
  it.each<[string, unknown, { name: string; message: string }]>([
    ['an Error', new TypeError('boom'), { name: 'TypeError', message: 'boom' }],
    ['a string', 'boom', { name: 'NonError', message: 'boom' }],
    ['null', null, { name: 'NonError', message: 'null' }],
    ['undefined', undefined, { name: 'NonError', message: 'undefined' }],
    ['a symbol', Symbol('s'), { name: 'NonError', message: 'Symbol(s)' }],
    ['a bigint', 1n, { name: 'NonError', message: '1' }],
    ['an object like an error', { name: 'Odd', message: 'm' }, { name: 'Odd', message: 'm' }],
    [
      'an object with keys',
      { status: 3 },
      { name: 'NonError', message: 'an object was thrown, with the keys: status' },
    ],
    ['an Error without a message', new Error(), { name: 'Error', message: '' }],
    ['NUL and lone surrogates', new Error('a\0b\ud800'), { name: 'Error', message: 'a\ufffdb\ufffd' }],
  ])('describes %s', (_what, thrown, expected) => {
    expect(describeError(thrown)).toEqual(expected)
  })

  it('finds the reason inside an AggregateError without a message, as a refused connection throws', () => {
    const refused = Object.assign(new AggregateError([new Error('connect ECONNREFUSED ::1:5432')]), {
      code: 'ECONNREFUSED',
    })
    expect(describeError(refused).message).toBe('ECONNREFUSED; connect ECONNREFUSED ::1:5432')
  })

  it('never throws, whatever was thrown', () => {
    const hostile = new Proxy(
      {},
      {
        get() {
          throw new Error('no')
        },
        ownKeys() {
          throw new Error('no')
        },
        has() {
          throw new Error('no')
        },
        getPrototypeOf() {
          throw new Error('no')
        },
      },
    )
    const getters = {
      get name() {
        throw new Error('no')
      },
      get message() {
        throw new Error('no')
      },
    }
    const selfHolding = new AggregateError([])
    for (let i = 0; i < 5; i++) selfHolding.errors.push(selfHolding)
    for (const thrown of [
      hostile,
      getters,
      Object.create(null),
      () => 1,
      selfHolding,
      new Proxy(() => 1, {}),
    ]) {
      expect(typeof describeError(thrown).message).toBe('string')
    }
  })

  it('cuts huge messages at 4,000 characters', () => {
    expect(describeError(new Error('x'.repeat(10_000_000))).message).toHaveLength(4_000)
    expect(describeError(Object.assign(new Error('x'), { name: 'n'.repeat(5_000) })).name).toHaveLength(100)
  })
})
