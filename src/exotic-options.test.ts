import { describe, expect, it } from 'vitest'
import { createMetadata } from './core/metadata.js'
import { AftercommitError, createOutbox, defineEvent, EventEnvelope } from './index.js'
import { createTestOutbox, InMemoryEventBus } from './testing/index.js'

/** Objects whose content is not in properties, so that reading options from them would lose it. */
const EXOTIC: Readonly<Record<string, () => unknown>> = {
  'a Map': () => new Map([['userId', 'u-1']]),
  'a Set': () => new Set(['userId']),
  'a Date': () => new Date(0),
  Headers: () => new Headers({ userId: 'u-1' }),
  URLSearchParams: () => new URLSearchParams('userId=u-1'),
  'a FormData': () => new FormData(),
  'a Promise': () => Promise.resolve({ userId: 'u-1' }),
  'an Error': () => new Error('userId'),
  'an Error with the name of an option': () => Object.assign(new Error('x'), { userId: 'u-1' }),
  'a RegExp': () => /userId/,
  'an iterator': () => new Map([['userId', 'u-1']]).entries(),
  'an array': () => ['u-1'],
  'an object that inherits from an object literal': () => Object.create({ userId: 'u-1', eventType: 'a' }),
  null: () => null,
  'a text': () => 'u-1',
  'a number': () => 5,
}

const Placed = defineEvent('order.placed')
const event = { type: 'a', payload: 1 }

const PLACES: Readonly<Record<string, (value: never) => unknown>> = {
  'the second argument of a definition': (value) => Placed(1, value),
  'metadata of a definition': (metadata) => Placed(1, { metadata }).toEnvelope(),
  'metadata of an event by name': (metadata) => new InMemoryEventBus().publish({ ...event, metadata }),
  'createMetadata()': (value) => createMetadata(value),
  'EventEnvelope.create()': (value) => EventEnvelope.create(value),
  'headers of an event': (headers) => new InMemoryEventBus().publish({ ...event, headers }),
  'options of publish() of a bus': (value) => new InMemoryEventBus().publish(event, value),
  'options of enqueue()': (value) => createTestOutbox().enqueue(event, value),
  'options of defineEvent()': (value) => defineEvent('a', value),
  'settings of an outbox': (value) => createOutbox(value),
}

describe.each(Object.entries(PLACES))('%s', (place, call) => {
  const isNullable = place === 'headers of an event'
  const values = Object.entries(EXOTIC).filter(([what]) => !(isNullable && what === 'null'))
  it.each(values)('cannot be %s', async (_what, make) => {
    const refused = Promise.resolve().then(() => call(make() as never))
    await expect(refused).rejects.toBeInstanceOf(AftercommitError)
  })
})

describe('options', () => {
  it('may be an object without a prototype', () => {
    const options = Object.assign(Object.create(null), { userId: 'u-1' })
    expect(Placed(1, options).toEnvelope().metadata.userId).toBe('u-1')
  })

  it('may be an instance of a class with getters', () => {
    class Options {
      readonly #user = 'u-1'
      get userId() {
        return this.#user
      }
    }
    expect(Placed(1, new Options()).toEnvelope().metadata.userId).toBe('u-1')
    expect(createMetadata(new Options()).userId).toBe('u-1')
  })

  it('may be metadata of another copy of the library that are empty', () => {
    class Metadata {}
    expect(createMetadata(new Metadata())).toEqual({})
  })

  it('are refused with what they are', () => {
    const headers = new Headers({ userId: 'u-1' }) as never
    expect(() => Placed(1, headers)).toThrow('must be an object with options, not a Headers.')
    expect(() => createMetadata(headers)).toThrow('it must be an object, not a Headers.')
    expect(() => EventEnvelope.create(Object.create({ eventType: 'a' }))).toThrow(
      'not an object that inherits from another object',
    )
  })
})
