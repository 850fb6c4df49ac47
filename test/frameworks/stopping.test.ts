import http from 'node:http'
import pg from 'pg'
import { describe, expect, it } from 'vitest'
import { afterwards, migratedDatabase } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'
import { Program } from './program.js'

/** A real server process under load gets a real SIGTERM. What it has begun it finishes, and it ends by itself. */

/** The machine may be busy; none of it is waited for in vain. */
const PATIENCE = 60_000

const TABLES = `
  create table orders (id text primary key);
  create table shipped (order_id text);`

interface Order {
  readonly id: string
  readonly hold?: 'request' | 'handler'
}

/** Without keep-alive, so that no idle connection holds the server. */
function post(port: string, order: Order): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const request = http.request({
      host: '127.0.0.1',
      port,
      path: '/orders',
      method: 'POST',
      agent: false,
      headers: { 'content-type': 'application/json' },
    })
    request.on('error', reject).on('response', (response) => {
      response.resume().on('end', () => resolve(response.statusCode))
    })
    request.end(JSON.stringify(order))
  })
}

/** Orders one after the other until the server takes no more. */
async function load(port: string, client: number, placed: string[]): Promise<void> {
  for (let n = 0; ; n++) {
    const id = `load-${client}-${n}`
    const status = await post(port, { id }).catch(() => undefined)
    if (status !== 201) return
    placed.push(id)
  }
}

const SERVERS = ['fastify', 'express', 'hono']

describe.each(SERVERS)(
  'a server with %s that gets a SIGTERM under load',
  { timeout: 3 * PATIENCE },
  (name) => {
    const start = (url: string) => Program.node(`test/frameworks/children/${name}.mjs`, { DATABASE_URL: url })

    it('finishes the request and the handler under way and ends by itself; the next process does the rest', async () => {
      const url = await migratedDatabase()
      const control = new pg.Client({ connectionString: url })
      await control.connect()
      afterwards('end the control connection', () => control.end())
      await control.query(TABLES)
      await control.query('select pg_advisory_lock(1), pg_advisory_lock(2)')

      const server = start(url)
      const port = await server.says('listening ')
      const placed = ['held', 'late']
      expect(await post(port, { id: 'held', hold: 'handler' })).toBe(201)
      await server.says('handling held')
      const late = post(port, { id: 'late', hold: 'request' })
      await server.says('asked late')
      const clients = [1, 2, 3, 4].map((client) => load(port, client, placed))
      await until('the server is under load', () => placed.length > 40, PATIENCE)

      server.signal('SIGTERM')
      await Promise.all(clients)
      await server.says('ending')
      expect(server.isAlive).toBe(true)
      expect(server.lines).not.toContain('pool closed')
      await control.query('select pg_advisory_unlock(1)')
      expect(await late).toBe(201)
      expect(server.isAlive).toBe(true)
      await control.query('select pg_advisory_unlock(2)')
      expect(await server.ends()).toEqual({ code: 0, signal: null, stderr: '' })
      expect(server.lines.indexOf('handled held')).toBeGreaterThan(server.lines.indexOf('ending'))
      expect(server.lines.at(-1)).toBe('pool closed')

      // Every order that was answered is there with its event: handled once, or free for the next process.
      const { rows: orders } = await control.query('select id from orders')
      expect(orders.map(({ id }) => id)).toEqual(expect.arrayContaining(placed))
      const { rows: events } = await control.query(
        'select status, attempts, locked_by, (select count(*)::int from shipped where order_id = payload->>$1) as shipped from outbox_event',
        ['id'],
      )
      expect(events).toHaveLength(orders.length)
      for (const event of events) {
        const isDone = event.status === 1
        expect(event).toEqual({
          status: isDone ? 1 : 0,
          attempts: 0,
          locked_by: null,
          shipped: isDone ? 1 : 0,
        })
      }

      const next = start(url)
      await next.says('listening ')
      const shipped = async () => (await control.query('select order_id from shipped')).rows
      await until('all are shipped', async () => (await shipped()).length >= orders.length, PATIENCE)
      next.signal('SIGTERM')
      expect(await next.ends()).toEqual({ code: 0, signal: null, stderr: '' })
      const ids = (await shipped()).map((row) => row.order_id as string)
      expect(ids.sort()).toEqual(orders.map(({ id }) => id as string).sort())
    })
  },
)
