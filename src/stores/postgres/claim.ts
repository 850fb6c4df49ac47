import { MAX_COLUMN_BYTES } from '../../core/row-limits.js'
import { MAX_ATTEMPTS } from '../../core/stored-event.js'
import {
  acceptsNothing,
  type ClaimedRow,
  type ClaimRequest,
  type ClaimResult,
  UNROUTABLE_BYTES,
  type UnroutableRequest,
} from '../../store.js'
import { accepts, acceptsNames, filterParams, knownParams, nameParams } from './accepts.js'
import { claimedRow, SOLO, SOME } from './claimed-row.js'
import { eventColumns, HEAVIEST, heaviestOf, OUT, sizeBesidesPayload, sizeOf, weightOf } from './columns.js'
import { milliseconds, type Param, type Query, type Row, statement } from './driver.js'
import type { Names } from './names.js'
import type { Ranges } from './ranges.js'
import { FRESH, ORDERED, rangeLock, TIMED } from './schema.js'

/** Rows with more bytes than this besides their payload are left to the claims that add up sizes. */
const FEW_BESIDES = 262_144

/** So many rows are claimed without adding up what they take, where there is no backlog. */
const FEW = 50

/** `ranged`: the schema has ranges. */
/** Rows of other programs may be dead and have a time at which they seem to be due. */
const WAITING = `${TIMED} and status <> 3`

export function claimStatements(names: Names, ranged: boolean) {
  // The lock comes first: what is looked at afterwards stays true until the claim is committed.
  const ranges = `pg_sequence_last_value('${names.rangeCount}'::regclass)`
  const unlessNone = (n: number) =>
    `(select case when pg_advisory_xact_lock_shared(${rangeLock(names)}) is not null and ${ranges} = $${n}::bigint
      then '{}'::int8multirange else ${names.rangesTaken}() end)`
  const notIn = (taken: string) => (ranged ? `and not seq <@ ${taken}` : '')
  const due = 'available_at <= now() and locked_until is null'
  const stale = `available_at <= now() and (locked_until is null or locked_until < now())
      and created_at <= now() - $4::float8 * interval '1 ms' and not (${accepts(5)})`
  const unrouted = `ctid, null::bigint as fresh_seq, (${sizeBesidesPayload()})::float8 as size`
  const high = `(select case when is_called then last_value else 0 end from ${names.sequence})`
  const fresh = (limit: string, accepted: string, taken: string) => `
  (select ctid, seq as fresh_seq, ${sizeOf()} as size from ${names.events} where ${FRESH} and seq >= $5::bigint
      and locked_until is null and ($6::float8 = 0 or created_at <= now() - $6::float8 * interval '1 ms')
      and ${accepted} ${notIn(taken)}
    order by seq limit ${limit} for update skip locked)`
  const sized = (from: string) =>
    `select ctid, fresh_seq, weight, sum(weight) over (rows unbounded preceding) as total
      from (select ctid, fresh_seq, ${weightOf('size')} as weight from ${from}) weighed`
  const timed = (limit: string) => `
  (select ctid, null::bigint as fresh_seq, ${sizeOf()} as size from ${names.events} where ${WAITING} and ${due}
      and available_at > coalesce(now() - $12::float8 * interval '1 ms', '-infinity') and ${accepts(7)}
    order by available_at ${limit} for update skip locked)`
  // One that is tried alone may have been a suspect before.
  const suspect = `locked_until < now() and ($11::int = 1 or right(locked_by, ${SOLO.length}) not in ('${SOLO}', '${SOME}'))`
  const within = 'total <= $4::float8 or total = weight'
  const claimFresh = (accepted: string, count: number) =>
    statement(`
update ${names.events} e set locked_by = $1::text, locked_until = now() + $2::float8 * interval '1 ms'
 where e.ctid = any(array(
   select ctid from (${sized(`${fresh('$3::int', accepted, unlessNone(count))} every`)}) sized where ${within}))
returning ${eventColumns()}`)
  return {
    // The shortest way, for what has just come. A row that is larger than may be is left to the other claims.
    // $1 token, $2 lease ms, $3 limit, $4 from seq, $5 and $6 names, $7 how many ranges there had been when there was none
    few: statement(`
update ${names.events} e set locked_by = $1::text, locked_until = now() + $2::float8 * interval '1 ms'
 where e.ctid = any(array(
   select ctid from ${names.events} where ${FRESH} and seq >= $4::bigint and locked_until is null
     and ${acceptsNames(5)} and ${sizeBesidesPayload()} <= ${FEW_BESIDES} ${notIn(unlessNone(7))}
    order by seq limit $3::int for update skip locked))
returning ${eventColumns()}`),
    // Only rows never tried; nothing is summed up.
    // $1 token, $2 lease ms, $3 limit, $4 most bytes, $5 from seq, $6 skip recent ms, $7 and $8 names, or $7–$10 filter;
    // $9 or $11 how many ranges there had been when there was none
    freshNames: claimFresh(acceptsNames(7), 9),
    fresh: claimFresh(accepts(7), 11),
    // Everything that is due. $1–$6 as above, $7–$10 filter, $11 suspects, $12 came due within ms
    claim: statement(`
with ${ranged ? `taken as materialized (select ${names.rangesTaken}() as seqs), ` : ''}suspect as materialized (
  (select ctid, null::bigint as fresh_seq, ${sizeOf()} as size from ${names.events}
    where ${FRESH} and ${suspect} and ${accepts(7)}
    order by seq limit least($11::int, $3::int) for update skip locked)
), suspect_timed as materialized (
  (select ctid, null::bigint as fresh_seq, ${sizeOf()} as size from ${names.events}
    where ${WAITING} and available_at <= now() and ${suspect} and ${accepts(7)}
    order by available_at limit least($11::int, $3::int) - (select count(*) from suspect) for update skip locked)
), room as materialized (
  select $3::int - (select count(*) from suspect) - (select count(*) from suspect_timed) as n
), timed as materialized (${timed('limit (select (n + 1) / 2 from room)')}
), fresh as materialized (${fresh('(select n from room) - (select count(*) from timed)', accepts(7), '(select seqs from taken)')}
), timed_more as materialized ( -- what the fresh ones left
  ${timed(`offset (select count(*) from timed)
    limit (select n from room) - (select count(*) from timed) - (select count(*) from fresh)`)}
), picked as materialized (
  ${sized(`(select * from suspect union all select * from suspect_timed union all select * from timed
      union all select * from timed_more union all select * from fresh) every`)}
), got as (
  update ${names.events} e set
      locked_by = $1::text || case when e.locked_by is null then '' when $11::int = 1 then '${SOLO}' else '${SOME}' end,
      attempts = case when e.locked_by like '%${SOLO}' then least(e.attempts, ${MAX_ATTEMPTS}) + 1 else e.attempts end,
      locked_until = now() + $2::float8 * interval '1 ms'
    where e.ctid = any(array(select ctid from picked where ${within}))
  returning ${eventColumns()}, e.locked_by
)
select ${OUT} from got
union all -- the last row sums up: highest seq, whether nothing was left out, whether a key has rows, ms to the
  -- next one due, last fresh seq, whether there is a range whose holder vanished, how many there have been if there is none
select null, ${high}, null, null,
  -- delayed ones were left: they had their share, and everything was full, also of bytes
  (select 'due' from room where (select count(*) from timed) >= (n + 1) / 2
    and (select count(*) from picked) >= $3::int or (select max(total) from picked) > $4::float8),
  null, null,
  (select case when picked.n < $3::int and picked.n = picked.taken then 1 else 0 end
     from (select count(*) as n, count(*) filter (where ${within}) as taken from picked) picked),
  (select 'ordered' from ${names.events} where ${ORDERED} order by ordering_key, seq limit 1), null, null, null,
  (select ${milliseconds('available_at - now()')} from ${names.events}
    where ${WAITING} and available_at > now() and available_at < 'infinity' order by available_at limit 1),
  (select max(fresh_seq) from picked where ${within}), ${
    ranged
      ? `(select 'expired' from ${names.ranges} where until < now() limit 1),
  (select ${ranges}::text from taken where isempty(seqs))`
      : 'null, null'
  }`),
    // $1 token, $2 lease ms, $3 limit, $4 older than ms, $5–$8 filter, $9 most bytes besides payloads
    // Without the payload: nobody is going to read it.
    unroutable: statement(`
with fresh as materialized (
  select ${unrouted} from ${names.events} where ${FRESH} and ${stale} ${notIn(`(select ${names.rangesTaken}())`)} order by seq limit $3::int for update skip locked
), timed as materialized (
  select ${unrouted} from ${names.events} where ${WAITING} and ${stale}
   order by available_at limit $3::int - (select count(*) from fresh) for update skip locked
), ordered as materialized ( -- first rows of their keys only
  select ${unrouted} from ${names.events} e where ${ORDERED} and status in (0, 2) and ${stale}
     and seq = (select seq from ${names.events} p where ${ORDERED} and p.ordering_key = e.ordering_key
                 order by p.ordering_key, p.seq limit 1)
   order by ordering_key, seq limit $3::int - (select count(*) from fresh) - (select count(*) from timed)
     for update skip locked
), picked as materialized (
  ${sized('(select * from fresh union all select * from timed union all select * from ordered) every')}
)
update ${names.events} e set locked_by = $1::text, locked_until = now() + $2::float8 * interval '1 ms'
 where e.ctid = any(array(select ctid from picked where total <= $9::float8 or total = weight))
returning ${eventColumns({ payload: false })}`),
  }
}

type Statements = ReturnType<typeof claimStatements>

export async function claim(
  sql: Statements,
  query: Query,
  ranges: Ranges | null,
  request: ClaimRequest,
): Promise<ClaimResult> {
  const { token, leaseMs, limit, maxBytes, fromSeq, suspects, skipRecentMs } = request
  // While everything is paused nothing is looked at, however much waits.
  const idle = acceptsNothing(request.accept)
  const most = idle ? 0 : limit
  const params: Param[] = [token, leaseMs, most, maxBytes, fromSeq, skipRecentMs]
  const filter = filterParams(request.accept)
  if (request.freshOnly && suspects === 0) {
    if (idle) return { rows: [], highSeq: null, complete: true, nextSeq: fromSeq, nextDueMs: null }
    const isQuiet = ranges?.isBacklog === false
    const ranged = ranges?.isWorthwhile(request) ? await ranges.claim(request) : null
    if (ranged) return ranged
    const fresh = (found: readonly Row[], isComplete: (rows: readonly ClaimedRow[]) => boolean) => {
      const rows = inOrder(found.map((row) => claimedRow(row, token)))
      const complete = isComplete(rows)
      if (ranges && !complete) ranges.isBacklog = true
      const nextSeq = (rows.at(-1)?.seq ?? fromSeq - 1) + 1
      return { rows, highSeq: null, complete, nextSeq, nextDueMs: null }
    }
    const names = nameParams(filter)
    const few = Math.min(limit, FEW, Math.floor(maxBytes / (MAX_COLUMN_BYTES + FEW_BESIDES)))
    if (names && ranges && isQuiet && skipRecentMs === 0 && few > 0) {
      const found = await query(sql.few, [token, leaseMs, few, fromSeq, ...names, ranges.countAtNone])
      return fresh(found, (rows) => rows.length < few)
    }
    params.push(...(names ?? filter), ...(ranges ? [ranges.countAtNone] : []))
    const found = await query(names ? sql.freshNames : sql.fresh, params)
    return fresh(found, (rows) => {
      let heaviest = HEAVIEST
      for (const row of rows) heaviest += heaviestOf(row.bytes ?? row.payloadSize)
      return rows.length < limit && heaviest <= maxBytes
    })
  }
  const rows = await query(sql.claim, [...params, ...filter, suspects, request.dueWithinMs ?? null])
  const summary = rows[rows.length - 1] as Row
  // What they held are suspects now. One that somebody is at work on is left to the next claim.
  if (summary[14] !== null && (await ranges?.expire()) && rows.length === 1) {
    return claim(sql, query, ranges, request)
  }
  if (ranges) {
    ranges.countAtNone = summary[15] === null ? -1 : Number(summary[15])
    ranges.isBacklog ||= Number(summary[7]) !== 1
  }
  return {
    rows: inOrder(rows.slice(0, -1).map((row) => claimedRow(row, row[15] as string))),
    highSeq: Number(summary[1]),
    complete: idle || Number(summary[7]) === 1,
    dueComplete: idle || summary[4] === null,
    nextSeq: summary[13] === null ? fromSeq : Number(summary[13]) + 1,
    nextDueMs: summary[12] === null ? null : Number(summary[12]),
    hasOrdered: summary[8] !== null,
  }
}

function inOrder(rows: ClaimedRow[]): ClaimedRow[] {
  return rows.sort((a, b) => a.seq - b.seq)
}

export async function claimUnroutable(
  sql: Statements,
  query: Query,
  request: UnroutableRequest,
): Promise<readonly ClaimedRow[]> {
  const { token, leaseMs, limit, olderThanMs, maxBytes = UNROUTABLE_BYTES } = request
  const rows = await query(sql.unroutable, [
    token,
    leaseMs,
    limit,
    olderThanMs,
    ...knownParams(request.known),
    maxBytes,
  ])
  return rows.map((row) => claimedRow(row, token))
}
