import { describe, expect, it } from 'vitest'
import { natsName, subjectOf } from './message.js'

describe('names', () => {
  it.each([
    ['order.placed', 'events.order.placed'],
    ['with space', 'events.with%20space'],
    ['Grüße', 'events.Gr%C3%BC%C3%9Fe'],
    ['a*.>', 'events.a%2A.%3E'],
    ['%41', 'events.%2541'],
    ['.dots..all.', 'events.%2Edots.%2Eall%2E'],
    ['..', 'events.%2E%2E'],
    ['.', 'events.%2E'],
  ])('the type %s has the subject %s', (type, subject) => {
    expect(subjectOf('events', type)).toBe(subject)
  })

  it('replaces dots by tildes in names of streams and consumers', () => {
    expect(natsName('events.billing.dead')).toBe('events~billing~dead')
  })
})
