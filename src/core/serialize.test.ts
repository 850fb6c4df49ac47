import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { cpuTimeMs } from '../../test/support/cpu-time.js'
import { InvalidPayloadError, PayloadTooLargeError } from './errors.js'
import { MAX_PAYLOAD_BYTES, utf8Length } from './payload-limits.js'
import { type SerializeMode, serializeJson } from './serialize.js'

function refusal(value: unknown, mode: SerializeMode = 'json'): InvalidPayloadError {
  try {
    serializeJson(value, mode)
  } catch (error) {
    if (error instanceof InvalidPayloadError) return error
    throw error
  }
  return expect.fail('the payload was accepted')
}

function nested(levels: number): unknown {
  let value: unknown = []
  for (let i = 1; i < levels; i++) value = [value]
  return value
}

class Money {
  constructor(
    readonly amount: number,
    readonly currency: string,
  ) {}
}

const cyclic: Record<string, unknown> = { name: 'a' }
cyclic.list = [{ back: cyclic }]
const throwing = {
  get price(): number {
    throw new Error('secret-4711')
  },
}
const throwingToJson = {
  toJSON() {
    throw new Error('secret-4711')
  },
}

describe('a payload without a schema is refused, naming the path of', () => {
  it.each<[string, unknown, string, RegExp]>([
    ['a function', { items: [{ run: () => 1 }] }, '$.items[0].run', /function/],
    ['a symbol', { items: [0, 1, 2, { price: Symbol('x') }] }, '$.items[3].price', /symbol/],
    ['undefined at the top', undefined, '$', /undefined/],
    ['undefined in an array', { a: [1, undefined] }, '$.a[1]', /undefined/],
    // biome-ignore lint/suspicious/noSparseArray: the hole is the point
    ['a hole in an array', { a: [1, , 3] }, '$.a[1]', /hole/],
    ['a bigint', { total: 10n }, '$.total', /bigint/],
    ['NaN', { a: { b: Number.NaN } }, '$.a.b', /NaN/],
    ['Infinity', [[Number.POSITIVE_INFINITY]], '$[0][0]', /Infinity/],
    ['-Infinity', Number.NEGATIVE_INFINITY, '$', /Infinity/],
    ['a cycle', cyclic, '$.list[0].back', /contains itself/],
    ['a Date', { at: new Date() }, '$.at', /a Date; .*schema/],
    ['a Map', { m: new Map() }, '$.m', /a Map; .*schema/],
    ['a Set', { m: new Set() }, '$.m', /a Set; .*schema/],
    ['a class instance', { price: new Money(1, 'EUR') }, '$.price', /a class instance; .*schema/],
    ['a class instance at the top', new Money(1, 'EUR'), '$', /schema/],
    ['an Error', { e: new Error('x') }, '$.e', /an Error; .*schema/],
    ['a RegExp', { r: /x/ }, '$.r', /a RegExp; .*schema/],
    ['a Promise', { p: Promise.resolve() }, '$.p', /a Promise; .*schema/],
    ['nested bytes', { b: new Uint8Array(3) }, '$.b', /an? Uint8Array; .*schema/],
    ['a boxed string', { b: Object('x') }, '$.b', /a String; .*schema/],
    ['an object made from another object', { o: Object.create({ a: 1 }) }, '$.o', /schema/],
    ['a getter that throws', { order: throwing }, '$.order.price', /threw/],
    ['a toJSON that throws', { order: throwingToJson }, '$.order', /toJSON/],
    ['U+0000 in a value', { a: 'x\0y' }, '$.a', /U\+0000/],
    ['U+0000 in a key', { a: { 'x\0y': 1 } }, '$.a["x\\u0000y"]', /key.*U\+0000/],
    ['half a surrogate pair in a value', { a: ['ok', '\ud83d'] }, '$.a[1]', /surrogate/],
    ['half a surrogate pair in a key', { 'x\udc00': 1 }, '$["x\\udc00"]', /key.*surrogate/],
    ['swapped surrogates', '\udc00\ud800', '$', /surrogate/],
    ['101 levels', nested(101), `$${'[0]'.repeat(100)}`, /deeper than 100/],
    ['10,000 levels', nested(10_000), `$${'[0]'.repeat(100)}`, /deeper than 100/],
    ['a revoked proxy', { p: revokedProxy() }, '$.p', /threw/],
  ])('%s', (_what, value, path, reason) => {
    const error = refusal(value)
    expect(error.path).toBe(path)
    expect(error.reason).toMatch(reason)
    expect(error.message).toContain(path)
    expect(error.code).toBe('INVALID_PAYLOAD')
  })

  it('never shows a value, and keeps what a getter threw', () => {
    const error = refusal({ card: '4111111111111111', order: throwing })
    expect(error.message).not.toMatch(/4111|4711/)
    expect((error.thrown as Error).message).toBe('secret-4711')
    expect(refusal({ card: '4111111111111111\0' }).message).not.toContain('4111')
  })

  it('quotes odd keys, and cuts long ones', () => {
    expect(refusal({ 'two words': { "it's": 1n } }).path).toBe('$["two words"]["it\'s"]')
    expect(refusal({ 'esc\u001b[31m\u009b': 1n }).path).toBe('$["esc\\u001b[31m\\u009b"]')
    expect(refusal({ ['k'.repeat(100_000)]: 1n }).path).toBe(`$["${'k'.repeat(40)}…"]`)
  })
})

describe('a payload without a schema', () => {
  it('comes back structurally equal, whatever JSON value it is', () => {
    const value = fc.jsonValue({ maxDepth: 6, stringUnit: 'binary' })
    fc.assert(
      fc.property(value, (json) => {
        const withoutNegativeZero = JSON.parse(JSON.stringify(json)) as unknown
        try {
          expect(JSON.parse(serializeJson(json, 'json'))).toStrictEqual(withoutNegativeZero)
        } catch (error) {
          if (!(error instanceof InvalidPayloadError)) throw error
          expect(JSON.stringify(json)).toContain('\\u0000')
        }
      }),
      { numRuns: 500 },
    )
  })

  it('is written as JSON.stringify writes it, in both modes', () => {
    const value = {
      text: 'quote " backslash \\ newline \n tab \t emoji 😀 line separator \u2028 del \u007f',
      numbers: [0, -0, 1.5, -2e-7, 1e21, Number.MAX_SAFE_INTEGER, 5e-324],
      nothing: null,
      yes: true,
      no: false,
      empty: [{}, [], ''],
      'odd key "': 1,
      dropped: undefined,
    }
    expect(serializeJson(value, 'json')).toBe(JSON.stringify(value))
    expect(serializeJson(value, 'schema')).toBe(JSON.stringify(value))
  })

  it('may be a scalar', () => {
    for (const value of [null, true, 0, 'x', '']) {
      expect(serializeJson(value, 'json')).toBe(JSON.stringify(value))
    }
    expect(serializeJson(-0, 'json')).toBe('0')
  })

  it('leaves out what JSON.stringify leaves out without reading it', () => {
    const match = 'order 42'.match(/order (?<no>\d+)/)
    const hidden = Object.defineProperty({ a: 1 }, 'b', { value: 2, enumerable: false })
    const payload = { match, hidden, symbol: { a: 1, [Symbol('key')]: 2 } }
    const text = serializeJson(payload, 'json')
    expect(text).toBe('{"match":["order 42","42"],"hidden":{"a":1},"symbol":{"a":1}}')
    expect(text).toBe(JSON.stringify(payload))
  })

  it('drops undefined properties, as JSON does', () => {
    expect(serializeJson({ a: undefined, b: 1, c: undefined }, 'json')).toBe('{"b":1}')
    expect(serializeJson({ a: undefined }, 'json')).toBe('{}')
  })

  it('may be 100 levels deep, and hold one object twice', () => {
    expect(serializeJson(nested(100), 'json')).toBe('['.repeat(100) + ']'.repeat(100))
    const shared = { x: 1 }
    expect(serializeJson([shared, { shared }], 'json')).toBe('[{"x":1},{"shared":{"x":1}}]')
  })

  it('may come from another realm, or have no prototype', () => {
    expect(serializeJson(runInNewContext('({ a: [1, { b: 2 }] })'), 'json')).toBe('{"a":[1,{"b":2}]}')
    expect(refusal(runInNewContext('({ at: new Date() })')).path).toBe('$.at')
    expect(serializeJson(Object.assign(Object.create(null), { a: 1 }), 'json')).toBe('{"a":1}')
  })

  it('may hold a __proto__ key, which does no harm', () => {
    const hostile = JSON.parse('{"__proto__":{"polluted":true},"constructor":{"prototype":1}}') as unknown
    const text = serializeJson(hostile, 'json')
    expect(text).toBe('{"__proto__":{"polluted":true},"constructor":{"prototype":1}}')
    expect(Object.hasOwn(JSON.parse(text) as object, '__proto__')).toBe(true)
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
  })

  it('has its getters read once', () => {
    let reads = 0
    const value = {
      get n() {
        return ++reads
      },
    }
    expect(serializeJson(value, 'json')).toBe('{"n":1}')
    expect(reads).toBe(1)
  })
})

describe('a payload with a schema', () => {
  it('may hold Dates, values with toJSON and class instances', () => {
    const value = {
      at: new Date(0),
      url: new URL('https://example.org/'),
      price: new Money(1, 'EUR'),
      own: { toJSON: () => ({ nested: new Date(0) }) },
      gone: { toJSON: () => undefined },
    }
    expect(serializeJson(value, 'schema')).toBe(JSON.stringify(value))
    expect(serializeJson(new Date(0), 'schema')).toBe('"1970-01-01T00:00:00.000Z"')
  })

  it('has toJSON called once, with the key, and its result is not asked again', () => {
    const calls: string[] = []
    const itself = {
      n: 1,
      toJSON(key: string): unknown {
        calls.push(key)
        return { n: this.n }
      },
    }
    expect(serializeJson({ a: itself, b: [itself] }, 'schema')).toBe('{"a":{"n":1},"b":[{"n":1}]}')
    expect(calls).toEqual(['a', '0'])
  })

  it.each<[string, unknown, string, RegExp]>([
    ['an invalid Date', { at: [new Date('x')] }, '$.at[0]', /Date is invalid/],
    ['a toJSON that throws', { order: throwingToJson }, '$.order', /toJSON\(\) threw/],
    ['a toJSON that gives a bad value', { a: { toJSON: () => 1n } }, '$.a', /bigint/],
    ['a toJSON that gives undefined in an array', [{ toJSON: () => undefined }], '$[0]', /undefined/],
    ['a toJSON that never ends', { a: endless() }, `$.a${'.a'.repeat(99)}`, /deeper than 100/],
    ['a Map', { m: new Map() }, '$.m', /a Map/],
    ['a Set', { m: new Set() }, '$.m', /a Set/],
    ['a WeakMap', { m: new WeakMap() }, '$.m', /a WeakMap/],
    ['a WeakSet', { m: new WeakSet() }, '$.m', /a WeakSet/],
    ['a Promise', { m: Promise.resolve() }, '$.m', /a Promise/],
    ['a RegExp', { m: /x/ }, '$.m', /a RegExp/],
    ['an Error', { m: new TypeError('x') }, '$.m', /an Error/],
    ['an ArrayBuffer', { m: new ArrayBuffer(1) }, '$.m', /an ArrayBuffer/],
    ['a typed array', { m: new Float64Array(1) }, '$.m', /a Float64Array/],
    ['a Buffer, although it has toJSON', { m: Buffer.from('x') }, '$.m', /Uint8Array/],
    ['bytes at the top', new Uint8Array(1), '$', /Uint8Array/],
    [
      'a class instance that holds a function',
      {
        m: new (class {
          run = () => 1
        })(),
      },
      '$.m.run',
      /function/,
    ],
    ['Headers', { m: new Headers({ a: 'b' }) }, '$.m', /a Headers/],
    ['a URLSearchParams', { m: new URLSearchParams('a=b') }, '$.m', /a URLSearchParams/],
    ['a FormData', { m: new FormData() }, '$.m', /a FormData/],
    ['an iterator of an array', { m: [1].values() }, '$.m', /an Array Iterator/],
    ['an iterator of a Map', { m: new Map([[1, 2]]).entries() }, '$.m', /a Map Iterator/],
    ['matches of a text', { m: 'aa'.matchAll(/a/g) }, '$.m', /a RegExp String Iterator/],
    ['a Blob', { m: new Blob(['x']) }, '$.m', /a class instance whose "\w+" JSON would lose/],
    ['a list of its own without fields', { m: new PrivateList() }, '$.m', /elements JSON would lose/],
    ['values that are all inherited', { m: Object.create({ a: 1 }) }, '$.m', /"a" JSON would lose/],
    ['a private field beside another field', { m: new Price(5, 'EUR') }, '$.m', /"amount" JSON would lose/],
    ['a private field of a base class', { m: new NamedPrice(5, 'EUR') }, '$.m', /"amount" JSON would lose/],
    ['a cycle through a class instance', selfHolding(), '$.self', /contains itself/],
    ['U+0000 out of toJSON', { a: { toJSON: () => '\0' } }, '$.a', /U\+0000/],
  ])('is refused for %s', (_what, value, path, reason) => {
    const error = refusal(value, 'schema')
    expect(error.path).toBe(path)
    expect(error.reason).toMatch(reason)
  })
})

class PrivateList {
  readonly #items = [1, 2];
  [Symbol.iterator]() {
    return this.#items.values()
  }
}

class Price {
  readonly #amount: number
  constructor(
    amount: number,
    readonly currency: string,
  ) {
    this.#amount = amount
  }
  get amount() {
    return this.#amount
  }
}

class NamedPrice extends Price {
  readonly name = 'gross'
}

describe('a class instance with a schema is accepted', () => {
  class Person {
    constructor(
      readonly first: string,
      readonly last: string | undefined,
    ) {}
  }

  it('with methods, setters, static getters and a tag', () => {
    class Busy extends Person {
      static get kind() {
        return 'x'
      }
      set nickname(_name: string) {}
      get [Symbol.toStringTag]() {
        return 'Busy'
      }
      greet() {
        return this.first
      }
    }
    expect(serializeJson(new Busy('Ada', 'Lovelace'), 'schema')).toBe('{"first":"Ada","last":"Lovelace"}')
  })

  it('with getters that are derived from its fields, also if they throw or reject', () => {
    class Named extends Person {
      get full() {
        return `${this.first} ${this.last}`
      }
      get initial(): string {
        if (this.last === undefined) throw new Error('there is no last name')
        return this.last.slice(0, 1)
      }
      get later() {
        return Promise.reject(new Error('not now'))
      }
    }
    expect(serializeJson(new Named('Ada', undefined), 'schema')).toBe('{"first":"Ada"}')
  })

  it('with a field of the name of a getter of its base class', () => {
    const price = Object.defineProperty(new Price(5, 'EUR'), 'amount', { value: 6, enumerable: true })
    expect(serializeJson(price, 'schema')).toBe('{"currency":"EUR","amount":6}')
  })

  it('with private fields and a toJSON()', () => {
    class Written extends Price {
      toJSON() {
        return [this.amount, this.currency]
      }
    }
    expect(serializeJson({ price: new Written(5, 'EUR') }, 'schema')).toBe('{"price":[5,"EUR"]}')
  })
})

describe('the size limit', () => {
  it('allows exactly 1,048,576 bytes and refuses one more', () => {
    const text = 'a'.repeat(MAX_PAYLOAD_BYTES - 2)
    expect(serializeJson(text, 'json')).toHaveLength(MAX_PAYLOAD_BYTES)
    expect(() => serializeJson(`${text}a`, 'json')).toThrow(PayloadTooLargeError)
  })

  it('counts bytes, not characters', () => {
    const third = Math.floor((MAX_PAYLOAD_BYTES - 2) / 3)
    expect(utf8Length(serializeJson('€'.repeat(third), 'json'))).toBeLessThanOrEqual(MAX_PAYLOAD_BYTES)
    expect(() => serializeJson('€'.repeat(third + 1), 'json')).toThrow(PayloadTooLargeError)
  })

  it('counts escapes as they are written', () => {
    expect(() => serializeJson('\u0001'.repeat(MAX_PAYLOAD_BYTES / 6 + 1), 'json')).toThrow(
      PayloadTooLargeError,
    )
  })

  it.each(['json', 'schema'] as const)(
    'ends fast on a graph of 60 objects that unfolds into 2^60 (%s)',
    (mode) => {
      let bomb: unknown = ['x']
      for (let i = 0; i < 60; i++) bomb = [bomb, bomb]
      const started = cpuTimeMs()
      expect(() => serializeJson(bomb, mode)).toThrow(PayloadTooLargeError)
      expect(cpuTimeMs() - started).toBeLessThan(1_000)
    },
  )

  it('ends fast on a graph that unfolds into nothing but dropped properties', () => {
    const wide: Record<string, undefined> = {}
    for (let i = 0; i < 100_000; i++) wide[`k${i}`] = undefined
    let bomb: unknown = wide
    for (let i = 0; i < 30; i++) bomb = [bomb, bomb]
    const started = cpuTimeMs()
    expect(() => serializeJson(bomb, 'json')).toThrow(PayloadTooLargeError)
    expect(cpuTimeMs() - started).toBeLessThan(5_000)
  })
})

describe('utf8Length', () => {
  it('agrees with TextEncoder for any string', () => {
    const anything = fc.string({
      unit: fc.integer({ min: 0, max: 0xffff }).map((unit) => String.fromCharCode(unit)),
    })
    fc.assert(
      fc.property(fc.oneof(anything, fc.string({ unit: 'binary' })), (text) => {
        expect(utf8Length(text)).toBe(new TextEncoder().encode(text).length)
      }),
    )
  })
})

function revokedProxy(): unknown {
  const { proxy, revoke } = Proxy.revocable({}, {})
  revoke()
  return proxy
}

function endless(): unknown {
  return { toJSON: () => ({ a: endless() }) }
}

function selfHolding(): unknown {
  const holder = new (class {
    self: unknown
  })()
  holder.self = holder
  return holder
}
