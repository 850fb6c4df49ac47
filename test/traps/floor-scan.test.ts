import type pg from 'pg'
import { describe, expect, inject, it } from 'vitest'
import { defineEvent } from '../../src/index.js'
import { event, migratedDatabase, outboxOn, poolOn } from '../support/trap-kit.js'
import { until } from '../support/waiting.js'

/** Rows that are not ours to take now must not make every claim walk over them. Counted in pages, not in time. */

const IN_FRONT = 100_000
/** A claim looks at a handful of pages; 100,000 rows are some thousands. */
const FEW_PAGES = 60

const Ours = defineEvent('ours', { version: 1 })

interface Claim {
  readonly text: string
  readonly values: unknown[]
}

/** Remembers the claims that the outbox sends. */
function watchClaims(pool: pg.Pool): Claim[] {
  const claims: Claim[] = []
  pool.on('connect', (client) => {
    const original = client.query
    client.query = function (this: pg.PoolClient, ...args: unknown[]) {
      const [config] = args as [{ text?: string; values?: unknown[] } | string]
      if (typeof config === 'object' && config.text?.includes('seq as fresh_seq')) {
        claims.push({ text: config.text, values: config.values ?? [] })
      }
      return (original as (...all: unknown[]) => unknown).apply(this, args)
    } as typeof client.query
  })
  return claims
}

/** Pages that this claim touches, by the server's own count. Nothing is changed by it. */
async function pagesOf(observer: pg.Pool, claim: Claim): Promise<number> {
  const client = await observer.connect()
  try {
    await client.query('begin')
    await client.query('set local enable_seqscan = off')
    const { rows } = await client.query(`explain (analyze, buffers, format json) ${claim.text}`, claim.values)
    await client.query('rollback')
    const plan = rows[0]['QUERY PLAN'][0].Plan
    return plan['Shared Hit Blocks'] + plan['Shared Read Blocks']
  } finally {
    client.release()
  }
}

/** A started outbox that handles `ours` up to version 1, polls once a minute and is woken by hand. */
async function started(server: string, fill: string) {
  const url = await migratedDatabase(server)
  const observer = poolOn(url, { max: 2 })
  await observer.query(fill)
  await observer.query('vacuum analyze outbox_event')
  const pool = poolOn(url, { max: 8 })
  const claims = watchClaims(pool)
  const { outbox } = outboxOn(pool, { poller: { pollIntervalMs: 60_000 } })
  const handled: string[] = []
  outbox.on(Ours, 'see', (one) => void handled.push(one.eventId))
  await outbox.start()
  await until('the first sweep is over', () => claims.length > 0)
  const writer = outboxOn(poolOn(url, { max: 2 })).outbox
  /** Publishes from another process's point of view, so that the event goes the cold way, and waits for it. */
  const deliverOne = async (): Promise<Claim> => {
    const id = await writer.enqueue(event('ours', {}))
    await until('the event is handled', () => handled.includes(id), 20_000)
    return claims[claims.length - 1] as Claim
  }
  await deliverOne()
  /** Pages of the cheapest of three claims: once a second one of them looks further back, and may. */
  const pages = async (): Promise<number> => {
    const claims = [await deliverOne(), await deliverOne(), await deliverOne()]
    return Math.min(...(await Promise.all(claims.map((claim) => pagesOf(observer, claim)))))
  }
  return { observer, deliverOne, pages }
}

const rows = (columns: string, values: string) =>
  `insert into outbox_event (event_id, event_type, ${columns})
   select 'front-' || n, ${values} from generate_series(1, ${IN_FRONT}) n`

const FRONTS: readonly (readonly [string, string])[] = [
  ['due in the future', rows('available_at', `'ours', clock_timestamp() + interval '1 day'`)],
  ['of types that others handle', rows('version', `'theirs', 1`)],
  ['of a version that we cannot read yet', rows('version', `'ours', 2`)],
  [
    'leased to other instances',
    rows('locked_by, locked_until', `'ours', 'x:1', clock_timestamp() + interval '1 day'`),
  ],
  [
    'of other types and waiting for a retry that has been due for a while',
    rows('status, attempts, available_at', `'theirs', 2, 1, clock_timestamp() - interval '1 minute'`),
  ],
  [
    'of other types, delayed once and due by now',
    rows(
      'created_at, available_at',
      `'theirs', clock_timestamp() - interval '2 h', clock_timestamp() - interval '1 h'`,
    ),
  ],
]

/** The oldest planner as well, where it can be had. */
const SERVERS = [
  ['newest', inject('postgresUrl')],
  ['oldest', inject('postgresOldestUrl')],
].filter((one): one is [string, string] => one[1] !== null)

describe.each(SERVERS)(
  `on the %s PostgreSQL, ${IN_FRONT.toLocaleString('en')} rows in front`,
  (_which, server) => {
    it('are measured against an empty front', async () => {
      const { pages } = await started(server, 'select 1')
      expect(await pages()).toBeLessThan(FEW_PAGES)
    })

    it.each(FRONTS)('%s do not make a claim dearer', { timeout: 60_000 }, async (_what, fill) => {
      const { pages } = await started(server, fill)
      expect(await pages()).toBeLessThan(FEW_PAGES)
    })

    it('are walked over by a measure that would notice', { timeout: 60_000 }, async () => {
      const { observer, deliverOne } = await started(server, rows('version', `'theirs', 1`))
      const claim = await deliverOne()
      const fromTheStart = { text: claim.text, values: claim.values.with(4, 0) }
      expect(await pagesOf(observer, fromTheStart)).toBeGreaterThan(10 * FEW_PAGES)
    })
  },
)
