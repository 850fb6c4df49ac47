import { isObject, listIn } from '../../core/columns.js'
import { MAX_ATTEMPTS } from '../../core/stored-event.js'
import { sanitizeText } from '../../core/text.js'
import type { Claim, Failure, Settlement } from '../../store.js'
import { IDS, jsonText, microseconds } from './append.js'
import type { Connection } from './connections.js'
import { type Param, type Query, ROLLBACK } from './driver.js'
import { FOR_UPDATE } from './locks.js'
import type { Names } from './names.js'
import { EXACT, NEVER } from './schema.js'

const NOW = 'utc_timestamp(6)'
const KEPT_FAILURES = 10
const ERROR_LENGTH = 4_000
/** Takes the place of a zero date, which a writer without strict mode can insert and nobody else can write again. */
const EARLIEST = "timestamp'1000-01-01 00:00:00'"

const DONE = `e.status = 1, e.done_at = ${NOW}, e.locked_by = null, e.locked_until = null, e.halts = null`

export function settleStatements({ events, index }: Names) {
  // Rows are locked in the order of the list, which is the same for everybody: by id.
  const byId = `straight_join ${events} e force index (${index}_id) on e.event_id = s.id`
  const ids = `${IDS} ${byId}`
  const claims = `json_table(?, '$[*]' columns (id varchar(255) ${EXACT} path '$[0]',
    token varchar(255) ${EXACT} path '$[1]')) s ${byId}`
  const leased = 'e.locked_by = s.token and e.status in (0, 2)'
  return {
    lock: `
select e.event_id, e.locked_by, e.failures, timestampdiff(microsecond, '1970-01-01', ${NOW}) / 1000
  from ${claims} where ${leased} ${FOR_UPDATE}`,
    remove: `delete e from ${ids}`,
    done: `update ${ids} set ${DONE}`,
    removeIfLeased: `delete e from ${claims} where ${leased}`,
    doneIfLeased: `update ${claims} set ${DONE} where ${leased}`,
    others: `
update json_table(?, '$[*]' columns (id varchar(255) ${EXACT} path '$.id', status int path '$.status',
    attempts int path '$.attempts', halts int path '$.halts', delay bigint path '$.delay',
    handled longtext ${EXACT} path '$.handled', error longtext ${EXACT} path '$.error',
    failures longtext ${EXACT} path '$.failures')) s ${byId}
   set e.status = coalesce(s.status, e.status),
       e.attempts = if(s.attempts = 0, e.attempts, least(e.attempts, ${MAX_ATTEMPTS}) + s.attempts),
       e.available_at = case when s.status = 3 then ${NEVER} when s.delay is null then greatest(e.available_at, ${EARLIEST})
                             else ${NOW} + interval s.delay microsecond end,
       e.last_error = coalesce(s.error, e.last_error),
       e.handled_by = coalesce(s.handled, e.handled_by),
       e.failures = coalesce(s.failures, e.failures),
       e.halts = if(e.ordering_key is null, null, s.halts),
       e.locked_by = null, e.locked_until = null`,
    renew: `
update ${claims} set e.locked_until = ${NOW} + interval ? microsecond
 where ${leased} and e.locked_until > ${NOW}`,
    renewed: `select e.event_id from ${claims} where ${leased} and e.locked_until > ${NOW}`,
  }
}

type Statements = ReturnType<typeof settleStatements>

/** Most batches are successes that all still have their lease: these take one statement. */
export async function settleIfLeased(
  sql: Statements,
  connection: Connection,
  settlements: readonly Settlement[],
  keepDone: boolean,
): Promise<ReadonlySet<string>> {
  const ids = new Set(settlements.map(({ eventId }) => eventId))
  if (ids.size === 0) return ids
  if (ids.size === settlements.length && settlements.every(({ outcome }) => outcome === 'done')) {
    const statement = keepDone ? sql.doneIfLeased : sql.removeIfLeased
    const params = [pairs(settlements)]
    const all = await connection.transaction(async (query) => {
      if ((await query(statement, params)).affected === ids.size) return true
      await query(ROLLBACK)
      return false
    })
    if (all) return ids
  }
  return settleThoseLeased(sql, connection, settlements, keepDone)
}

/** Locks the rows that still carry their token, and settles those: one statement for the successes, one for the rest. */
async function settleThoseLeased(
  sql: Statements,
  connection: Connection,
  settlements: readonly Settlement[],
  keepDone: boolean,
): Promise<ReadonlySet<string>> {
  return connection.transaction(async (query) => {
    const { rows } = await query(sql.lock, [pairs(settlements)])
    const locked = new Map(rows.map((row) => [row[0] as string, row]))
    const settled = new Set<string>()
    const done: string[] = []
    const others: object[] = []
    for (const settlement of settlements) {
      const { eventId } = settlement
      const row = locked.get(eventId)
      if (row?.[1] !== settlement.token || settled.has(eventId)) continue
      settled.add(eventId)
      if (settlement.outcome === 'done') done.push(eventId)
      else others.push(otherOf(settlement, row[2] as string | null, Number(row[3])))
    }
    if (done.length > 0) await query(keepDone ? sql.done : sql.remove, [JSON.stringify(done.sort())])
    if (others.length > 0) await query(sql.others, [jsonText(others)])
    return settled
  })
}

/** Prolongs the leases that have not run out. Which ones those are shows afterwards: the others still have run out. */
export async function renewIfLeased(
  sql: Statements,
  query: Query,
  claims: readonly Claim[],
  leaseMs: number,
): Promise<ReadonlySet<string>> {
  if (claims.length === 0) return new Set()
  const ids = new Set(claims.map(({ eventId }) => eventId))
  const { affected } = await query(sql.renew, [pairs(claims), microseconds(leaseMs)])
  if (affected === ids.size) return ids
  if (affected === 0) return new Set()
  const { rows } = await query(sql.renewed, [pairs(claims)])
  return new Set(rows.map((row) => row[0] as string))
}

function pairs(claims: readonly Claim[]): Param {
  const sorted = claims.map(({ eventId, token }) => [eventId, token] as const)
  return JSON.stringify(sorted.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
}

function otherOf(
  settlement: Exclude<Settlement, { outcome: 'done' }>,
  failures: string | null,
  nowMs: number,
): object {
  const { eventId: id, outcome, delayMs } = settlement
  if (outcome === 'release') return { id, attempts: 0, delay: delayMs > 0 ? microseconds(delayMs) : null }
  return {
    id,
    attempts: settlement.attempts,
    status: outcome === 'retry' ? 2 : 3,
    delay: outcome === 'retry' ? microseconds(delayMs) : null,
    halts: outcome === 'dead' && settlement.halts ? 1 : null,
    handled: settlement.handledBy.length > 0 ? JSON.stringify(settlement.handledBy) : null,
    error: sanitizeText(settlement.error, ERROR_LENGTH) || null,
    failures: JSON.stringify(lastFailures(failures, settlement.failures, nowMs)),
  }
}

function lastFailures(before: string | null, added: readonly Failure[], nowMs: number): unknown[] {
  const at = new Date(Math.round(nowMs)).toISOString()
  const earlier = listIn(before).filter(isObject)
  const dated = added.map(({ handler, instance, message }) => ({
    at,
    handler,
    instance,
    message: sanitizeText(message, ERROR_LENGTH),
  }))
  return [...earlier, ...dated].slice(-KEPT_FAILURES)
}
