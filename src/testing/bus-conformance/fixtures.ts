import { type EnvelopeInit, EventEnvelope } from '../../core/envelope.js'

export function event(init: Partial<EnvelopeInit> = {}): EventEnvelope {
  return EventEnvelope.create({ eventType: 'order.placed', payload: { total: 42 }, ...init })
}

export function numbered(count: number, init: (number: number) => Partial<EnvelopeInit> = () => ({})) {
  return Array.from({ length: count }, (_, number) => event({ payload: { number }, ...init(number) }))
}

export function numberOf({ payload }: EventEnvelope): number {
  return (payload as { number: number }).number
}
