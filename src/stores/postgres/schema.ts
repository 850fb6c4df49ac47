import { MAX_PAYLOAD_BYTES } from '../../core/payload-limits.js'
import type { Migration } from '../../store.js'
import { type PostgresDriver, type Query, statement } from './driver.js'
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

const LONGEST_DELAY_MS = 100 * 365 * 24 * 3_600_000

/** Each notes that it was applied, so that it may be run by other means. */
export function migrationsFor(names: Names): readonly Migration[] {
  return [
    { version: 1, name: 'events, instances, pauses and inbox', sql: tables(names) },
    { version: 2, name: 'publishing by SQL', sql: publishFunction(names) },
  ].map(({ version, name, sql }) => ({
    version,
    name,
    sql: `${sql.trim()}
insert into ${names.migrations} (version, name) values (${version}, '${name}') on conflict (version) do nothing;`,
  }))
}

/** Those of the events table, besides its key. Names are not quoted. */
export function indexesOf({
  index,
  events,
}: Names): readonly { readonly name: string; readonly sql: string }[] {
  return [
    { name: `${index}_fresh`, on: '(seq)', where: FRESH },
    { name: `${index}_timed`, on: '(available_at)', where: TIMED },
    { name: `${index}_ordered`, on: '(ordering_key, seq)', where: ORDERED },
  ].map(({ name, on, where }) => ({ name, sql: `${name} on ${events} ${on} where ${where}` }))
}

function tables(names: Names): string {
  return `
create table if not exists ${names.migrations} (
  version int primary key,
  name text not null,
  applied_at timestamptz not null default clock_timestamp()
);
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
${indexesOf(names)
  .map(({ sql }) => `create index if not exists ${sql};`)
  .join('\n')}
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
);`
}

/** For writers in any language, triggers and scripts; what it may be given is docs/table-contract.md. */
function publishFunction({ publish, events, sequence, channel }: Names): string {
  return `
create or replace function ${publish}(
  event_type text,
  payload jsonb default null,
  aggregate_type text default null,
  aggregate_id text default null,
  event_id text default null,
  ordering_key text default null,
  tenant_id text default null,
  version int default 1,
  headers jsonb default null,
  metadata jsonb default null,
  delay_ms float8 default 0
) returns text language plpgsql set search_path from current as $aftercommit$
#variable_conflict use_variable
declare
  id text := coalesce(event_id, gen_random_uuid()::text);
  content json := coalesce(payload, 'null')::json;
begin
  if coalesce(length(event_type), 0) not between 1 and 255 then
    raise exception 'outbox_publish: event_type must have 1 to 255 characters' using errcode = '22023';
  end if;
  if length(id) not between 1 and 64 then
    raise exception 'outbox_publish: event_id must have 1 to 64 characters; null draws one' using errcode = '22023';
  end if;
  if length(ordering_key) not between 1 and 255 then
    raise exception 'outbox_publish: ordering_key must have 1 to 255 characters, or be null' using errcode = '22023';
  end if;
  if greatest(length(aggregate_type), length(aggregate_id), length(tenant_id)) > 255 then
    raise exception 'outbox_publish: aggregate_type, aggregate_id and tenant_id have 255 characters at most' using errcode = '22023';
  end if;
  if version < 1 then
    raise exception 'outbox_publish: version must be 1 or more' using errcode = '22023';
  end if;
  if octet_length(content::text) > ${MAX_PAYLOAD_BYTES} then
    raise exception 'outbox_publish: payload is larger than ${MAX_PAYLOAD_BYTES} bytes' using errcode = '22023';
  end if;
  if jsonb_typeof(headers) <> 'object' or jsonb_typeof(metadata) <> 'object' then
    raise exception 'outbox_publish: headers and metadata must be JSON objects' using errcode = '22023';
  end if;
  if delay_ms not between 0 and ${LONGEST_DELAY_MS} then
    raise exception 'outbox_publish: delay_ms must be between 0 and a hundred years' using errcode = '22023';
  end if;
  insert into ${events} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload,
    payload_size, headers, metadata, available_at)
  values (id, event_type, coalesce(aggregate_type, '__GLOBAL__'), aggregate_id, tenant_id, ordering_key,
    coalesce(version, 1), content, octet_length(content::text), headers::json, metadata::json,
    statement_timestamp() + coalesce(delay_ms, 0) * interval '1 ms');
  perform pg_notify('${channel}', case
    when delay_ms > 0 then '' when ordering_key is not null then 'ordered' else currval('${sequence}')::text end);
  return id;
end $aftercommit$;`
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
    const missing = await pendingMigrations((sql, params) => driver.queryOn(client, sql, params), names)
    for (const { sql } of missing) await driver.script(client, sql)
    return missing.map((migration) => migration.version)
  })
}

/** What migrate() would apply; all of them when nothing is there yet. */
export async function pendingMigrations(query: Query, names: Names): Promise<readonly Migration[]> {
  const [found] = await query(statement('select to_regclass($1::text)::text'), [names.migrations])
  const isThere = typeof found?.[0] === 'string'
  const rows = isThere ? await query(statement(`select version from ${names.migrations}`), []) : []
  const applied = new Set(rows.map((row) => Number(row[0])))
  return migrationsFor(names).filter(({ version }) => !applied.has(version))
}
