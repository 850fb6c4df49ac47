import type { UnhandledPage, UnhandledRequest } from '../../store.js'
import { type Position, pageOver } from '../../unhandled.js'
import { type Condition, knows, not } from './accepts.js'
import { microseconds } from './append.js'
import type { Query } from './driver.js'
import type { Names } from './names.js'
import { NEVER } from './schema.js'

const NOW = 'utc_timestamp(6)'

/** An ordered index scan for each source. Parameters: older than, the position, the limit, the filter, the limit. */
export function unhandledStatements({ events, index }: Names) {
  const page = (from: string, where: string, by: string, end: readonly string[]) => (unknown: Condition) =>
    `
with page as (
  select seq, pending_key, timed_at, event_type, aggregate_type, version,
    status <> 3 and created_at <= ${NOW} - interval ? microsecond as counts
    from ${events} force index (${index}_${from}) where ${where} order by ${by} limit ?
)
select event_type, null, null from page where counts and ${unknown.sql} group by event_type
union all
select null, ${end.join(', ')} from (select * from page order by ${by} limit ?, 1) last`
  return {
    fresh: page('fresh', 'fresh = 1 and seq > ?', 'seq', ['seq', 'null']),
    // Rows that share the moment of the last row of a page are passed over.
    timed: page('timed', `timed_at > cast(? as datetime(6)) and timed_at < ${NEVER}`, 'timed_at', [
      'cast(timed_at as char)',
      'null',
    ]),
    ordered: page('ordered', '(pending_key > ? or (pending_key = ? and seq > ?))', 'pending_key, seq', [
      'pending_key',
      'seq',
    ]),
  }
}

type Statements = ReturnType<typeof unhandledStatements>

export function unhandled(sql: Statements, query: Query, request: UnhandledRequest): Promise<UnhandledPage> {
  const { known, olderThanMs, limit, after } = request
  const unknown = not(knows(known))
  const source = (of: Statements['fresh'], start: Position, where: (from: Position) => Position) => ({
    start,
    async read(from: Position) {
      const params = [microseconds(olderThanMs), ...where(from), String(limit)]
      const { rows } = await query(of(unknown), [...params, ...unknown.params, String(limit - 1)])
      const end = rows.find((row) => row[0] === null)
      return {
        eventTypes: rows.flatMap((row) => (row[0] === null ? [] : [row[0] as string])),
        end: end ? end.slice(1).flatMap((value) => (value === null ? [] : [String(value)])) : null,
      }
    },
  })
  return pageOver(
    [
      source(sql.fresh, [0], (from) => from),
      source(sql.timed, ['1000-01-01 00:00:00'], (from) => from),
      source(sql.ordered, ['', 0], ([key = '', seq = 0]) => [key, key, seq]),
    ],
    after,
  )
}
