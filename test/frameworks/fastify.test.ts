import fastify from 'fastify'
import fp from 'fastify-plugin'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { createOutbox, defineEvent, type Outbox, silentLogger } from '../../src/index.js'
import { type OutboxPluginOptions, outboxPlugin } from '../../src/integrations/fastify.js'
import { memoryStore } from '../../src/stores/memory/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { freshDatabase } from '../support/database.js'
import { migratedDatabase, poolOn, rowsIn } from '../support/trap-kit.js'
import { signal, until } from '../support/waiting.js'
import { outboxWithRings } from './rings.js'

const OrderPlaced = defineEvent<{ orderId: string }>('order.placed')

const memoryOutbox = () => createOutbox({ store: memoryStore(), logger: silentLogger })

function newServer() {
  const server = fastify({ forceCloseConnections: 'idle' })
  onTestFinished(() => server.close())
  return server
}

/** The decorator is declared by applications; here by a cast. */
const outboxOf = (server: object, name = 'outbox') => (server as Record<string, unknown>)[name]
const isStarted = async (outbox: Pick<Outbox, 'health'>) => (await outbox.health()).started

describe('the Fastify plugin', () => {
  it('shows the outbox to the whole server, also to plugins with a context of their own', async () => {
    const server = newServer()
    const outbox = memoryOutbox()
    server.register(outboxPlugin, { outbox })
    server.register(async (inner) => {
      inner.get('/same', async () => ({ same: outboxOf(inner) === outbox }))
    })
    expect((await server.inject('/same')).json()).toEqual({ same: true })
    expect(outboxOf(server)).toBe(outbox)
  })

  it('starts the outbox when the server is ready, not before', async () => {
    const server = newServer()
    const outbox = memoryOutbox()
    await server.register(outboxPlugin, { outbox })
    expect(await isStarted(outbox)).toBe(false)
    await server.ready()
    expect(await isStarted(outbox)).toBe(true)
    await server.close()
    expect(await isStarted(outbox)).toBe(false)
  })

  it('refuses options that it does not know, and names the first one', async () => {
    const server = newServer()
    const options = { outbox: memoryOutbox(), prefix: '/fastifys-own', autoMigrate: true, strat: false }
    await expect(server.register(outboxPlugin, options).ready()).rejects.toThrow(
      /autoMigrate: outboxPlugin has no such setting/,
    )
  })

  it('holds several outboxes under names of their own', async () => {
    const server = newServer()
    const [orders, billing] = [memoryOutbox(), memoryOutbox()]
    server.register(outboxPlugin, { outbox: orders })
    server.register(outboxPlugin, { outbox: billing, decorator: 'billing' })
    await server.ready()
    expect(outboxOf(server)).toBe(orders)
    expect(outboxOf(server, 'billing')).toBe(billing)
    await server.close()
    expect([await isStarted(orders), await isStarted(billing)]).toEqual([false, false])
  })

  it('does not deliver with start: false', async () => {
    const server = newServer()
    const outbox = memoryOutbox()
    server.register(outboxPlugin, { outbox, start: false })
    await server.ready()
    expect(await isStarted(outbox)).toBe(false)
  })

  it('creates the tables when asked to; otherwise the server does not get ready', async () => {
    const database = await freshDatabase(inject('postgresUrl'))
    onTestFinished(() => database.drop())
    const outbox = createOutbox({ store: postgresStore(poolOn(database.url)), logger: silentLogger })
    const refused = newServer()
    refused.register(outboxPlugin, { outbox })
    await expect(refused.ready()).rejects.toThrow('outbox.migrate()')
    const server = newServer()
    server.register(outboxPlugin, { outbox, migrate: true })
    await server.ready()
    expect(await isStarted(outbox)).toBe(true)
    await server.close()
  })

  it('refuses to be registered without an outbox', async () => {
    const server = newServer()
    server.register(outboxPlugin, {} as OutboxPluginOptions)
    await expect(server.ready()).rejects.toThrow('register(outboxPlugin, { outbox })')
  })
})

describe('closing the server', () => {
  /** A resource of another plugin, that a handler uses. */
  function resource(name: string, closed: string[], outbox: Pick<Outbox, 'health'>) {
    return fp(async (server) => {
      server.addHook('onClose', async () => {
        closed.push(`${name} closed, outbox ${(await isStarted(outbox)) ? 'started' : 'stopped'}`)
      })
    })
  }

  it('stops the outbox before other plugins close their resources, in whatever order they came', async () => {
    const server = newServer()
    const outbox = memoryOutbox()
    const closed: string[] = []
    server.register(resource('first', closed, outbox))
    server.register(outboxPlugin, { outbox })
    server.register(resource('last', closed, outbox))
    await server.ready()
    await server.close()
    expect(closed).toEqual(['last closed, outbox stopped', 'first closed, outbox stopped'])
  })

  it('tells other processes of what was published until the last moment', async () => {
    const server = newServer()
    const { outbox, rings } = outboxWithRings()
    let waiting = false
    server.register(outboxPlugin, { outbox })
    server.register(
      fp(async (instance) => {
        instance.addHook('onClose', async () => {
          for (const orderId of ['o-1', 'o-2']) await outbox.enqueue(OrderPlaced({ orderId }))
          waiting = rings.length === 1
        })
      }),
    )
    await server.ready()
    await server.close()
    expect(waiting).toBe(true)
    expect(rings).toEqual([1, 2])
  })

  it('lets the request and the handler under way finish; what was published meanwhile is free for others', async () => {
    const pool = poolOn(await migratedDatabase())
    const server = newServer()
    const outbox = createOutbox({ store: postgresStore(pool), logger: silentLogger })
    const closed: string[] = []
    const [asked, answer, handling, handled] = [signal(), signal(), signal(), signal()]
    outbox.on(OrderPlaced, 'work', async () => {
      handling.give()
      await handled.promise
    })
    server.register(resource('database', closed, outbox))
    server.register(outboxPlugin, { outbox })
    server.post('/orders', async () => {
      asked.give()
      await answer.promise
      return { id: await outbox.enqueue(OrderPlaced({ orderId: 'o-2' })) }
    })
    const address = await server.listen({ port: 0, host: '127.0.0.1' })
    const first = await outbox.enqueue(OrderPlaced({ orderId: 'o-1' }))
    const response = fetch(`${address}/orders`, { method: 'POST', headers: { connection: 'close' } })
    await Promise.all([asked.promise, handling.promise])
    const closing = server.close()
    await until('the stop has begun', async () => !(await isStarted(outbox)))
    answer.give()
    const { id } = (await (await response).json()) as { id: string }
    // The server waits for the handler: it still listens, and turns new requests away.
    expect((await fetch(address, { headers: { connection: 'close' } })).status).toBe(503)
    expect(closed).toEqual([])
    handled.give()
    await closing
    expect(closed).toEqual(['database closed, outbox stopped'])
    const rows = await rowsIn(pool)
    expect(rows.find((row) => row.event_id === first)).toMatchObject({ status: 1, attempts: 0 })
    expect(rows.find((row) => row.event_id === id)).toMatchObject({ status: 0, locked_by: null, attempts: 0 })
  })
})
