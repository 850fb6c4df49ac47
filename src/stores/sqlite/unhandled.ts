import type { UnhandledPage, UnhandledRequest } from '../../store.js'
import { type Position, pageOver } from '../../unhandled.js'
import { ACCEPTED, JOIN_NAMES, knownParams, WITH_NAMES } from './accepts.js'
import type { Connections } from './connections.js'
import type { SqliteDatabase } from './driver.js'
import type { Names } from './names.js'
import { FRESH, indexesOf, NEVER, NOW, ORDERED, TIMED } from './schema.js'

/** An ordered index scan for each source. */
export function unhandledStatements(names: Names) {
  const index = indexesOf(names)
  const page = (by: string, where: string, order: string, end: string) => `
with ${WITH_NAMES}, page as materialized (
  select seq, ordering_key, available_at, event_type, aggregate_type, version,
    status <> 3 and created_at <= ${NOW} - :olderThanMs as counts
    from ${names.events} indexed by ${by} where ${where} order by ${order} limit :limit + 0
)
select substr(e.event_type, 1, 255), null, null from page e ${JOIN_NAMES} where e.counts and not (${ACCEPTED}) group by 1
union all
select null, ${end} from (select * from page order by ${order} limit 1 offset :limit - 1)`
  return {
    fresh: page(index.fresh, `${FRESH} and seq > :a`, 'seq', 'seq, null'),
    // Rows that share the moment of the last row of a page are passed over.
    timed: page(
      index.timed,
      `${TIMED} and available_at > :a and available_at < ${NEVER}`,
      'available_at',
      'available_at, null',
    ),
    ordered: page(
      index.ordered,
      `${ORDERED} and (ordering_key, seq) > (:a, :b)`,
      'ordering_key, seq',
      'ordering_key, seq',
    ),
  }
}

type Statements = ReturnType<typeof unhandledStatements>

export function unhandled(
  sql: Statements,
  connections: Connections<SqliteDatabase>,
  request: UnhandledRequest,
): Promise<UnhandledPage> {
  const { known, olderThanMs, limit, after } = request
  const filter = knownParams(known)
  const source = (statement: string, start: Position) => ({
    start,
    async read([a = 0, b]: Position) {
      const position = b === undefined ? { a } : { a, b }
      const params = { ...filter, olderThanMs, limit, ...position }
      const rows = await connections.read((db) => db.lists(statement, params))
      const end = rows.find((row) => row[0] === null)
      return {
        eventTypes: rows.flatMap((row) => (row[0] === null ? [] : [row[0] as string])),
        end: end ? (end.slice(1).filter((value) => value !== null) as Position[number][]) : null,
      }
    },
  })
  return pageOver(
    [source(sql.fresh, [-1]), source(sql.timed, [-NEVER]), source(sql.ordered, ['', -1])],
    after,
  )
}
