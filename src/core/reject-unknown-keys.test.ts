import { describe, expect, it } from 'vitest'
import { InvalidSettingError } from './errors.js'
import { type KnownKeys, rejectUnknownKeys } from './reject-unknown-keys.js'
import { readArray, readSettings } from './settings.js'

const KNOWN: KnownKeys = {
  of: 'an event',
  kind: 'field',
  names: new Set(['payload', 'headers', 'orderingKey']),
  places: new Map([['data', 'payload']]),
}

function refused(given: object): string {
  try {
    rejectUnknownKeys(given, KNOWN, (name, reason) => new Error(`${name}: ${reason}`))
  } catch (error) {
    return (error as Error).message
  }
  return 'accepted'
}

describe('rejectUnknownKeys', () => {
  it.each<[string, object, string]>([
    ['a misspelled name', { payloda: 1 }, 'payloda: an event has no such field. Did you mean payload?'],
    [
      'a name in another case',
      { OrderingKey: 1 },
      'OrderingKey: an event has no such field. Did you mean order',
    ],
    [
      'a name with an underscore',
      { ordering_key: 1 },
      'ordering_key: an event has no such field. Did you mean o',
    ],
    ['a name that belongs elsewhere', { data: 1 }, 'data: an event has no such field. Use payload.'],
    [
      'a name like no other',
      { xyz: 1 },
      'xyz: an event has no such field. Known fields: payload, headers, o',
    ],
    ['a name whose value is undefined', { xyz: undefined }, 'xyz: '],
    ['a name of Object.prototype', JSON.parse('{"__proto__":1}'), '__proto__: '],
    ['a name with control characters', { 'a\u001b[31m': 1 }, '"a\\u001b[31m": an event has no such field.'],
  ])('names %s', (_what, given, message) => {
    expect(refused(given)).toContain(message)
  })

  it('cuts a huge name', () => {
    expect(refused({ ['k'.repeat(1_000_000)]: 1 }).length).toBeLessThan(200)
  })

  it.each<[string, object]>([
    ['known names', { payload: 1, orderingKey: undefined }],
    ['an empty object', {}],
    ['inherited names', Object.create({ xyz: 1 })],
    ['names that are not enumerable', Object.defineProperty({}, 'xyz', { value: 1 })],
    ['symbols', { [Symbol('xyz')]: 1 }],
  ])('accepts %s', (_what, given) => {
    expect(refused(given)).toBe('accepted')
  })
})

describe('readSettings', () => {
  const read = (given: unknown) =>
    readSettings('createThing()', given as { limit?: number; name?: string }, ['limit', 'name'])

  it('copies what is set, and reads each setting once', () => {
    let reads = 0
    const given = {
      get limit() {
        return ++reads
      },
      name: undefined,
    }
    expect(read(given)).toStrictEqual({ limit: 1 })
    expect(reads).toBe(1)
    expect(read(undefined)).toStrictEqual({})
  })

  it('reads settings of a class with accessors', () => {
    class Config {
      get limit() {
        return 3
      }
    }
    expect(read(new Config())).toStrictEqual({ limit: 3 })
  })

  it.each<[string, unknown]>([
    ['null', null],
    ['a string', 'x'],
    ['a function', () => {}],
    ['an array', []],
    ['a Map', new Map([['limit', 1]])],
    ['a Date', new Date()],
  ])('refuses %s and lists the settings', (_what, given) => {
    expect(() => read(given)).toThrow(InvalidSettingError)
    expect(() => read(given)).toThrow(
      /createThing\(\): must be an object of settings\. Known settings: limit, name/,
    )
  })

  it('turns what a getter or a revoked proxy throws into an error of its own', () => {
    const { proxy, revoke } = Proxy.revocable({}, {})
    revoke()
    const secret = new Error('secret')
    const throwing = {
      get limit() {
        throw secret
      },
    }
    expect(() => read(proxy)).toThrow(InvalidSettingError)
    expect(() => read(throwing)).toThrow(/createThing\(\): reading the settings threw an error/)
    expect(() => read(throwing)).not.toThrow(/secret/)
  })
})

describe('readArray', () => {
  it('copies the elements by index, and refuses everything else', () => {
    const given = Object.assign([1, 2], { [Symbol.iterator]: () => [][Symbol.iterator]() })
    expect(readArray('list', given, 'must be an array')).toEqual([1, 2])
    const { proxy, revoke } = Proxy.revocable([], {})
    revoke()
    for (const bad of [null, 'ab', new Set([1]), { length: 1 }, proxy]) {
      expect(() => readArray('list', bad as never, 'must be an array')).toThrow(InvalidSettingError)
    }
  })
})
