import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { EventCatalog } from './catalog.js'
import { defineEvent } from './define-event.js'
import {
  DuplicateDefinitionError,
  EventValidationError,
  InvalidEventError,
  UnknownEventTypeError,
} from './errors.js'

const Placed = defineEvent('order.placed', {
  aggregateType: 'order',
  aggregateId: (p) => p.orderId,
  schema: z.object({ orderId: z.string(), at: z.coerce.date() }),
})
const Paid = defineEvent<{ amount: number }>('order.paid')

describe('EventCatalog', () => {
  it('finds definitions by type', () => {
    const catalog = new EventCatalog().add(Placed).add(Paid)
    expect(catalog.has('order.placed')).toBe(true)
    expect(catalog.get('order.paid')).toBe(Paid)
    expect(catalog.require('order.paid')).toBe(Paid)
    expect(catalog.types()).toEqual(['order.placed', 'order.paid'])
    expect(catalog.decoderFor('order.placed')).toBe(Placed.decode)
  })

  it('knows nothing of types like __proto__', () => {
    const catalog = new EventCatalog()
    for (const type of ['__proto__', 'constructor', 'toString']) {
      expect(catalog.has(type)).toBe(false)
      expect(catalog.get(type)).toBeUndefined()
      expect(catalog.decoderFor(type)).toBeUndefined()
      expect(() => catalog.require(type)).toThrow(UnknownEventTypeError)
    }
  })

  it('takes the same definition twice, and refuses another one of its type', () => {
    const catalog = new EventCatalog([Placed, Placed])
    expect(() => catalog.add(defineEvent('order.placed'))).toThrow(DuplicateDefinitionError)
    expect(catalog.get('order.placed')).toBe(Placed)
  })
})

describe('serialize and deserialize', () => {
  const catalog = new EventCatalog([Placed, Paid])

  it('carry the whole event: ids and time come back equal, and Dates as Dates', () => {
    const event = Placed({ orderId: 'o-1', at: new Date(7) }, { correlationId: 'c', headers: { h: '1' } })
    const back = catalog.deserialize('order.placed', catalog.serialize(event))
    expect(back.eventId).toBe(event.eventId)
    expect(back.occurredAt).toEqual(event.occurredAt)
    expect(back.aggregateId).toBe('o-1')
    expect(back.metadata).toEqual({ correlationId: 'c' })
    expect(back.headers).toEqual({ h: '1' })
    expect(back.payload).toEqual({ orderId: 'o-1', at: new Date(7) })
  })

  it('take events by name too', () => {
    const text = catalog.serialize({ type: 'order.paid', payload: { amount: 5 } })
    expect(catalog.deserialize('order.paid', text).payload).toEqual({ amount: 5 })
  })

  it('refuse an unknown type', () => {
    const text = catalog.serialize(Paid({ amount: 1 }))
    expect(() => catalog.deserialize('order.lost', text)).toThrow(UnknownEventTypeError)
    expect(() => catalog.serialize({ type: 'order.lost' })).toThrow(UnknownEventTypeError)
  })

  it('refuse text of another type, and text that is no event', () => {
    const text = catalog.serialize(Paid({ amount: 1 }))
    expect(() => catalog.deserialize('order.placed', text)).toThrow(/another type, not "order.placed"/)
    expect(() => catalog.deserialize('order.placed', '{"card": 4111')).toThrow(InvalidEventError)
  })

  it('refuse a payload that does not fit', () => {
    const text = catalog.serialize(Placed({ orderId: 'o-1', at: new Date(7) }))
    const broken = text.replace('"orderId":"o-1"', '"orderId":7')
    expect(() => catalog.deserialize('order.placed', broken)).toThrow(EventValidationError)
  })
})
