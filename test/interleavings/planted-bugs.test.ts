import { describe, expect, it } from 'vitest'
import type { ClaimRequest, OutboxStore } from '../../src/store.js'
import { memoryWorld } from './kit/memory-world.js'
import { ordersOf } from './kit/orders.js'
import { Play, type Scenario } from './kit/play.js'
import type { Seat } from './kit/world.js'
import { WHOLE_CALLS } from './scenarios.js'

type Bug = (good: OutboxStore) => Partial<OutboxStore>

async function tokenOf(store: OutboxStore, eventId: string): Promise<string> {
  const [record] = await store.list({ eventIds: [eventId] })
  return record?.lockedBy ?? ''
}

/** What a careless store might do. The scenarios are worth something only if they notice each of them. */
const BUGS: Readonly<Record<string, Bug>> = {
  'settles without looking at the token': (good) => ({
    settleIfLeased: async (settlements, keepDone) => {
      const stolen = settlements.map(async (one) => ({ ...one, token: await tokenOf(good, one.eventId) }))
      return good.settleIfLeased(await Promise.all(stolen), keepDone)
    },
  }),
  'renews without looking at the token': (good) => ({
    renewIfLeased: async (claims, leaseMs) => {
      const stolen = claims.map(async (one) => ({ ...one, token: await tokenOf(good, one.eventId) }))
      return good.renewIfLeased(await Promise.all(stolen), leaseMs)
    },
  }),
  'says that a stale settle counted': (good) => ({
    settleIfLeased: async (settlements, keepDone) => {
      await good.settleIfLeased(settlements, keepDone)
      return new Set(settlements.map(({ eventId }) => eventId))
    },
  }),
  'shows rows before the commit': (good) => ({
    append: async (client, rows, options) => {
      const result = await good.append(client, rows, options)
      const session = client as { commit(): void; begin(): void }
      session.commit()
      session.begin()
      return result
    },
  }),
  'commits what was rolled back to a savepoint': (good) => ({
    transaction: (body, client) =>
      good.transaction((session) => body({ ...session, savepoint: (inner) => inner(session) }), client),
  }),
  'never hands out what was lost': (good) => ({
    claim: (request: ClaimRequest) => good.claim({ ...request, suspects: 0 }),
  }),
  'hands out what is leased': (good) => ({
    claim: async (request: ClaimRequest) => {
      const leased = await good.list({ eventType: request.accept.names[0] })
      const releases = leased.flatMap(({ eventId, lockedBy }) =>
        lockedBy === null ? [] : [{ eventId, token: lockedBy, outcome: 'release' as const, delayMs: 0 }],
      )
      await good.settleIfLeased(releases, true)
      return good.claim(request)
    },
  }),
  'counts an attempt for a release': (good) => ({
    settleIfLeased: (settlements, keepDone) =>
      good.settleIfLeased(
        settlements.map((one) =>
          one.outcome === 'release'
            ? { ...one, outcome: 'retry', error: '', failures: [], handledBy: [], attempts: 1 }
            : one,
        ),
        keepDone,
      ),
  }),
  'retries what is not dead': (good) => ({
    retryDead: async (filter) => {
      const every = await good.list(filter)
      await good.retryDead(filter)
      return every.map(({ eventId }) => eventId)
    },
  }),
  'discards nothing': () => ({ discardDead: async () => [] }),
  'takes one row of a key and not the run': (good) => ({
    claimOrdered: (request) => good.claimOrdered({ ...request, runLength: 1 }),
  }),
  'lets a key go on that is halted': (good) => ({
    settleIfLeased: (settlements, keepDone) =>
      good.settleIfLeased(
        settlements.map((one) => (one.outcome === 'dead' ? { ...one, halts: false } : one)),
        keepDone,
      ),
  }),
  'writes an id that another transaction has written': (good) => ({
    append: (client, rows, options) =>
      good
        .append(client, rows, { ...options, onDuplicate: 'ignore' })
        .then(({ seqs }) => ({ seqs, duplicates: [] })),
  }),
  'changes a column for a settle that does not count': (good) => ({
    settleIfLeased: async (settlements, keepDone) => {
      const settled = await good.settleIfLeased(settlements, keepDone)
      const stale = settlements.filter(({ eventId }) => !settled.has(eventId))
      const tokens = stale.map(async ({ eventId }) => ({ eventId, token: await tokenOf(good, eventId) }))
      await good.renewIfLeased(await Promise.all(tokens), 7_200_000)
      return settled
    },
  }),
}

function spoiledBy(bug: Bug): (good: OutboxStore) => OutboxStore {
  return (good) => ({ ...good, ...bug(good) })
}

/** What the first order says that finds something wrong, or null when none does. */
async function firstFailure(scenarios: readonly Scenario[], bug: Bug): Promise<string | null> {
  for (const [number, { scripts, before = [], isOrdered = false }] of scenarios.entries()) {
    const world = memoryWorld(spoiledBy(bug))
    const seats = new Map<string, Seat>()
    for (const session of ['A', 'B', 'C', 'Z']) seats.set(session, await world.seat(session))
    for (const [index, order] of ordersOf(scripts).entries()) {
      const play = new Play(world, seats, `planted.${number}.${index}`, isOrdered)
      const failed = await play.run(before, order).then(
        () => null,
        (error: unknown) => String(error),
      )
      if (failed !== null) return failed
    }
  }
  return null
}

describe('planted bugs that the interleavings find', () => {
  for (const [name, bug] of Object.entries(BUGS)) {
    it(name, async () => {
      expect(await firstFailure(WHOLE_CALLS, bug)).toMatch(/^Error: memory: .*\|, [ABC] /)
    })
  }
})
