import pg from 'pg'
import { inject } from 'vitest'
import { postgresStore } from '../../../src/stores/postgres/index.js'
import { freshDatabase } from '../../support/database.js'

/** The ORM's pool in the suite: as many transactions are open at the same time. */
export const POOL = 50

/** A deferred trigger ends the connection in the middle of the COMMIT of whoever wrote into `doomed`. */
const SCHEMA = `
create table business (id text primary key);
create table doomed (id int);
create function end_connection() returns trigger language plpgsql as
  'begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(1); return null; end';
create constraint trigger doom after insert on doomed deferrable initially deferred
  for each row execute function end_connection()`

export const LOSE_COMMIT = 'insert into doomed values (1)'
export const BROKEN = 'select 1/0'
export const READ_ISOLATION = `select current_setting('transaction_isolation') as level`

/** As applications should make theirs: a client that is out of the pool has no listener, and its errors end the process. */
export function poolOn(url: string, max = POOL): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max })
  pool.on('error', () => {})
  pool.on('connect', (client) => client.on('error', () => {}))
  return pool
}

/** A database for the ORM, with a small pool of its own for the outbox. */
export async function postgresDatabase() {
  const database = await freshDatabase(inject('postgresUrl'))
  const pool = poolOn(database.url, 10)
  await pool.query(SCHEMA)
  return {
    url: database.url,
    /** What is the same for every ORM on PostgreSQL. */
    world: {
      createStore: (table: string) => postgresStore(pool, { table }),
      afterFailure: 'refuses the commit',
      committed: async (ids: readonly string[]) => {
        const { rows } = await pool.query<{ id: string }>('select id from business where id = any($1)', [ids])
        return rows.map((row) => row.id)
      },
      dispose: async () => {},
    } as const,
    async drop() {
      await pool.end()
      await database.drop()
    },
  }
}

export type Database = Awaited<ReturnType<typeof postgresDatabase>>
