// What the server counts. Its processes hand in their counts when they end: so nobody may be left when they are read.
import { setTimeout as sleep } from 'node:timers/promises'
import { withClient } from '../lib/databases.js'

const TABLES = `
  select coalesce(sum(n_tup_ins), 0)::int as inserted, coalesce(sum(n_tup_upd), 0)::int as updated,
    coalesce(sum(n_tup_del), 0)::int as deleted, coalesce(sum(n_tup_hot_upd), 0)::int as hot,
    coalesce(sum(n_dead_tup), 0)::int as dead
    from pg_stat_user_tables`
const SIZE = `
  select coalesce(sum(pg_table_size(oid)), 0)::float8 as "table", coalesce(sum(pg_indexes_size(oid)), 0)::float8 as indexes
    from pg_class where relkind = 'r' and relnamespace in (
      select oid from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema')`
const USER_TABLES = `select format('%I.%I', schemaname, relname) as name from pg_stat_user_tables`

/** Waits until nobody is connected to the database any more. */
export async function untilAlone(databases, name) {
  const connected = `select count(*)::int as left from pg_stat_activity where datname = '${name}'`
  while ((await databases.query(connected))[0].left > 0) await sleep(5)
}

/** What the whole server has written and this database has run so far. */
export async function countersOf(databases, name, { statements }) {
  const [counters] = await databases.query(`
    select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8 as wal, wal_fpi::int as "fullPages",
      xact_commit::int as transactions, (blks_hit + blks_read)::float8 as "databaseBuffers"
      from pg_stat_database, pg_stat_wal where datname = '${name}'`)
  return { ...counters, ...(statements ? await statementsOf(databases, name) : {}) }
}

/** Statements as clients send them; the buffers of what functions and triggers run inside are theirs. */
async function statementsOf(databases, name) {
  const [counted] = await databases.query(`
    select coalesce(sum(calls), 0)::int as statements,
      coalesce(sum(shared_blks_hit + shared_blks_read), 0)::float8 as buffers
      from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname = '${name}'`)
  return counted
}

export function tablesOf(url) {
  return withClient(url, async (client) => (await client.query(TABLES)).rows[0])
}

export function sizeOf(url) {
  return withClient(url, async (client) => (await client.query(SIZE)).rows[0])
}

/** Cleans up what was left dead, as autovacuum would later. */
export function vacuum(url) {
  return withClient(url, async (client) => {
    const { rows } = await client.query(USER_TABLES)
    await client.query(`vacuum ${rows.map(({ name }) => name).join(', ')}`)
  })
}

/** `pg_stat_statements` is in the bundled server; another may come without it. */
export async function hasStatements(databases) {
  try {
    await databases.query('create extension if not exists pg_stat_statements')
    await databases.query('select count(*) from pg_stat_statements')
    return true
  } catch {
    return false
  }
}
