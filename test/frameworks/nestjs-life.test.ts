import 'reflect-metadata'
import { Inject, Injectable, Module, type OnModuleDestroy } from '@nestjs/common'
import { describe, expect, it } from 'vitest'
import { silentLogger } from '../../src/index.js'
import { OnEvent, Outbox, OutboxModule } from '../../src/integrations/nestjs.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { signal, until } from '../support/waiting.js'
import { application, OrderPlaced, type Provider } from './nestjs-kit.js'
import { outboxWithRings } from './rings.js'

const settings = () => ({ store: memoryStore(), logger: silentLogger })

describe('the life of the outbox', () => {
  /** Providers of all kinds of modules write down what happens to them. */
  async function recorded(lines: string[], providers: Provider[] = []) {
    const witness = (name: string) => {
      @Injectable()
      class Witness {
        isOpen = false
        constructor(@Inject(Outbox) readonly outbox: Outbox) {}
        onModuleInit() {
          this.isOpen = true
        }
        async onApplicationBootstrap() {
          lines.push(`${name} up, outbox ${await state(this.outbox)}`)
        }
        async onModuleDestroy() {
          this.isOpen = false
          lines.push(`${name} destroyed, outbox ${await state(this.outbox)}`)
        }
      }
      return Witness
    }
    const [Far, Near, Everywhere] = [witness('far'), witness('near'), witness('global')]
    @Module({ providers: [Far] })
    class FarModule {}
    @Module({ imports: [FarModule] })
    class Between {}
    const global = { module: class {}, global: true, providers: [Everywhere] }
    const modules = [global, Between, OutboxModule.forRoot(settings())]
    return application(modules, [Near, ...providers])
  }
  const state = async (outbox: Outbox) => ((await outbox.health()).started ? 'started' : 'stopped')

  it('begins when all providers are up and ends before the first is destroyed', async () => {
    const lines: string[] = []
    const { app, outbox } = await recorded(lines)
    expect(lines.sort()).toEqual(['far', 'global', 'near'].map((name) => `${name} up, outbox stopped`))
    expect(await state(outbox)).toBe('started')
    lines.length = 0
    await app.close()
    expect(lines.sort()).toEqual(['far', 'global', 'near'].map((name) => `${name} destroyed, outbox stopped`))
  })

  it('tells other processes of what was published until the last request was answered', async () => {
    const { store, clock, rings } = outboxWithRings()
    let waiting = false
    @Injectable()
    class LateRequest {
      constructor(@Inject(Outbox) readonly outbox: Outbox) {}

      async beforeApplicationShutdown() {
        for (const orderId of ['o-1', 'o-2']) await this.outbox.enqueue(OrderPlaced({ orderId }))
        waiting = rings.length === 1
      }
    }
    const module = OutboxModule.forRoot({ store, clock, logger: silentLogger })
    const { app } = await application([module], [LateRequest])
    await app.close()
    expect(waiting).toBe(true)
    expect(rings).toEqual([1, 2])
  })

  it('lets handlers under way finish with providers that are still there', async () => {
    const lines: string[] = []
    const running = signal()
    const finish = signal()
    @Injectable()
    class Database implements OnModuleDestroy {
      isOpen = true
      onModuleDestroy() {
        this.isOpen = false
      }
    }
    @Injectable()
    class Handlers {
      constructor(@Inject(Database) readonly database: Database) {}

      @OnEvent(OrderPlaced)
      async work() {
        running.give()
        await finish.promise
        lines.push(`the database is ${this.database.isOpen ? 'open' : 'closed'}`)
      }
    }
    const { app, outbox } = await recorded(lines, [Database, Handlers])
    await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    await running.promise
    lines.length = 0
    const closing = app.close()
    await until('the stop has begun', async () => (await state(outbox)) === 'stopped')
    expect(lines).toEqual([])
    finish.give()
    await closing
    expect(lines[0]).toBe('the database is open')
    expect(lines).toHaveLength(4)
    expect(await outbox.stats()).toMatchObject({ pending: 0, done: 1 })
  })
})
