import { MAX_COLUMN_BYTES, tooLarge } from '../../core/row-limits.js'
import { checkedRow, MAX_ATTEMPTS } from '../../core/stored-event.js'
import {
  acceptsNothing,
  type ClaimedRow,
  type ClaimRequest,
  type ClaimResult,
  UNROUTABLE_BYTES,
  type UnroutableRequest,
} from '../../store.js'
import { accepts, type Condition, knows, not } from './accepts.js'
import { microseconds } from './append.js'
import type { Connection } from './connections.js'
import type { Param, Query, Row } from './driver.js'
import { FOR_UPDATE } from './locks.js'
import type { Names } from './names.js'
import { EXACT, NEVER } from './schema.js'

/** Ends the token of a row whose former owner vanished: it is tried alone, and charged if it vanishes again. */
export const SOLO = ':solo'
/** The same of rows that are tried together: if they vanish again, each is tried alone. */
const SOME = ':some'

const epochMs = (column: string) => `timestampdiff(microsecond, '1970-01-01', ${column}) / 1000`

/** Columns that have no length limit of their own. */
const CONTENT = ['payload', 'payload_bytes', 'headers', 'metadata', 'handled_by']

/** Bytes of a row as stored. `payload_size` is not trusted, because other programs write it, or leave it at 0. */
export const SIZE = sizeOfColumns(CONTENT)

/** Bytes of a row without its payload. */
const SIZE_BESIDES_PAYLOAD = sizeOfColumns(['headers', 'metadata', 'handled_by'])

function sizeOfColumns(columns: readonly string[]): string {
  return columns.map((column) => `coalesce(octet_length(${column}), 0)`).join(' + ')
}

/** A column of `e`, or null when it is too large to be loaded. */
const bounded = (column: string) =>
  `if(octet_length(e.${column}) > ${MAX_COLUMN_BYTES}, null, e.${column}) as ${column}`

/** Names of the columns that are too large to be loaded, with a comma between them; empty for nearly every row. */
const leftOut = `concat_ws(',', ${CONTENT.map(
  (column) => `if(octet_length(e.${column}) > ${MAX_COLUMN_BYTES}, '${column}', null)`,
).join(', ')})`

/** The columns that claimedRow() reads, in its order. */
export const eventColumns = (payload = `${bounded('payload')}, ${bounded('payload_bytes')}`) => `
  e.event_id, e.seq, e.event_type, e.aggregate_type, e.aggregate_id, e.tenant_id, e.ordering_key, e.version,
  ${payload}, ${bounded('headers')}, ${bounded('metadata')}, ${epochMs('e.occurred_at')},
  ${leftOut}, e.attempts, ${bounded('handled_by')}, e.locked_by`

const NOW = 'utc_timestamp(6)'

/** The last owner of a row. Another writer may have named one without a lease. */
export const OWNER = 'if(locked_until is null, null, locked_by)'

/** A row that is locked and about to be leased. */
export interface Candidate {
  readonly seq: number
  readonly size: number
  readonly lockedBy: string | null
  readonly fresh: boolean
}

/** How a row is going to be leased: by whom, how much it is charged, and whether its lease is to run from now on. */
interface Lease {
  readonly seq: number
  readonly token: string
  readonly charge: 0 | 1
  readonly runs: 0 | 1
}

export function claimStatements(names: Names) {
  const { events, index } = names
  const locking = `select seq, ${SIZE}, ${OWNER}, fresh from ${events}`
  const fresh = `${locking} force index (${index}_fresh) where fresh = 1`
  const timed = `${locking} force index (${index}_timed) where timed_at <= ${NOW} and status <> 3`
  const recent = `(? = 0 or created_at <= ${NOW} - interval ? microsecond)`
  const skipLocked = (by: string) => `order by ${by} limit ? for update skip locked`
  const stale = `available_at <= ${NOW} and (locked_until is null or locked_until < ${NOW})
    and created_at <= ${NOW} - interval ? microsecond`
  // One that is tried alone may have been a suspect before.
  const suspect = `locked_until < ${NOW} and (? = 1 or right(locked_by, ${SOLO.length}) not in ('${SOLO}', '${SOME}'))`
  const seqs = `json_table(?, '$[*]' columns (seq bigint unsigned path '$')) s`
  const bySeq = `straight_join ${events} e force index (primary) on e.seq = s.seq`
  return {
    fresh: (accept: Condition) =>
      `${fresh} and seq >= ? and locked_until is null and ${recent} and ${accept.sql} ${skipLocked('seq')}`,
    timed: (accept: Condition) =>
      `${timed} and (? is null or timed_at > ${NOW} - interval ? microsecond) and locked_until is null
        and ${accept.sql} ${skipLocked('timed_at')}`,
    // Looked for without locks: among a large backlog there are few, or none.
    lostFresh: (accept: Condition) => `
select seq from ${events} force index (${index}_fresh)
 where fresh = 1 and ${suspect} and ${accept.sql} order by seq limit ?`,
    lostTimed: (accept: Condition) => `
select seq from ${events} force index (${index}_timed)
 where timed_at <= ${NOW} and status <> 3 and ${suspect} and ${accept.sql} order by timed_at limit ?`,
    lost: `
select e.seq, ${SIZE}, ${OWNER}, e.fresh from ${seqs} ${bySeq}
 where e.status in (0, 2) and e.locked_until < ${NOW} ${FOR_UPDATE} skip locked`,
    staleFresh: (accept: Condition) => `
select seq from ${events} force index (${index}_fresh) where fresh = 1 and ${stale} and ${accept.sql}
 order by seq limit ?`,
    staleTimed: (accept: Condition) => `
select seq from ${events} force index (${index}_timed) where timed_at <= ${NOW} and status <> 3 and ${stale} and ${accept.sql}
 order by timed_at limit ?`,
    // First rows of their keys only.
    staleOrdered: (accept: Condition) => `
select seq from ${events} e force index (${index}_ordered)
 where pending_key > '' and status in (0, 2) and ${stale} and ${accept.sql}
   and seq = (select p.seq from ${events} p force index (${index}_ordered)
               where p.pending_key = e.pending_key order by p.pending_key, p.seq limit 1)
 order by pending_key, seq limit ?`,
    free: `
select e.seq, ${SIZE_BESIDES_PAYLOAD}, ${OWNER}, e.fresh from ${seqs} ${bySeq}
 where e.status in (0, 2) and e.available_at <= ${NOW} and (e.locked_until is null or e.locked_until < ${NOW})
   ${FOR_UPDATE} skip locked`,
    // Highest seq drawn, ms to the next one due, whether a key has rows.
    summary: `
select (select max(seq) from ${events}),
  (select ${epochMs('timed_at')} - ${epochMs(NOW)} from ${events} force index (${index}_timed)
    where timed_at > ${NOW} and timed_at < ${NEVER} and status <> 3 order by timed_at limit 1),
  (select 1 from ${events} force index (${index}_ordered) where pending_key > '' limit 1)`,
    lease: `
update json_table(?, '$[*]' columns (seq bigint unsigned path '$.seq', token varchar(255) ${EXACT} path '$.token',
    charge int path '$.charge', runs int path '$.runs')) s ${bySeq}
   set e.locked_by = s.token, e.attempts = if(s.charge = 0, e.attempts, least(e.attempts, ${MAX_ATTEMPTS}) + s.charge),
       e.locked_until = if(s.runs = 1, ${NOW} + interval ? microsecond, e.locked_until)`,
    leaseRange: `
update ${events} set locked_by = ?, locked_until = ${NOW} + interval ? microsecond where seq between ? and ?`,
    rowsInRange: `select ${eventColumns()} from ${events} e where e.seq between ? and ? order by e.seq`,
    // Sorted by us: the server would write payloads into a temporary table for that.
    rows: `select ${eventColumns()} from ${seqs} ${bySeq}`,
    // Without the payload: nobody is going to read it.
    bareRows: `select ${eventColumns('null, null')} from ${seqs} ${bySeq}`,
  }
}

export type ClaimStatements = ReturnType<typeof claimStatements>

/** Fewest candidates of a claim, unless its limit is lower. */
const FEWEST_CANDIDATES = 32

/**
 * Decides how many rows a claim looks at. InnoDB reads a large payload completely to tell its size. After a claim that its
 * bytes have cut, the next claims look at fewer rows, because they would read the others in vain. On MySQL 9.7, a claim of one
 * row of 1 MB looked at 200 such rows and read 207 MiB.
 */
export class CandidateLimit {
  #most = Number.POSITIVE_INFINITY

  of<Request extends { readonly limit: number }>(request: Request): Request {
    return request.limit <= this.#most ? request : { ...request, limit: this.#most }
  }

  note(looked: number, taken: number): void {
    if (taken < looked) this.#most = Math.max(FEWEST_CANDIDATES, 2 * taken)
    else if (looked >= this.#most) this.#most *= 2
  }
}

/** Rows whose lease ran out first, then those whose time has come (at most half, unless there is room), then new ones. */
export async function claim(
  sql: ClaimStatements,
  connection: Connection,
  candidates: CandidateLimit,
  given: ClaimRequest,
): Promise<ClaimResult> {
  const request = candidates.of(given)
  const { fromSeq, limit } = request
  // While everything is paused nothing is looked at, however much waits.
  const idle = acceptsNothing(request.accept) || limit <= 0
  if (request.freshOnly && request.suspects === 0) {
    if (idle) return { rows: [], highSeq: null, complete: true, nextSeq: fromSeq, nextDueMs: null }
    const { found, picked, rows } = await connection.transaction(async (query) => {
      const found = await lockFresh(sql, query, request, limit)
      const picked = cut(found, request.maxBytes)
      return { found, picked, rows: await lease(sql, query, picked, request, SOLO) }
    })
    candidates.note(found.length, picked.length)
    const complete = found.length < limit && picked.length === found.length
    return { rows, highSeq: null, complete, nextSeq: behind(picked, fromSeq), nextDueMs: null }
  }
  // Before anything is claimed: what is drawn from now on is above it.
  const [summary = []] = (await connection.uncommitted(sql.summary, [])).rows
  const told = {
    highSeq: Number(summary[0] ?? 0),
    nextDueMs: summary[1] === null ? null : Math.max(0, Number(summary[1])),
    hasOrdered: summary[2] !== null,
  }
  if (idle) return { ...told, rows: [], complete: acceptsNothing(request.accept), nextSeq: fromSeq }
  return connection.transaction(async (query) => {
    const { wanted, dueComplete } = await lockEverything(sql, query, request)
    const picked = cut(wanted, request.maxBytes)
    candidates.note(wanted.length, picked.length)
    return {
      ...told,
      rows: await lease(sql, query, picked, request, request.suspects === 1 ? SOLO : SOME),
      complete: wanted.length < limit && picked.length === wanted.length,
      dueComplete: dueComplete && picked.length === wanted.length,
      nextSeq: behind(picked.filter(isUntried), fromSeq),
    }
  })
}

async function lockEverything(
  sql: ClaimStatements,
  query: Query,
  request: ClaimRequest,
): Promise<{ wanted: readonly Candidate[]; dueComplete: boolean }> {
  const { limit } = request
  const accept = accepts(request.accept)
  const suspects: Candidate[] = []
  const most = Math.min(request.suspects, limit)
  for (const find of [sql.lostFresh, sql.lostTimed]) {
    const room = most - suspects.length
    if (room <= 0) break
    const params = [request.suspects, ...accept.params, String(room)]
    suspects.push(...(await lockFound(query, find(accept), params, sql.lost)))
  }
  const room = limit - suspects.length
  const timed = await lockTimed(sql, query, request, Math.ceil(room / 2))
  const fresh = await lockFresh(sql, query, request, room - timed.length)
  const left = room - timed.length - fresh.length
  // What the fresh ones left; those that are locked already come first once more.
  const more =
    left > 0 && timed.length === Math.ceil(room / 2)
      ? await lockTimed(sql, query, request, timed.length + left)
      : timed
  const wanted = [...suspects, ...more, ...fresh]
  return { wanted, dueComplete: timed.length < Math.ceil(room / 2) || wanted.length < limit }
}

function lockFresh(sql: ClaimStatements, query: Query, request: ClaimRequest, most: number) {
  const accept = accepts(request.accept)
  const recent = microseconds(request.skipRecentMs)
  return lock(query, sql.fresh(accept), [request.fromSeq, recent, recent, ...accept.params, String(most)])
}

function lockTimed(sql: ClaimStatements, query: Query, request: ClaimRequest, most: number) {
  const accept = accepts(request.accept)
  const within = request.dueWithinMs == null ? null : microseconds(request.dueWithinMs)
  return lock(query, sql.timed(accept), [within, within ?? 0, ...accept.params, String(most)])
}

async function lock(query: Query, sql: string, params: readonly Param[]): Promise<readonly Candidate[]> {
  if (params.at(-1) === '0') return []
  const { rows } = await query(sql, params)
  return rows.map((row) => ({
    seq: Number(row[0]),
    size: Number(row[1]),
    lockedBy: row[2] as string | null,
    fresh: row[3] !== null,
  }))
}

/** Finds rows without locks, and then locks those that are still as they were. */
async function lockFound(
  query: Query,
  find: string,
  params: readonly Param[],
  locking: string,
): Promise<readonly Candidate[]> {
  const { rows } = await query(find, params)
  if (rows.length === 0) return []
  return lock(query, locking, [JSON.stringify(rows.map((row) => Number(row[0])))])
}

function isUntried({ fresh, lockedBy }: Candidate): boolean {
  return fresh && lockedBy === null
}

/** As many as the bytes allow; the first one whatever its size. */
function cut(candidates: readonly Candidate[], maxBytes: number): readonly Candidate[] {
  let bytes = 0
  const end = candidates.findIndex(({ size }, at) => {
    bytes += size
    return at > 0 && bytes > maxBytes
  })
  return end < 0 ? candidates : candidates.slice(0, end)
}

function behind(fresh: readonly Candidate[], fromSeq: number): number {
  return fresh.reduce((next, { seq }) => Math.max(next, seq + 1), fromSeq)
}

/** Of rows that this transaction has locked. `lost` keep their state, but their former owner can settle no more. */
export async function lease(
  sql: ClaimStatements,
  query: Query,
  candidates: readonly Pick<Candidate, 'seq' | 'lockedBy'>[],
  { token, leaseMs }: { readonly token: string; readonly leaseMs: number },
  mark: string,
  lost: readonly { readonly seq: number; readonly token: string }[] = [],
): Promise<ClaimedRow[]> {
  if (candidates.length === 0) return []
  const range = lost.length === 0 ? rangeOf(candidates) : null
  if (range) {
    await query(sql.leaseRange, [token, microseconds(leaseMs), ...range])
    return (await query(sql.rowsInRange, range)).rows.map((row) => claimedRow(row, token))
  }
  const leases: Lease[] = candidates.map(({ seq, lockedBy }) => ({
    seq,
    token: lockedBy === null ? token : token + mark,
    charge: lockedBy?.endsWith(SOLO) ? 1 : 0,
    runs: 1,
  }))
  for (const one of lost) leases.push({ ...one, charge: 0, runs: 0 })
  await query(sql.lease, [JSON.stringify(leases), microseconds(leaseMs)])
  const { rows } = await query(sql.rows, [JSON.stringify(candidates.map(({ seq }) => seq))])
  return inOrder(rows.map((row) => claimedRow(row, row[16] as string)))
}

/** From and to, when they have followed each other and nobody has held any of them; that is far cheaper than a list. */
function rangeOf(candidates: readonly Pick<Candidate, 'seq' | 'lockedBy'>[]): [number, number] | null {
  let [from, to] = [Number.POSITIVE_INFINITY, 0]
  for (const { seq, lockedBy } of candidates) {
    if (lockedBy !== null) return null
    from = Math.min(from, seq)
    to = Math.max(to, seq)
  }
  return to - from === candidates.length - 1 ? [from, to] : null
}

function inOrder(rows: ClaimedRow[]): ClaimedRow[] {
  return rows.sort((a, b) => a.seq - b.seq)
}

export function claimUnroutable(
  sql: ClaimStatements,
  connection: Connection,
  request: UnroutableRequest,
): Promise<readonly ClaimedRow[]> {
  const { token, leaseMs, limit, olderThanMs, maxBytes = UNROUTABLE_BYTES } = request
  const unknown = not(knows(request.known))
  return connection.transaction(async (query) => {
    const found: Candidate[] = []
    for (const find of [sql.staleFresh, sql.staleTimed, sql.staleOrdered]) {
      const params = [microseconds(olderThanMs), ...unknown.params, String(limit - found.length)]
      found.push(...(await lockFound(query, find(unknown), params, sql.free)))
    }
    if (found.length === 0) return []
    const picked = cut(found, maxBytes)
    const leases: Lease[] = picked.map(({ seq }) => ({ seq, token, charge: 0, runs: 1 }))
    await query(sql.lease, [JSON.stringify(leases), microseconds(leaseMs)])
    const { rows } = await query(sql.bareRows, [JSON.stringify(picked.map(({ seq }) => seq))])
    return inOrder(rows.map((row) => claimedRow(row, token)))
  })
}

export function claimedRow(row: Row, token: string): ClaimedRow {
  return checkedRow<ClaimedRow>(uncheckedRow(row, token), false)
}

/** Written out field by field: this runs for every event. */
export function uncheckedRow(row: Row, token: string) {
  const bytes = row[9] as Uint8Array | null
  const leftOut = row[13] as string
  const isLoaded = !leftOut.includes('payload')
  const payloadText = row[8] ?? (bytes === null && isLoaded ? 'null' : null)
  const payloadSize = bytes?.length ?? sizeOf(payloadText)
  return {
    eventId: row[0],
    eventType: row[2],
    aggregateType: row[3],
    aggregateId: row[4],
    tenantId: row[5],
    orderingKey: row[6],
    version: Number(row[7]),
    payloadText,
    payloadBytes: bytes === null ? null : new Uint8Array(bytes),
    headers: row[10],
    metadata: row[11],
    // A zero date, which some settings of the server allow, has no number.
    occurredAtMs: row[12] === null ? Number.NaN : Math.round(Number(row[12])),
    payloadSize,
    seq: Number(row[1]),
    attempts: Number(row[14]),
    handledBy: row[15],
    token,
    suspect: token.endsWith(SOLO) || token.endsWith(SOME),
    bytes: payloadSize + lengthOf(row[10]) + lengthOf(row[11]) + lengthOf(row[15]),
    invalid: leftOut === '' ? undefined : tooLarge(leftOut.split(',')),
  }
}

function sizeOf(text: unknown): number {
  return typeof text === 'string' ? Buffer.byteLength(text) : 0
}

function lengthOf(text: unknown): number {
  return typeof text === 'string' ? text.length : 0
}
