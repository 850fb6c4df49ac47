import { MAX_PAYLOAD_BYTES } from '../../core/payload-limits.js'
import type { Migration } from '../../store.js'
import { checkMayMigrate, checkSeesMigrations } from './access.js'
import { type PostgresDriver, type Query, statement } from './driver.js'
import { functions } from './functions.js'
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
/**
 * Settled as dead, `available_at` is infinity, so such rows wait at the far end of the index of TIMED, where no claim comes
 * near them. They are listed by `seq`, from an index of their own. Rows of other programs may have another `available_at`.
 */
export const DEAD = 'status = 3'

const LONGEST_DELAY_MS = 100 * 365 * 24 * 3_600_000

/** Each notes that it was applied, so that it may be run by other means. */
export function migrationsFor(names: Names): readonly Migration[] {
  return [
    { version: 1, name: 'events, instances, pauses and inbox', sql: tables(names) },
    { version: 2, name: 'publishing by SQL', sql: publishFunction(names) },
    { version: 3, name: 'claims by ranges', sql: ranges(names) },
    { version: 4, name: 'functions with qualified names', sql: functions(names, FRESH) },
    { version: 5, name: 'dead events by number', sql: `create index if not exists ${deadIndex(names).sql};` },
  ].map(({ version, name, sql }) => ({
    version,
    name,
    sql: `${sql.trim()}
insert into ${names.migrations} (version, name) values (${version}, '${name}') on conflict (version) do nothing;`,
  }))
}

interface Index {
  readonly name: string
  readonly sql: string
}

/** Those of the events table, besides its key. Names are not quoted. */
export function indexesOf(names: Names): readonly Index[] {
  return [...claimIndexes(names), deadIndex(names)]
}

function claimIndexes({ index, events }: Names): readonly Index[] {
  return [
    { name: `${index}_fresh`, on: '(seq)', where: FRESH },
    { name: `${index}_timed`, on: '(available_at)', where: TIMED },
    { name: `${index}_ordered`, on: '(ordering_key, seq)', where: ORDERED },
  ].map(({ name, on, where }) => ({ name, sql: `${name} on ${events} ${on} where ${where}` }))
}

function deadIndex({ index, events }: Names): Index {
  const name = `${index}_dead`
  return { name, sql: `${name} on ${events} (seq) where ${DEAD}` }
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
${claimIndexes(names)
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

/** Of the advisory lock at which both ways of claiming meet. */
export const rangeLock = ({ ranges }: Names) => `(181182::bigint << 32) + '${ranges}'::regclass::oid::bigint`

/**
 * Whoever claims row by row keeps out of ranges, and whoever adds a range sees the leases of rows: each looks, by a new
 * snapshot, when it has the lock, and keeps that until its claim is committed. Adding one does not wait: rows can be
 * claimed one by one instead.
 */
function ranges(names: Names): string {
  const { ranges, rangeCount, rangesTaken, takeRange, events, instances, sequence } = names
  const lock = rangeLock(names)
  const all = `select coalesce(range_agg(int8range(s.first_seq, s.last_seq, '[]')), '{}') from ${ranges} s`
  const isolated = `current_setting('transaction_isolation') <> 'read committed'`
  return `
create table if not exists ${ranges} (
  token text collate "C" primary key,
  first_seq bigint not null,
  last_seq bigint not null,
  until timestamptz not null
) with (fillfactor = 50);
-- how many there have been: whoever saw none, and finds that none was added, need not look again
create sequence if not exists ${rangeCount};
select nextval('${rangeCount}');
-- whether the instance keeps out of ranges
alter table ${instances} add column if not exists ranges boolean not null default false;
create or replace function ${rangesTaken}() returns int8multirange language plpgsql as $aftercommit$
begin
  if ${isolated} then
    raise exception 'aftercommit: claims need READ COMMITTED' using errcode = '25001',
      hint = 'alter role ... set default_transaction_isolation = ''read committed''';
  end if;
  perform pg_advisory_xact_lock_shared(${lock});
  return (${all});
end $aftercommit$;
create or replace function ${takeRange}(claimer text, from_seq bigint, width bigint, lease_ms float8)
returns table (first_seq bigint, last_seq bigint) language plpgsql as $aftercommit$
declare
  others int8multirange;
  low bigint;
  high bigint;
begin
  if ${isolated} or not pg_try_advisory_xact_lock(${lock}) then
    return;
  end if;
  -- of an older version, which would not see it
  if exists (select 1 from ${instances} i where not i.ranges and i.stopped_at is null and i.pid > 0
      and i.last_seen_at > clock_timestamp() - interval '2 minutes') then
    return;
  end if;
  others := (${all});
  low := (select e.seq from ${events} e where ${FRESH} and e.seq >= from_seq and e.locked_until is null
    and not e.seq <@ others order by e.seq limit 1);
  if low is null or low + 2 * width > (select s.last_value from ${sequence} s) then
    return;
  end if;
  high := least(low + width - 1, (select min(s.first_seq) - 1 from ${ranges} s where s.first_seq > low));
  perform nextval('${rangeCount}');
  insert into ${ranges} values (claimer, low, high, clock_timestamp() + lease_ms * interval '1 ms');
  return query select low, high;
end $aftercommit$;`
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

const noExtraErrors = statement(`select set_config('plpgsql.extra_errors', 'none', true)`)

/** Under a lock that ten instances starting at once wait for; each migration is recorded with its own number. */
export async function migrate<Client>(
  driver: PostgresDriver<Client>,
  names: Names,
): Promise<readonly number[]> {
  return driver.transaction(async ({ client }) => {
    await driver.queryOn(client, statement('select pg_advisory_xact_lock(hashtextextended($1::text, 0))'), [
      `aftercommit migrate ${names.events}`,
    ])
    const query: Query = (sql, params) => driver.queryOn(client, sql, params)
    const missing = await pendingMigrations(query, names)
    if (missing.length > 0) await checkMayMigrate(query, names)
    // Parameters share names with columns, which the additional checks of PL/pgSQL refuse.
    await query(noExtraErrors, [])
    for (const { sql } of missing) await driver.script(client, sql)
    return missing.map((migration) => migration.version)
  })
}

/** What migrate() would apply; all of them when nothing is there yet. */
export async function pendingMigrations(query: Query, names: Names): Promise<readonly Migration[]> {
  const isListed = await isThere(query, names.migrations)
  const rows = isListed ? await query(statement(`select version from ${names.migrations}`), []) : []
  if (isListed && rows.length === 0) await checkSeesMigrations(query, names)
  const applied = new Set(rows.map((row) => Number(row[0])))
  return migrationsFor(names).filter(({ version }) => !applied.has(version))
}

export async function isThere(query: Query, table: string): Promise<boolean> {
  const [found] = await query(statement('select to_regclass($1::text)::text'), [table])
  return typeof found?.[0] === 'string'
}
