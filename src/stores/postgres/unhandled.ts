import type { UnhandledPage, UnhandledRequest } from '../../store.js'
import { type Position, pageOver } from '../../unhandled.js'
import { accepts, knownParams } from './accepts.js'
import { type Query, type Statement, statement } from './driver.js'
import type { Names } from './names.js'
import { FRESH, ORDERED, TIMED } from './schema.js'

/** Microseconds since 1970 as text: neither the session's time zone nor a floating-point number changes them. */
const micros = (column: string) => `(extract(epoch from ${column}) * 1000000)::bigint::text`
const moment = (n: number) => `timestamptz 'epoch' + ($${n}::bigint / 1000000) * interval '1 second'
      + ($${n}::bigint % 1000000) * interval '1 microsecond'`

/** An ordered index scan for each source. $1 limit, $2 older than ms, $3–$6 filter, from $7 on the position. */
export function unhandledStatements({ events }: Names) {
  const page = (where: string, by: string, end: readonly string[]) =>
    statement(`
with page as materialized (
  select seq, ordering_key, available_at, event_type, aggregate_type, version,
    status <> 3 and created_at <= now() - $2::float8 * interval '1 ms' as counts
    from ${events} where ${where} order by ${by} limit $1::int
)
select left(event_type, 255), null, null from page where counts and not (${accepts(3)}) group by 1
union all
select null, ${end.join(', ')} from (select * from page order by ${by} offset $1::int - 1) last`)
  return {
    fresh: page(`${FRESH} and seq > $7::bigint`, 'seq', ['seq::text', 'null']),
    // Rows that share the moment of the last row of a page are passed over.
    timed: page(`${TIMED} and available_at > ${moment(7)} and available_at < 'infinity'`, 'available_at', [
      micros('available_at'),
      'null',
    ]),
    ordered: page(`${ORDERED} and (ordering_key, seq) > ($7::text, $8::bigint)`, 'ordering_key, seq', [
      'ordering_key',
      'seq::text',
    ]),
  }
}

type Statements = ReturnType<typeof unhandledStatements>

export function unhandled(sql: Statements, query: Query, request: UnhandledRequest): Promise<UnhandledPage> {
  const { known, olderThanMs, limit, after } = request
  const params = [limit, olderThanMs, ...knownParams(known)]
  const source = (of: Statement, start: Position) => ({
    start,
    async read(from: Position) {
      const rows = await query(of, [...params, ...from])
      const end = rows.find((row) => row[0] === null)
      return {
        eventTypes: rows.flatMap((row) => (row[0] === null ? [] : [row[0] as string])),
        end: end ? (end.slice(1).filter((value) => value !== null) as Position[number][]) : null,
      }
    },
  })
  return pageOver(
    [source(sql.fresh, ['-1']), source(sql.timed, [LONG_AGO]), source(sql.ordered, ['', '-1'])],
    after,
  )
}

/** In microseconds: more than a thousand years before 1970. */
const LONG_AGO = '-50000000000000000'
