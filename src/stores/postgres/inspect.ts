import { eventRecord } from '../../event-record.js'
import { type EventFilter, type EventRecord, EventStatus, type StoreStats } from '../../store.js'
import { uncheckedRow } from './claimed-row.js'
import { eventColumns } from './columns.js'
import { milliseconds, type Param, type Query, statement } from './driver.js'
import type { Names } from './names.js'
import { DEAD, FRESH, ORDERED, TIMED } from './schema.js'

const LISTED = 100
/** Smallest number that the column can hold. Rows of other programs may have negative numbers. */
const FIRST = '-9223372036854775808'

/** $1 status, $2 ids, $3 type, $4 after seq, $5 limit; null leaves a condition out. */
const FILTER = `($1::int is null or status = $1::int)
   and ($2::text is null or event_id = any(string_to_array($2::text, E'\\x1e')))
   and ($3::text is null or event_type = $3::text) and ($4::bigint is null or seq > $4::bigint)
 order by seq limit $5::int`
/** $1 type, $2 after seq, $3 limit. The index of DEAD has the rows in this order, so that none of them is sorted. */
const DEAD_PAGE = `${DEAD} and ($1::text is null or event_type = $1::text) and seq > $2::bigint order by seq limit $3::int`

/** `ranged`: the schema has ranges. */
export function inspectStatements(names: Names, ranged: boolean) {
  // Of a row that was claimed with its range.
  const ofRange = (column: string) =>
    ranged
      ? `(select s.${column} from ${names.ranges} s where ${FRESH} and e.locked_until is null and e.seq between s.first_seq and s.last_seq limit 1)`
      : 'null'
  // Waits for locked rows: a skipped row would stay dead although the caller chose it.
  const dead = (columns: string) =>
    `select ${columns} from ${names.events} where ${DEAD} and ${FILTER} for update`
  // Finds the ids first. A scan that selects the columns reads and decompresses the payloads of all rows before it sorts them.
  const list = (page: string) =>
    statement(`
select ${eventColumns()}, status, failures::text, last_error,
  coalesce(locked_by, ${ofRange('token')}),
  ${milliseconds(`coalesce(locked_until, ${ofRange('until')})`)},
  ${milliseconds('case when isfinite(e.available_at) then e.available_at else e.created_at end')},
  ${milliseconds('e.created_at')}, ${milliseconds('e.done_at')}
  from ${names.events} e where event_id = any(array(select event_id from ${names.events} where ${page})) order by seq`)
  return {
    stats: statement(`
select (select count(*) from ${names.events} where ${FRESH})
    + (select count(*) from ${names.events} where ${TIMED} and available_at < 'infinity' and status <> 3) + ordered.n,
  (select count(*) from ${names.events} where ${DEAD}),
  coalesce(sum(done), 0), coalesce(sum(failed), 0), coalesce(sum(dead), 0),
  greatest(0, ${milliseconds(`clock_timestamp() - least(ordered.due,
    (select ${finite('created_at')} from ${names.events} where ${FRESH} order by seq limit 1),
    (select ${finite('available_at')} from ${names.events} where ${TIMED} and available_at < 'infinity' and status <> 3
      order by available_at limit 1))`)})
  from (select count(*) as n, min(${finite('available_at')}) as due from ${names.events} where ${ORDERED} and status in (0, 2)) ordered
    left join ${names.instances} on true group by ordered.n, ordered.due`),
    list: list(FILTER),
    listDead: list(DEAD_PAGE),
    // One with an ordering key goes to its tail: in its place it would be handled beside its successors. One that halted
    // its key has kept them waiting.
    retry: statement(`
with dead as materialized (${dead('event_id, ordering_key, halts')}
), numbered as materialized (
  select event_id, case when ordering_key is not null and halts is not true then nextval('${names.sequence}') end as tail from dead
)
update ${names.events} e set status = 2, attempts = 0, available_at = clock_timestamp(), halts = null,
    seq = coalesce(n.tail, e.seq)
  from numbered n where e.event_id = n.event_id returning e.event_id`),
    // A ctid would not do: a row that another transaction has changed has a new ctid, which the snapshot of the statement lacks.
    discard: statement(`
with dead as materialized (${dead('event_id')}
)
delete from ${names.events} e using dead d where e.event_id = d.event_id returning e.event_id`),
  }
}

/** PostgreSQL before 17 cannot subtract an infinite time, which a row written by SQL may have. */
function finite(column: string): string {
  return `case when isfinite(${column}) then ${column} else timestamptz 'epoch' end`
}

type Statements = ReturnType<typeof inspectStatements>

export async function stats(sql: Statements, query: Query): Promise<StoreStats> {
  const [row = []] = await query(sql.stats, [])
  return {
    pending: Number(row[0]),
    dead: Number(row[1]),
    counters: { done: Number(row[2]), failed: Number(row[3]), dead: Number(row[4]) },
    oldestLagMs: Math.max(0, Number(row[5] ?? 0)),
  }
}

export function filterParams(filter: EventFilter, defaultLimit: number): Param[] {
  return [
    filter.status === undefined ? null : EventStatus[filter.status],
    filter.eventIds === undefined ? null : filter.eventIds.join('\x1e'),
    filter.eventType ?? null,
    filter.afterSeq ?? null,
    filter.limit ?? defaultLimit,
  ]
}

export async function list(
  sql: Statements,
  query: Query,
  filter: EventFilter,
): Promise<readonly EventRecord[]> {
  const { status, eventIds, eventType = null, afterSeq = FIRST, limit = LISTED } = filter
  const rows =
    status === 'DEAD' && eventIds === undefined
      ? await query(sql.listDead, [eventType, afterSeq, limit])
      : await query(sql.list, filterParams(filter, LISTED))
  return rows.map((row) =>
    eventRecord(uncheckedRow(row, ''), {
      status: row[15],
      failures: row[16],
      lastError: row[17],
      lockedBy: row[18],
      lockedUntil: row[19],
      availableAt: row[20],
      createdAt: row[21],
      doneAt: row[22],
    }),
  )
}
