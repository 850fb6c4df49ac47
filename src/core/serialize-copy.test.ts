import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { toEnvelope } from './domain-event.js'
import { InvalidPayloadError, PayloadTooLargeError } from './errors.js'
import { serializeAndCopy, serializeJson } from './serialize.js'

const shared = { x: 1 }

function expectFrozen(value: unknown): void {
  if (typeof value !== 'object' || value === null) return
  expect(Object.isFrozen(value)).toBe(true)
  for (const child of Object.values(value)) expectFrozen(child)
}

function expectAsParsed(value: unknown): unknown {
  const { text, copy } = serializeAndCopy(value)
  expect(text).toBe(serializeJson(value, 'json'))
  expect(copy).toStrictEqual(JSON.parse(text))
  expect(JSON.stringify(copy)).toBe(text)
  expectFrozen(copy)
  return copy
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
    const { text, copy } = serializeAndCopy(value)
    list.push(2)
    expect(text).toBe('{"n":1,"list":[1]}')
    expect(copy).toStrictEqual({ n: 1, list: [1] })
  })

  it('is not made of what is refused', () => {
    expect(() => serializeAndCopy({ at: new Date() })).toThrow(InvalidPayloadError)
    expect(() => serializeAndCopy('x'.repeat(1_048_576))).toThrow(PayloadTooLargeError)
  })
})

describe('an envelope whose payload is read soon', () => {
  it('has it without parsing, equal to what others parse', () => {
    const payload = { list: [-0, { a: undefined, b: 'c' }] }
    const soon = toEnvelope({ type: 'a', payload }, undefined, true)
    const later = toEnvelope({ type: 'a', payload })
    expect(soon.payload).toStrictEqual(later.payload)
    expect(soon.payloadText).toBe(later.payloadText)
    expectFrozen(soon.payload)
    expect(soon.payload).not.toBe(payload)
  })
})
