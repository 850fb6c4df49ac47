import { isObject, listIn } from '../../core/columns.js'
import { sanitizeText } from '../../core/text.js'
import type { Claim, Failure, Settlement } from '../../store.js'
import type { Connection, Params, Row } from './driver.js'
import type { Names } from './names.js'
import { clock, NEVER, NOW } from './schema.js'

const ERROR_LENGTH = 4_000
const KEPT_FAILURES = 10
/** Fewer neighbours than these are not worth statements of their own. */
const SHORTEST_RUN = 16

export function settleStatements(names: Names) {
  // Rows that are pending and still carry their token, of a list of [id, token, seq]. By `seq` where a claim told it: an id
  // that another writer made of bytes, or with U+0000 in it, does not come back from JSON as it was.
  const mine = `seq in (
  select e.seq from json_each(:claims) c cross join ${names.events} e on e.seq =
      coalesce(c.value ->> 2, (select f.seq from ${names.events} f where f.event_id = c.value ->> 0))
   where e.locked_by = c.value ->> 1 and e.status in (0, 2))`
  const run = 'seq between :first and :last'
  const remove = `delete from ${names.events}`
  // No function, and no half of a statement after a failure: otherwise SQLite would keep each page twice meanwhile.
  const done = `
update or rollback ${names.events} set status = 1, done_at = :now, locked_by = null, locked_until = null, halts = null`
  return {
    remove: { run: `${remove} where ${run}`, some: `${remove} where ${mine} returning event_id, seq` },
    done: { run: `${done} where ${run}`, some: `${done} where ${mine} returning event_id, seq` },
    leasedInRun: `
select count(*) as count from ${names.events} where ${run} and locked_by = :token and status in (0, 2)`,
    before: `select event_id, seq, locked_by, failures from ${names.events} where ${mine}`,
    others: `
update ${names.events} set
    status = coalesce(s.value ->> 'status', status),
    attempts = iif(s.value ->> 'attempts' = 0, attempts, attempts + (s.value ->> 'attempts')),
    available_at = coalesce(cast(s.value ->> 'due' as integer), available_at),
    last_error = coalesce(s.value ->> 'error', last_error),
    handled_by = coalesce(s.value ->> 'handled', handled_by),
    failures = coalesce(s.value ->> 'failures', failures),
    halts = case when ordering_key is not null then s.value ->> 'halts' end,
    locked_by = null, locked_until = null
  from json_each(:rows) s where seq = s.value ->> 'seq'`,
    renew: `
update ${names.events} set locked_until = ${NOW} + cast(:leaseMs as integer)
 where ${mine} and locked_until > ${NOW} returning event_id, seq`,
  }
}

type Statements = ReturnType<typeof settleStatements>

/** Inside a write transaction. Successes by few statements, everything else by two. */
export function settleIfLeased(
  sql: Statements,
  db: Connection,
  settlements: readonly Settlement[],
  keepDone: boolean,
): ReadonlySet<string> {
  const done: Settlement[] = []
  const others: Other[] = []
  for (const settlement of settlements) {
    if (settlement.outcome === 'done') done.push(settlement)
    else others.push(settlement)
  }
  const settled = new Set<string>()
  if (done.length > 0) settleDone(sql, db, done, keepDone, settled)
  if (others.length > 0) settleOthers(sql, db, others, settled)
  return settled
}

/** Neighbours from one claim by a range, several times faster than by a list, as long as all of them are ours still. */
function settleDone(
  sql: Statements,
  db: Connection,
  done: readonly Settlement[],
  keepDone: boolean,
  settled: Set<string>,
): void {
  const statement = keepDone ? sql.done : sql.remove
  const at: Params = keepDone ? { now: clock(db) } : {}
  const others: Settlement[] = []
  for (const run of runsOf(done)) {
    const { token, seq: first = 0 } = run[0] as Settlement
    const place = { first, last: first + run.length - 1 }
    const isRange = run.length >= SHORTEST_RUN && isLeased(sql, db, { ...place, token }, run.length)
    if (isRange) db.run(statement.run, { ...place, ...at })
    for (const one of run)
      if (isRange) settled.add(one.eventId)
      else others.push(one)
  }
  if (others.length === 0) return
  const rows = db.all(statement.some, { claims: claimsText(others), ...at })
  for (const eventId of idsOf(rows, others).keys()) settled.add(eventId)
}

/** Rows by the ids that the claims have for them. */
function idsOf(rows: readonly Row[], claims: readonly Claim[]): Map<string, Row> {
  const known = new Map<number, string>()
  for (const { seq, eventId } of claims) if (seq !== undefined) known.set(seq, eventId)
  return new Map(rows.map((row) => [known.get(Number(row.seq)) ?? (row.event_id as string), row]))
}

function isLeased(sql: Statements, db: Connection, run: Params, length: number): boolean {
  return Number(db.all(sql.leasedInRun, run)[0]?.count) === length
}

/** Each with one token and with numbers that follow on each other. */
function runsOf(settlements: readonly Settlement[]): Settlement[][] {
  const runs: Settlement[][] = []
  let last: Settlement | undefined
  for (const one of settlements.toSorted((a, b) => (a.seq ?? 0) - (b.seq ?? 0))) {
    if (last?.seq !== undefined && one.seq === last.seq + 1 && one.token === last.token)
      runs.at(-1)?.push(one)
    else runs.push([one])
    last = one
  }
  return runs
}

type Other = Exclude<Settlement, { outcome: 'done' }>

function settleOthers(sql: Statements, db: Connection, others: readonly Other[], settled: Set<string>): void {
  const now = clock(db)
  const leased = idsOf(db.all(sql.before, { claims: claimsText(others) }), others)
  const changes: object[] = []
  for (const other of others) {
    const row = leased.get(other.eventId)
    // Once: the second outcome of one claim has lost its lease by the first.
    if (row?.locked_by !== other.token || !leased.delete(other.eventId)) continue
    changes.push(changeOf(other, now, row))
    settled.add(other.eventId)
  }
  db.run(sql.others, { rows: JSON.stringify(changes) })
}

function changeOf(settlement: Other, now: number, { seq, failures: before }: Row): object {
  const { outcome } = settlement
  if (outcome === 'release') {
    return { seq, attempts: 0, due: settlement.delayMs > 0 ? now + settlement.delayMs : null }
  }
  const { handledBy, attempts, failures } = settlement
  return {
    seq,
    attempts,
    status: outcome === 'retry' ? 2 : 3,
    due: outcome === 'retry' ? now + settlement.delayMs : NEVER,
    error: sanitizeText(settlement.error, ERROR_LENGTH) || null,
    handled: handledBy.length > 0 ? JSON.stringify(handledBy) : null,
    failures: lastFailures(before, failures, now),
    halts: outcome === 'dead' && settlement.halts ? 1 : null,
  }
}

/** As JSON text, like what is stored. */
function lastFailures(before: unknown, added: readonly Failure[], at: number): string {
  const kept = listIn(before).filter(isObject)
  const dated = added.map(({ handler, instance, message }) => ({
    at,
    handler,
    instance,
    message: sanitizeText(message, ERROR_LENGTH),
  }))
  return JSON.stringify([...kept, ...dated].slice(-KEPT_FAILURES))
}

export function renewIfLeased(
  sql: Statements,
  db: Connection,
  claims: readonly Claim[],
  leaseMs: number,
): ReadonlySet<string> {
  const rows = db.all(sql.renew, { claims: claimsText(claims), leaseMs })
  return new Set(idsOf(rows, claims).keys())
}

function claimsText(claims: readonly Claim[]): string {
  return JSON.stringify(claims.map(({ eventId, token, seq }) => [eventId, token, seq]))
}
