import assert from 'node:assert/strict'
import type { InstanceRecord } from '../../store.js'
import { LONG_MS, onlyType, SHORT_MS } from './fixtures.js'
import type { Theme } from './suite.js'

function instance(id: string, changes: Partial<InstanceRecord> = {}): InstanceRecord {
  return {
    id,
    host: 'host-1',
    pid: 42,
    version: '1.2.3',
    handlers: { 'order.placed': ['mail', 'audit'], 'order.*': ['search'] },
    accept: { names: ['order.placed', 'order\u001fplaced'], versions: [2, 1], prefixes: ['order.', ''] },
    counters: { done: 0, failed: 0, dead: 0 },
    ...changes,
  }
}

export const registry: Theme = {
  name: 'registry',
  define(test) {
    test('an instance is seen with everything it said of itself', async (h) => {
      await h.store.heartbeat(instance('a', { counters: { done: 3, failed: 2, dead: 1 } }), false)
      const [seen, ...others] = await h.store.instances(LONG_MS)
      assert.deepEqual(others, [])
      assert.ok(seen)
      const { startedAt, lastSeenAt, stoppedAt, ...record } = seen
      assert.deepEqual(record, instance('a', { counters: { done: 3, failed: 2, dead: 1 } }))
      assert.ok(startedAt instanceof Date && lastSeenAt >= startedAt)
      assert.equal(stoppedAt, null)
    })

    test('a heartbeat renews the time and what has changed, not the start', async (h) => {
      await h.store.heartbeat(instance('a'), false)
      const [before] = await h.store.instances(LONG_MS)
      await h.elapse(SHORT_MS)
      await h.store.heartbeat(instance('a', { accept: onlyType('new'), handlers: { new: ['x'] } }), false)
      const [after] = await h.store.instances(LONG_MS)
      assert.ok(before && after)
      assert.deepEqual(after.startedAt, before.startedAt)
      assert.ok(after.lastSeenAt > before.lastSeenAt)
      assert.deepEqual([after.accept, after.handlers], [onlyType('new'), { new: ['x'] }])
    })

    test('an instance that stopped is still known, with the time of its stop', async (h) => {
      await h.store.heartbeat(instance('a'), false)
      await h.store.heartbeat(instance('a'), true)
      const [stopped] = await h.store.instances(LONG_MS)
      assert.ok(stopped?.stoppedAt instanceof Date)
      await h.store.heartbeat(instance('a'), false)
      assert.equal((await h.store.instances(LONG_MS))[0]?.stoppedAt, null)
    })

    test('an instance that was not seen lately is left out', async (h) => {
      await h.store.heartbeat(instance('a'), false)
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.store.instances(10), [])
      assert.equal((await h.store.instances(LONG_MS)).length, 1)
    })

    test('counters are totals of an instance; stats adds them up', async (h) => {
      await h.store.heartbeat(instance('a', { counters: { done: 10, failed: 1, dead: 0 } }), false)
      await h.store.heartbeat(instance('a', { counters: { done: 15, failed: 2, dead: 1 } }), false)
      await h.store.heartbeat(instance('b', { counters: { done: 100, failed: 0, dead: 0 } }), true)
      assert.deepEqual((await h.store.stats()).counters, { done: 115, failed: 2, dead: 1 })
    })

    test('instances that are gone for long are forgotten, their counters are not', async (h) => {
      await h.store.heartbeat(instance('a', { counters: { done: 10, failed: 1, dead: 2 } }), false)
      await h.store.pruneInstances(LONG_MS)
      assert.equal((await h.store.instances(LONG_MS)).length, 1)
      await h.elapse(SHORT_MS)
      await h.store.pruneInstances(10)
      assert.deepEqual(await h.store.instances(LONG_MS), [])
      assert.deepEqual((await h.store.stats()).counters, { done: 10, failed: 1, dead: 2 })
      await h.store.pruneInstances(10)
      await h.store.heartbeat(instance('b', { counters: { done: 1, failed: 1, dead: 1 } }), false)
      assert.deepEqual((await h.store.stats()).counters, { done: 11, failed: 2, dead: 3 })
    })

    test('heartbeats of many instances at once are all kept', async (h) => {
      const ids = Array.from({ length: 10 }, (_, index) => `instance-${index}`)
      await Promise.all(ids.map((id) => h.store.heartbeat(instance(id), false)))
      assert.deepEqual((await h.store.instances(LONG_MS)).map((one) => one.id).sort(), ids)
    })
  },
}
