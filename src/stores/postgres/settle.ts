import { MAX_ATTEMPTS } from '../../core/stored-event.js'
import { sanitizeText } from '../../core/text.js'
import type { Claim, Settlement } from '../../store.js'
import { type Query, statement } from './driver.js'
import type { Names } from './names.js'
import type { Ranges } from './ranges.js'

export function settleStatements(names: Names) {
  const mine = `event_id = any(string_to_array($1::text, E'\\x1e')) and locked_by = $2::text and status in (0, 2)`
  // One row comes back: how many were settled, and which, but only when some were not.
  const report = `select count(*), case when count(*) < $3::int then string_agg(event_id, E'\\x1e') end from settled`
  const remove = `delete from ${names.events}`
  const keep = `update ${names.events} set status = 1, done_at = now(), locked_by = null, locked_until = null, halts = null`
  // The same of a range, whose rows have no lease of their own unless it ran out; $4: it ends with these.
  const ranged = `event_id = any(string_to_array($1::text, E'\\x1e')) and status in (0, 2) and (locked_by = $2::text
    or locked_by is null and status = 0 and (select exists (select 1 from ${names.ranges} where token = $2::text)))`
  const ended = `delete from ${names.ranges} where token = $2::text and $4::int = 1`
  const plain = (write: string) =>
    statement(`with settled as (${write} where ${mine} returning event_id) ${report}`)
  const ofRange = (write: string) =>
    statement(`with settled as (${write} where ${ranged} returning event_id), ended as (${ended}) ${report}`)
  return {
    remove: plain(remove),
    done: plain(keep),
    removeRange: ofRange(remove),
    doneRange: ofRange(keep),
    others: statement(`
with s as materialized (
  select * from json_to_recordset($1::text::json) as s(id text, token text, status int, delay float8, error text,
    failures json, handled json, attempts int, halts boolean)
), l as materialized (
  select s.* from s join ${names.events} e on e.event_id = s.id
   where e.locked_by = s.token and e.status in (0, 2) order by e.seq for update of e
)
update ${names.events} e set
    status = coalesce(l.status, e.status),
    attempts = case when l.attempts = 0 then e.attempts else least(e.attempts, ${MAX_ATTEMPTS}) + l.attempts end,
    available_at = case when l.status = 3 then 'infinity'
                        when l.delay is null then e.available_at
                        else clock_timestamp() + l.delay * interval '1 ms' end,
    done_at = case when l.status = 1 then clock_timestamp() else e.done_at end,
    last_error = coalesce(l.error, e.last_error),
    handled_by = coalesce(l.handled, e.handled_by),
    halts = case when e.ordering_key is not null then l.halts end,
    failures = case when l.failures is null then e.failures else (
      select json_agg(f order by n) from (
        select f, n from (
          select value as f, row_number() over () as n from (
            select value from json_array_elements(case when json_typeof(e.failures) = 'array' then e.failures else '[]' end)
            union all
            select json_build_object('at', clock_timestamp(), 'handler', value->'handler',
              'instance', value->'instance', 'message', value->'message')
              from json_array_elements(l.failures)) every) numbered
        order by n desc limit 10) last) end,
    locked_by = null, locked_until = null
  from l where e.event_id = l.id
returning e.event_id`),
    renew: statement(`
update ${names.events} e set locked_until = now() + $2::float8 * interval '1 ms'
  from json_to_recordset($1::text::json) as s(id text, token text)
 where e.event_id = s.id and e.locked_by = s.token and e.status in (0, 2) and e.locked_until > clock_timestamp()
returning e.event_id`),
  }
}

type Statements = ReturnType<typeof settleStatements>

const SEPARATOR = '\x1e'

/** Plain successes by one statement per token, which is the fast way; everything else by one statement. */
export async function settleIfLeased(
  sql: Statements,
  query: Query,
  ranges: Ranges,
  settlements: readonly Settlement[],
  keepDone: boolean,
): Promise<ReadonlySet<string>> {
  const done = new Map<string, string[]>()
  const others: string[] = []
  await ranges.toLeases(settlements.filter((settlement) => settlement.outcome !== 'done'))
  for (const settlement of settlements) {
    if (settlement.outcome !== 'done') others.push(JSON.stringify(otherOf(settlement)))
    else if (settlement.eventId.includes(SEPARATOR)) others.push(JSON.stringify(doneOf(settlement)))
    else {
      const ids = done.get(settlement.token)
      if (ids) ids.push(settlement.eventId)
      else done.set(settlement.token, [settlement.eventId])
    }
  }
  const settled = new Set<string>()
  const ended = new Set<string>()
  for (const [token, ids] of done) {
    const params = [ids.join(SEPARATOR), token, ids.length]
    const isRange = ranges.holds(token)
    const isLast = isRange && ranges.endsWith(token, ids.length)
    if (isLast) ended.add(token)
    const [row] = isRange
      ? await query(keepDone ? sql.doneRange : sql.removeRange, [...params, isLast ? 1 : 0])
      : await query(keepDone ? sql.done : sql.remove, params)
    const some = row?.[1] as string | null | undefined
    const which = Number(row?.[0]) === ids.length ? ids : some ? some.split(SEPARATOR) : []
    for (const id of which) settled.add(id)
  }
  if (others.length > 0) {
    for (const row of await query(sql.others, [`[${others.join(',')}]`])) settled.add(row[0] as string)
  }
  // Not before all of them are written: until then they may be written again.
  for (const [token, ids] of done) await ranges.settled(token, ids.length, ended.has(token))
  return settled
}

/** An id that another writer made of what separates ours: it goes the slow way, and its row is kept. */
function doneOf({ eventId: id, token }: Claim): object {
  return { id, token, attempts: 0, status: 1 }
}

function otherOf(settlement: Exclude<Settlement, { outcome: 'done' }>): object {
  const { eventId: id, token, outcome } = settlement
  if (outcome === 'release') return { id, token, attempts: 0, delay: settlement.delayMs || null }
  return {
    id,
    token,
    attempts: settlement.attempts,
    status: outcome === 'retry' ? 2 : 3,
    delay: outcome === 'retry' ? settlement.delayMs : null,
    error: sanitizeText(settlement.error, 4000) || null,
    failures: settlement.failures.map((f) => ({ ...f, message: sanitizeText(f.message, 4000) })),
    handled: settlement.handledBy.length > 0 ? settlement.handledBy : null,
    halts: outcome === 'dead' && settlement.halts ? true : null,
  }
}

export async function renewIfLeased(
  sql: Statements,
  query: Query,
  ranges: Ranges,
  claims: readonly Claim[],
  leaseMs: number,
): Promise<ReadonlySet<string>> {
  await ranges.toLeases(claims)
  const pairs = claims.map(({ eventId: id, token }) => ({ id, token }))
  const rows = await query(sql.renew, [JSON.stringify(pairs), leaseMs])
  return new Set(rows.map((row) => row[0] as string))
}
