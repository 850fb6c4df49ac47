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
      await h.store.heartbeat(instance('a', { counters: { done: 3, failed: 2, dead: 1 } }))
      const [seen, ...others] = await h.store.instances(LONG_MS)
      assert.deepEqual(others, [])
      assert.ok(seen)
      const { startedAt, lastSeenAt, stoppedAt, ...record } = seen
      assert.deepEqual(record, instance('a', { counters: { done: 3, failed: 2, dead: 1 } }))
      assert.ok(startedAt instanceof Date && lastSeenAt >= startedAt)
      assert.equal(stoppedAt, null)
    })

    test('a heartbeat renews the time and what has changed, not the start', async (h) => {
      await h.store.heartbeat(instance('a'))
      const [before] = await h.store.instances(LONG_MS)
      await h.elapse(SHORT_MS)
      await h.store.heartbeat(instance('a', { accept: onlyType('new'), handlers: { new: ['x'] } }))
      const [after] = await h.store.instances(LONG_MS)
      assert.ok(before && after)
      assert.deepEqual(after.startedAt, before.startedAt)
      assert.ok(after.lastSeenAt > before.lastSeenAt)
      assert.deepEqual([after.accept, after.handlers], [onlyType('new'), { new: ['x'] }])
    })

    test('a consumer that registers as stopped is seen with everything it said of itself', async (h) => {
      await h.store.registerStopped(instance('a', { counters: { done: 3, failed: 2, dead: 1 } }), 'nobody')
      const [seen, ...others] = await h.store.instances(LONG_MS)
      assert.deepEqual(others, [])
      assert.ok(seen)
      const { startedAt, lastSeenAt, stoppedAt, ...record } = seen
      assert.deepEqual(record, instance('a', { counters: { done: 3, failed: 2, dead: 1 } }))
      assert.ok(startedAt instanceof Date && lastSeenAt >= startedAt)
      assert.ok(stoppedAt instanceof Date)
    })

    test('consumers that register as stopped under one id share a row: counters add up, the rest is replaced', async (h) => {
      await h.store.registerStopped(instance('a', { counters: { done: 3, failed: 2, dead: 1 } }), 'x')
      const [before] = await h.store.instances(LONG_MS)
      await h.elapse(SHORT_MS)
      const later = {
        ...{ host: 'host-2', pid: 7, version: '2.0.0', handlers: { new: ['y'] }, accept: onlyType('new') },
        counters: { done: 10, failed: 20, dead: 30 },
      }
      await h.store.registerStopped(instance('a', later), 'y')
      const [after, ...others] = await h.store.instances(LONG_MS)
      assert.deepEqual(others, [])
      assert.ok(before && after)
      const { startedAt, lastSeenAt, stoppedAt, ...record } = after
      assert.deepEqual(record, { ...instance('a', later), counters: { done: 13, failed: 22, dead: 31 } })
      assert.deepEqual(startedAt, before.startedAt)
      assert.ok(
        lastSeenAt > before.lastSeenAt && stoppedAt && before.stoppedAt && stoppedAt > before.stoppedAt,
      )
    })

    test('an instance that stops hands its row and its counters over', async (h) => {
      await h.store.heartbeat(instance('a', { counters: { done: 5, failed: 1, dead: 0 } }))
      await h.store.heartbeat(instance('b', { counters: { done: 100, failed: 0, dead: 0 } }))
      await h.store.registerStopped(instance('s', { counters: { done: 6, failed: 1, dead: 1 } }), 'a')
      const rows = (await h.store.instances(LONG_MS)).map(({ id, stoppedAt }) => [id, stoppedAt !== null])
      assert.deepEqual(rows.sort(), [
        ['b', false],
        ['s', true],
      ])
      assert.deepEqual((await h.store.stats()).counters, { done: 106, failed: 1, dead: 1 })
    })

    test('an instance that starts again has a row of its own again', async (h) => {
      await h.store.heartbeat(instance('a', { counters: { done: 5, failed: 0, dead: 0 } }))
      await h.store.registerStopped(instance('s', { counters: { done: 5, failed: 0, dead: 0 } }), 'a')
      await h.store.heartbeat(instance('a', { counters: { done: 1, failed: 0, dead: 0 } }))
      const rows = (await h.store.instances(LONG_MS)).map(({ id, stoppedAt }) => [id, stoppedAt !== null])
      assert.deepEqual(rows.sort(), [
        ['a', false],
        ['s', true],
      ])
      assert.equal((await h.store.stats()).counters.done, 6)
    })

    test('many consumers that register as stopped at once lose no counters', async (h) => {
      const ids = Array.from({ length: 10 }, (_, index) => `instance-${index}`)
      await Promise.all(ids.map((id) => h.store.heartbeat(instance(id))))
      const counters = { done: 1, failed: 2, dead: 3 }
      await Promise.all(ids.map((id) => h.store.registerStopped(instance('s', { counters }), id)))
      const [seen, ...others] = await h.store.instances(LONG_MS)
      assert.deepEqual(others, [])
      assert.deepEqual(seen?.counters, { done: 10, failed: 20, dead: 30 })
    })

    test('an instance that was not seen lately is left out', async (h) => {
      await h.store.heartbeat(instance('a'))
      await h.elapse(SHORT_MS)
      assert.deepEqual(await h.store.instances(10), [])
      assert.equal((await h.store.instances(LONG_MS)).length, 1)
    })

    test('counters are totals of an instance; stats adds them up', async (h) => {
      await h.store.heartbeat(instance('a', { counters: { done: 10, failed: 1, dead: 0 } }))
      await h.store.heartbeat(instance('a', { counters: { done: 15, failed: 2, dead: 1 } }))
      await h.store.registerStopped(instance('b', { counters: { done: 100, failed: 0, dead: 0 } }), 'nobody')
      assert.deepEqual((await h.store.stats()).counters, { done: 115, failed: 2, dead: 1 })
    })

    test('instances that are gone for long are forgotten, their counters are not', async (h) => {
      await h.store.heartbeat(instance('a', { counters: { done: 10, failed: 1, dead: 2 } }))
      await h.store.pruneInstances(LONG_MS)
      assert.equal((await h.store.instances(LONG_MS)).length, 1)
      await h.elapse(SHORT_MS)
      await h.store.pruneInstances(10)
      assert.deepEqual(await h.store.instances(LONG_MS), [])
      assert.deepEqual((await h.store.stats()).counters, { done: 10, failed: 1, dead: 2 })
      await h.store.pruneInstances(10)
      await h.store.heartbeat(instance('b', { counters: { done: 1, failed: 1, dead: 1 } }))
      assert.deepEqual((await h.store.stats()).counters, { done: 11, failed: 2, dead: 3 })
    })

    test('counters of a shared row outlive the row, also when it comes back', async (h) => {
      const counters = { done: 10, failed: 1, dead: 2 }
      await h.store.registerStopped(instance('s', { counters }), 'a')
      await h.elapse(SHORT_MS)
      await h.store.pruneInstances(10)
      assert.deepEqual(await h.store.instances(LONG_MS), [])
      await h.store.registerStopped(instance('s', { counters: { done: 1, failed: 1, dead: 1 } }), 'b')
      assert.deepEqual((await h.store.stats()).counters, { done: 11, failed: 2, dead: 3 })
    })

    test('heartbeats of many instances at once are all kept', async (h) => {
      const ids = Array.from({ length: 10 }, (_, index) => `instance-${index}`)
      await Promise.all(ids.map((id) => h.store.heartbeat(instance(id))))
      assert.deepEqual((await h.store.instances(LONG_MS)).map(({ id }) => id).sort(), ids)
    })
  },
}
