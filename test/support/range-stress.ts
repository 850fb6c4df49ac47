import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import type { Claim, ClaimedRow, OutboxStore, Settlement } from '../../src/store.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { randomOf } from './random.js'

export const LEASE_MS = 400
export const ACCEPT = { names: ['a'], versions: [2_147_483_647], prefixes: [] }
const NEVER = { onRing: () => {}, onWarning: () => {} }

export interface StressReport {
  /** What must never happen, as it happened. */
  readonly violations: readonly string[]
  readonly done: number
  readonly claimed: { readonly byRange: number; readonly byRow: number }
  /** Claims whose rows were dropped, and what was settled of them after their lease had run out. */
  readonly vanished: number
}

interface Holder {
  readonly worker: number
  /** When its lease ends at the earliest. */
  readonly until: number
}

/** Rows by SQL, as a large backlog: ids `prefix-n`. */
export function fill(count: number, prefix = 'e'): string {
  return `insert into outbox_event (event_id, event_type, payload, payload_size)
    select '${prefix}-' || n, 'a', '{"n":1}', 7 from generate_series(1, ${count}) n`
}

export const claimOf = (token: string, more: object = {}) => ({
  token,
  leaseMs: LEASE_MS,
  limit: 100,
  maxBytes: 1_000_000,
  accept: ACCEPT,
  fromSeq: 0,
  suspects: 0,
  skipRecentMs: 0,
  freshOnly: true,
  ...more,
})

export async function storeOn(
  url: string,
): Promise<{ store: OutboxStore; pool: pg.Pool; close(): Promise<void> }> {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  // Its database may be dropped before its connections are closed.
  pool.on('error', () => {})
  const store = postgresStore(pool, { doorbell: false }) as unknown as OutboxStore
  await store.open(NEVER)
  const close = async () => {
    await store.close()
    await pool.end()
  }
  return { store, pool, close }
}

/**
 * Workers that claim by ranges and by rows, settle in parts, fail, give back, renew, vanish and come back as zombies,
 * beside writers whose rows commit late. Everything is in one process, so that who held what when is known.
 */
export async function stress(
  url: string,
  { seed = 1, events = 6_000, workers = 4 } = {},
): Promise<StressReport> {
  const holders = new Map<string, Holder>()
  const done = new Set<string>()
  const violations: string[] = []
  const claimed = { byRange: 0, byRow: 0 }
  let vanished = 0
  let writing = true
  let expected = events
  const admin = new pg.Pool({ connectionString: url, max: 6 })
  // Its database may be dropped before its connections are closed.
  admin.on('error', () => {})
  await admin.query(fill(events))

  const late = async (index: number) => {
    const random = randomOf(seed * 100 + index)
    for (let n = 0; n < 12; n++) {
      const client = await admin.connect()
      await client.query('begin')
      await client.query(fill(5, `late-${index}-${n}`))
      await pause(random.below(300))
      await client.query('commit')
      client.release()
      expected += 5
      await admin.query(fill(150, `more-${index}-${n}`))
      expected += 150
    }
  }

  const note = (worker: number, row: ClaimedRow, asked: number) => {
    const holder = holders.get(row.eventId)
    if (holder && holder.until > performance.now()) {
      violations.push(`${row.eventId} claimed by ${worker} while ${holder.worker} held it`)
    }
    if (done.has(row.eventId)) violations.push(`${row.eventId} claimed after it was done`)
    holders.set(row.eventId, { worker, until: asked + LEASE_MS })
  }

  const settle = async (worker: number, store: OutboxStore, settlements: Settlement[], until: number) => {
    // Failed or given back: somebody may have it before we hear that it was written.
    for (const { eventId, outcome } of settlements) {
      if (outcome !== 'done' && holders.get(eventId)?.worker === worker) holders.delete(eventId)
    }
    const settled = await store.settleIfLeased(settlements, false)
    for (const { eventId, outcome } of settlements) {
      if (outcome !== 'done') continue
      const holder = holders.get(eventId)
      const isOurs = holder?.worker === worker && holder.until === until
      if (!settled.has(eventId)) {
        if (isOurs && until > performance.now()) violations.push(`${eventId} was lost by ${worker} too early`)
        continue
      }
      if (holder && !isOurs && holder.until > performance.now()) {
        violations.push(`${eventId} settled by ${worker} while ${holder.worker} held it`)
      }
      if (isOurs) holders.delete(eventId)
      if (done.has(eventId)) violations.push(`${eventId} done twice`)
      done.add(eventId)
    }
  }

  const work = async (worker: number) => {
    const random = randomOf(seed * 1_000 + worker)
    const { store, close } = await storeOn(url)
    const zombies: { rows: readonly ClaimedRow[]; until: number }[] = []
    let cursor = 0
    for (let turn = 0; writing || done.size < expected; turn++) {
      try {
        const token = `w${worker}:${turn}`
        const kind = random.below(10)
        const asked = performance.now()
        const request =
          kind < 5
            ? claimOf(token, { limit: 100 + random.below(150), fromSeq: cursor })
            : kind < 7
              ? claimOf(token, { limit: 1 + random.below(20), fromSeq: random.chance(0.5) ? 0 : cursor })
              : claimOf(token, {
                  limit: 60,
                  suspects: random.pick([0, 1, 20]),
                  freshOnly: false,
                  dueWithinMs: null,
                })
        const result = await store.claim(request)
        const until = asked + LEASE_MS
        for (const row of result.rows) note(worker, row, asked)
        if (kind < 5 && !result.complete && result.rows.length > 60) claimed.byRange += result.rows.length
        else claimed.byRow += result.rows.length
        cursor = result.complete || random.chance(0.1) ? 0 : result.nextSeq
        const rows = [...result.rows]
        if (rows.length === 0) {
          await pause(5)
        } else if (random.chance(0.06)) {
          vanished++
          zombies.push({ rows, until })
        } else {
          if (random.chance(0.1)) await pause(random.below(LEASE_MS / 2))
          if (random.chance(0.15)) {
            const before = performance.now()
            const renewed = await store.renewIfLeased(rows.map(claimIn), LEASE_MS)
            for (const row of rows) {
              if (renewed.has(row.eventId)) holders.set(row.eventId, { worker, until: before + LEASE_MS })
              else if (until > performance.now())
                violations.push(`${row.eventId} could not be renewed by ${worker}`)
            }
          }
          while (rows.length > 0) {
            const part = rows.splice(0, random.chance(0.4) ? rows.length : 1 + random.below(rows.length))
            const fails = random.chance(0.2)
            const settlements = part.map((row) =>
              fails && random.chance(0.3) ? unlike(row, random.chance(0.5)) : doneOf(row),
            )
            const heldUntil = holders.get((part[0] as ClaimedRow).eventId)?.until ?? until
            await settle(worker, store, settlements, heldUntil)
          }
        }
        const [zombie] = zombies
        if (zombie && zombie.until + random.below(300) < performance.now()) {
          zombies.shift()
          await settle(worker, store, zombie.rows.map(doneOf), zombie.until)
        }
        if (asked - began > 60_000) {
          violations.push(`${expected - done.size} of ${expected} were not done in a minute`)
          break
        }
      } catch (error) {
        // A deadlock, for one. Whoever does it right meets none.
        violations.push(`${worker} was refused: ${error}`)
        if (performance.now() - began > 60_000) break
      }
    }
    await close()
  }

  const began = performance.now()
  const written = Promise.all([late(0), late(1)]).finally(() => {
    writing = false
  })
  await Promise.all([written, ...Array.from({ length: workers }, (_, index) => work(index))])
  const { rows } = await admin.query('select count(*)::int as n from outbox_event')
  if (rows[0].n > 0) violations.push(`${rows[0].n} rows are left`)
  await admin.end()
  return { violations, done: done.size, claimed, vanished }
}

function claimIn({ eventId, token }: ClaimedRow): Claim {
  return { eventId, token }
}

export function doneOf(row: ClaimedRow): Settlement {
  return { ...claimIn(row), outcome: 'done' }
}

/** Failed, or given back. */
function unlike(row: ClaimedRow, fails: boolean): Settlement {
  if (!fails) return { ...claimIn(row), outcome: 'release', delayMs: 0 }
  return {
    ...claimIn(row),
    outcome: 'retry',
    error: 'no',
    failures: [],
    handledBy: [],
    delayMs: 5,
    attempts: 1,
  }
}
