import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { InvalidEventIdError } from './errors.js'
import { createEventIdGenerator, EventId } from './event-id.js'

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

function millisecondsOf(id: string): number {
  return Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16)
}

function expectStrictlyIncreasing(ids: readonly string[]): void {
  for (let i = 1; i < ids.length; i++) {
    if (!((ids[i - 1] as string) < (ids[i] as string))) expect.fail(`${ids[i - 1]} is not before ${ids[i]}`)
  }
}

describe('EventId.new', () => {
  it('makes lowercase UUIDv7 text of the present millisecond', () => {
    const before = Date.now()
    const id = EventId.new()
    expect(id).toMatch(UUID_V7)
    expect(millisecondsOf(id)).toBeGreaterThanOrEqual(before)
    expect(millisecondsOf(id)).toBeLessThanOrEqual(Date.now() + 1)
  })

  it('is strictly increasing and unique over 200,000 ids', () => {
    const ids = Array.from({ length: 200_000 }, () => EventId.new())
    expectStrictlyIncreasing(ids)
    expect(new Set(ids).size).toBe(ids.length)
  })

  it('is a plain JSON string', () => {
    const id = EventId.new()
    expect(JSON.stringify({ id })).toBe(`{"id":"${id}"}`)
  })
})

describe('createEventIdGenerator', () => {
  it('goes on increasing while the clock stands still', () => {
    const next = createEventIdGenerator(() => 1_700_000_000_000)
    expectStrictlyIncreasing(Array.from({ length: 10_000 }, next))
  })

  it('goes on increasing when the clock steps back by an hour', () => {
    let now = 1_700_000_000_000
    const next = createEventIdGenerator(() => now)
    const before = next()
    now -= 3_600_000
    expectStrictlyIncreasing([before, next(), next()])
  })

  it('moves the millisecond on when the counter overflows', () => {
    const now = 1_700_000_000_000
    const allOnes = (bytes: Uint8Array) => bytes.fill(0xff)
    // The seed leaves the counter's top bit free, so 2^25 ids fit into a millisecond; the test leaves room for two.
    const next = createEventIdGenerator(() => now, allOnes, 2 ** 25 + 1)
    const ids = [next(), next(), next(), next(), next()]
    expect(ids[0]).toBe('018bcfe5-6800-77ff-bfff-ffffffffffff')
    expect(ids[1]).toBe('018bcfe5-6800-7800-8000-ffffffffffff')
    expect(ids.map(millisecondsOf)).toEqual([now, now, now + 1, now + 1, now + 2])
    expectStrictlyIncreasing(ids)
  })

  it('puts a random seed of 25 bits behind the version and variant digits', () => {
    const next = createEventIdGenerator(
      () => 0,
      (bytes) => bytes.fill(0),
    )
    expect(next()).toBe('00000000-0000-7000-8000-000000000000')
    expect(next()).toBe('00000000-0000-7000-8001-000000000000')
  })

  it('is strictly increasing and well-formed under any clock at all', () => {
    const reading = fc.oneof(
      fc.integer({ min: 0, max: 2 ** 47 }),
      fc.double(),
      fc.constantFrom(
        -1,
        Number.NaN,
        Number.POSITIVE_INFINITY,
        Number.NEGATIVE_INFINITY,
        1_700_000_000_000.5,
      ),
    )
    fc.assert(
      fc.property(fc.array(reading, { minLength: 2, maxLength: 50 }), (readings) => {
        let i = 0
        const next = createEventIdGenerator(() => readings[i++] as number)
        const ids = readings.map(() => next())
        expectStrictlyIncreasing(ids)
        for (const id of ids) expect(id).toMatch(UUID_V7)
      }),
    )
  })
})

describe('EventId.from', () => {
  it.each([['any-string'], ['x'], ['ü😀 with spaces'], ['a'.repeat(64)]])('keeps %j as it is', (text) => {
    expect(EventId.from(text)).toBe(text)
  })

  it.each([
    ['an empty string', ''],
    ['65 characters', 'a'.repeat(65)],
    ['a NUL', 'a\0b'],
    ['a line break', 'a\nb'],
    ['DEL', 'a\u007f'],
    ['a C1 control', 'a\u0085'],
    ['a lone surrogate', 'a\ud800'],
  ])('refuses %s', (_what, text) => {
    expect(() => EventId.from(text)).toThrow(InvalidEventIdError)
  })

  it('refuses what is not a string, and does not repeat it in the message', () => {
    expect(() => EventId.from(4111 as unknown as string)).toThrow(/is not a string/)
    expect(() => EventId.from('secret\n')).toThrow(/^(?!.*secret)/)
  })
})
