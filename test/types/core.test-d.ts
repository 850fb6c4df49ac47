import { type } from 'arktype'
import * as v from 'valibot'
import { describe, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import {
  type DefinedEvent,
  type DomainEvent,
  defineEvent,
  EventCatalog,
  type EventDefinition,
  EventEnvelope,
  EventId,
  type NamedEvent,
  type PublishableEvent,
  toEnvelope,
} from '../../src/core/index.js'

enum OrderEvents {
  Placed = 'order.placed',
  Paid = 'order.paid',
}
enum Aggregates {
  Order = 'order',
}
const UserEvents = { Registered: 'user.registered' } as const

interface Order {
  orderId: string
  total: number
}

describe('defineEvent with a schema', () => {
  it('infers the payload from what zod gives back, with no annotation', () => {
    const Placed = defineEvent('order.placed', {
      aggregateType: 'order',
      aggregateId: (p) => {
        expectTypeOf(p).toEqualTypeOf<{ orderId: string; total: number; placedAt: Date }>()
        return p.orderId
      },
      tenantId: (p) => p.orderId,
      orderingKey: (p) => p.orderId,
      schema: z.object({ orderId: z.string(), total: z.number(), placedAt: z.coerce.date() }),
    })
    type Payload = { orderId: string; total: number; placedAt: Date }
    expectTypeOf(Placed).toEqualTypeOf<EventDefinition<Payload, 'order.placed'>>()
    expectTypeOf(Placed).parameter(0).toEqualTypeOf<Payload>()
    expectTypeOf(Placed.decode('', 1)).toEqualTypeOf<Payload>()
    expectTypeOf(
      Placed({ orderId: '', total: 1, placedAt: new Date() }).toEnvelope().payload.placedAt,
    ).toEqualTypeOf<Date>()
    // @ts-expect-error publishing takes the type that handlers get, a Date
    Placed({ orderId: '', total: 1, placedAt: '2026-01-01' })
    // @ts-expect-error a field is missing
    Placed({ orderId: '' })
  })

  it('infers from valibot and arktype', () => {
    const Valibot = defineEvent('a', {
      schema: v.object({ id: v.string(), at: v.pipe(v.string(), v.isoTimestamp(), v.toDate()) }),
      aggregateId: (p) => p.id,
    })
    expectTypeOf(Valibot).parameter(0).toEqualTypeOf<{ id: string; at: Date }>()
    const Arktype = defineEvent('b', {
      aggregateId: (p) => p.id,
      schema: type({ id: 'string', at: 'string.date.parse' }),
    })
    expectTypeOf(Arktype).parameter(0).toEqualTypeOf<{ id: string; at: Date }>()
  })

  it('keeps branded ids', () => {
    const schema = z.object({ id: z.string().brand<'OrderId'>() })
    const Placed = defineEvent('a', { schema, aggregateId: (p) => p.id })
    expectTypeOf(Placed.decode('', 1).id).toEqualTypeOf<z.infer<typeof schema>['id']>()
    // @ts-expect-error a plain string is not an order id
    Placed({ id: 'x' })
  })

  it('checks what the functions return', () => {
    // @ts-expect-error an aggregate id is a string
    defineEvent('a', { schema: z.object({ n: z.number() }), aggregateId: (p) => p.n })
  })
})

describe('defineEvent without a schema', () => {
  it('takes the payload as a type argument', () => {
    const Placed = defineEvent<Order>('order.placed', { aggregateId: (p) => p.orderId })
    expectTypeOf(Placed).parameter(0).toEqualTypeOf<Order>()
    expectTypeOf(Placed({ orderId: '', total: 1 })).toEqualTypeOf<DefinedEvent<Order, string>>()
    // @ts-expect-error not an order
    Placed({ orderId: '' })
  })

  it('takes the payload from an annotation, and is unknown otherwise', () => {
    const Annotated = defineEvent('a', { aggregateId: (p: Order) => p.orderId })
    expectTypeOf(Annotated).toEqualTypeOf<EventDefinition<Order, 'a'>>()
    expectTypeOf(defineEvent('a')).toEqualTypeOf<EventDefinition<unknown, 'a'>>()
    expectTypeOf(defineEvent('a').decode('', 1)).toEqualTypeOf<unknown>()
  })
})

describe('event types', () => {
  it('stay literal: strings, enum members and values of const objects', () => {
    expectTypeOf(defineEvent('order.placed').eventType).toEqualTypeOf<'order.placed'>()
    expectTypeOf(defineEvent(OrderEvents.Placed).eventType).toEqualTypeOf<OrderEvents.Placed>()
    expectTypeOf(defineEvent(UserEvents.Registered).eventType).toEqualTypeOf<'user.registered'>()
    const Placed = defineEvent(OrderEvents.Placed, { aggregateType: Aggregates.Order, schema: z.object({}) })
    expectTypeOf(Placed.eventType).toEqualTypeOf<OrderEvents.Placed>()
    expectTypeOf(Placed({}).eventType).toEqualTypeOf<OrderEvents.Placed>()
    // @ts-expect-error not a string
    defineEvent(5)
  })
})

describe('definitions of any payload', () => {
  it('fit where a definition is wanted', () => {
    const Placed = defineEvent<Order>('order.placed')
    const Strict = defineEvent(OrderEvents.Paid, { schema: z.object({ at: z.coerce.date() }) })
    const all: EventDefinition[] = [Placed, Strict, defineEvent('x')]
    new EventCatalog(all).add(Placed).add(Strict)
    expectTypeOf(Strict).toExtend<EventDefinition>()
  })

  it('lend their payload type to payloadAs and to handlers', () => {
    const Placed = defineEvent<Order>('order.placed')
    expectTypeOf(EventEnvelope.create({ eventType: 'order.placed' }).payloadAs(Placed)).toEqualTypeOf<Order>()
    function on<T>(_definition: EventDefinition<T>, _handle: (event: EventEnvelope<T>) => void): void {}
    on(Placed, (event) => {
      expectTypeOf(event.payload).toEqualTypeOf<Order>()
      expectTypeOf(event.withHeader('a', 'b').payload).toEqualTypeOf<Order>()
    })
    const Strict = defineEvent('a', { schema: z.object({ at: z.coerce.date() }) })
    on(Strict, (event) => {
      expectTypeOf(event.payload.at).toEqualTypeOf<Date>()
    })
  })
})

describe('what can be published', () => {
  it('is an event of a definition, an envelope, a named event, or a class of one’s own', () => {
    class Own implements DomainEvent {
      readonly eventId = EventId.new()
      readonly eventType = OrderEvents.Placed
      readonly aggregateType = Aggregates.Order
      readonly occurredAt = new Date()
    }
    expectTypeOf<DefinedEvent<Order>>().toExtend<DomainEvent<Order>>()
    expectTypeOf<EventEnvelope<Order>>().toExtend<DomainEvent<Order>>()
    expectTypeOf<EventEnvelope<Order>>().toExtend<EventEnvelope>()
    expectTypeOf<Own>().toExtend<PublishableEvent>()
    expectTypeOf<{ type: OrderEvents.Placed; payload: Order }>().toExtend<NamedEvent>()
    expectTypeOf(toEnvelope).parameter(0).toEqualTypeOf<PublishableEvent>()
    // @ts-expect-error neither a type nor an event
    toEnvelope({ payload: 1 })
  })
})

describe('EventId', () => {
  it('is a string that other strings are not', () => {
    expectTypeOf(EventId.new()).toExtend<string>()
    expectTypeOf(EventId.from('x')).toEqualTypeOf<EventId>()
    expectTypeOf<string>().not.toExtend<EventId>()
  })
})

describe('envelopes', () => {
  it('cannot be written to', () => {
    const envelope = EventEnvelope.create<Order>({ eventType: 'a', payload: { orderId: '', total: 1 } })
    // @ts-expect-error read-only
    envelope.eventType = 'b'
    // @ts-expect-error read-only
    envelope.headers.a = 'b'
    // @ts-expect-error made by create(), fromStored() or fromJSON()
    new EventEnvelope()
    expectTypeOf(envelope.payload).toEqualTypeOf<Order>()
    expectTypeOf(EventEnvelope.fromJSON('')).toEqualTypeOf<EventEnvelope<unknown>>()
  })
})
