import { randomBytes } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, beforeAll, describe, inject, onTestFinished } from 'vitest'
import {
  createOutbox,
  defineEvent,
  fixedDelay,
  type Outbox,
  type OutboxOptions,
  type OutboxStore,
  silentLogger,
} from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { type FreshDatabase, freshDatabase } from './database.js'

export const HOUR_MS = 3_600_000

export const OrderPlaced = defineEvent<{ orderId: string }>('order.placed', {
  aggregateType: 'order',
  aggregateId: (payload) => payload.orderId,
})

export type PgOutbox = Outbox<pg.PoolClient>
type PgStore = OutboxStore<pg.PoolClient>

export interface WorldOptions extends Partial<Omit<OutboxOptions<pg.PoolClient>, 'store'>> {
  readonly doorbell?: boolean
  /** Puts something around the store, for example `counted`. */
  readonly wrap?: (store: PgStore) => PgStore
}

export interface RowView {
  readonly id: string
  readonly status: 'NEW' | 'DONE' | 'RETRY' | 'DEAD'
  readonly attempts: number
  readonly lockedBy: string | null
  readonly lastError: string | null
  readonly handledBy: readonly string[] | null
}

/** One table of its own, and any number of outboxes on it; everything is stopped when the test ends. */
export interface World {
  readonly url: string
  readonly table: string
  /** The test's own connections. */
  readonly pool: pg.Pool
  outbox(options?: WorldOptions): PgOutbox
  /** All rows, in the order in which they were written. */
  rows(): Promise<readonly RowView[]>
}

/** The same tests on the newest PostgreSQL and on the oldest. */
export function onEveryPostgres(theme: string, tests: (newWorld: () => Promise<World>) => void): void {
  const servers = { newest: inject('postgresUrl'), oldest: inject('postgresOldestUrl') }
  for (const [age, baseUrl] of Object.entries(servers)) {
    describe.skipIf(baseUrl === null)(`${theme} (${age} PostgreSQL)`, () => {
      let database: FreshDatabase
      beforeAll(async () => {
        database = await freshDatabase(baseUrl as string)
      })
      afterAll(() => database?.drop())
      tests(() => openWorld(database.url))
    })
  }
}

export async function openWorld(url: string): Promise<World> {
  const table = `t_${randomBytes(6).toString('hex')}`
  const outboxes: PgOutbox[] = []
  const pools: pg.Pool[] = []
  const newPool = () => {
    const pool = new pg.Pool({ connectionString: url, max: 12 })
    pool.on('error', () => {})
    pools.push(pool)
    return pool
  }
  onTestFinished(async () => {
    await Promise.all(outboxes.map((outbox) => outbox.stop()))
    // A transaction that hangs must fail its own test only.
    await Promise.race([Promise.all(pools.map((pool) => pool.end())), pause(2_000)])
  })

  const pool = newPool()
  await postgresStore(pool, { table }).migrate()
  return {
    url,
    table,
    pool,
    outbox: ({ doorbell = false, wrap = (store: PgStore) => store, ...options } = {}) => {
      const storeOn = (rings: boolean) => postgresStore(newPool(), { table, doorbell: rings })
      const outbox = createOutbox<pg.PoolClient>({
        logger: silentLogger,
        ...options,
        retry: { policy: fixedDelay(0), ...options.retry },
        poller: { pollIntervalMs: HOUR_MS, ...options.poller },
        dispatcher: { drainTimeoutMs: 200, ...options.dispatcher },
        store: wrap(doorbell ? storeOn(true) : unasked(storeOn(false))),
      })
      outboxes.push(outbox)
      return outbox
    },
    rows: async () => {
      const { rows } = await pool.query<RowView>(
        `select event_id as id, (array['NEW', 'DONE', 'RETRY', 'DEAD'])[status + 1] as status, attempts,
           locked_by as "lockedBy", last_error as "lastError", handled_by as "handledBy"
         from ${table} order by seq`,
      )
      return rows
    },
  }
}

/** Nobody rings, and nobody looks by himself as without a doorbell he would: what is handled was found for a reason. */
function unasked(store: PgStore): PgStore {
  return new Proxy(store, {
    get(target, name) {
      if (name === 'capabilities') return { ...target.capabilities, doorbell: true }
      const value = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

/** Registers a handler, and returns the order ids that it has seen so far. */
export function noting(outbox: PgOutbox): string[] {
  const handled: string[] = []
  outbox.on(OrderPlaced, 'note', (event) => void handled.push(event.payload.orderId))
  return handled
}
