import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { InvalidEventError } from './errors.js'
import { createMetadata, EMPTY_METADATA, mergeMetadata, readMetadata, trustedMetadata } from './metadata.js'

describe('createMetadata', () => {
  it('keeps the known fields, drops undefined ones, and is frozen', () => {
    const metadata = createMetadata({ correlationId: 'c', userId: undefined, traceparent: '00-a-b-01' })
    expect(metadata).toEqual({ correlationId: 'c', traceparent: '00-a-b-01' })
    expect(Object.keys(metadata)).toEqual(['correlationId', 'traceparent'])
    expect(Object.isFrozen(metadata)).toBe(true)
  })

  it('is one shared object when there is nothing to keep', () => {
    expect(createMetadata()).toBe(EMPTY_METADATA)
    expect(createMetadata({})).toBe(EMPTY_METADATA)
    expect(createMetadata({ userId: undefined })).toBe(EMPTY_METADATA)
  })

  it.each([
    ['a number', 5],
    ['a line break', 'a\nb'],
    ['NUL', 'a\0'],
    ['half a surrogate pair', '\ud800'],
    ['1,025 characters', 'x'.repeat(1_025)],
  ])('refuses %s, and names the field but not the value', (_what, value) => {
    const make = () => createMetadata({ userId: value as string })
    expect(make).toThrow(InvalidEventError)
    expect(make).toThrow(/metadata\.userId/)
  })

  it('refuses what is not an object', () => {
    expect(() => createMetadata('x' as unknown as object)).toThrow(InvalidEventError)
    expect(() => createMetadata(null as unknown as object)).toThrow(InvalidEventError)
  })
})

describe('readMetadata', () => {
  it.each([[null], ['text'], [5], [[]]])('refuses %j with the message of createMetadata', (input) => {
    expect(() => readMetadata(input)).toThrow(/^Invalid metadata: it must be an object\.$/)
    expect(() => createMetadata(input as never)).toThrow(/^Invalid metadata: it must be an object\.$/)
  })
})

describe('the user id', () => {
  const metadata = createMetadata({ userId: 'u-4711', correlationId: 'c-1' })

  it('is redacted wherever it is printed', () => {
    for (const shown of [
      inspect(metadata),
      inspect({ deep: [metadata] }),
      inspect(metadata, { showHidden: true }),
    ]) {
      expect(shown).not.toContain('u-4711')
      expect(shown).toContain('[redacted]')
      expect(shown).toContain('c-1')
    }
    expect(inspect(trustedMetadata({ userId: 'u-4711' }))).not.toContain('u-4711')
  })

  it('is raw by property and in JSON', () => {
    expect(metadata.userId).toBe('u-4711')
    expect(JSON.parse(JSON.stringify(metadata))).toEqual({ correlationId: 'c-1', userId: 'u-4711' })
    expect({ ...metadata }.userId).toBe('u-4711')
  })
})

describe('trustedMetadata and mergeMetadata', () => {
  it('take what a store has kept, null included', () => {
    expect(trustedMetadata(null)).toBe(EMPTY_METADATA)
    expect(trustedMetadata({ traceId: 't' })).toEqual({ traceId: 't' })
    for (const odd of ['text', 5, true]) expect(trustedMetadata(odd as never)).toBe(EMPTY_METADATA)
  })

  it('lets changes win, unless they are undefined', () => {
    const merged = mergeMetadata({ userId: 'a', traceId: 't' }, { userId: 'b', traceId: undefined })
    expect(merged).toEqual({ userId: 'b', traceId: 't' })
    const same = createMetadata({ userId: 'a' })
    expect(mergeMetadata(same, {})).toBe(same)
  })
})
