import { MAX_DELAY_MS, MAX_HEADERS, MAX_METADATA, MAX_NAME } from '../../core/checks.js'
import { MAX_EVENT_ID } from '../../core/event-id.js'
import { METADATA_FIELDS } from '../../core/metadata.js'
import { MAX_PAYLOAD_BYTES, MAX_PAYLOAD_DEPTH } from '../../core/payload-limits.js'
import { EVENT_TYPE, HEADER, METADATA_FIELD, refusals, UNKNOWN_FIELD } from '../../core/refusals.js'
import type { Names } from './names.js'

/**
 * Longest payload, in characters, that regular expressions look at. MySQL 9.7 ends an expression with an error after
 * `regexp_time_limit` steps. With the default of 32 the worst payload found ends the worst expression at 86,000 characters.
 */
const MOST_SCANNED = 50_000
/** JSON text of the largest headers if every character is escaped, with some room for names. */
const MOST_HEADER_TEXT = 8 * MAX_HEADERS
/** Both servers cut a message at 128 characters, and the reason stands behind the type. */
const SHOWN_TYPE = 30

const CONTENT = `coalesce(payload, 'null')`
/** JSON null counts as absent. */
const given = (json: string) => `(${json} is not null and trim(${json}) <> 'null')`

/**
 * Publishes for writers in any language. docs/table-contract.md describes the parameters.
 *
 * The body is a single statement, so that tools which split SQL at semicolons can create the procedure without DELIMITER. A
 * single statement cannot contain SIGNAL. Instead, the message of a refused event is assigned to the integer column
 * `payload_size`, which strict mode refuses with an error that quotes the message. Procedures keep the `sql_mode` of their
 * creation. `payload_size` is the first column of the INSERT, so no other column is refused before.
 *
 * MariaDB can replace a procedure and keeps its grants. On MySQL they are lost once, when an earlier version is replaced.
 */
export function publishProcedure({ publish, events }: Names, exact: string): string {
  const refuse = refusals()
  const problems = [
    nameProblem('event_type', refuse.name('eventType'), MAX_NAME, true),
    nameProblem('event_id', refuse.eventId, MAX_EVENT_ID),
    nameProblem('aggregate_type', refuse.name('aggregateType')),
    nameProblem('aggregate_id', refuse.name('aggregateId')),
    nameProblem('tenant_id', refuse.name('tenantId')),
    nameProblem('ordering_key', refuse.name('orderingKey')),
    `case when version < 1 then ${text(refuse.version)} end`,
    `case when delay_ms not between 0 and ${MAX_DELAY_MS} then ${text(refuse.delayMs)} end`,
    headersProblem(refuse, exact),
    metadataProblem(refuse.metadata, exact),
    payloadProblem(refuse.payload, exact),
  ]
  const shownType = `json_quote(concat(left(event_type, ${SHOWN_TYPE}), if(char_length(event_type) > ${SHOWN_TYPE}, '...', '')))`
  return `
set @aftercommit_sql_mode = @@session.sql_mode;
set session sql_mode = 'STRICT_ALL_TABLES';
/*!80000 drop procedure if exists ${publish} */ /*M!100103 do 0 */;
create /*M!100103 or replace */ procedure ${publish}(
  event_type longtext ${exact},
  payload longtext ${exact},
  aggregate_type longtext ${exact},
  aggregate_id longtext ${exact},
  event_id longtext ${exact},
  ordering_key longtext ${exact},
  tenant_id longtext ${exact},
  version int,
  headers longtext ${exact},
  metadata longtext ${exact},
  delay_ms double
) modifies sql data sql security invoker
insert into ${events} (payload_size, event_id, event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version,
  payload, headers, metadata, available_at)
values (coalesce(replace(coalesce(
    ${problems.join(',\n    ')}),
    '${EVENT_TYPE}', coalesce(${shownType}, '""')), octet_length(${CONTENT})),
  coalesce(event_id, cast(uuid() as char)), event_type, coalesce(aggregate_type, '__GLOBAL__'), aggregate_id, tenant_id,
  ordering_key, coalesce(version, 1), ${CONTENT}, if(${given('headers')}, headers, null), if(${given('metadata')}, metadata, null),
  utc_timestamp(6) + interval coalesce(delay_ms, 0) * 1000 microsecond);
set session sql_mode = @aftercommit_sql_mode;`
}

/** A message as an SQL expression, with names inserted. */
function text(message: string, names: Readonly<Record<string, string>> = {}): string {
  let sql = `'${message.replaceAll("'", "''")}'`
  for (const [placeholder, value] of Object.entries(names))
    sql = sql.replaceAll(placeholder, () => `', ${value}, '`)
  return Object.keys(names).length === 0 ? sql : `concat(${sql})`
}

/** JavaScript counts UTF-16 units. */
const units = (value: string) => `octet_length(convert(${value} using utf16)) / 2`

const isUnclean = (value: string) => `${value} regexp '[\\\\x00-\\\\x1f\\\\x7f-\\\\x{9f}]'`

interface NameRefusals {
  readonly missing?: string
  readonly empty: string
  readonly long: string
  readonly unclean: string
}

function nameProblem(value: string, refuse: NameRefusals, max = MAX_NAME, isRequired = false): string {
  const missing = isRequired && refuse.missing ? `when ${value} is null then ${text(refuse.missing)} ` : ''
  return `case ${missing}when ${value} = '' then ${text(refuse.empty)} when ${units(value)} > ${max} then ${text(refuse.long)}
      when ${isUnclean(value)} then ${text(refuse.unclean)} end`
}

/** JSON text without the contents of its strings. */
const withoutStrings = (json: string) =>
  `regexp_replace(${json}, '"[^"\\\\\\\\]*+(?:\\\\\\\\.[^"\\\\\\\\]*+)*+"', '""')`

const keysOf = (json: string, exact: string) =>
  `json_table(json_keys(${json}), '$[*]' columns (k longtext ${exact} path '$')) n`
const memberOf = (json: string) => `json_extract(${json}, concat('$.', json_quote(k)))`

/** Whether valid JSON text is an object. */
const isObject = (json: string) => `json_valid(${json}) and json_type(${json}) = 'OBJECT'`

/**
 * The conditions look at all values at once. A value is looked up by its name only for the message, because each lookup
 * parses the whole text.
 */
function headersProblem({ name, headers }: ReturnType<typeof refusals>, exact: string): string {
  const keys = keysOf('headers', exact)
  const values = `json_table(json_extract(headers, '$.*'), '$[*]' columns (v json path '$')) w`
  const first = (condition: string, message: string) =>
    `(select ${message} from ${keys} where ${condition} limit 1)`
  const anyValue = (condition: string) => `exists (select 1 from ${values} where ${condition})`
  const names = name('header name')
  const shown = { [HEADER]: 'json_quote(k)' }
  return `case when not ${given('headers')} then null
      when octet_length(headers) > ${MOST_HEADER_TEXT} then ${text(headers.large)}
      when not (${isObject('headers')}) then ${text(headers.noObject)}
      else coalesce(
        ${first(`${nameProblem('k', names)} is not null`, nameProblem('k', names))},
        case when ${anyValue(`coalesce(json_type(v), '') <> 'STRING'`)} then coalesce(${first(
          `json_type(${memberOf('headers')}) <> 'STRING'`,
          text(headers.noString, shown),
        )}, ${text(headers.noObject)}) end,
        case when instr(headers, '\\\\u0000') > 0 and ${anyValue('instr(json_unquote(v), char(0)) > 0')} then ${first(
          `instr(json_unquote(${memberOf('headers')}), char(0)) > 0`,
          text(headers.unclean, shown),
        )} end,
        case when octet_length(headers) > ${MAX_HEADERS} and (select sum(${units('k')}) from ${keys})
          + (select sum(${units('json_unquote(v)')}) from ${values}) > ${MAX_HEADERS}
          then ${text(headers.large)} end) end`
}

function metadataProblem(metadata: ReturnType<typeof refusals>['metadata'], exact: string): string {
  const shown = { [METADATA_FIELD]: 'k' }
  const unknown = {
    [UNKNOWN_FIELD]: `if(k regexp '^[A-Za-z_$][A-Za-z0-9_$]{0,39}$', k, json_quote(left(k, 40)))`,
  }
  const value = memberOf('metadata')
  const plain = `json_unquote(${value})`
  const problem = `case when k not in (${METADATA_FIELDS.map((field) => `'${field}'`).join(', ')}) then ${text(metadata.unknown, unknown)}
          when json_type(${value}) = 'NULL' then null
          when json_type(${value}) = 'BOOLEAN' then ${text(metadata.boolean, shown)}
          when json_type(${value}) in ('OBJECT', 'ARRAY') then ${text(metadata.object, shown)}
          when json_type(${value}) <> 'STRING' then ${text(metadata.number, shown)}
          when ${units(plain)} > ${MAX_METADATA} then ${text(metadata.long, shown)}
          when ${isUnclean(plain)} then ${text(metadata.unclean, shown)} end`
  return `case when not ${given('metadata')} then null
      when not (${isObject('metadata')}) then ${text(metadata.noObject)}
      else (select ${problem} from ${keysOf('metadata', exact)} where ${problem} is not null limit 1) end`
}

// These patterns look at numbers with a comma in front of each, so that a search starts at commas only.
/** An exponent that no double has, or as many digits. */
const OUT_OF_RANGE =
  ',-?(?:[0-9]{310}|[0-9.]++[eE](?:\\\\+?0*+(?:[1-9][0-9]{3}|[4-9][0-9]{2}|3[1-9][0-9]|309)|-0*+(?:[1-9][0-9]{3}|[4-9][0-9]{2}|3[3-9][0-9]|32[5-9])))'
/** Negative zero, which would come back as zero. */
const NEGATIVE_ZERO = ',-0(?:\\\\.0*+)?+(?:[eE][-+]?[0-9]++)?+(?![0-9.eE])'
/** Numbers that may have more digits than a double keeps. */
const MANY_DIGITS = ',-?(?:[0-9.]{16}|[0-9.]++[eE])'
/** Numbers that may be a little too large. MariaDB takes them for valid JSON, and fails when it casts them. */
const CLOSE_TO_MAX = '[eE]\\\\+?0*30[89]$'
/** MariaDB 10.11 takes a number that ends with a point, and any escaped character, for JSON. */
const OPEN_POINT = '[.](?![0-9])'
const escaped = (what: string) => `(?<!\\\\\\\\)(?:\\\\\\\\\\\\\\\\)*+\\\\\\\\${what}`
const UNKNOWN_ESCAPE = escaped('[^"\\\\\\\\/bfnrtu]')
const ESCAPED_NULL = escaped('u0000')

/** Digits of a number without its sign, point, exponent, and zeros on either side. */
const digitsOf = (number: string) =>
  `trim(both '0' from replace(replace(regexp_replace(${number}, '[eE].*$', ''), '.', ''), '-', ''))`

/**
 * The payload is scanned with regular expressions as far as they can go. Longer payloads are checked when a worker reads
 * them. The server's own JSON functions reject deeper nesting too, MySQL with an error and MariaDB as invalid.
 */
function payloadProblem(refuse: ReturnType<typeof refusals>['payload'], exact: string): string {
  const tokens = `json_table(concat('["', replace(trim(both ',' from s), ',', '","'), '"]'),
            '$[*]' columns (t varchar(1100) ${exact} path '$')) n`
  const shortest = `cast(cast(t as double) as char character set utf8mb4)`
  const numbers = `concat(',', regexp_replace(${withoutStrings(CONTENT)}, '[^-+0-9.eE]+', ','))`
  const hasEscapes = `instr(${CONTENT}, '\\\\') > 0`
  // MariaDB evaluates the derived table for long payloads too.
  const numbersOfShort = `if(char_length(${CONTENT}) > ${MOST_SCANNED}, '', ${numbers})`
  const isChanged = `t is null or ((char_length(${digitsOf('t')}) > 15 or t regexp '${CLOSE_TO_MAX}')
              and ${digitsOf('t')} <> ${digitsOf(shortest)})`
  return `case when octet_length(${CONTENT}) > ${MAX_PAYLOAD_BYTES} then ${text(refuse.large)}
      when char_length(${CONTENT}) > ${MOST_SCANNED} then case when not json_valid(${CONTENT}) then ${text(refuse.noJson)} end
      when char_length(${CONTENT}) - char_length(replace(replace(${CONTENT}, '[', ''), '{', '')) > ${MAX_PAYLOAD_DEPTH}
        and ${isDeep(`regexp_replace(${withoutStrings(CONTENT)}, '[^\\\\[\\\\]{}]', '')`)} then ${text(refuse.deep)}
      else (select case when s regexp '${OUT_OF_RANGE}' then ${text(refuse.number)}
          when not json_valid(${CONTENT}) or s regexp '${OPEN_POINT}'
            or (${hasEscapes} and ${CONTENT} regexp '${UNKNOWN_ESCAPE}') then ${text(refuse.noJson)}
          when ${hasEscapes} and ${CONTENT} regexp '${ESCAPED_NULL}' then ${text(refuse.unclean)}
          when s regexp '${NEGATIVE_ZERO}' then ${text(refuse.negativeZero)}
          when s regexp '${MANY_DIGITS}' 
            and exists (select 1 from ${tokens} where ${isChanged}) then ${text(refuse.digits)} end
        from (select ${numbersOfShort} as s) numbers) end`
}

/** Each replacement removes the innermost level of brackets; what is left after all of them is deeper. */
function isDeep(brackets: string): string {
  const square = `replace(replace(${brackets}, '{', '['), '}', ']')`
  return `${'replace('.repeat(MAX_PAYLOAD_DEPTH)}${square}${", '[]', '')".repeat(MAX_PAYLOAD_DEPTH)} <> ''`
}
