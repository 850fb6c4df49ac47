import type { Migration } from '../../store.js'
import { isServerError, type PostgresDriver, type Row, type Statement, statement } from './driver.js'
import type { Names } from './names.js'

/**
 * Never tried and due since its birth: found by `seq`, from a floor.
 * Waiting for a moment (delayed or to be retried), or dead: found by `available_at`.
 * With an ordering key: found by key, through its first row only; a dead row that halts its key stays its first row.
 * Each index more, and each CHECK, costs every insert.
 * The predicates are repeated word for word in the claims, so that their scans use these indexes.
 */
export const FRESH = 'ordering_key is null and status = 0 and available_at <= created_at'
export const TIMED = `(status = 3 or (ordering_key is null and (status = 2 or (status = 0 and available_at > created_at))))`
export const ORDERED = 'ordering_key is not null and (status in (0, 2) or halts)'
/** They wait at the far end of the same index: `available_at` is infinity, so no claim comes near them. */
export const DEAD = "status = 3 and available_at = 'infinity'"

export function migrationsFor(names: Names): readonly Migration[] {
  return [
    {
      version: 1,
      name: 'events, instances, pauses and inbox',
      sql: `
create sequence if not exists ${names.sequence};
create table if not exists ${names.events} (
  -- what a claim looks at comes first
  seq bigint not null default nextval('${names.sequence}'),
  created_at timestamptz not null default statement_timestamp(),
  available_at timestamptz not null default statement_timestamp(),
  status smallint not null default 0,
  attempts int not null default 0,
  version int not null default 1,
  payload_size int not null default 0,
  event_type text collate "C" not null,
  ordering_key text collate "C",
  locked_until timestamptz,
  locked_by text collate "C",
  event_id text collate "C" primary key,
  aggregate_type text collate "C" not null default '__GLOBAL__',
  aggregate_id text collate "C",
  tenant_id text collate "C",
  occurred_at timestamptz not null default statement_timestamp(),
  payload json,
  payload_bytes bytea,
  headers json,
  metadata json,
  handled_by json,
  failures json,
  last_error text,
  done_at timestamptz,
  halts boolean
) with (
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0.05,
  autovacuum_vacuum_insert_scale_factor = 0.2,
  autovacuum_vacuum_cost_delay = 0
);
create index if not exists ${names.index}_fresh on ${names.events} (seq) where ${FRESH};
create index if not exists ${names.index}_timed on ${names.events} (available_at) where ${TIMED};
create index if not exists ${names.index}_ordered on ${names.events} (ordering_key, seq) where ${ORDERED};
create index if not exists ${names.index}_age on ${names.events} using brin (created_at);
create table if not exists ${names.instances} (
  id text collate "C" primary key,
  host text not null,
  pid int not null,
  version text not null,
  handlers json not null,
  accept json not null,
  done bigint not null default 0,
  failed bigint not null default 0,
  dead bigint not null default 0,
  started_at timestamptz not null default clock_timestamp(),
  last_seen_at timestamptz not null default clock_timestamp(),
  stopped_at timestamptz
) with (fillfactor = 50);
create table if not exists ${names.pauses} (
  event_type text collate "C" primary key,
  paused_at timestamptz not null default clock_timestamp()
);
create table if not exists ${names.inbox} (
  handler text collate "C" not null,
  event_id text collate "C" not null,
  processed_at timestamptz not null default clock_timestamp(),
  primary key (handler, event_id)
);
create index if not exists ${names.index}_inbox_age on ${names.inbox} using brin (processed_at);`,
    },
  ]
}

/** Under a lock that ten instances starting at once wait for; each migration is recorded with its own number. */
export async function migrate<Client>(
  driver: PostgresDriver<Client>,
  names: Names,
): Promise<readonly number[]> {
  return driver.transaction(async ({ client }) => {
    await driver.queryOn(client, statement('select pg_advisory_xact_lock(hashtextextended($1::text, 0))'), [
      `aftercommit migrate ${names.events}`,
    ])
    await driver.script(
      client,
      `create table if not exists ${names.migrations} (
        version int primary key, name text not null, applied_at timestamptz not null default clock_timestamp())`,
    )
    const missing = await pendingMigrations((sql) => driver.queryOn(client, sql, []), names)
    for (const migration of missing) {
      await driver.script(client, migration.sql)
      await driver.queryOn(
        client,
        statement(`insert into ${names.migrations} (version, name) values ($1::int, $2::text)`),
        [migration.version, migration.name],
      )
    }
    return missing.map((migration) => migration.version)
  })
}

/** What migrate() would apply; all of them when nothing is there yet. */
export async function pendingMigrations(
  query: (sql: Statement) => Promise<readonly Row[]>,
  names: Names,
): Promise<readonly Migration[]> {
  const rows = await query(statement(`select version from ${names.migrations}`)).catch((error) => {
    if (isServerError(error) && (error.code === '42P01' || error.code === '3F000')) return []
    throw error
  })
  const applied = new Set(rows.map((row) => Number(row[0])))
  return migrationsFor(names).filter(({ version }) => !applied.has(version))
}
