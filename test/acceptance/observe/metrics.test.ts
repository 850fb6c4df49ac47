import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { type FreshDatabase, freshDatabase } from '../../support/database.js'
import { type ObservedRun, observedRun } from '../../support/observed-run.js'
import { openWorld, type World } from '../../support/world.js'

/** What happened, by the test's own count: see the run. */
const COUNTED = {
  published: { order: 10, row: 4 },
  hot: { order: 6, row: 3 },
  cold: { order: 6 },
  charged: { success: 9, failure: 3 },
  indexed: 3,
}

describe('the metrics of a whole run say what happened', () => {
  let database: FreshDatabase
  let world: World
  let run: ObservedRun
  let rows: Record<string, number>

  beforeAll(async () => {
    database = await freshDatabase(inject('postgresUrl'))
  })
  afterAll(() => database?.drop())

  it('as the table and the handlers have it', async () => {
    world = await openWorld(database.url)
    run = await observedRun(world)
    rows = {}
    for (const { status } of await world.rows()) rows[status] = (rows[status] ?? 0) + 1
    expect(rows).toEqual({ DONE: 12, DEAD: 1, NEW: 2 })
    expect(run.calls).toEqual({ ok: COUNTED.charged.success, failed: COUNTED.charged.failure, batched: 3 })
  })

  it('to Prometheus', () => {
    const samples = [...run.samples].filter(([name]) => !/_(bucket|sum)\b|_lag_/.test(name))
    const charge = 'event_type="order",handler="charge"'
    const index = 'event_type="row",handler="index"'
    const { settle, ...others } = Object.fromEntries(
      samples.map(([name, n]) => [/settle/.test(name) ? 'settle' : name, n]),
    )
    expect(settle).toBeGreaterThan(3)
    expect(others).toEqual({
      'aftercommit_published_total{event_type="order"}': COUNTED.published.order,
      'aftercommit_published_total{event_type="row"}': COUNTED.published.row,
      'aftercommit_hot_enqueued_total{event_type="order"}': COUNTED.hot.order,
      'aftercommit_hot_enqueued_total{event_type="row"}': COUNTED.hot.row,
      'aftercommit_hot_dropped_total{event_type="order"}': 2,
      'aftercommit_cold_enqueued_total{event_type="order"}': COUNTED.cold.order,
      [`aftercommit_handled_total{${charge},outcome="success"}`]: COUNTED.charged.success,
      [`aftercommit_handled_total{${charge},outcome="failure"}`]: COUNTED.charged.failure,
      [`aftercommit_handled_total{${index},outcome="success"}`]: COUNTED.indexed,
      'aftercommit_retries_total{event_type="order"}': 2,
      'aftercommit_dead_total{event_type="order"}': 1,
      'aftercommit_lease_lost_total{event_type="order"}': 1,
      aftercommit_hot_queue_depth: 0,
      aftercommit_cold_queue_depth: 0,
      aftercommit_in_flight: 0,
      aftercommit_pending: rows.NEW,
      aftercommit_dead_letters: rows.DEAD,
      aftercommit_paused: 1,
      'aftercommit_unhandled{event_type="missing"}': 1,
      [`aftercommit_handler_duration_seconds_count{${charge},outcome="success"}`]: COUNTED.charged.success,
      [`aftercommit_handler_duration_seconds_count{${charge},outcome="failure"}`]: COUNTED.charged.failure,
      [`aftercommit_handler_duration_seconds_count{${index},outcome="success"}`]: COUNTED.indexed,
    })
    expect(run.samples.get('aftercommit_oldest_lag_seconds')).toBeGreaterThan(0)
  })

  it('to OpenTelemetry', () => {
    const charge =
      'messaging.consumer.group.name=charge messaging.destination.name=order messaging.operation.name=process'
    const index =
      'messaging.consumer.group.name=index messaging.destination.name=row messaging.operation.name=process'
    const publish = (type: string) => `messaging.destination.name=${type} messaging.operation.name=publish`
    const points = Object.fromEntries([...run.points].filter(([name]) => !/settle|lag/.test(name)))
    expect(points).toEqual({
      [`messaging.client.sent.messages ${publish('order')}`]: COUNTED.published.order,
      [`messaging.client.sent.messages ${publish('row')}`]: COUNTED.published.row,
      [`messaging.client.consumed.messages ${charge}`]: COUNTED.charged.success,
      [`messaging.client.consumed.messages error.type=_OTHER ${charge}`]: COUNTED.charged.failure,
      [`messaging.client.consumed.messages ${index}`]: COUNTED.indexed,
      [`messaging.process.duration ${charge}`]: COUNTED.charged.success,
      [`messaging.process.duration error.type=_OTHER ${charge}`]: COUNTED.charged.failure,
      [`messaging.process.duration ${index}`]: COUNTED.indexed,
      'aftercommit.hot.enqueued messaging.destination.name=order': COUNTED.hot.order,
      'aftercommit.hot.enqueued messaging.destination.name=row': COUNTED.hot.row,
      'aftercommit.hot.dropped messaging.destination.name=order': 2,
      'aftercommit.cold.enqueued messaging.destination.name=order': COUNTED.cold.order,
      'aftercommit.retries messaging.destination.name=order': 2,
      'aftercommit.dead messaging.destination.name=order': 1,
      'aftercommit.lease.lost messaging.destination.name=order': 1,
      'aftercommit.hot_queue.depth': 0,
      'aftercommit.cold_queue.depth': 0,
      'aftercommit.in_flight': 0,
      'aftercommit.pending': rows.NEW,
      'aftercommit.dead_letters': rows.DEAD,
      'aftercommit.paused': 1,
      'aftercommit.unhandled messaging.destination.name=missing': 1,
    })
    const settles = run.samples.get('aftercommit_settle_duration_seconds_count')
    expect(run.points.get('aftercommit.settle.duration')).toBe(settles)
    expect(run.points.get('aftercommit.oldest_lag')).toBe(run.samples.get('aftercommit_oldest_lag_seconds'))
  })
})
