import { textIn } from '../../core/columns.js'
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

/** Third part of a position whose ordering key is bytes. The first part is then the key in base64. */
const BINARY = 'binary'

/** SQLite keeps a value of any type in any column, so an ordering key may be bytes. Positions are written as JSON. */
function positionOf([a, b]: readonly unknown[]): Position {
  if (typeof a !== 'object') return (b === undefined ? [a] : [a, b]) as Position
  return [Buffer.from(a as ArrayBuffer).toString('base64'), b as number, BINARY]
}

export function unhandled(
  sql: Statements,
  connections: Connections<SqliteDatabase>,
  request: UnhandledRequest,
): Promise<UnhandledPage> {
  const { known, olderThanMs, limit, after } = request
  const filter = knownParams(known)
  const source = (statement: string, start: Position) => ({
    start,
    async read([a = 0, b, kind]: Position) {
      const key = kind === BINARY ? Buffer.from(String(a), 'base64') : a
      const position = b === undefined ? { a: key } : { a: key, b }
      const params = { ...filter, olderThanMs, limit, ...position }
      const rows = await connections.read((db) => db.lists(statement, params))
      const end = rows.find((row) => row[0] === null)
      return {
        eventTypes: rows.flatMap((row) => (row[0] === null ? [] : [textIn(row[0])])),
        end: end ? positionOf(end.slice(1).filter((value) => value !== null)) : null,
      }
    },
  })
  return pageOver(
    [source(sql.fresh, [-1]), source(sql.timed, [-NEVER]), source(sql.ordered, ['', -1])],
    after,
  )
}
