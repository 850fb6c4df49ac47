import { describe, expect, it } from 'vitest'
import { compileFilter } from '../../stores/memory/accepts.js'
import { MemoryDatabase } from '../../stores/memory/database.js'
import type { MemoryClient } from '../../stores/memory/index.js'
import type { Row } from '../../stores/memory/row.js'
import { memoryStoreOn } from '../../stores/memory/store.js'
import { VirtualClock } from '../virtual-clock.js'
import { firstFailure } from './first-failure.js'
import { ANY, release } from './fixtures.js'
import type { StoreUnderTest } from './options.js'

type Store = StoreUnderTest<MemoryClient>['store']
/** With the table of the store in reach, since most of these cannot be had through the contract. */
type Bug = (good: Store, database: MemoryDatabase, now: () => number) => Partial<Store>

const ORDERING_BUGS: Readonly<Record<string, Bug>> = {
  'hands out ordered rows like any other': (good) => ({
    claim: async (request) => {
      const result = await good.claim(request)
      const { rows } = await good.claimOrdered({
        ...request,
        keys: request.limit,
        runLength: 1,
        afterKey: '',
      })
      return { ...result, rows: [...result.rows, ...rows] }
    },
  }),
  'hands out rows without a key as ordered': (good) => ({
    claimOrdered: async (request) => {
      const result = await good.claimOrdered(request)
      const { rows } = await good.claim({ ...request, limit: request.keys, fromSeq: 0 })
      return { ...result, rows: [...result.rows, ...rows] }
    },
  }),
  'has no head rule': (good, database, now) => ({
    claimOrdered: (request) => {
      const accepts = compileFilter(request.accept)
      return without(
        database,
        (row, head) =>
          row === head && (row.availableAt > now() || row.lockedUntil > 0 || !accepts(row.event)),
        () => good.claimOrdered(request),
      )
    },
  }),
  'has no head rule for what is not accepted': (good, database) => ({
    claimOrdered: (request) => {
      const accepts = compileFilter(request.accept)
      return without(
        database,
        (row) => row.lockedUntil === 0 && !accepts(row.event),
        () => good.claimOrdered(request),
      )
    },
  }),
  'does not check the leases behind the head': (good, database, now) => ({
    claimOrdered: (request) =>
      without(
        database,
        (row, head) => row !== head && row.lockedUntil >= now(),
        () => good.claimOrdered(request),
      ),
  }),
  'checks only as many rows for a lease as a run is long': (good, database, now) => ({
    claimOrdered: (request) =>
      without(
        database,
        (row, _head, index) => index >= request.runLength && row.lockedUntil >= now(),
        () => good.claimOrdered(request),
      ),
  }),
  'leaves a key that was taken over to its former owner, too': (good, database) => ({
    claimOrdered: async (request) => {
      const result = await good.claimOrdered(request)
      for (const row of [...database.ordered]) {
        if (row.lockedBy?.startsWith('~')) database.change(row, { lockedBy: row.lockedBy.slice(1) })
      }
      return result
    },
  }),
  'goes past a delayed row': (good, database, now) => ({
    claimOrdered: (request) =>
      without(
        database,
        (row, head) => row !== head && row.availableAt > now(),
        () => good.claimOrdered(request),
      ),
  }),
  'cuts runs by the bytes': (good) => ({
    claimOrdered: async (request) => {
      const result = await good.claimOrdered({ ...request, maxBytes: Number.POSITIVE_INFINITY })
      let bytes = 0
      const isTaken = result.rows.map((row, index) => {
        bytes += row.payloadSize
        return index === 0 || bytes <= request.maxBytes
      })
      const rows = result.rows.filter((_, index) => isTaken[index])
      const rest = result.rows.filter((_, index) => !isTaken[index])
      await good.settleIfLeased(
        rest.map((row) => release(row)),
        true,
      )
      return {
        ...result,
        rows,
        afterKey: rest.length > 0 ? (rows.at(-1)?.orderingKey ?? '') : result.afterKey,
      }
    },
  }),
  'passes over a key that does not fit': (good) => ({
    claimOrdered: async (request) => {
      const result = await good.claimOrdered(request)
      if (result.afterKey === null || result.rows.length === 0) return result
      const next = (await good.claimOrdered({ ...request, keys: 1, afterKey: result.afterKey })).rows
      await good.settleIfLeased(
        next.map((row) => release(row)),
        true,
      )
      const bytes = [...result.rows, ...next].reduce((sum, row) => sum + row.payloadSize, 0)
      return bytes > request.maxBytes ? { ...result, afterKey: next[0]?.orderingKey ?? '' } : result
    },
  }),
  'takes no notice of the bytes': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, maxBytes: Number.POSITIVE_INFINITY }),
  }),
  'takes no notice of the limit': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, limit: 1_000_000 }),
  }),
  'takes one key too many': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, keys: request.keys + 1 }),
  }),
  'takes keys without end': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, runLength: 1_000 }),
  }),
  'has a cursor that stays when nothing was taken': (good) => ({
    claimOrdered: async (request) => {
      const result = await good.claimOrdered(request)
      const stays = result.rows.length === 0 && result.afterKey !== null
      return stays ? { ...result, afterKey: request.afterKey } : result
    },
  }),
  'has a scan that ends when nothing was taken': (good) => ({
    claimOrdered: async (request) => {
      const result = await good.claimOrdered(request)
      return result.rows.length === 0 ? { ...result, afterKey: null } : result
    },
  }),
  'always begins with the first key': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, afterKey: '' }),
  }),
  'never tells what is due next': (good) => ({
    claimOrdered: async (request) => ({ ...(await good.claimOrdered(request)), nextDueMs: null }),
  }),
  'takes ordered rows that it was not asked for': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, accept: ANY }),
  }),
  'takes recent ordered rows': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, skipRecentMs: 0 }),
  }),
  'tries a lost run as if nothing had happened': (good, database, now) => ({
    claimOrdered: (request) => {
      for (const row of [...database.ordered]) {
        if (row.lockedUntil < now()) database.change(row, { lockedBy: null, lockedUntil: 0 })
      }
      return good.claimOrdered(request)
    },
  }),
  'takes every suspect key at once': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, suspects: 1_000 }),
  }),
  'never takes over a key from a dead process': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, suspects: 0 }),
  }),
  'charges a lost run at once': (good) => ({
    claimOrdered: async (request) => {
      const result = await good.claimOrdered(request)
      const rows = result.rows.map((row) => ({ ...row, attempts: row.attempts + (row.suspect ? 1 : 0) }))
      return { ...result, rows }
    },
  }),
  'lets no dead row halt': (good) => ({
    settleIfLeased: (settlements, keepDone) => {
      const changed = settlements.map((settlement) =>
        settlement.outcome === 'dead' ? { ...settlement, halts: false } : settlement,
      )
      return good.settleIfLeased(changed, keepDone)
    },
  }),
  'lets every dead row halt': (good) => ({
    settleIfLeased: (settlements, keepDone) => {
      const changed = settlements.map((settlement) =>
        settlement.outcome === 'dead' ? { ...settlement, halts: true } : settlement,
      )
      return good.settleIfLeased(changed, keepDone)
    },
  }),
  'retries a dead row in its old place': (good, database) => ({
    retryDead: async (filter) => {
      const seqs = new Map([...database.dead].map((row) => [row.event.eventId, row.seq]))
      const ids = await good.retryDead(filter)
      for (const id of ids) database.change(database.rows.get(id) as Row, { seq: seqs.get(id) as number })
      return ids
    },
  }),
  'retries dead rows in any order': (good) => ({
    retryDead: async (filter) => {
      const ids = (await good.list({ ...filter, status: 'DEAD' })).map((row) => row.eventId).reverse()
      for (const id of ids) await good.retryDead({ eventIds: [id] })
      return ids
    },
  }),
  'keeps the halt of a row that is retried': (good, database) => ({
    retryDead: async (filter) => {
      const halting = new Set([...database.dead].filter((row) => row.halts).map((row) => row.event.eventId))
      const ids = await good.retryDead(filter)
      for (const id of ids.filter((candidate) => halting.has(candidate))) {
        database.change(database.rows.get(id) as Row, { availableAt: Number.POSITIVE_INFINITY })
      }
      return ids
    },
  }),
  'takes unroutable rows out of the middle of a key': (good, database) => ({
    claimUnroutable: (request) => {
      const isKnown = compileFilter(request.known)
      return without(
        database,
        (row) => isKnown(row.event),
        () => good.claimUnroutable(request),
      )
    },
  }),
  'does not see ordered rows that nobody handles': (good, database) => ({
    claimUnroutable: (request) =>
      without(
        database,
        () => true,
        () => good.claimUnroutable(request),
      ),
  }),
}

const PAUSE_AND_INBOX_BUGS: Readonly<Record<string, Bug>> = {
  'claims what is paused': (good) => ({
    claim: (request) => good.claim({ ...request, accept: { ...request.accept, excludedTypes: [] } }),
  }),
  'claims keys of what is paused': (good) => ({
    claimOrdered: (request) =>
      good.claimOrdered({ ...request, accept: { ...request.accept, excludedTypes: [] } }),
  }),
  'takes the asterisk for a name': (good) => ({
    claim: (request) => {
      const except = (request.accept.excludedTypes ?? []).filter((type) => type !== '*')
      return good.claim({ ...request, accept: { ...request.accept, excludedTypes: except } })
    },
  }),
  'takes what is paused for unroutable': (good) => ({
    claimUnroutable: (request) => {
      const { names, versions, excludedTypes: except = [] } = request.known
      const isLeft = names.map((name) => !except.includes(name) && !except.includes('*'))
      const known = {
        names: names.filter((_, index) => isLeft[index]),
        versions: versions.filter((_, index) => isLeft[index]),
        prefixes: request.known.prefixes,
      }
      return good.claimUnroutable({ ...request, known })
    },
  }),
  'forgets what is paused when it is closed': (good) => ({
    close: async () => {
      for (const type of await good.paused()) await good.resume(type)
      await good.close()
    },
  }),
  'says that everything was paused': (good) => ({
    resume: async (type) => {
      await good.resume(type)
      return true
    },
  }),
  'marks outside of the transaction': (good) => ({
    markProcessed: (_client, handler, eventId) =>
      good.transaction(({ client }) => good.markProcessed(client, handler, eventId)),
  }),
  'marks for all handlers at once': (good) => ({
    markProcessed: (client, _handler, eventId) => good.markProcessed(client, 'all', eventId),
    isProcessed: (_handler, eventId) => good.isProcessed('all', eventId),
  }),
  'runs names and ids together': (good) => ({
    markProcessed: (client, handler, eventId) => good.markProcessed(client, 'all', handler + eventId),
    isProcessed: (handler, eventId) => good.isProcessed('all', handler + eventId),
  }),
  'says that every event is new': (good) => ({
    markProcessed: async (client, handler, eventId) => {
      await good.markProcessed(client, handler, eventId)
      return true
    },
  }),
  'believes what it saw before it waited': (good) => ({
    markProcessed: async (client, handler, eventId) => {
      const wasSeen = await good.isProcessed(handler, eventId)
      await good.markProcessed(client, handler, eventId)
      return !wasSeen
    },
  }),
  'prunes marks without a bound': (good) => ({ pruneProcessed: (age) => good.pruneProcessed(age, 1_000) }),
  'prunes young marks': (good) => ({ pruneProcessed: (_age, limit) => good.pruneProcessed(0, limit) }),
}

/** Acts while these rows of ordering keys are out of sight. */
async function without<T>(
  database: MemoryDatabase,
  isHidden: (row: Row, head: Row | undefined, index: number) => boolean,
  act: () => Promise<T>,
): Promise<T> {
  const keys = [...database.keysBehind('')]
  const hidden = keys.flatMap(({ rows }) =>
    [...rows].filter((row, index) => isHidden(row, rows.first(), index)),
  )
  for (const row of hidden) database.delete(row)
  try {
    return await act()
  } finally {
    for (const row of hidden) database.insert(row)
  }
}

/** Makes memory stores with the bug in them. */
const planted = (bug: Bug) => async () => {
  const clock = new VirtualClock()
  const database = new MemoryDatabase()
  const good = memoryStoreOn(database, { clock })
  return {
    store: { ...good, ...bug(good, database, () => clock.now()) },
    dispose: async () => {},
    advance: (ms: number) => clock.advance(ms),
  }
}

describe('store conformance finds a store that', () => {
  for (const [title, bug] of Object.entries({ ...ORDERING_BUGS, ...PAUSE_AND_INBOX_BUGS })) {
    it(title, async () => {
      expect(await firstFailure(planted(bug))).toBeDefined()
    })
  }
})
