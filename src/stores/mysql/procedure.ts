import { MAX_DELAY_MS, MAX_HEADERS, MAX_METADATA, MAX_NAME } from '../../core/checks.js'
import { MAX_EVENT_ID } from '../../core/event-id.js'
import { MAX_NUMBER } from '../../core/json-number.js'
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
 * `payload_size`, which strict mode refuses with an error that quotes the message. `payload_size` is the first column of the
 * INSERT, so no other column is refused before.
 *
 * Procedures keep the `sql_mode`, the character set and the collation of the session that creates them, so the statements set
 * the mode, and `inUtf8mb4()` sets the other two. With latin1, JSON functions and regular expressions would convert their texts, and lose most characters.
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

/** Runs statements with the character set and the collation that a procedure should keep. */
export function inUtf8mb4(sql: string): string {
  return `
set @aftercommit_client = @@session.character_set_client, @aftercommit_collation = @@session.collation_connection;
set session character_set_client = utf8mb4, collation_connection = utf8mb4_unicode_ci;
${sql.trim()}
set session character_set_client = @aftercommit_client, collation_connection = @aftercommit_collation;`
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

/** An expression for MySQL and another one for MariaDB. Neither may hold a comment. */
const perServer = (mysql: string, mariadb: string) => `/*!80000 ${mysql} */ /*M!100103 ${mariadb} */`

const SPACE = '[\\\\x20\\\\t\\\\n\\\\r]*+'
const ESCAPE =
  '\\\\\\\\(?:["\\\\\\\\/bfnrt]|u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD](?:[0-7][0-9a-fA-F]{2}|[89abAB][0-9a-fA-F]{2}\\\\\\\\u[dD][c-fC-F][0-9a-fA-F]{2})))'
const STRING = `"(?:[^"\\\\\\\\\\\\x00-\\\\x1f]++|${ESCAPE})*+"`
const NUMBER = '-?(?:0|[1-9][0-9]*+)(?:\\\\.[0-9]++)?+(?:[eE][-+]?[0-9]++)?+'
const MEMBER = `${SPACE}(?&s)${SPACE}:(?&v)`
/**
 * Grammar of JSON, without surrogates that have no other half. MariaDB has regular expressions with recursion. Its
 * `json_valid()` rejects more than 31 levels, and accepts `1e`, `1.`, `-` and any escaped character. An expression with
 * recursion takes time quadratic in the number of levels, so it is for texts of known depth only.
 */
const JSON_TEXT = `^(?<v>(?>${SPACE}(?:(?<s>${STRING})|${NUMBER}|true|false|null|\\\\[(?:${SPACE}\\\\]|(?&v)(?:,(?&v))*+\\\\])|\\\\{(?:${SPACE}\\\\}|${MEMBER}(?:,${MEMBER})*+\\\\}))${SPACE}))\\\\z`

const ANY_STRING = '"(?:[^"\\\\\\\\]++|\\\\\\\\.)*+"'
const WITHIN = `(?:[^][{}"]++|${ANY_STRING}|(?&c))*+`
/** A member of a JSON object: its name, and its value unless that is an object or an array. */
const PAIR = `(${ANY_STRING})${SPACE}:${SPACE}(?:(${ANY_STRING}|[^][{}",\\\\x20\\\\t\\\\n\\\\r]++)|(?<c>\\\\{${WITHIN}\\\\}|\\\\[${WITHIN}\\\\]))`

/** `json_valid()` of MySQL 9.7 ends at a NUL character, whatever comes after it. NUL is never part of JSON text. */
const hasNoNull = (text: string) => `instr(${text}, char(0)) = 0`

/** Whether the text is a JSON object. Neither headers nor metadata are nested, so `json_valid()` comes first. */
const isObject = (json: string) =>
  `json_valid(${json}) and json_type(${json}) = 'OBJECT' ${perServer(`and ${hasNoNull(json)}`, `and ${json} regexp '${JSON_TEXT}'`)}`

/**
 * A table of the members of a JSON object. On MariaDB, `k` is the name and `v` the last value of that name. JSON functions of
 * MariaDB return the first value, and do not find a name that is written with escapes. The value of a nested object or array
 * is null. On MySQL, both columns hold the items of the array `rows`, because MySQL has no function for names with values.
 */
function members(json: string, rows: string, exact: string): string {
  const pairs = `regexp_replace(regexp_replace(${json}, '${PAIR}', '[\\\\1,[\\\\2]]'), '^${SPACE}\\\\{|\\\\}${SPACE}\\\\z', '')`
  const isReadable = `octet_length(${json}) <= ${MAX_PAYLOAD_BYTES} and json_valid(${json}) and json_type(${json}) = 'OBJECT'`
  const table = perServer(
    `json_table(${rows}`,
    `(select k, v from (select k, v, row_number() over (partition by k order by o desc) as r
          from json_table(if(${isReadable}, concat('[', ${pairs}, ']'), '[]')`,
  )
  return `${table}, '$[*]' columns (${perServer('', 'o for ordinality,')} k longtext ${exact}
          path ${perServer(`'$', v json path '$'`, `'$[0]', v json path '$[1][0]'`)})) ${perServer('', 'p) d where r = 1)')} n`
}

const keysOf = (json: string, exact: string) => members(json, `json_keys(${json})`, exact)
const valuesOf = (json: string, exact: string) => members(json, `json_extract(${json}, '$.*')`, exact)
/** The value of the name in `k`, next to `keysOf()`. */
const memberOf = (json: string) => perServer(`json_extract(${json}, concat('$.', json_quote(k)))`, 'v')

/**
 * The conditions look at all values at once. A value is looked up by its name only for the message, because each lookup
 * parses the whole text.
 */
function headersProblem({ name, headers }: ReturnType<typeof refusals>, exact: string): string {
  const keys = keysOf('headers', exact)
  const values = valuesOf('headers', exact)
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
          `coalesce(json_type(${memberOf('headers')}), '') <> 'STRING'`,
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
  const type = `coalesce(json_type(${value}), 'OBJECT')`
  const problem = `case when k not in (${METADATA_FIELDS.map((field) => `'${field}'`).join(', ')}) then ${text(metadata.unknown, unknown)}
          when ${type} = 'NULL' then null
          when ${type} = 'BOOLEAN' then ${text(metadata.boolean, shown)}
          when ${type} in ('OBJECT', 'ARRAY') then ${text(metadata.object, shown)}
          when ${type} <> 'STRING' then ${text(metadata.number, shown)}
          when ${units(plain)} > ${MAX_METADATA} then ${text(metadata.long, shown)}
          when ${isUnclean(plain)} then ${text(metadata.unclean, shown)} end`
  return `case when not ${given('metadata')} then null
      when not (${isObject('metadata')}) then ${text(metadata.noObject)}
      else (select ${problem} from ${keysOf('metadata', exact)} where ${problem} is not null limit 1) end`
}

// These patterns look at numbers with a comma in front of each, so that a search starts at commas only.
/** Negative zero, which would come back as zero. */
const NEGATIVE_ZERO = ',-0(?:\\\\.0*+)?+(?:[eE][-+]?[0-9]++)?+(?![0-9.eE])'
/** Numbers that a double may not keep. Those without an exponent and with at most 15 digits are kept. */
const SUSPICIOUS = ',-?(?:[0-9.]{16}|[0-9.]++[eE])'
/** A zero that `json_valid()` of MySQL rejects because of its exponent. */
const LARGE_ZERO = '-?0(?:[.]0++)?+[eE][+]?[0-9]{3,}+'
const ESCAPED_NULL = '(?<!\\\\\\\\)(?:\\\\\\\\\\\\\\\\)*+\\\\\\\\u0000'

/** Leading digits of half the distance above the largest double, which is `0.17… * 10^309`. Larger numbers become Infinity. */
const INFINITE = '179769313486231580793'
/** Leading digits of 2^-1075, which is `0.24… * 10^-323`. Smaller numbers become 0. */
const ZERO = '247032822920623272083'

/**
 * Finds out what `numberProblem()` of core does: 1 if the number in the column `t` is outside the range of a double, 2 if it
 * is too long, 3 if it has other digits than the shortest decimal of its double, and null otherwise. Texts that are no
 * numbers are null too.
 *
 * The number is taken apart as text into `0.d * 10^e`, because a cast of a number outside the range fails.
 * `cast(double as char)` of MySQL loses the last digit of small numbers, and the text of a JSON number does not.
 */
function numberProblem(): string {
  const mantissa = `substring_index(t, 'e', 1)`
  const all = `replace(replace(${mantissa}, '.', ''), '-', '')`
  const d = `trim(both '0' from ${all})`
  const written = `if(instr(t, 'e') > 0, substring_index(t, 'e', -1), '')`
  const size = `cast(concat('0', left(trim(leading '0' from replace(replace(${written}, '-', ''), '+', '')), 6)) as signed)`
  const point = `char_length(replace(substring_index(${mantissa}, '.', 1), '-', ''))`
  const zeros = `(char_length(${all}) - char_length(trim(leading '0' from ${all})))`
  const e = `(if(left(${written}, 1) = '-', -1, 1) * ${size} + ${point} - ${zeros})`
  const double = `cast(concat('0.', ${d}, 'e', ${e}) as double)`
  const printed = perServer(`cast(cast(${double} as json) as char)`, `cast(${double} as char)`)
  return `case when t is null or not (t regexp '^-?[0-9]++(?:[.][0-9]++)?+(?:e[-+]?[0-9]++)?+$') then null
              when ${d} = '' then if(char_length(t) > ${MAX_NUMBER}, 2, null)
              when ${e} > 309 or ${e} < -323 or (${e} = 309 and ${d} >= '${INFINITE}') or (${e} = -323 and ${d} < '${ZERO}') then 1
              when char_length(t) > ${MAX_NUMBER} then 2
              when (char_length(${d}) > 15 or ${e} < -306)
                and ${d} <> trim(both '0' from replace(substring_index(${printed}, 'e', 1), '.', '')) then 3 end`
}

/**
 * The payload is scanned with regular expressions as far as they can go. Longer payloads are checked when a worker reads
 * them. MySQL's own JSON functions reject deeper nesting of long payloads with an error. Regular expressions of MariaDB have
 * no limit of time, so MariaDB checks the nesting of long payloads too.
 */
function payloadProblem(refuse: ReturnType<typeof refusals>['payload'], exact: string): string {
  const tokens = `json_table(concat('["', replace(trim(both ',' from lower(s)), ',', '","'), '"]'),
            '$[*]' columns (t longtext ${exact} path '$')) n`
  const numbers = `concat(',', regexp_replace(${withoutStrings(CONTENT)}, '[^-+0-9.eE]+', ','))`
  const hasEscapes = `instr(${CONTENT}, '\\\\') > 0`
  // MariaDB evaluates the derived table for long payloads too.
  const numbersOfShort = `if(char_length(${CONTENT}) > ${MOST_SCANNED}, '', ${numbers})`
  const isTooDeep = `char_length(${CONTENT}) - char_length(replace(replace(${CONTENT}, '[', ''), '{', '')) > ${MAX_PAYLOAD_DEPTH}
        and ${isDeep(`regexp_replace(${withoutStrings(CONTENT)}, '[^\\\\[\\\\]{}]', '')`)}`
  const withSmallZeros = `if(s regexp ',${LARGE_ZERO}', regexp_replace(${CONTENT}, '(?<![\\\\w.\\\\\\\\+-])${LARGE_ZERO}', '0'), ${CONTENT})`
  const isJson = `${CONTENT} regexp '${JSON_TEXT}'`
  return `case when octet_length(${CONTENT}) > ${MAX_PAYLOAD_BYTES} then ${text(refuse.large)}
      when ${perServer(`char_length(${CONTENT}) <= ${MOST_SCANNED} and`, '')} ${isTooDeep} then ${text(refuse.deep)}
      when char_length(${CONTENT}) > ${MOST_SCANNED}
        then case when not (${perServer(`json_valid(${CONTENT}) and ${hasNoNull(CONTENT)}`, isJson)}) then ${text(refuse.noJson)} end
      else (select coalesce(
          case when s regexp '${SUSPICIOUS}' then elt((select min(${numberProblem()}) from ${tokens}),
            ${text(refuse.number)}, ${text(refuse.long)}, ${text(refuse.digits)}) end,
          case when not (${perServer(`json_valid(${withSmallZeros}) and ${hasNoNull(CONTENT)}`, isJson)}) then ${text(refuse.noJson)}
            when ${hasEscapes} and ${CONTENT} regexp '${ESCAPED_NULL}' then ${text(refuse.unclean)}
            when s regexp '${NEGATIVE_ZERO}' then ${text(refuse.negativeZero)} end)
        from (select ${numbersOfShort} as s) numbers) end`
}

/** Each replacement removes the innermost level of brackets; what is left after all of them is deeper. */
function isDeep(brackets: string): string {
  const square = `replace(replace(${brackets}, '{', '['), '}', ']')`
  return `${'replace('.repeat(MAX_PAYLOAD_DEPTH)}${square}${", '[]', '')".repeat(MAX_PAYLOAD_DEPTH)} <> ''`
}
