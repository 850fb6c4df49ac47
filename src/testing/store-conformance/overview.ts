import assert from 'node:assert/strict'
import type { EventEnvelope } from '../../core/envelope.js'
import type { InstanceRecord, TypeBacklog } from '../../store.js'
import { dead, done, event, LONG_MS, NONE, onlyType, retry, SHORT_MS } from './fixtures.js'
import type { Harness } from './harness.js'
import type { Theme } from './suite.js'

const MOST_TYPES = 1_000

/** `type`, pending, dead. */
async function counts<Client>(h: Harness<Client>): Promise<[string, number, number][]> {
  return (await h.store.overview()).types.map((entry) => [entry.eventType, entry.pending, entry.dead])
}

async function backlogOf<Client>(h: Harness<Client>, eventType: string): Promise<TypeBacklog> {
  const found = (await h.store.overview()).types.find((entry) => entry.eventType === eventType)
  assert.ok(found, `${eventType} is not in the overview`)
  return found
}

function instance(id: string, handlers: InstanceRecord['handlers'] = { a: ['mail'] }): InstanceRecord {
  const counters = { done: 0, failed: 0, dead: 0 }
  return { id, host: 'host-1', pid: 42, version: '1.2.3', handlers, accept: NONE, counters }
}

async function finding<Client>(h: Harness<Client>, check: string) {
  const found = (await h.store.diagnose()).filter((candidate) => candidate.check === check)
  assert.equal(found.length, 1, `there must be one finding of the check "${check}"`)
  return found[0] as (typeof found)[0]
}

/** Appends events under leases that end in this number of minutes, or ended that long ago if the number is negative. */
function appendLeased<Client>(h: Harness<Client>, minutes: number, ...events: EventEnvelope[]) {
  const rows = events.map((envelope) => ({ event: envelope, token: 'gone:0' }))
  return h.append(rows, { leaseMs: minutes * 60_000 })
}

export const overview: Theme = {
  name: 'overview and diagnosis',
  define(test) {
    test('an empty store has nothing to show', async (h) => {
      assert.deepEqual(await h.store.overview(), { types: [], leases: [] })
    })

    test('counts by type what is new, leased, delayed, failed and ordered, and what is dead', async (h) => {
      await h.append([
        { event: event({ eventType: 'a' }) },
        { event: event({ eventType: 'a' }), token: 'hot:0' },
        { event: event({ eventType: 'a' }), delayMs: LONG_MS },
        { event: event({ eventType: 'a', orderingKey: 'k' }) },
        { event: event({ eventType: 'a', orderingKey: 'k' }) },
        { event: event({ eventType: 'b' }) },
      ])
      await h.settle([retry(await h.claimOne({ accept: onlyType('b') }), { delayMs: LONG_MS })])
      await h.makeDead({ eventType: 'c' })
      await h.makeDead({ eventType: 'c' })
      assert.deepEqual(await counts(h), [
        ['a', 5, 0],
        ['b', 1, 0],
        ['c', 0, 2],
      ])
    })

    test('what is done is not counted', async (h) => {
      await h.appendFree(2, { eventType: 'a' })
      const [row] = await h.claim({ limit: 1 })
      assert.ok(row)
      await h.settle([done(row)], true)
      assert.deepEqual(await counts(h), [['a', 1, 0]])
    })

    test('a dead event with an ordering key counts once, whether it halts its key or not', async (h) => {
      await h.append([
        { event: event({ eventType: 'a', orderingKey: 'k' }) },
        { event: event({ eventType: 'a', orderingKey: 'k' }) },
        { event: event({ eventType: 'a', orderingKey: 'l' }) },
      ])
      const rows = await h.claimOrdered({ runLength: 1 })
      await h.settle(rows.map((row) => dead(row, { halts: row.orderingKey === 'k' })))
      assert.deepEqual(await counts(h), [['a', 1, 2]])
    })

    test('the type with most pending events comes first, then they go by name', async (h) => {
      for (const eventType of ['z', 'ä', 'b', 'B', 'a\u{1f600}', 'a\uffff'])
        await h.appendFree(1, { eventType })
      await h.appendFree(2, { eventType: 'y' })
      await h.makeDead({ eventType: 'A' })
      const names = (await counts(h)).map(([name]) => name)
      assert.deepEqual(names, ['y', 'B', 'a\uffff', 'a\u{1f600}', 'b', 'z', 'ä', 'A'])
    })

    test('names a thousand types at most', async (h) => {
      const types = Array.from({ length: MOST_TYPES + 1 }, (_, at) => `t${String(at).padStart(4, '0')}`)
      await h.append(types.map((eventType) => ({ event: event({ eventType }) })))
      await h.appendFree(1, { eventType: 't1000' })
      const names = (await counts(h)).map(([name]) => name)
      assert.equal(names.length, MOST_TYPES)
      assert.deepEqual([names[0], names[1], names.at(-1)], ['t1000', 't0000', 't0998'])
    })

    test('the lag of a type is the age of its own oldest due event, leased or not', async (h) => {
      await h.appendFree(1, { eventType: 'old' })
      await h.append([
        { event: event({ eventType: 'later' }), delayMs: LONG_MS },
        { event: event({ eventType: 'keyed', orderingKey: 'k' }) },
      ])
      await h.makeDead({ eventType: 'dead' })
      await h.elapse(SHORT_MS)
      await h.appendFree(1, { eventType: 'old' })
      await h.claim({ accept: onlyType('old'), limit: 1 })
      assert.ok((await backlogOf(h, 'old')).oldestLagMs >= SHORT_MS)
      assert.ok((await backlogOf(h, 'old')).oldestLagMs < LONG_MS)
      assert.ok((await backlogOf(h, 'keyed')).oldestLagMs >= SHORT_MS)
      assert.equal((await backlogOf(h, 'later')).oldestLagMs, 0)
      assert.equal((await backlogOf(h, 'dead')).oldestLagMs, 0)
    })

    test('a delayed event lags from the moment it is due', async (h) => {
      await h.append([{ event: event({ eventType: 'a' }), delayMs: SHORT_MS }])
      await h.elapse(2 * SHORT_MS)
      const { oldestLagMs } = await backlogOf(h, 'a')
      assert.ok(oldestLagMs >= SHORT_MS)
      assert.ok(oldestLagMs <= (await h.store.stats()).oldestLagMs)
    })

    test('leases are counted by instance, most of them first', async (h) => {
      await h.append([
        { token: 'one:0' },
        { token: 'host:two:0' },
        { event: event({ orderingKey: 'k' }), token: 'host:two:0' },
        {},
        { event: event({ orderingKey: 'l' }) },
      ])
      await h.claim({ token: 'host:two:7' })
      await h.claimOrdered({ token: 'one:8', afterKey: 'k' })
      assert.deepEqual((await h.store.overview()).leases, [
        { instance: 'host:two', count: 3 },
        { instance: 'one', count: 2 },
      ])
    })

    test('rows that are tried after their owner vanished belong to who tries them', async (h) => {
      await h.append([{ token: 'gone:0' }], { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      assert.equal((await h.claim({ token: 'new:1', suspects: 1 })).length, 1)
      assert.deepEqual((await h.store.overview()).leases, [{ instance: 'new', count: 1 }])
    })

    test('a lease that ran out, and one that was given back, are not counted', async (h) => {
      await h.append([{ token: 'gone:0' }], { leaseMs: SHORT_MS })
      await h.elapse(SHORT_MS)
      await h.appendFree(1)
      const [row] = await h.claim({ token: 'one:1' })
      assert.ok(row)
      assert.deepEqual((await h.store.overview()).leases, [{ instance: 'one', count: 1 }])
      await h.settle([{ eventId: row.eventId, token: row.token, outcome: 'release', delayMs: 0 }])
      assert.deepEqual((await h.store.overview()).leases, [])
    })

    test('every finding says something, and one that is not ok says what to do', async (h) => {
      await h.makeDead()
      const findings = await h.store.diagnose()
      const checks = findings.map((found) => found.check)
      assert.equal(new Set(checks).size, checks.length)
      for (const { check, level, says, advice } of findings) {
        assert.match(says, /^[\p{Lu}\d].*\.$/u, check)
        assert.ok(!/[\p{Cc}]/u.test(says + advice), check)
        assert.equal(advice === undefined, level === 'ok', `${check}: ${says}`)
      }
      assert.deepEqual(
        (await h.store.diagnose()).map((found) => found.check),
        checks,
      )
    })

    test('dead events are a warning that names their types, whatever is in them', async (h) => {
      assert.equal((await finding(h, 'dead letters')).level, 'ok')
      await h.makeDead({ eventType: 'order.\u200eplaced', payload: 'a secret' })
      const { level, says, advice } = await finding(h, 'dead letters')
      assert.equal(level, 'warning')
      assert.match(says, /^1 event is dead: "order\./)
      assert.ok(!`${says}${advice}`.includes('secret'))
    })

    test('no live instance is a warning, and a problem when events wait', async (h) => {
      assert.equal((await finding(h, 'instances')).level, 'warning')
      await h.appendFree(1)
      assert.equal((await finding(h, 'instances')).level, 'problem')
      await h.store.heartbeat(instance('a'))
      assert.equal((await finding(h, 'instances')).level, 'ok')
      await h.store.registerStopped(instance('stopped-1'), 'a')
      assert.equal((await finding(h, 'instances')).level, 'problem')
    })

    test('a script that ran lately is named, is no live instance, and makes missing instances a warning', async (h) => {
      await h.store.registerStopped(instance('manual-1', { 'order.placed': ['mail'] }), 'a')
      assert.equal((await finding(h, 'instances')).level, 'ok')
      await h.appendFree(1)
      const { level, says } = await finding(h, 'instances')
      assert.equal(level, 'warning')
      assert.match(says, /^No instance has been seen lately.*"order\.placed"/)
      await h.store.heartbeat(instance('a', { 'order.placed': ['other'] }))
      assert.equal((await finding(h, 'instances')).level, 'ok')
    })

    test('live instances with different handlers for a type are a warning that names it', async (h) => {
      await h.store.heartbeat(instance('a', { 'order.placed': ['mail'], same: ['x'] }))
      await h.store.heartbeat(instance('b', { 'order.placed': ['audit'], same: ['x'] }))
      const { level, says } = await finding(h, 'instances')
      assert.equal(level, 'warning')
      assert.match(says, /"order\.placed"/)
      assert.ok(!says.includes('same"'))
    })

    test('lost leases are a warning with their number and the age of the oldest', async (h) => {
      for (const [eventType, minutes] of [
        ['a', 20],
        ['b', 120],
        ['c', 45],
      ] as const) {
        await appendLeased(h, -minutes, event({ eventType }), event({ eventType, orderingKey: eventType }))
      }
      await appendLeased(h, 60, event())
      const { level, says } = await finding(h, 'stuck leases')
      assert.equal(level, 'warning')
      assert.match(says, /^6 events are left by somebody whose lease ran out, up to 2 h ago/)
    })

    test('a lease that was lost a short time ago is not a finding, because a live instance may take over', async (h) => {
      await h.store.heartbeat(instance('a'))
      await appendLeased(h, -1, event(), event({ orderingKey: 'k' }))
      assert.equal((await finding(h, 'stuck leases')).level, 'ok')
    })

    test('leases of instances that are gone are a warning with the time until the last one runs out', async (h) => {
      await h.store.registerStopped(instance('gone'), 'nobody')
      for (const minutes of [20, 120, 45]) {
        await appendLeased(h, minutes, event(), event({ orderingKey: String(minutes) }))
      }
      const { level, says, advice } = await finding(h, 'stuck leases')
      assert.equal(level, 'warning')
      assert.equal(says, '6 events are leased by instances that are gone: "gone" (6).')
      assert.match(advice ?? '', /the last one in 2 h\./)
    })

    test('what is paused is named, and nothing lags that is not due', async (h) => {
      await h.store.pause('a')
      await h.append([{ event: event({ eventType: 'b' }), delayMs: LONG_MS }])
      await h.appendFree(1, { eventType: 'a' })
      const { level, says } = await finding(h, 'lag')
      assert.deepEqual([level, says], ['ok', 'No event waits. Paused: "a".'])
    })
  },
}
