import type { Migration } from '../../store.js'
import type { Connection } from './driver.js'
import type { Names } from './names.js'

/** Milliseconds since 1970 by the database's clock; the same within one statement. */
export const NOW = `cast(round(unixepoch('subsec') * 1000) as integer)`
/** When a dead row is due: never. Any driver can read this number. */
export const NEVER = 9_007_199_254_740_991

/**
 * Whether a column that another writer has filled holds no time: text, bytes, or a number above all times. SQLite sorts text
 * and bytes after all numbers.
 */
export const isNoTime = (column: string) => `${column} > ${NEVER}`

/**
 * Never tried and due since its birth: found by `seq`, from a floor.
 * Waiting for a moment (delayed or to be retried), or dead: found by `available_at`.
 * With an ordering key: found by key, through its first row only; a dead row that halts its key stays its first row.
 * The predicates are repeated word for word in the claims, which name the index they scan.
 */
export const FRESH = 'ordering_key is null and status = 0 and available_at <= created_at'
export const TIMED =
  '(status = 3 or (ordering_key is null and (status = 2 or (status = 0 and available_at > created_at))))'
export const ORDERED = 'ordering_key is not null and (status in (0, 2) or halts)'
/** Rows without a key that somebody works on, or has lost. */
export const LEASED = 'ordering_key is null and locked_until is not null'
export const DEAD = 'status = 3'
const DONE = 'status = 1'

/** The indexes by name, quoted. */
export function indexesOf({ table }: Names) {
  return {
    fresh: `"${table}_fresh"`,
    timed: `"${table}_timed"`,
    ordered: `"${table}_ordered"`,
    leased: `"${table}_leased"`,
    done: `"${table}_done"`,
    inboxAge: `"${table}_inbox_age"`,
  }
}

export function migrationsFor(names: Names): readonly Migration[] {
  const index = indexesOf(names)
  const first = { version: 1, name: 'events, instances, pauses and inbox' }
  return [
    {
      ...first,
      sql: `
create table if not exists ${names.events} (
  -- what a claim looks at comes first, what may be long comes last
  seq integer primary key autoincrement,
  created_at integer not null default (${NOW}),
  available_at integer not null default (${NOW}),
  status integer not null default 0,
  attempts integer not null default 0,
  version integer not null default 1,
  payload_size integer not null default 0,
  halts integer,
  locked_until integer,
  done_at integer,
  event_type text not null,
  ordering_key text check (ordering_key <> ''),
  locked_by text,
  event_id text not null unique,
  aggregate_type text not null default '__GLOBAL__',
  aggregate_id text,
  tenant_id text,
  occurred_at integer not null default (${NOW}),
  handled_by text,
  headers text,
  metadata text,
  last_error text,
  failures text,
  payload text,
  payload_bytes blob
);
create index if not exists ${index.fresh} on ${names.events} (seq) where ${FRESH};
create index if not exists ${index.timed} on ${names.events} (available_at) where ${TIMED};
create index if not exists ${index.ordered} on ${names.events} (ordering_key, seq) where ${ORDERED};
create index if not exists ${index.leased} on ${names.events} (locked_until) where ${LEASED};
create index if not exists ${index.done} on ${names.events} (done_at) where ${DONE};
create table if not exists ${names.instances} (
  id text primary key not null,
  host text not null,
  pid integer not null,
  version text not null,
  handlers text not null,
  accept text not null,
  done integer not null default 0,
  failed integer not null default 0,
  dead integer not null default 0,
  started_at integer not null default (${NOW}),
  last_seen_at integer not null default (${NOW}),
  stopped_at integer
) without rowid;
create table if not exists ${names.pauses} (
  event_type text primary key not null,
  paused_at integer not null default (${NOW})
) without rowid;
create table if not exists ${names.inbox} (
  handler text not null,
  event_id text not null,
  processed_at integer not null default (${NOW}),
  primary key (handler, event_id)
) without rowid;
create index if not exists ${index.inboxAge} on ${names.inbox} (processed_at);
${recorded(names, first)}`,
    },
  ]
}

/** Part of the migration itself, so that one that was run by hand counts as applied. */
function recorded({ migrations }: Names, { version, name }: Omit<Migration, 'sql'>): string {
  return `
create table if not exists ${migrations} (
  version integer primary key,
  name text not null,
  applied_at integer not null default (${NOW})
);
insert into ${migrations} (version, name) values (${version}, '${name}') on conflict (version) do nothing;`
}

/** Inside a write transaction: ten instances that start at once do it one after the other. */
export function migrate(db: Connection, names: Names): readonly number[] {
  const missing = pendingMigrations(db, names)
  for (const { sql } of missing) db.exec(sql)
  return missing.map(({ version }) => version)
}

/** What migrate() would apply; all of them when nothing is there yet. */
export function pendingMigrations(db: Connection, names: Names): readonly Migration[] {
  const all = migrationsFor(names)
  const table = { table: `${names.table}_migration` }
  if (db.all(`select 1 from sqlite_master where type = 'table' and name = :table`, table).length === 0)
    return all
  const applied = new Set(db.all(`select version from ${names.migrations}`).map((row) => Number(row.version)))
  return all.filter(({ version }) => !applied.has(version))
}

/** What the database's clock shows. */
export function clock(db: Connection): number {
  return Number(db.all(`select ${NOW} as now`)[0]?.now)
}
