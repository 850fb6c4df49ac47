import { MAX_DELAY_MS, MAX_HEADERS, MAX_METADATA, MAX_NAME } from '../../core/checks.js'
import { MAX_EVENT_ID } from '../../core/event-id.js'
import { MAX_NUMBER } from '../../core/json-number.js'
import { METADATA_FIELDS } from '../../core/metadata.js'
import { MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH } from '../../core/payload-limits.js'
import { EVENT_TYPE, HEADER, METADATA_FIELD, refusals, UNKNOWN_FIELD } from '../../core/refusals.js'
import { type Names, qualifiedNames } from './names.js'

/** Stands for the quoted schema and the dot behind it, until the migration runs. */
const SCHEMA = '\x01'

interface Routine {
  /** Name, parameters and result. */
  readonly signature: string
  /** Settings besides the search_path. */
  readonly settings?: string
  readonly body: string
}

/**
 * Creates the functions again, with qualified names and a `search_path` that no caller can influence. PostgreSQL searches
 * `pg_temp` first unless the path lists it, so a caller's temporary tables could take the place of the outbox tables.
 *
 * Without the `schema` option the functions go into the schema that holds the events table when the migration runs.
 * `format()` and `quote_literal()` insert its name, which may contain any character. `fresh` is the predicate of rows that
 * were never tried.
 */
export function functions(names: Names, fresh: string): string {
  const home =
    names.schema === null
      ? `(select n.nspname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.relname = '${names.index}' and c.relkind in ('r', 'p') and c.relpersistence <> 't'
      and n.nspname = any(current_schemas(false))
    order by array_position(current_schemas(false), n.nspname) limit 1)`
      : `'${names.schema}'`
  const own = { ...names, ...qualifiedNames(names.index, SCHEMA) }
  const routines = [rangesTaken(own), takeRange(own, fresh), publish(own)]
  return `
do $migration$
declare
  home text := ${home};
  name text := quote_ident(home) || '.';
  name_in_literal text := replace(name, '''', '''''');
begin
  if home is null then
    raise exception 'aftercommit: no table "${names.index}" in the search_path' using errcode = '42P01';
  end if;
${routines.map(creation).join('\n')}
end $migration$;`
}

function creation({ signature, settings = '', body }: Routine): string {
  const create = `create or replace function ${signature} language plpgsql set search_path = pg_catalog, pg_temp ${settings}as `
  return `  execute format($sql$${formatted(create)}$sql$, name) || quote_literal(format($sql$${formatted(body)}$sql$, name, name_in_literal));`
}

/** A template for `format()`: the schema in an identifier is its first argument, the schema in a literal its second. */
function formatted(sql: string): string {
  return sql.replaceAll('%', '%%').replaceAll(`'${SCHEMA}`, `'%2$s`).replaceAll(SCHEMA, '%1$s')
}

/** Key of the advisory lock at which both ways of claiming meet. */
const rangeLock = ({ ranges }: Names) => `(181182::bigint << 32) + '${ranges}'::regclass::oid::bigint`

const IS_NOT_READ_COMMITTED = `current_setting('transaction_isolation') <> 'read committed'`

const activeRanges = ({ ranges }: Names) =>
  `select coalesce(range_agg(int8range(s.first_seq, s.last_seq, '[]')), '{}') from ${ranges} s`

function rangesTaken(names: Names): Routine {
  return {
    signature: `${names.rangesTaken}() returns int8multirange`,
    body: `
begin
  if ${IS_NOT_READ_COMMITTED} then
    raise exception 'aftercommit: claims need READ COMMITTED' using errcode = '25001',
      hint = 'alter role ... set default_transaction_isolation = ''read committed''';
  end if;
  perform pg_advisory_xact_lock_shared(${rangeLock(names)});
  return (${activeRanges(names)});
end `,
  }
}

function takeRange(names: Names, fresh: string): Routine {
  const { ranges, rangeCount, takeRange, events, instances, sequence } = names
  return {
    signature: `${takeRange}(claimer text, from_seq bigint, width bigint, lease_ms float8)
returns table (first_seq bigint, last_seq bigint)`,
    body: `
declare
  others int8multirange;
  low bigint;
  high bigint;
begin
  if ${IS_NOT_READ_COMMITTED} or not pg_try_advisory_xact_lock(${rangeLock(names)}) then
    return;
  end if;
  -- an instance of an older version would not see the range
  if exists (select 1 from ${instances} i where not i.ranges and i.stopped_at is null and i.pid > 0
      and i.last_seen_at > clock_timestamp() - interval '2 minutes') then
    return;
  end if;
  others := (${activeRanges(names)});
  low := (select e.seq from ${events} e where ${fresh} and e.seq >= from_seq and e.locked_until is null
    and not e.seq <@ others order by e.seq limit 1);
  if low is null or low + 2 * width > (select s.last_value from ${sequence} s) then
    return;
  end if;
  high := least(low + width - 1, (select min(s.first_seq) - 1 from ${ranges} s where s.first_seq > low));
  perform nextval('${rangeCount}'::regclass);
  insert into ${ranges} values (claimer, low, high, clock_timestamp() + lease_ms * interval '1 ms');
  return query select low, high;
end `,
  }
}

/** Publishes for writers in any language. docs/table-contract.md describes the parameters. */
function publish({ publish, events, sequence, channel }: Names): Routine {
  const refuse = refusals()
  const { eventId } = refuse
  return {
    signature: `${publish}(
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
) returns text`,
    settings: 'set extra_float_digits = 1 ',
    body: `
#variable_conflict use_variable
declare
  -- a variable has the collation of the arguments unless it declares one, and that may be a nondeterministic one
  event_type text collate "C" := event_type;
  aggregate_type text collate "C" := aggregate_type;
  aggregate_id text collate "C" := aggregate_id;
  ordering_key text collate "C" := ordering_key;
  tenant_id text collate "C" := tenant_id;
  id text collate "C" := coalesce(event_id, gen_random_uuid()::text);
  content text collate "C" := coalesce(payload, 'null')::text;
  headers jsonb := nullif(headers, 'null');
  metadata jsonb := nullif(metadata, 'null');
  problem text collate "C";
begin
  problem := coalesce(
    case when event_type is null then ${text(refuse.name('eventType').missing)} end,
    ${nameProblem('event_type', refuse.name('eventType'))},
    ${nameProblem('id', eventId, MAX_EVENT_ID)},
    ${nameProblem('aggregate_type', refuse.name('aggregateType'))},
    ${nameProblem('aggregate_id', refuse.name('aggregateId'))},
    ${nameProblem('tenant_id', refuse.name('tenantId'))},
    ${nameProblem('ordering_key', refuse.name('orderingKey'))},
    case when version < 1 then ${text(refuse.version)} end,
    case when delay_ms not between 0 and ${MAX_DELAY_MS} then ${text(refuse.delayMs)} end,
    case when jsonb_typeof(headers) <> 'object' then ${text(refuse.headers.noObject)} end,
    case when jsonb_typeof(metadata) <> 'object' then ${text(refuse.metadata.noObject)} end,
    ${payloadProblem(refuse.payload)});
  if problem is null and headers is not null then
    problem := (${headersProblem(refuse)});
  end if;
  if problem is null and metadata is not null then
    problem := (${metadataProblem(refuse.metadata)});
    metadata := jsonb_strip_nulls(metadata);
  end if;
  -- shorter numbers are exact, and jsonb writes an exponent as zeros
  if problem is null and content ~ '[0-9.]{16}' then
    problem := (${numberProblem(refuse.payload)});
  end if;
  if problem is not null then
    raise exception using errcode = '22023', message = replace(problem, '${EVENT_TYPE}',
      to_json(left(coalesce(event_type, ''), 80) || case when length(event_type) > 80 then '...' else '' end)::text);
  end if;
  insert into ${events} (event_id, event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload,
    payload_size, headers, metadata, available_at)
  values (id, event_type, coalesce(aggregate_type, '__GLOBAL__'), aggregate_id, tenant_id, ordering_key,
    coalesce(version, 1), content::json, octet_length(content), headers::json, metadata::json,
    statement_timestamp() + coalesce(delay_ms, 0) * interval '1 ms');
  perform pg_notify('${channel}', case
    when delay_ms > 0 then '' when ordering_key is not null then 'ordered' else currval('${sequence}'::regclass)::text end);
  return id;
end `,
  }
}

/** A message as an SQL expression, with names inserted. The event type is inserted when the message is raised. */
function text(message: string, names: Readonly<Record<string, string>> = {}): string {
  let sql = `'${message.replaceAll("'", "''")}'`
  for (const [placeholder, value] of Object.entries(names))
    sql = sql.replaceAll(placeholder, () => `' || ${value} || '`)
  return sql
}

/** JavaScript counts UTF-16 units: two for each character beyond U+FFFF. Most texts are short enough in bytes. */
function isLonger(value: string, max: number): string {
  return `octet_length(${value}) > ${max} and length(${value}) + length(regexp_replace(${value}, E'[\\\\u0001-\\\\uffff]', '', 'g')) > ${max}`
}

const isUnclean = (value: string) => `${value} ~ E'[\\\\u0001-\\\\u001f\\\\u007f-\\\\u009f]'`

interface NameRefusals {
  readonly empty: string
  readonly long: string
  readonly unclean: string
}

function nameProblem(
  value: string,
  { empty, long, unclean }: NameRefusals,
  max = MAX_NAME,
  names: Readonly<Record<string, string>> = {},
): string {
  return `case when ${value} = '' then ${text(empty, names)} when ${isLonger(value, max)} then ${text(long, names)}
      when ${isUnclean(value)} then ${text(unclean, names)} end`
}

function headersProblem({ name, headers }: ReturnType<typeof refusals>): string {
  const shown = { [HEADER]: 'to_json(h.key)::text' }
  const units = (value: string) =>
    `length(${value}) + length(regexp_replace(${value}, E'[\\\\u0001-\\\\uffff]', '', 'g'))`
  return `
      select coalesce(
        (select p.problem from jsonb_each(headers) h cross join lateral (select coalesce(
            ${nameProblem('h.key', name('header name'))},
            case when jsonb_typeof(h.value) <> 'string' then ${text(headers.noString, shown)} end) as problem) p
          where p.problem is not null limit 1),
        case when octet_length(headers::text) > ${MAX_HEADERS} and (select sum(${units('h.key')} + ${units('h.value')})
            from jsonb_each_text(headers) h) > ${MAX_HEADERS} then ${text(headers.large)} end)
      where jsonb_typeof(headers) = 'object'`
}

function metadataProblem(metadata: ReturnType<typeof refusals>['metadata']): string {
  const shown = { [METADATA_FIELD]: 'm.key' }
  const unknown = {
    [UNKNOWN_FIELD]: `case when m.key ~ '^[A-Za-z_$][A-Za-z0-9_$]{0,39}$' then m.key else to_json(left(m.key, 40))::text end`,
  }
  return `
      select p.problem from jsonb_each(metadata) m cross join lateral (select case
            when m.key not in (${METADATA_FIELDS.map((field) => `'${field}'`).join(', ')}) then ${text(metadata.unknown, unknown)}
            when jsonb_typeof(m.value) = 'string' then (select case when ${isLonger('v', MAX_METADATA)} then ${text(metadata.long, shown)}
              when ${isUnclean('v')} then ${text(metadata.unclean, shown)} end from (select m.value #>> '{}' as v) s)
            when jsonb_typeof(m.value) = 'number' then ${text(metadata.number, shown)}
            when jsonb_typeof(m.value) = 'boolean' then ${text(metadata.boolean, shown)}
            when jsonb_typeof(m.value) <> 'null' then ${text(metadata.object, shown)} end as problem) p
        where p.problem is not null limit 1`
}

/** A container is nested too deep if it has as many containers around it as are allowed. */
function payloadProblem({ large, deep }: ReturnType<typeof refusals>['payload']): string {
  return `case when octet_length(content) > ${MAX_PAYLOAD_BYTES} then ${text(large)}
      when length(content) > ${2 * MAX_PAYLOAD_DEPTH} and jsonb_path_exists(payload,
        'strict $.**{${MAX_PAYLOAD_DEPTH}} ? (@.type() == "array" || @.type() == "object")') then ${text(deep)} end`
}

/** Half the distance above the largest double: numbers from here on become Infinity. */
const INFINITE = 2n ** 1024n - 2n ** 970n
/** Numbers up to 2^-1075 become 0. The constant is a little larger, so that it has few digits. */
const ZERO = '2.4703282292062327209e-324'

/**
 * Numbers outside of strings that `numberProblem()` of core refuses. JavaScript prints the shortest decimal that reads back
 * as the double, and the closest one of that length. PostgreSQL does the same, but never prints a decimal that lies exactly
 * halfway between two doubles. Such a decimal can be the shortest only if it is an integer between 2^53 and 1e40. There, a
 * number is refused if the printed decimal is another one that is not longer, or if a shorter decimal reads back as the same
 * double.
 *
 * The function pins `extra_float_digits`, so that PostgreSQL prints the shortest decimal.
 */
function numberProblem({ number, long, digits }: ReturnType<typeof refusals>['payload']): string {
  const printed = 't::float8::text::numeric'
  const significant = (value: string) => `length(rtrim(trim_scale(${value})::text, '0'))`
  const unit = `('1' || repeat('0', length(trim_scale(t)::text) - ${significant('t')} + 1))::numeric`
  const shorter = `div(t, ${unit}) * ${unit}`
  const hasShorter = `(${shorter})::float8 = t::float8 or (${shorter} + ${unit})::float8 = t::float8`
  return `
      select p.problem from regexp_matches(regexp_replace(content, E'"(?:[^"\\\\\\\\]|\\\\\\\\.)*"', '""', 'g'), '-?[0-9.]{16,}', 'g') n
        cross join lateral (select abs(n[1]::numeric) as t) v
        cross join lateral (select case
            when t >= ${INFINITE} or (t <> 0 and t < ${ZERO}) then ${text(number)}
            when length(n[1]) > ${MAX_NUMBER} then ${text(long)}
            when t > ${Number.MAX_SAFE_INTEGER} and t < 1e40 then case
              when case when ${printed} = t then ${hasShorter} else ${significant(printed)} <= ${significant('t')} end then ${text(digits)} end
            when ${printed} <> t then ${text(digits)} end as problem) p
        where p.problem is not null limit 1`
}
