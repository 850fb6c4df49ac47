import { AftercommitError } from '../../core/errors.js'
import { MAX_PAYLOAD_BYTES } from '../../core/payload-limits.js'
import type { Migration } from '../../store.js'
import { SQL_MODE } from './connections.js'
import {
  COMMIT,
  type CorePool,
  connectionOf,
  ignore,
  isMissing,
  isServerError,
  type Query,
  ROLLBACK,
  send,
} from './driver.js'
import { migrationLocked } from './errors.js'
import type { Names } from './names.js'
import { inUtf8mb4, publishProcedure } from './procedure.js'

/**
 * Compared byte by byte, trailing spaces too: MySQL and MariaDB have such a collation each, by another name, and each
 * reads its own of these comments only.
 */
export const EXACT =
  'character set utf8mb4 /*!80017 collate utf8mb4_0900_bin */ /*M!100203 collate utf8mb4_nopad_bin */'

/** When dead rows are due: they wait at the far end of an index, where no claim comes near them. */
export const NEVER = "timestamp'9999-12-31 23:59:59.999999'"

/** Of the events table, by the end of their names. */
export const STATED_INDEXES = [
  { end: '_id', on: '(event_id)', unique: true },
  { end: '_fresh', on: '(fresh, seq)', unique: false },
  { end: '_timed', on: '(timed_at)', unique: false },
  { end: '_ordered', on: '(pending_key, seq)', unique: false },
  { end: '_done', on: '(done_at)', unique: false },
] as const

/**
 * There are no partial indexes, so a virtual column each says where to find a row, and is null elsewhere.
 * `fresh`: never tried and due since its birth; found by `seq`, from a floor.
 * `timed_at`: waiting for a moment (delayed or to be retried), or dead.
 * `pending_key`: with an ordering key; a dead row that halts its key stays in its place.
 * An id may be longer by the character that retryDead() puts in front of it. The procedure says by a negative size what
 * is wrong with its arguments.
 */
export function migrationsFor(names: Names): readonly Migration[] {
  const { index } = names
  return [
    {
      version: 1,
      name: 'events, instances, pauses and inbox',
      sql: `
create table if not exists ${names.migrations} (
  version int not null primary key,
  name varchar(255) not null,
  applied_at datetime(6) not null default (utc_timestamp(6))
) engine = InnoDB default character set utf8mb4;
create table if not exists ${names.events} (
  seq bigint unsigned not null auto_increment,
  event_id varchar(80) ${EXACT} not null,
  event_type varchar(255) ${EXACT} not null,
  aggregate_type varchar(255) ${EXACT} not null default '__GLOBAL__',
  aggregate_id varchar(255) ${EXACT},
  tenant_id varchar(255) ${EXACT},
  ordering_key varchar(255) ${EXACT},
  version int not null default 1,
  status tinyint not null default 0,
  attempts int not null default 0,
  halts tinyint,
  payload_size int not null default 0,
  created_at datetime(6) not null default (utc_timestamp(6)),
  available_at datetime(6) not null default (utc_timestamp(6)),
  occurred_at datetime(6) not null default (utc_timestamp(6)),
  done_at datetime(6),
  locked_until datetime(6),
  locked_by varchar(255) ${EXACT},
  payload longtext ${EXACT},
  payload_bytes longblob,
  headers longtext ${EXACT},
  metadata longtext ${EXACT},
  handled_by longtext ${EXACT},
  failures longtext ${EXACT},
  last_error longtext ${EXACT},
  fresh tinyint as (case when ordering_key is null and status = 0 and available_at <= created_at then 1 end) virtual,
  timed_at datetime(6) as (case when status = 3 or (ordering_key is null and (status = 2
    or (status = 0 and available_at > created_at))) then available_at end) virtual,
  pending_key varchar(255) ${EXACT} as (case when status in (0, 2) or halts = 1 then ordering_key end) virtual,
  primary key (seq),
${STATED_INDEXES.map(({ end, on, unique }) => `  ${unique ? 'unique ' : ''}key ${index}${end} ${on},`).join('\n')}
  constraint ${index}_event_type_is_empty check (event_type <> ''),
  constraint ${index}_ordering_key_is_empty check (ordering_key <> ''),
  constraint ${index}_event_id_is_empty check (event_id <> ''),
  constraint ${index}_event_id_is_too_long check (char_length(event_id) <= 64 + (ord(event_id) = 1)),
  constraint ${index}_version_is_below_1 check (version >= 1),
  constraint ${index}_payload_is_not_json check (payload_size >= 0 or payload_size in (-2, -3)),
  constraint ${index}_headers_are_no_object check (payload_size <> -2),
  constraint ${index}_metadata_is_no_object check (payload_size <> -3),
  constraint ${index}_payload_is_too_large check (octet_length(payload) <= ${MAX_PAYLOAD_BYTES}
    and octet_length(payload_bytes) <= ${MAX_PAYLOAD_BYTES})
) engine = InnoDB default character set utf8mb4;
create table if not exists ${names.instances} (
  id varchar(255) ${EXACT} not null primary key,
  host varchar(255) not null,
  pid bigint not null,
  version varchar(255) not null,
  handlers longtext not null,
  accept longtext not null,
  done bigint not null default 0,
  failed bigint not null default 0,
  dead bigint not null default 0,
  started_at datetime(6) not null default (utc_timestamp(6)),
  last_seen_at datetime(6) not null default (utc_timestamp(6)),
  stopped_at datetime(6)
) engine = InnoDB default character set utf8mb4;
create table if not exists ${names.pauses} (
  event_type varchar(255) ${EXACT} not null primary key,
  paused_at datetime(6) not null default (utc_timestamp(6))
) engine = InnoDB default character set utf8mb4;
create table if not exists ${names.inbox} (
  handler varchar(255) ${EXACT} not null,
  event_id varchar(255) ${EXACT} not null,
  processed_at datetime(6) not null default (utc_timestamp(6)),
  primary key (handler, event_id),
  key ${index}_inbox_age (processed_at)
) engine = InnoDB default character set utf8mb4;
${recorded(names, 1, 'events, instances, pauses and inbox')}`,
    },
    {
      version: 2,
      name: 'publishing by SQL',
      sql: `${inUtf8mb4(firstPublishProcedure(names))}
${recorded(names, 2, 'publishing by SQL')}`,
    },
    {
      version: 3,
      name: 'publishing by SQL with the checks of publish()',
      sql: `${inUtf8mb4(publishProcedure(names, EXACT))}
${recorded(names, 3, 'publishing by SQL with the checks of publish()')}`,
    },
  ]
}

/** Also when it is run by hand. */
function recorded(names: Names, version: number, name: string): string {
  return `insert ignore into ${names.migrations} (version, name) values (${version}, '${name}');`
}

/** For writers in any language, triggers and scripts. One statement is its body, so that no DELIMITER is needed. */
function firstPublishProcedure({ publish, events }: Names): string {
  const name = (length: number) => `varchar(${length}) ${EXACT}`
  return `
create procedure if not exists ${publish}(
  event_type ${name(255)},
  payload longtext ${EXACT},
  aggregate_type ${name(255)},
  aggregate_id ${name(255)},
  event_id ${name(255)},
  ordering_key ${name(255)},
  tenant_id ${name(255)},
  version int,
  headers longtext ${EXACT},
  metadata longtext ${EXACT},
  delay_ms double
) modifies sql data sql security invoker
insert into ${events} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload,
  payload_size, headers, metadata, available_at)
values (coalesce(event_id, cast(uuid() as char)), event_type, coalesce(aggregate_type, '__GLOBAL__'), aggregate_id, tenant_id,
  ordering_key, coalesce(version, 1), coalesce(payload, 'null'),
  case when not json_valid(coalesce(payload, 'null')) then -1 when ${noObject('headers')} then -2
    when ${noObject('metadata')} then -3 else octet_length(coalesce(payload, 'null')) end,
  headers, metadata, utc_timestamp(6) + interval coalesce(delay_ms, 0) * 1000 microsecond);`
}

/** The type is asked of valid JSON only: of anything else it is an error. */
function noObject(column: string): string {
  return `if(json_valid(coalesce(${column}, '{}')), json_type(coalesce(${column}, '{}')), '') <> 'OBJECT'`
}

/** Each ends with a semicolon at the end of a line; none has one inside. */
function statementsOf(sql: string): string[] {
  return sql
    .split(/;\s*(?:\n|$)/)
    .map((one) => one.trim())
    .filter((one) => one !== '')
}

const LOCK_WAIT_S = 60

/** Under a lock that ten instances starting at once wait for. DDL commits by itself, so each statement may be repeated. */
export async function migrate(pool: CorePool, names: Names): Promise<readonly number[]> {
  const connection = await connectionOf(pool)
  connection.on('error', ignore)
  const query: Query = (sql, params) => send(connection, sql, params)
  try {
    // Without autocommit whoever had the connection before may have left a transaction there.
    await query(ROLLBACK)
    // In one database of the server each name is locked by itself; the lock's own name holds 64 characters.
    const lock = `left(concat('aftercommit ', sha2(concat(coalesce(database(), ''), ?), 256)), 64)`
    const { rows } = await query(`select get_lock(${lock}, ${LOCK_WAIT_S})`, [names.events])
    if (Number(rows[0]?.[0]) !== 1) throw migrationLocked(rows[0]?.[0] === null)
    const missing = await pendingMigrations(query, names)
    // The application's mode may change the syntax (ORACLE of MariaDB), and a procedure keeps the mode it was created in.
    await query(`set @aftercommit_mode = @@session.sql_mode, session sql_mode = '${SQL_MODE}'`)
    const refused: unknown[] = []
    for (const migration of missing) {
      await apply(query, migration).catch((error) => {
        if (!isRefusedRoutine(migration, error)) throw error
        refused.push(error)
      })
    }
    if (refused.length > 0) throw routineRefused(refused[0])
    await query('set session sql_mode = @aftercommit_mode')
    await query(`do release_lock(${lock})`, [names.events])
    connection.release?.()
    return missing.map((migration) => migration.version)
  } catch (error) {
    // The lock goes with it.
    connection.destroy()
    throw error
  } finally {
    connection.removeListener('error', ignore)
  }
}

/** Migrations that create the procedure. */
const ROUTINES = [2, 3]
const REFUSED = [1044, 1142, 1227, 1370, 1419]

async function apply(query: Query, migration: Migration): Promise<void> {
  for (const sql of statementsOf(migration.sql)) await query(sql)
  await query(COMMIT)
}

/** The user lacks the right to create the procedure. Other migrations do not need it. */
function isRefusedRoutine({ version }: Migration, error: unknown): boolean {
  return ROUTINES.includes(version) && isServerError(error) && REFUSED.includes(error.errno)
}

function routineRefused(cause: unknown): AftercommitError {
  return new AftercommitError(
    'MIGRATION_REFUSED',
    'The procedure for publishing by SQL was refused: the user needs the right CREATE ROUTINE. Everything else is in place.',
    { cause },
  )
}

/** What migrate() would apply; all of them when nothing is there yet. */
export async function pendingMigrations(query: Query, names: Names): Promise<readonly Migration[]> {
  const { rows } = await query(`select version from ${names.migrations}`, []).catch((error) => {
    if (isMissing(error)) return { rows: [] }
    throw error
  })
  const applied = new Set(rows.map((row) => Number(row[0])))
  return migrationsFor(names).filter(({ version }) => !applied.has(version))
}
