import { PGlite } from '@electric-sql/pglite'
import postgres from 'postgres'
import { createOutbox, type Outbox } from '../../src/index.js'
import { postgresStore } from '../../src/stores/postgres/index.js'
import { recordLog } from './log-recorder.js'
import { afterwards, migratedDatabase, outboxOn, poolOn } from './trap-kit.js'

/** An outbox on one of the drivers, with the two things that each driver does in its own words. */
export interface Subject {
  readonly outbox: Outbox<unknown>
  /** Runs the application's own SQL on the handle that a transaction gave. */
  run(client: unknown, sql: string): Promise<unknown>
  countRows(): Promise<number>
}

async function onPg(): Promise<Subject> {
  const pool = poolOn(await migratedDatabase())
  const { outbox } = outboxOn(pool)
  return {
    outbox: outbox as unknown as Outbox<unknown>,
    run: (client, sql) => (client as { query(sql: string): Promise<unknown> }).query(sql),
    countRows: async () => Number((await pool.query(countIn('outbox_event'))).rows[0].n),
  }
}

async function onPostgresJs(): Promise<Subject> {
  const sql = postgres(await migratedDatabase(), { max: 6, onnotice: () => {} })
  afterwards('end postgres.js', () => sql.end({ timeout: 1 }))
  const outbox = createOutbox({ store: postgresStore(sql), logger: recordLog().logger })
  afterwards('stop', () => outbox.stop())
  return {
    outbox: outbox as unknown as Outbox<unknown>,
    run: async (client, text) => (client as typeof sql).unsafe(text),
    countRows: async () => Number((await sql.unsafe(countIn('outbox_event')))[0]?.n),
  }
}

let pglite: PGlite | undefined
let tables = 0

/** One database for the whole file, since it takes seconds to start; a table for each test. */
async function onPGlite(): Promise<Subject> {
  pglite ??= new PGlite()
  const database = pglite
  const table = `outbox_${++tables}`
  const outbox = createOutbox({ store: postgresStore(database, { table }), logger: recordLog().logger })
  await outbox.migrate()
  afterwards('stop', () => outbox.stop())
  return {
    outbox: outbox as unknown as Outbox<unknown>,
    run: (client, sql) => (client as PGlite).exec(sql),
    countRows: async () => Number((await database.query<{ n: number }>(countIn(table))).rows[0]?.n),
  }
}

function countIn(table: string): string {
  return `select count(*)::int as n from ${table}`
}

export const THREE_DRIVERS: readonly (readonly [string, () => Promise<Subject>])[] = [
  ['pg', onPg],
  ['postgres.js', onPostgresJs],
  ['PGlite', onPGlite],
]
