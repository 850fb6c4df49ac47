import * as api from '@opentelemetry/api'
import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import type { OutboxStore } from '../../../src/index.js'
import { otelTracer } from '../../../src/observe/otel.js'
import { type FreshDatabase, freshDatabase } from '../../support/database.js'
import {
  activeSpanId,
  idOf,
  inSpan,
  linksOf,
  parentOf,
  recordSpans,
  traceOf,
  treeOf,
} from '../../support/spans.js'
import { until } from '../../support/until.js'
import { OrderPlaced, openWorld } from '../../support/world.js'

const spans = recordSpans()
const tracer = otelTracer(api)
const FOREIGN = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'

describe('traces', () => {
  let database: FreshDatabase
  beforeAll(async () => {
    database = await freshDatabase(inject('postgresUrl'))
  })
  afterAll(() => database?.drop())
  beforeEach(() => spans.clear())

  async function metadataOf(world: Awaited<ReturnType<typeof openWorld>>, eventId: string) {
    const { rows } = await world.pool.query(`select metadata from ${world.table} where event_id = $1`, [
      eventId,
    ])
    return rows[0]?.metadata
  }

  it.each(['hot', 'cold'])(
    'are one tree from publish over handler and follow-up event to the second handler, %s',
    async (path) => {
      const world = await openWorld(database.url)
      const outbox = world.outbox({ tracer })
      const order = OrderPlaced({ orderId: 'o-1' }, { eventId: `order ${path}` })
      outbox.on(OrderPlaced, 'charge', async () => {
        const payment = { type: 'payment.requested', eventId: `payment ${path}`, payload: 1 }
        await outbox.transaction((tx) => tx.publish(payment))
      })
      outbox.on('payment.requested', 'pay', () => {})
      if (path === 'hot') await outbox.start()
      await inSpan('POST /orders', () => outbox.transaction((tx) => tx.publish(order)))
      if (path === 'cold') await outbox.drain()
      await until(() => spans.named('process payment.requested').length === 1)

      expect(treeOf(spans.all())).toEqual([
        'POST /orders',
        '  publish order.placed',
        '    process order.placed',
        '      publish payment.requested',
        '        process payment.requested',
      ])
      expect(new Set(spans.all().map(traceOf)).size).toBe(1)
      const kinds = ['publish order.placed', 'process order.placed'].map((name) => spans.only(name).kind)
      expect(kinds).toEqual([api.SpanKind.PRODUCER, api.SpanKind.CONSUMER])
      expect(spans.only('process order.placed').attributes).toEqual({
        'messaging.system': 'aftercommit',
        'messaging.operation.name': 'process',
        'messaging.operation.type': 'process',
        'messaging.destination.name': 'order.placed',
        'messaging.message.id': `order ${path}`,
        'messaging.message.conversation_id': `order ${path}`,
        'messaging.consumer.group.name': 'charge',
        'aftercommit.handler': 'charge',
        'aftercommit.attempt': 1,
      })
      expect(spans.only('process payment.requested').attributes).toMatchObject({
        'messaging.message.id': `payment ${path}`,
        'messaging.message.conversation_id': `order ${path}`,
        'aftercommit.causation_id': `order ${path}`,
        'messaging.consumer.group.name': 'pay',
      })
      expect(spans.only('publish payment.requested').attributes).toMatchObject({
        'messaging.operation.type': 'send',
        'messaging.message.conversation_id': `order ${path}`,
        'aftercommit.causation_id': `order ${path}`,
      })
      const published = spans.only('publish order.placed')
      expect(linksOf(spans.only('process order.placed'))).toEqual([idOf(published)])
      expect(await metadataOf(world, `order ${path}`)).toEqual({
        traceparent: `00-${traceOf(published)}-${idOf(published)}-01`,
      })
    },
  )

  it('lead to nothing when the transaction is rolled back', async () => {
    const world = await openWorld(database.url)
    const outbox = world.outbox({ tracer })
    outbox.on(OrderPlaced, 'never', () => {})
    await outbox.start()
    const rollback = outbox.transaction(async (tx) => {
      await tx.publish(OrderPlaced({ orderId: 'o-1' }))
      throw new Error('no order')
    })
    await expect(rollback).rejects.toThrow('no order')
    await outbox.drain()
    expect(treeOf(spans.all())).toEqual(['publish order.placed'])
    expect(await world.rows()).toEqual([])
  })

  it('keep the context that an event carries, and link to it', async () => {
    const world = await openWorld(database.url)
    const outbox = world.outbox({ tracer })
    outbox.on('own', 'h', () => {})
    const event = { type: 'own', eventId: 'own', metadata: { traceparent: FOREIGN, tracestate: 'a=1' } }
    await inSpan('request', () => outbox.transaction((tx) => tx.publish(event)))
    await outbox.drain()
    expect(await metadataOf(world, 'own')).toEqual({ traceparent: FOREIGN, tracestate: 'a=1' })
    expect(linksOf(spans.only('publish own'))).toEqual(['00f067aa0ba902b7'])
    const processed = spans.only('process own')
    expect([traceOf(processed), parentOf(processed)]).toEqual([FOREIGN.slice(3, 35), '00f067aa0ba902b7'])
    expect(processed.spanContext().traceState?.serialize()).toBe('a=1')
  })

  it('begin anew where another writer left no context, or nonsense', async () => {
    const world = await openWorld(database.url)
    const outbox = await inSpan('while the application begins', async () => world.outbox({ tracer }))
    outbox.on('foreign', 'h', () => {})
    const found = [
      null,
      { traceparent: "'; drop table x; --" },
      { traceparent: `00-${'0'.repeat(32)}-${'0'.repeat(16)}-00` },
      { traceparent: FOREIGN.slice(0, 40), tracestate: 'x' },
      { traceparent: `${FOREIGN}-more` },
    ]
    await world.pool.query(
      `insert into ${world.table} (event_id, event_type, payload, payload_size, metadata)
       select 'f-' || n, 'foreign', '1', 1, nullif(m, 'null') from jsonb_array_elements($1) with ordinality as x (m, n)`,
      [JSON.stringify(found)],
    )
    await inSpan('somebody else', () => outbox.drain())
    const processed = spans.named('process foreign')
    expect(processed).toHaveLength(found.length)
    expect(processed.map((span) => [parentOf(span), linksOf(span)])).toEqual(found.map(() => [undefined, []]))
    expect(new Set(spans.all().map(traceOf)).size).toBe(found.length + 2)
  })

  it('surround nothing but the handler: claims, outcomes and rings belong to no span', async () => {
    const world = await openWorld(database.url)
    const seen = new Map<string, Set<string | undefined>>()
    const WATCHED = new Set(['append', 'claim', 'settleIfLeased', 'ring', 'heartbeat', 'stats'])
    const wrap = (store: OutboxStore<pg.PoolClient>) =>
      new Proxy(store, {
        get(target, name) {
          const value: unknown = Reflect.get(target, name, target)
          if (typeof value !== 'function') return value
          return (...args: unknown[]): unknown => {
            const method = String(name)
            if (WATCHED.has(method)) seen.set(method, (seen.get(method) ?? new Set()).add(activeSpanId()))
            return value.apply(target, args)
          }
        },
      })
    const reader = world.outbox({ doorbell: true })
    reader.on('second', 'read', () => {})
    await reader.start()
    const outbox = world.outbox({ tracer, wrap, doorbell: true })
    outbox.on('first', 'h', async () => {
      const ordered = { type: 'second', eventId: 'ordered', orderingKey: 'k' }
      await outbox.transaction((tx) => tx.publish(ordered))
    })
    await inSpan('start', () => outbox.start())
    await inSpan('request', () => outbox.enqueue({ type: 'first', eventId: 'not-put-off' }))
    await until(async () => (await world.rows()).filter((row) => row.status === 'DONE').length === 2)
    await outbox.stop()

    const publishing = ['publish first', 'publish second'].map((name) => idOf(spans.only(name)))
    expect([...(seen.get('append') ?? [])].sort()).toEqual(publishing.sort())
    seen.delete('append')
    // Whoever starts an outbox waits for its first heartbeat.
    const starting = idOf(spans.only('start'))
    const elsewhere = [...seen].map(([method, ids]) => [method, [...ids].filter((id) => id !== starting)])
    expect(Object.fromEntries(elsewhere)).toMatchObject({ claim: [undefined], settleIfLeased: [undefined] })
    expect(elsewhere.flatMap(([, ids]) => ids).filter((id) => id !== undefined)).toEqual([])
    expect(seen.has('ring')).toBe(true)
  })

  it('cost and store nothing without a tracer', async () => {
    const world = await openWorld(database.url)
    const outbox = world.outbox()
    outbox.on('order', 'h', () => {})
    await inSpan('request', () => outbox.transaction((tx) => tx.publish({ type: 'order', eventId: 'e' })))
    await outbox.drain()
    expect(treeOf(spans.all())).toEqual(['request'])
    expect(await metadataOf(world, 'e')).toBeNull()
  })
})
