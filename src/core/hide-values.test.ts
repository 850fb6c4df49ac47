import { inspect } from 'node:util'
import { describe, expect, it } from 'vitest'
import { EventEnvelope } from './envelope.js'
import { hideValues } from './hide-values.js'

const event = EventEnvelope.create({
  eventType: 'card.charged',
  payload: { card: '4111111111111111' },
  headers: { authorization: 'Bearer 4711' },
  metadata: { userId: 'user-0815' },
})

function shown(error: unknown): string {
  return `${inspect(error)} ${JSON.stringify(error)}`
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
  ])('takes %s as it comes', (_what, thrown) => {
    expect(hideValues(thrown, [event])).toBe(thrown)
  })
})
