import { MAX_ATTEMPTS } from '../../core/stored-event.js'
import {
  acceptsNothing,
  type ClaimedRow,
  type OrderedClaimRequest,
  type OrderedClaimResult,
} from '../../store.js'
import { accepts, filterParams } from './accepts.js'
import { claimedRow, SOLO } from './claimed-row.js'
import { eventColumns, OUT, SIZED_COLUMNS, sizeOf, weightOf } from './columns.js'
import { milliseconds, type Query, type Row, statement } from './driver.js'
import type { Names } from './names.js'
import { ORDERED } from './schema.js'

/** Keys that one claim looks at, however few of them it can take. */
const MOST_KEYS = 1_000
/**
 * So many rows of a key are looked through for a valid lease. Transactions that do not serialise may commit rows in
 * front of it, late and with a lower `seq`; only more than these at once could hide it.
 */
const LOOK_AHEAD = 40
/** Begins the token of a row whose key was taken over: its former owner cannot settle it any more. */
const LOST = '~'

/**
 * A loose index scan jumps from the first row of one key to that of the next, so that what waits behind a first row
 * costs nothing.
 *
 * Everything is decided by one snapshot, which others may have outrun. So each row is locked without waiting, and
 * only if it is still the version (`xmin`) that was looked at; a run is taken whole or not at all. When a run ends
 * early the row behind it is written to as well: another claim may still take that for the first one, because the
 * rows in front committed after its snapshot, and must find a new version. So must the former owner of rows whose
 * lease ran out: with the key its right to settle them is gone, or they could be done before what is in front.
 */
export function orderedStatements(names: Names) {
  const takeable = `status in (0, 2) and available_at <= now()
      and ($8::float8 = 0 or created_at <= now() - $8::float8 * interval '1 ms') and ${accepts(9)}`
  // state 1: can be taken, 2: its last owner vanished, 0: the key waits
  const first = (after: string) => `
  (select ordering_key, seq, ctid as place, xmin as seen,
      case when locked_until >= now() then 0 when not (${takeable}) then 0 when locked_until is null then 1 else 2 end as state,
      case when status in (0, 2) and available_at > now() and available_at < 'infinity' then available_at end as due
    from ${names.events} where ${ORDERED} and ordering_key ${after} order by ordering_key, seq limit 1)`
  const within = '(total <= $5::float8 and count <= $13::int or n = first)'
  // Of the runs of which every row could be locked; as a rule that is all of them.
  const whole = (which: string) => `case when (select count(*) from locked) = (select count(*) from wanted)
      then array(select ctid from locked where ${which})
      else array(select ctid from locked where ${which} and n in (select n from (
        select n, count(*) from locked group by n intersect select n, count(*) from wanted group by n) complete)) end`
  return {
    // $1 token, $2 lease ms, $3 keys, $4 run length, $5 most bytes, $6 from key, $7 suspects, $8 skip recent ms,
    // $9–$12 filter, $13 most rows
    claim: statement(`
with recursive head as (
  select 1 as n, f.*, state = 1 or (state = 2 and $7::int > 0) as take,
      (state = 1 or (state = 2 and $7::int > 0))::int as taken, (state = 2)::int as suspects
    from ${first('>= $6::text')} f
  union all
  select h.n + 1, f.*, t.take, h.taken + t.take::int, h.suspects + (f.state = 2)::int
    from head h cross join lateral ${first('> h.ordering_key')} f
      cross join lateral (select f.state = 1 or (f.state = 2 and h.suspects < $7::int) as take) t
   where h.n < ${MOST_KEYS} and h.taken < $3::int
), entered as materialized ( -- who cannot lock the first row does not touch the others
  select h.n, h.ordering_key, h.seq, h.state from head h join ${names.events} e on e.ctid = h.place
   where h.take and e.xmin = h.seen for update of e skip locked
), near as materialized ( -- its first rows, and whatever was leased further back
  select k.n, r.places, r.seen, r.sizes, r.leased,
      case when k.state = 1 then coalesce(array_position(r.free, false, 2) - 1, cardinality(r.free)) else 1 end as run
    from entered k cross join lateral (
      select array_agg(place) as places, array_agg(seen) as seen, array_agg(${sizeOf()}) as sizes,
          array_agg(locked_until is not null) as leased, bool_or(locked_until >= now()) as busy,
          array_agg(nth <= $4::int and locked_until is null and ${takeable}) as free
        from (
          select ctid as place, xmin as seen, row_number() over (order by ordering_key, seq) as nth, status, available_at, created_at,
              locked_until, version, event_type, aggregate_type, ${SIZED_COLUMNS}
            from ${names.events} where ${ORDERED} and ordering_key = k.ordering_key and seq >= k.seq
           order by ordering_key, seq limit ${LOOK_AHEAD}) pending
       where nth <= greatest($4::int, 2) or locked_until is not null) r
   where r.busy is not true
), budget as materialized (
  select *, sum((select sum(${weightOf('size')}) from unnest(sizes[:run]) size)) over (order by n) as total,
      sum(run) over (order by n) as count, min(n) over () as first
    from near
), wanted as materialized (
  select b.n, row.place, row.seen, row.nth <= b.run as run
    from budget b cross join lateral unnest(b.places, b.seen, b.leased) with ordinality as row(place, seen, leased, nth)
   where ${within} and (row.nth <= b.run + 1 or row.leased)
), locked as materialized (
  select w.n, w.run, e.ctid from wanted w join ${names.events} e on e.ctid = w.place
   where e.xmin = w.seen for update of e skip locked
), behind as (
  update ${names.events} e set
      locked_by = case when e.locked_by is null or e.locked_by ^@ '${LOST}' then e.locked_by else '${LOST}' || e.locked_by end
    where e.ctid = any(${whole('not run')})
), got as (
  update ${names.events} e set
      locked_by = case when e.locked_by is null then $1::text else $1::text || '${SOLO}' end,
      attempts = case when e.locked_by like '%${SOLO}' then least(e.attempts, ${MAX_ATTEMPTS}) + 1 else e.attempts end,
      locked_until = now() + $2::float8 * interval '1 ms'
    where e.ctid = any(${whole('run')})
  returning ${eventColumns()}, e.locked_by
)
select ${OUT} from got
union all -- the last row sums up: where the next scan goes on, ms to the next one due
select null, null, null, null, null, null,
  (select ordering_key from head
    where n = (select case when left_out is not null then left_out - 1 when taken >= $3::int or n >= ${MOST_KEYS} then n end
      from head, (select min(n) as left_out from budget where not ${within}) b order by n desc limit 1)),
  null, null, null, null, null, (select ${milliseconds('min(due) - now()')} from head), null, null, null`),
  }
}

type Statements = ReturnType<typeof orderedStatements>

export async function claimOrdered(
  sql: Statements,
  query: Query,
  request: OrderedClaimRequest,
): Promise<OrderedClaimResult> {
  const { token, leaseMs, keys, runLength, limit, maxBytes, afterKey, suspects, skipRecentMs, accept } =
    request
  if (keys < 1) return { rows: [], afterKey, nextDueMs: null }
  if (acceptsNothing(accept)) return { rows: [], afterKey: null, nextDueMs: null }
  const rows = await query(sql.claim, [
    token,
    leaseMs,
    keys,
    runLength,
    maxBytes,
    afterKey === '' ? '' : `${afterKey}\x01`, // no text lies between the two
    suspects,
    skipRecentMs,
    ...filterParams(accept),
    limit,
  ])
  const summary = rows[rows.length - 1] as Row
  return {
    rows: runByRun(rows.slice(0, -1).map((row) => claimedRow(row, row[15] as string))),
    afterKey: summary[6] as string | null,
    nextDueMs: summary[12] === null ? null : Number(summary[12]),
  }
}

/** Keys by the age of their first row. */
function runByRun(rows: ClaimedRow[]): ClaimedRow[] {
  const runs = new Map<string | null, ClaimedRow[]>()
  for (const row of rows.sort((a, b) => a.seq - b.seq)) {
    const run = runs.get(row.orderingKey)
    if (run) run.push(row)
    else runs.set(row.orderingKey, [row])
  }
  return [...runs.values()].flat()
}
