import { describe, expect, it } from 'vitest'
import { insertInto } from '../../../test/support/memory-insert.js'
import { EventEnvelope } from '../../core/envelope.js'
import { type MemoryClient, memoryStore } from '../../stores/memory/index.js'
import { VirtualClock } from '../virtual-clock.js'
import { firstFailure } from './first-failure.js'
import { ANY } from './fixtures.js'
import type { StoreUnderTest } from './options.js'

type Store = StoreUnderTest<MemoryClient>['store']
type Bug = (good: Store) => Partial<Store>

/** What a careless store might do. The suite is worth something only if it notices each of them. */
const BUGS: Readonly<Record<string, Bug>> = {
  'commits although the body threw': (good) => ({
    transaction: async (body, client) => {
      const failed: unknown[] = []
      const result = await good.transaction(
        (session) => body(session).catch((error) => void failed.push(error)),
        client,
      )
      if (failed.length > 0) throw failed[0]
      return result as never
    },
  }),
  'a failed savepoint keeps its rows': (good) => ({
    transaction: (body, client) =>
      good.transaction((session) => body({ ...session, savepoint: (inner) => inner(session) }), client),
  }),
  'writes the others when one id exists': (good) => ({
    append: async (client, rows, options) => {
      const result = await good.append(client, rows, { ...options, onDuplicate: 'ignore' })
      return options.onDuplicate === 'error' && result.duplicates.length > 0
        ? { ...result, seqs: new Map() }
        : result
    },
  }),
  'does not see an id twice in one batch': (good) => ({
    append: (client, rows, options) =>
      good.append(client, [...new Map(rows.map((row) => [row.event.eventId, row])).values()], options),
  }),
  'forgets that a row was born leased': (good) => ({
    append: (client, rows, options) =>
      good.append(
        client,
        rows.map((row) => ({ ...row, token: null })),
        options,
      ),
  }),
  'forgets a delay': (good) => ({
    append: (client, rows, options) =>
      good.append(
        client,
        rows.map(({ event, token }) => ({ event, token })),
        options,
      ),
  }),
  'loses the headers': (good) => ({
    append: (client, rows, options) =>
      good.append(
        client,
        rows.map((row) => ({ ...row, event: withoutHeaders(row.event) })),
        options,
      ),
  }),
  'claims more than the limit': (good) => ({
    claim: (request) => good.claim({ ...request, limit: request.limit + 1 }),
  }),
  'claims more than the bytes': (good) => ({
    claim: (request) => good.claim({ ...request, maxBytes: Number.POSITIVE_INFINITY }),
  }),
  'delivers what is too large': (good) => ({
    claim: async (request) => {
      const result = await good.claim(request)
      return { ...result, rows: result.rows.map((row) => ({ ...row, invalid: undefined })) }
    },
  }),
  'claims below the floor': (good) => ({ claim: (request) => good.claim({ ...request, fromSeq: 0 }) }),
  'claims what it was not asked for': (good) => ({
    claim: (request) => good.claim({ ...request, accept: ANY }),
  }),
  'claims a version that is too new': (good) => ({
    claim: (request) => {
      const versions = request.accept.versions.map(() => 1_000)
      return good.claim({ ...request, accept: { ...request.accept, versions } })
    },
  }),
  'claims recent rows': (good) => ({ claim: (request) => good.claim({ ...request, skipRecentMs: 0 }) }),
  'claims every suspect at once': (good) => ({
    claim: (request) => good.claim({ ...request, suspects: 1_000 }),
  }),
  'never takes over from a dead process': (good) => ({
    claim: (request) => good.claim({ ...request, suspects: 0 }),
  }),
  'charges the neighbours of a crash': (good) => ({
    claim: async (request) => {
      const result = await good.claim(request)
      const rows = result.rows.map((row) => ({ ...row, attempts: row.attempts + (row.suspect ? 1 : 0) }))
      return { ...result, rows }
    },
  }),
  'always says that it saw everything': (good) => ({
    claim: async (request) => ({ ...(await good.claim(request)), complete: true }),
  }),
  'settles with any token': (good) => ({
    settleIfLeased: async (settlements, keepDone) => {
      const eventIds = settlements.map((settlement) => settlement.eventId)
      const owners = new Map(
        (await good.list({ eventIds, limit: 10_000 })).map((row) => [row.eventId, row.lockedBy]),
      )
      const current = settlements.map((settlement) => ({
        ...settlement,
        token: owners.get(settlement.eventId) ?? settlement.token,
      }))
      return good.settleIfLeased(current, keepDone)
    },
  }),
  'says that every settlement counted': (good) => ({
    settleIfLeased: async (settlements, keepDone) => {
      await good.settleIfLeased(settlements, keepDone)
      return new Set(settlements.map((settlement) => settlement.eventId))
    },
  }),
  'keeps done rows that should go': (good) => ({
    settleIfLeased: (settlements) => good.settleIfLeased(settlements, true),
  }),
  'counts an attempt for a row that is given back': (good) => ({
    settleIfLeased: (settlements, keepDone) =>
      good.settleIfLeased(
        settlements.map(({ eventId, token, ...rest }) => {
          const failed = { error: '', failures: [], handledBy: [], delayMs: 0, attempts: 1 }
          if (rest.outcome !== 'release') return { eventId, token, ...rest }
          return { eventId, token, ...failed, delayMs: rest.delayMs, outcome: 'retry' }
        }),
        keepDone,
      ),
  }),
  'says that every renewal worked': (good) => ({
    renewIfLeased: async (claims, leaseMs) => {
      await good.renewIfLeased(claims, leaseMs)
      return new Set(claims.map((claim) => claim.eventId))
    },
  }),
  'renews nothing': () => ({ renewIfLeased: async () => new Set<string>() }),
  'takes no ids for all ids': (good) => ({
    retryDead: (filter) => good.retryDead(filter.eventIds?.length === 0 ? {} : filter),
  }),
  'discards nothing': () => ({ discardDead: async () => [] }),
  'prunes without a bound': (good) => ({ pruneDone: (olderThanMs) => good.pruneDone(olderThanMs, 1_000) }),
  'prunes what is recent': (good) => ({ pruneDone: (_olderThanMs, limit) => good.pruneDone(0, limit) }),
  'takes routable events for unroutable': (good) => ({
    claimUnroutable: (request) =>
      good.claimUnroutable({ ...request, known: { names: [], versions: [], prefixes: [] } }),
  }),
  'finds unhandled types on the first page only': (good) => ({
    unhandled: async (request) => ({ ...(await good.unhandled(request)), after: null }),
  }),
  'takes young events for unhandled': (good) => ({
    unhandled: (request) => good.unhandled({ ...request, olderThanMs: 0 }),
  }),
  'replaces the counters of a shared row': (good) => ({
    registerStopped: async (consumer, replaces) => {
      const paused = await good.registerStopped(consumer, replaces)
      await good.heartbeat(consumer)
      return paused
    },
  }),
  'keeps the row of an instance that stopped': (good) => ({
    registerStopped: (consumer) => good.registerStopped(consumer, 'nobody'),
  }),
  'forgets the counters of instances that are gone': (good) => ({
    stats: async () => {
      const known = await good.instances(Number.POSITIVE_INFINITY)
      const counters = { done: 0, failed: 0, dead: 0 }
      for (const instance of known) {
        counters.done += instance.counters.done
        counters.failed += instance.counters.failed
        counters.dead += instance.counters.dead
      }
      return { ...(await good.stats()), counters }
    },
  }),
  'shows dead events as pending ones': (good) => ({
    overview: async () => {
      const { types, leases } = await good.overview()
      return { types: types.map((entry) => ({ ...entry, pending: entry.pending + entry.dead })), leases }
    },
  }),
  'shows the types by name alone': (good) => ({
    overview: async () => {
      const { types, leases } = await good.overview()
      return { types: [...types].sort((a, b) => (a.eventType < b.eventType ? -1 : 1)), leases }
    },
  }),
  'shows one lag for all types': (good) => ({
    overview: async () => {
      const { types, leases } = await good.overview()
      const { oldestLagMs } = await good.stats()
      return { types: types.map((entry) => ({ ...entry, oldestLagMs })), leases }
    },
  }),
  'shows tokens instead of instances': (good) => ({
    overview: async () => {
      const { types, leases } = await good.overview()
      return { types, leases: leases.map((lease) => ({ ...lease, instance: `${lease.instance}:1` })) }
    },
  }),
  'finds nothing but what is wrong': (good) => ({
    diagnose: async () => (await good.diagnose()).filter((finding) => finding.level !== 'ok'),
  }),
  'gives no advice': (good) => ({
    diagnose: async () => (await good.diagnose()).map(({ check, level, says }) => ({ check, level, says })),
  }),
  'does not ring': () => ({ ring: async () => {} }),
}

function withoutHeaders(event: EventEnvelope): EventEnvelope {
  const { headers: _headers, ...json } = event.toJSON()
  return EventEnvelope.fromJSON(json)
}

/** Makes memory stores with the bug in them. */
const planted = (bug: Bug) => async () => {
  const clock = new VirtualClock()
  const good = memoryStore({ clock })
  return {
    store: { ...good, ...bug(good) },
    dispose: async () => {},
    advance: (ms: number) => clock.advance(ms),
    insert: insertInto(good),
  }
}

describe('store conformance finds a store that', () => {
  for (const [title, bug] of Object.entries(BUGS)) {
    it(title, async () => {
      expect(await firstFailure(planted(bug))).toBeDefined()
    })
  }

  it('(and finds nothing wrong with a good one)', async () => {
    expect(await firstFailure(planted(() => ({})))).toBeUndefined()
  })
})
