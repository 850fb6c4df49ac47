import 'reflect-metadata'
import { Inject, Injectable, Module, Scope } from '@nestjs/common'
import { REQUEST } from '@nestjs/core'
import { Test } from '@nestjs/testing'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { type EventEnvelope, type HandlerContext, silentLogger } from '../../src/index.js'
import { InjectOutbox, OnEvent, Outbox, OutboxModule } from '../../src/integrations/nestjs.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { createTestOutbox, expectPublished } from '../../src/testing/index.js'
import { freshDatabase } from '../support/database.js'
import { poolOn } from '../support/trap-kit.js'
import { signal } from '../support/waiting.js'
import { application, OrderPlaced } from './nestjs-kit.js'

const settings = () => ({ store: memoryStore(), logger: silentLogger })

describe('@OnEvent', () => {
  it('makes methods of providers and controllers handlers, named after class and method', async () => {
    const seen: string[] = []
    @Injectable()
    class Receipts {
      readonly prefix = 'receipt for'

      @OnEvent(OrderPlaced)
      send({ payload }: EventEnvelope<{ orderId: string }>, { handler, attempt }: HandlerContext) {
        seen.push(`${this.prefix} ${payload.orderId}, ${handler}, attempt ${attempt}`)
      }

      @OnEvent('order.*', { name: 'count-orders' })
      @OnEvent({ aggregateType: 'order', type: OrderPlaced }, { name: 'count-placed' })
      count(_event: EventEnvelope, { handler }: HandlerContext) {
        seen.push(handler)
      }
    }
    const { outbox } = await application([OutboxModule.forRoot(settings())], [Receipts])
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    await outbox.drain()
    expect(seen.sort()).toEqual(['count-orders', 'count-placed', 'receipt for o-1, Receipts.send, attempt 1'])
  })

  it('passes the options of the handler on', async () => {
    @Injectable()
    class Fragile {
      @OnEvent(OrderPlaced, { retry: { maxAttempts: 1 } })
      fail() {
        throw new Error('no')
      }
    }
    const { outbox } = await application([OutboxModule.forRoot(settings())], [Fragile])
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    await outbox.drain()
    const [dead] = await outbox.deadLetters.list()
    expect(dead?.lastError).toContain('Fragile.fail: Error: no')
  })

  it('holds for subclasses, unless they override the method without it', async () => {
    const seen: string[] = []
    class Base {
      @OnEvent(OrderPlaced)
      see(_event: EventEnvelope, { handler }: HandlerContext) {
        seen.push(handler)
      }
    }
    @Injectable()
    class One extends Base {}
    @Injectable()
    class Two extends Base {}
    @Injectable()
    class Silent extends Base {
      override see() {
        seen.push('never')
      }
    }
    const { outbox } = await application([OutboxModule.forRoot(settings())], [One, Two, Silent])
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    await outbox.drain()
    expect(seen.sort()).toEqual(['One.see', 'Two.see'])
  })

  it('finds providers that are made by useClass, useFactory and useValue, and an alias only once', async () => {
    const seen: string[] = []
    const handlerClass = (name: string) => {
      class Handler {
        @OnEvent(OrderPlaced, { name })
        see(_event: EventEnvelope, { handler }: HandlerContext) {
          seen.push(handler)
        }
      }
      return Handler
    }
    const [ByClass, ByFactory, ByValue] = [
      handlerClass('class'),
      handlerClass('factory'),
      handlerClass('value'),
    ]
    const { outbox } = await application(
      [OutboxModule.forRoot(settings())],
      [
        { provide: 'by class', useClass: ByClass },
        { provide: 'by factory', useFactory: () => new ByFactory() },
        { provide: 'by value', useValue: new ByValue() },
        { provide: 'alias', useExisting: 'by value' },
        { provide: 'nothing', useValue: null },
      ],
    )
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    await outbox.drain()
    expect(seen.sort()).toEqual(['class', 'factory', 'value'])
  })

  it('of a class that is a provider of two modules is refused, since both would be the same handler', async () => {
    @Injectable()
    class Twice {
      @OnEvent(OrderPlaced)
      see() {}
    }
    @Module({ providers: [Twice] })
    class Other {}
    const starting = application([OutboxModule.forRoot(settings()), Other], [Twice])
    await expect(starting).rejects.toThrow(/Twice\.see/)
  })

  it('without settings is refused in plain words', () => {
    expect(() => OutboxModule.forRoot(undefined as never)).toThrow(/forRoot\(\{ store \}\)/)
    expect(() => OutboxModule.forRootAsync(undefined as never)).toThrow(/forRootAsync\(\{ useFactory \}\)/)
  })

  it('of an outbox that does not exist is refused', async () => {
    @Injectable()
    class Lost {
      @OnEvent(OrderPlaced, { outbox: 'biling' })
      see() {}
    }
    const starting = application([OutboxModule.forRoot({ ...settings(), name: 'billing' })], [Lost])
    await expect(starting).rejects.toThrow(
      "outbox of the handler Lost.see: there is no outbox named 'biling'",
    )
  })
})

describe('the scope of a handler call', () => {
  function scoped(seen: { event: unknown; instance: object; helper: object; sameHelper: boolean }[]) {
    @Injectable({ scope: Scope.REQUEST })
    class Helper {
      constructor(@Inject(REQUEST) readonly event: EventEnvelope<{ orderId: string }>) {}
    }
    @Injectable()
    class Deeper {
      constructor(@Inject(Helper) readonly helper: Helper) {}
    }
    @Injectable()
    class Handlers {
      constructor(
        @Inject(Helper) readonly helper: Helper,
        @Inject(Deeper) readonly deeper: Deeper,
      ) {}

      @OnEvent(OrderPlaced)
      first(event: EventEnvelope) {
        this.note(event)
      }

      @OnEvent(OrderPlaced)
      second(event: EventEnvelope) {
        this.note(event)
      }

      note(event: EventEnvelope) {
        expect(this.helper.event).toBe(event)
        seen.push({
          event: event.eventId,
          instance: this,
          helper: this.helper,
          sameHelper: this.deeper.helper === this.helper,
        })
      }
    }
    return [Helper, Deeper, Handlers]
  }

  it('is a fresh request scope with the event as REQUEST, one for each handler and each event', async () => {
    const seen: { event: unknown; instance: object; helper: object; sameHelper: boolean }[] = []
    const { outbox } = await application([OutboxModule.forRoot(settings())], scoped(seen))
    const ids = [
      await outbox.enqueue(OrderPlaced({ orderId: 'o-1' })),
      await outbox.enqueue(OrderPlaced({ orderId: 'o-2' })),
    ]
    await outbox.drain()
    expect(seen.map(({ event }) => event).sort()).toEqual([...ids, ...ids].sort())
    expect(new Set(seen.map(({ instance }) => instance)).size).toBe(4)
    expect(new Set(seen.map(({ helper }) => helper)).size).toBe(4)
    expect(seen.every(({ sameHelper }) => sameHelper)).toBe(true)
  })

  it('is that of the module whose provider it is, when several modules have one of the same token', async () => {
    const seen: string[] = []
    const moduleWith = (name: string) => {
      @Injectable({ scope: Scope.REQUEST })
      class Handler {
        @OnEvent(OrderPlaced, { name })
        see() {
          seen.push(name)
        }
      }
      @Module({ providers: [{ provide: 'handler', useClass: Handler }] })
      class Holder {}
      return Holder
    }
    const modules = [OutboxModule.forRoot(settings()), moduleWith('a'), moduleWith('b')]
    const { outbox } = await application(modules, [])
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    await outbox.drain()
    expect(seen.sort()).toEqual(['a', 'b'])
  })

  it('of a transient provider is an instance of its own', async () => {
    const seen = new Set<object>()
    @Injectable({ scope: Scope.TRANSIENT })
    class Handler {
      @OnEvent(OrderPlaced)
      see() {
        seen.add(this)
      }
    }
    const { outbox } = await application([OutboxModule.forRoot(settings())], [Handler])
    for (const orderId of ['o-1', 'o-2']) await outbox.enqueue(OrderPlaced({ orderId }))
    await outbox.drain()
    expect(seen.size).toBe(2)
  })

  it('that cannot be made is a failed attempt, and the next one gets another', async () => {
    let made = 0
    const handled = signal<number>()
    @Injectable({ scope: Scope.REQUEST })
    class Handler {
      constructor() {
        if (++made === 1) throw new Error('not yet')
      }

      @OnEvent(OrderPlaced)
      see(_event: EventEnvelope, { attempt }: HandlerContext) {
        handled.give(attempt)
      }
    }
    const { outbox } = await application(
      [OutboxModule.forRoot({ ...settings(), retry: { policy: { delayMs: () => 0 } } })],
      [Handler],
    )
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    expect(await handled.promise).toBe(2)
  })
})

describe('OutboxModule', () => {
  it('.forRootAsync waits for a factory with what it injects', async () => {
    const store = memoryStore()
    @Module({ providers: [{ provide: 'store', useFactory: async () => store }], exports: ['store'] })
    class Database {}
    const { outbox } = await application(
      [
        OutboxModule.forRootAsync({
          imports: [Database],
          inject: ['store'],
          useFactory: async (given: typeof store) => ({ store: given, logger: silentLogger }),
        }),
      ],
      [],
    )
    expect(outbox.store).toBe(store)
    expect((await outbox.health()).started).toBe(true)
  })

  it('keeps several outboxes apart by their names', async () => {
    const seen: string[] = []
    @Injectable()
    class Handlers {
      constructor(
        @Inject(Outbox) readonly main: Outbox,
        @InjectOutbox() readonly same: Outbox,
        @InjectOutbox('billing') readonly billing: Outbox,
      ) {}

      @OnEvent(OrderPlaced)
      onMain() {
        seen.push('main')
      }

      @OnEvent(OrderPlaced, { outbox: 'billing' })
      onBilling() {
        seen.push('billing')
      }
    }
    const { app } = await application(
      [
        OutboxModule.forRoot(settings()),
        OutboxModule.forRootAsync({ name: 'billing', useFactory: () => settings() }),
      ],
      [Handlers],
    )
    const { main, same, billing } = app.get(Handlers)
    expect(same).toBe(main)
    await billing.enqueue(OrderPlaced({ orderId: 'o-1' }))
    await Promise.all([main.drain(), billing.drain()])
    expect(seen).toEqual(['billing'])
    await main.enqueue(OrderPlaced({ orderId: 'o-2' }))
    await Promise.all([main.drain(), billing.drain()])
    expect(seen).toEqual(['billing', 'main'])
  })

  it('refuses two outboxes of one name', async () => {
    const two = [OutboxModule.forRoot(settings()), OutboxModule.forRoot(settings())]
    await expect(application(two, [])).rejects.toThrow('two outboxes have no name')
    const named = two.map(() => OutboxModule.forRoot({ ...settings(), name: 'billing' }))
    await expect(application(named, [])).rejects.toThrow("two outboxes have the name 'billing'")
  })

  it('refuses bad settings with the name of the setting', async () => {
    const bad = OutboxModule.forRoot({ ...settings(), poller: { leaseMs: -1 } })
    await expect(application([bad], [])).rejects.toThrow('poller.leaseMs')
  })

  it('creates the tables when asked to, and otherwise says what is missing', async () => {
    const database = await freshDatabase(inject('postgresUrl'))
    onTestFinished(() => database.drop())
    const pool = poolOn(database.url)
    const options = { store: postgresStore(pool), logger: silentLogger }
    await expect(application([OutboxModule.forRoot(options)], [])).rejects.toThrow('outbox.migrate()')
    const { outbox, app } = await application([OutboxModule.forRoot({ ...options, migrate: true })], [])
    expect((await outbox.health()).started).toBe(true)
    await app.close()
  })

  it('does not deliver with start: false', async () => {
    @Injectable()
    class Handlers {
      @OnEvent(OrderPlaced)
      see() {}
    }
    const { outbox } = await application([OutboxModule.forRoot({ ...settings(), start: false })], [Handlers])
    expect((await outbox.health()).started).toBe(false)
  })
})

describe("Nest's testing module", () => {
  it('puts a test outbox in the place of the real one, with the handlers of the application', async () => {
    const seen: string[] = []
    @Injectable()
    class Handlers {
      @OnEvent(OrderPlaced)
      see({ payload }: EventEnvelope<{ orderId: string }>) {
        seen.push(payload.orderId)
      }
    }
    const test = createTestOutbox()
    const module = await Test.createTestingModule({
      imports: [OutboxModule.forRoot(settings())],
      providers: [Handlers],
    })
      .overrideProvider(Outbox)
      .useValue(test)
      .compile()
    await module.init()
    onTestFinished(() => module.close())
    await module.get(Outbox).transaction((tx) => tx.publish(OrderPlaced({ orderId: 'o-1' })))
    await expectPublished(test, OrderPlaced, { orderId: 'o-1' })
    await test.drain()
    expect(seen).toEqual(['o-1'])
  })
})
