import pg from 'pg'
import { inject, onTestFinished } from 'vitest'
import type { PublishableEvent } from '../../src/core/domain-event.js'
import { createOutbox, type Outbox, type OutboxOptions } from '../../src/index.js'
import { type PostgresStoreOptions, postgresStore } from '../../src/stores/postgres/index.js'
import { freshDatabase } from './database.js'
import { type LogRecorder, recordLog } from './log-recorder.js'
import { within } from './waiting.js'

type Options = Omit<OutboxOptions<pg.PoolClient>, 'store'>

export interface TestOutbox {
  readonly outbox: Outbox<pg.PoolClient>
  readonly log: LogRecorder
}

/** Cleans up when the test is over, latest first; a cleanup that hangs is left behind after five seconds. */
export function afterwards(what: string, clean: () => Promise<unknown>): void {
  onTestFinished(() => within(what, Promise.resolve(clean()), 5_000).then(nothing, nothing))
}

function nothing(): void {}

/** The URL of an empty database that is dropped when the test is over. */
export async function emptyDatabase(server: string = inject('postgresUrl')): Promise<string> {
  const database = await freshDatabase(server)
  afterwards('drop the database', () => database.drop())
  return database.url
}

/** The same with the outbox's tables in it. */
export async function migratedDatabase(server: string = inject('postgresUrl')): Promise<string> {
  const url = await emptyDatabase(server)
  const pool = new pg.Pool({ connectionString: url, max: 1 })
  // end() does not wait for the sockets, and the database may be dropped under them.
  pool.on('error', nothing)
  await createOutbox({ store: postgresStore(pool) }).migrate()
  await pool.end()
  return url
}

/** A pool of the application, ended when the test is over. */
export function poolOn(url: string, config: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max: 10, ...config })
  pool.on('error', nothing)
  afterwards('end the pool', async () => {
    if (!pool.ended && !pool.ending) await pool.end()
  })
  return pool
}

/** An outbox with a short poll interval and a recorded log, stopped when the test is over. */
export function outboxOn(pool: pg.Pool, options: Options = {}, store: PostgresStoreOptions = {}): TestOutbox {
  const log = recordLog()
  const outbox = createOutbox({
    store: postgresStore(pool, store),
    logger: log.logger,
    ...options,
    poller: { pollIntervalMs: 100, ...options.poller },
    dispatcher: { drainTimeoutMs: 200, ...options.dispatcher },
  })
  afterwards('stop the outbox', () => outbox.stop())
  return { outbox, log }
}

export interface EventRow {
  readonly event_id: string
  readonly event_type: string
  readonly status: number
  readonly attempts: number
  readonly locked_by: string | null
  readonly leased: boolean
  readonly due_in_s: number
  readonly last_error: string | null
}

/** What the events table holds, oldest first. */
export async function rowsIn(pool: pg.Pool | pg.Client): Promise<EventRow[]> {
  const { rows } = await pool.query<EventRow>(
    `select event_id, event_type, status, attempts, locked_by, coalesce(locked_until > clock_timestamp(), false) leased,
       date_part('epoch', available_at - clock_timestamp()) due_in_s, last_error from outbox_event order by seq`,
  )
  return rows
}

export function event(type = 'thing.happened', payload: unknown = { n: 1 }): PublishableEvent {
  return { type, payload }
}

/** True when a client does as its class does, also when that is changed later: it has nothing of ours left. */
export function doesAsItsClass(client: pg.ClientBase): boolean {
  const { query } = pg.Client.prototype
  const answer = {}
  try {
    pg.Client.prototype.query = (() => answer) as unknown as typeof query
    return (client.query('select 1') as unknown) === answer
  } finally {
    pg.Client.prototype.query = query
  }
}
