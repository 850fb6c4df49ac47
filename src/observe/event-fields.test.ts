import { describe, expect, it } from 'vitest'
import { callFields, eventFields, eventIdField, eventIdsFields } from './event-fields.js'

const event = { eventId: 'e-1', eventType: 'order.placed', metadata: {} }

describe('fields of log lines about events', () => {
  it('have the id and the type of the event', () => {
    expect(eventFields(event)).toEqual({ event_id: 'e-1', event_type: 'order.placed' })
  })

  it('have the correlation id if the event has one, and no other metadata', () => {
    const metadata = { correlationId: 'c-1', userId: 'u-1' }
    expect(eventFields({ ...event, metadata })).toEqual({
      event_id: 'e-1',
      event_type: 'order.placed',
      correlation_id: 'c-1',
    })
  })

  it('show neither payload nor headers nor ordering key', () => {
    const secrets = { payload: 'secret', headers: { a: 'secret' }, orderingKey: 'secret' }
    expect(JSON.stringify(callFields({ ...event, ...secrets }, 'send', 2))).not.toContain('secret')
  })

  it('add the handler and the attempt of a call', () => {
    expect(callFields(event, 'send', 2)).toEqual({ ...eventFields(event), handler: 'send', attempt: 2 })
  })

  it('escape and shorten ids that plain SQL wrote', () => {
    const strange = `\u001b[2J${'x'.repeat(1_000)}`
    const id = String(eventIdField(strange).event_id)
    expect(id).toContain('\\u001b')
    expect(id.length).toBeLessThan(100)
    expect(eventFields({ ...event, eventId: strange }).event_id).toBe(id)
    expect(eventIdsFields([strange]).event_ids).toEqual([id])
  })

  it('have at most 100 ids, and the count of all', () => {
    const ids = Array.from({ length: 101 }, (_, n) => `e-${n}`)
    expect(eventIdsFields(ids)).toEqual({ event_ids: ids.slice(0, 100), count: 101 })
  })
})
