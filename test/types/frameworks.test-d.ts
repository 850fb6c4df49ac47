import { Injectable } from '@nestjs/common'
import fastify from 'fastify'
import pg from 'pg'
import { describe, expectTypeOf, it } from 'vitest'
import { z } from 'zod'
import { defineEvent, type EventEnvelope, type HandlerContext, type Outbox } from '../../src/index.js'
import { outboxPlugin } from '../../src/integrations/fastify.js'
import {
  InjectOutbox,
  type Outbox as NestOutbox,
  OnEvent,
  OutboxModule,
} from '../../src/integrations/nestjs.js'
import { postgresStore } from '../../src/stores/postgres/index.js'

interface Order {
  orderId: string
}

const OrderPlaced = defineEvent<Order>('order.placed')
const Dated = defineEvent('order.dated', { schema: z.object({ at: z.coerce.date() }) })

declare const pool: pg.Pool
declare const outbox: Outbox<pg.PoolClient>

describe('@OnEvent', () => {
  it('takes methods that can take the event, and less', () => {
    @Injectable()
    class Handlers {
      @OnEvent(OrderPlaced)
      async whole(event: EventEnvelope<Order>, { attempt }: HandlerContext) {
        return [event.payload.orderId, attempt]
      }

      @OnEvent(OrderPlaced, { name: 'nothing', timeoutMs: 5, retry: { maxAttempts: 3 }, outbox: 'billing' })
      nothing() {}

      @OnEvent(Dated)
      dated({ payload }: EventEnvelope<{ at: Date }>) {
        payload.at.getTime()
      }

      @OnEvent({ aggregateType: 'order', type: OrderPlaced })
      ofAggregate({ payload }: { payload: Order }) {
        return payload.orderId
      }

      @OnEvent('order.*')
      byName(event: EventEnvelope) {
        expectTypeOf(event.payload).toEqualTypeOf<unknown>()
      }
    }
    expectTypeOf<Handlers>().toHaveProperty('whole')
  })

  it('refuses another payload, another argument, and what is no setting of a handler', () => {
    class Handlers {
      // @ts-expect-error the payload of order.placed has no total
      @OnEvent(OrderPlaced)
      wrong(event: EventEnvelope<{ total: number }>) {
        return event
      }

      // @ts-expect-error decoded by the schema it is a Date
      @OnEvent(Dated)
      undecoded(event: EventEnvelope<{ at: string }>) {
        return event
      }

      // @ts-expect-error by name the payload is unknown
      @OnEvent('order.placed')
      untyped(event: EventEnvelope<Order>) {
        return event
      }

      // @ts-expect-error handlers are given a context, not a number
      @OnEvent(OrderPlaced)
      second(_event: EventEnvelope<Order>, context: number) {
        return context
      }

      // @ts-expect-error no such setting
      @OnEvent(OrderPlaced, { timeout: 5 })
      misspelt() {}

      // @ts-expect-error for methods
      @OnEvent(OrderPlaced)
      readonly field = 1
    }
    expectTypeOf<Handlers>().not.toBeAny()
  })
})

describe('OutboxModule', () => {
  it('takes the settings of an outbox, its name, and whether to migrate and to start', () => {
    OutboxModule.forRoot({ store: postgresStore(pool), name: 'billing', migrate: true, start: false })
    OutboxModule.forRoot({ store: postgresStore(pool), poller: { pollIntervalMs: 100 } })
    // @ts-expect-error a store is needed
    OutboxModule.forRoot({ name: 'billing' })
    // @ts-expect-error no such setting
    OutboxModule.forRoot({ store: postgresStore(pool), pollIntervalMs: 100 })
  })

  it('takes a factory, at once or later, with what it injects', () => {
    OutboxModule.forRootAsync({
      inject: [pg.Pool],
      useFactory: (injected: pg.Pool) => ({ store: postgresStore(injected), migrate: true }),
    })
    OutboxModule.forRootAsync({
      name: 'billing',
      useFactory: async () => ({ store: postgresStore(pool) }),
    })
    // @ts-expect-error the factory must give a store
    OutboxModule.forRootAsync({ useFactory: () => ({}) })
    // @ts-expect-error a factory is needed
    OutboxModule.forRootAsync({ inject: [pg.Pool] })
  })

  it('injects into parameters and properties; the class is the one of the package', () => {
    class Service {
      @InjectOutbox('billing') readonly billing!: NestOutbox<pg.PoolClient>

      constructor(@InjectOutbox() readonly outbox: NestOutbox<pg.PoolClient>) {}
    }
    expectTypeOf<Service['outbox']>().toEqualTypeOf<Outbox<pg.PoolClient>>()
    expectTypeOf<Service['billing']>().toEqualTypeOf<Outbox<pg.PoolClient>>()
  })
})

describe('outboxPlugin', () => {
  it('is a plugin of Fastify with its options', () => {
    const server = fastify()
    server.register(outboxPlugin, { outbox, decorator: 'billing', migrate: true, start: false })
    server.register(async (inner) => {
      await inner.register(outboxPlugin, { outbox })
    })
    // @ts-expect-error an outbox is needed
    server.register(outboxPlugin, { start: false })
  })
})
