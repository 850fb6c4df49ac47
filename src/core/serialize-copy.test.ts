import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import { toEnvelope } from './domain-event.js'
import { InvalidPayloadError } from './errors.js'
import { encodePayload } from './payload.js'
import { copyJson } from './serialize.js'

const shared = { x: 1 }

function expectFrozen(value: unknown): void {
  if (typeof value !== 'object' || value === null) return
  expect(Object.isFrozen(value)).toBe(true)
  for (const child of Object.values(value)) expectFrozen(child)
}

function expectAsParsed(value: unknown): unknown {
  const { text, value: copy } = copyJson(value, 'json')
  expect(copy).toStrictEqual(JSON.parse(text))
  expect(JSON.stringify(copy)).toBe(text)
  const { payload } = toEnvelope({ type: 'a', payload: value })
  expect(payload).toStrictEqual(JSON.parse(text))
  expectFrozen(payload)
  return payload
}

describe('the copy of a payload', () => {
  it('is what a reader of the text gets, frozen, whatever JSON value it is', () => {
    const value = fc.jsonValue({ maxDepth: 6, stringUnit: 'grapheme' })
    fc.assert(
      fc.property(value, (json) => void expectAsParsed(json)),
      { numRuns: 500 },
    )
  })

  it.each<[string, unknown]>([
    ['scalars', 'x'],
    ['negative zero', [-0, { a: -0 }]],
    ['what is undefined', { a: undefined, b: 1 }],
    ['one object twice', [shared, { shared }]],
    ['another realm', runInNewContext('({ a: [1, { b: 2 }] })')],
    ['no prototype', Object.assign(Object.create(null), { a: 1 })],
    ['numbers as keys', { b: 1, 2: 2, 1: 1 }],
    ['names that every object has', { constructor: 1, toString: 2, valueOf: { hasOwnProperty: 3 } }],
    ['nothing', { empty: [{}, [], '', null] }],
  ])('is right about %s', (_, value) => {
    expectAsParsed(value)
  })

  it('has a __proto__ key as its own, and the prototype of any object', () => {
    const copy = expectAsParsed(JSON.parse('{"__proto__":{"polluted":true}}')) as { polluted?: boolean }
    expect(Object.hasOwn(copy, '__proto__')).toBe(true)
    expect(Object.getPrototypeOf(copy)).toBe(Object.prototype)
    expect(copy.polluted).toBeUndefined()
  })

  it('is of what was written: getters are read once, and later changes do not reach it', () => {
    let reads = 0
    const list = [1]
    const value = {
      get n() {
        return ++reads
      },
      list,
    }
    const event = toEnvelope({ type: 'a', payload: value })
    list.push(2)
    expect(event.payloadText).toBe('{"n":1,"list":[1]}')
    expect(event.payload).toStrictEqual({ n: 1, list: [1] })
    expect(Object.isFrozen(value)).toBe(false)
  })

  it('is kept of small payloads only: what waits in a queue takes little more than its text', () => {
    const kept = (value: unknown) => encodePayload({ value }, 'json').copy !== undefined
    expect(kept({ a: [1, { b: 'c' }] })).toBe(true)
    expect(kept(Array.from({ length: 15 }, () => []))).toBe(true)
    expect(kept(Array.from({ length: 16 }, () => []))).toBe(false)
    expect(kept('x'.repeat(2_046))).toBe(true)
    expect(kept('x'.repeat(2_047))).toBe(false)
  })
})

describe('a toJSON() that every object has', () => {
  afterEach(() => {
    Reflect.deleteProperty(Object.prototype, 'toJSON')
  })

  it('is refused: it would change what is written behind our back', () => {
    Object.defineProperty(Object.prototype, 'toJSON', { value: () => 'changed', configurable: true })
    expect(() => copyJson({ a: 1 }, 'json')).toThrow(InvalidPayloadError)
  })
})
