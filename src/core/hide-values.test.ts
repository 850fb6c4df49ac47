import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { EventEnvelope } from './envelope.js'
import { hideValues, hideValuesOf } from './hide-values.js'

const event = EventEnvelope.create({
  eventType: 'card.charged',
  payload: { card: '4111111111111111' },
  headers: { authorization: 'Bearer 4711' },
  metadata: { userId: 'user-0815' },
})

function shown(error: unknown): string {
  return `${inspect(error)} ${JSON.stringify(error)}`
}

function unreadable(): never {
  throw new Error('no')
}

function withCause(get: () => unknown): Error {
  return Object.defineProperty(new Error('x'), 'cause', { get })
}

describe('hideValues', () => {
  it('keeps codes and names in sight, and everything else readable by its name only', () => {
    const fields = {
      code: '23514',
      constraint: 'paid',
      detail: 'row (4111)',
      sql: 'insert 4111',
      params: ['4111'],
    }
    const error = Object.assign(new Error('refused'), fields)
    expect(hideValues(error)).toBe(error)
    expect(shown(error)).not.toContain('4111')
    expect(JSON.parse(JSON.stringify(error))).toEqual({ code: '23514', constraint: 'paid' })
    expect(error.detail).toBe('row (4111)')
  })

  it('hides them in the causes as well', () => {
    const error = new Error('outer', { cause: Object.assign(new Error('inner'), { detail: '4111' }) })
    expect(shown(hideValues(error))).not.toContain('4111')
  })

  it('hides them in errors that another one has gathered', () => {
    const inner = Object.assign(new Error('no: Bearer 4711'), { detail: '4111' })
    expect(shown(hideValues(new AggregateError([inner], 'all failed'), [event]))).not.toMatch(/4111|4711/)
  })

  it('looks at each event once, however many errors there are: a broker may refuse a whole batch', () => {
    let looks = 0
    const events = Array.from({ length: 500 }, (_, n) => ({
      payloadText: null,
      metadata: {},
      get headers() {
        looks++
        return { token: `secret ${n + 1_000}` }
      },
    }))
    const errors = events.map((_, n) => new Error(`refused: secret ${n + 1_000}`))
    hideValuesOf(errors, events)
    expect(errors.map(({ message }) => message)).toEqual(events.map(() => 'refused: …'))
    expect(looks).toBeLessThanOrEqual(2 * events.length)
  })

  it('cuts what the message quotes of an event, also in the stack', () => {
    const { payloadText, headers, metadata } = event
    const error = new Error(`no: ${payloadText} ${JSON.stringify(headers)} ${metadata.userId} Bearer 4711`)
    hideValues(error, [event])
    expect(error.message).toBe('no: … … … …')
    expect(shown(error)).not.toMatch(/4111|4711|0815/)
    expect(error.stack).toContain('hide-values.test')
  })

  it.each([
    ['text', 'thrown'],
    ['nothing', undefined],
    ['a frozen one', Object.freeze(new Error('frozen'))],
    ['a frozen one that quotes', Object.freeze(new Error('no: Bearer 4711'))],
    ['one without a message', Object.assign(new Error('x'), { message: undefined })],
    ['one whose cause cannot be read', withCause(unreadable)],
  ])('takes %s as it comes', (_what, thrown) => {
    expect(hideValues(thrown, [event])).toBe(thrown)
  })
})
