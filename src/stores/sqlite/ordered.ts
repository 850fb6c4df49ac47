import {
  acceptsNothing,
  type ClaimedRow,
  type OrderedClaimRequest,
  type OrderedClaimResult,
} from '../../store.js'
import { ACCEPTED, filterParams, JOIN_NAMES, WITH_NAMES } from './accepts.js'
import { DUE, NOT_RECENT } from './claim.js'
import { safe, sizeOf } from './columns.js'
import type { Connections } from './connections.js'
import type { Connection, Params, Row, SqliteDatabase } from './driver.js'
import { lease, leaseStatements } from './lease.js'
import type { Names } from './names.js'
import { clock, indexesOf, NEVER, ORDERED } from './schema.js'

/** Keys that one claim looks at, however few of them it can take. */
const MOST_KEYS = 1_000
/** So many rows of a key are looked through for a valid lease. */
const LOOK_AHEAD = 40
/** Begins the token of a row whose key was taken over: its former owner cannot settle it any more. */
const LOST = '~'

/**
 * A loose index scan jumps from the first row of one key to that of the next, so that what waits behind a first row
 * costs nothing. The write lock makes the rest plain: what is looked at is what is there.
 */
export function orderedStatements(names: Names) {
  const index = indexesOf(names)
  const takeable = `(e.status in (0, 2) and ${DUE} and ${NOT_RECENT} and ${ACCEPTED})`
  const state = `case when e.locked_until >= :now or not ${takeable} then 0 when e.locked_until is null then 1 else 2 end`
  const entered = '(h.state = 1 or (h.state = 2 and h.lost < :suspects))'
  return {
    // state 1: can be taken, 2: its last owner vanished, 0: the key waits; `taken` and `lost` count those in front
    heads: `
with recursive ${WITH_NAMES}, head(n, seq, ordering_key, state, due, taken, lost) as (
  select 0, 0, :afterKey, 0, null, 0, 0
  union all
  select h.n + 1, e.seq, e.ordering_key, ${state},
      case when e.status in (0, 2) and e.available_at > :now and e.available_at < ${NEVER} then e.available_at end,
      h.taken + ${entered}, h.lost + (h.state = 2)
    from head h cross join ${names.events} e on e.seq = (
        select f.seq from ${names.events} f indexed by ${index.ordered}
         where ${ORDERED} and f.ordering_key > h.ordering_key order by f.ordering_key, f.seq limit 1)
      ${JOIN_NAMES}
   where h.n < ${MOST_KEYS} and h.taken + ${entered} < :keys
)
select seq, ordering_key, due, ${entered} as entered from head h where n > 0 order by n`,
    // The first rows of the keys that begin with these rows, and whatever was leased further back.
    runs: `
with ${WITH_NAMES}, first as materialized (
  select f.seq as head, f.ordering_key as key from json_each(:heads) k cross join ${names.events} f on f.seq = k.value
), pending as (
  select k.head, e.seq, row_number() over (partition by k.head order by e.seq) as nth
    from first k cross join ${names.events} e indexed by ${index.ordered}
   where ${ORDERED} and e.ordering_key = k.key and e.seq in (
     select f.seq from ${names.events} f indexed by ${index.ordered}
      where ${ORDERED} and f.ordering_key = k.key order by f.seq limit :lookAhead)
)
select p.head as head, e.seq as seq, ${sizeOf('e.')} as size, ${safe('e.locked_until', 'locked_until')}, ${takeable} as takeable
  from pending p cross join ${names.events} e on e.seq = p.seq ${JOIN_NAMES}
 where p.nth <= :runLength or e.locked_until is not null
 order by e.seq`,
    lose: `
update ${names.events} set locked_by = '${LOST}' || locked_by
 where seq in (select value from json_each(:seqs)) and substr(locked_by, 1, 1) <> '${LOST}'`,
    lease: leaseStatements(names).handled,
  }
}

type Statements = ReturnType<typeof orderedStatements>

interface Pending {
  readonly seq: number
  readonly size: number
  readonly lockedUntil: number | null
  readonly takeable: boolean
}

/** What a claim takes of one key, and the rows behind that which lost their lease. */
interface Taking {
  readonly run: readonly Pending[]
  readonly lost: readonly Pending[]
}

/** A look first, without any lock, and only when a key can be entered the same again under the write lock. */
export async function claimOrdered(
  sql: Statements,
  connections: Connections<SqliteDatabase>,
  request: OrderedClaimRequest,
): Promise<OrderedClaimResult> {
  const { keys, afterKey, accept } = request
  if (keys < 1) return { rows: [], afterKey, nextDueMs: null }
  if (acceptsNothing(accept)) return { rows: [], afterKey: null, nextDueMs: null }
  const filter = filterParams(accept)
  const look = await connections.read((db) => scan(sql, db, { ...request, keys: 1 }, filter, clock(db)))
  if (look.taken === 0) return { rows: [], afterKey: look.goesOnAfter, nextDueMs: look.nextDueMs }
  return connections.write((db) => take(sql, db, request, filter), 'fleeting')
}

function take(
  sql: Statements,
  db: Connection,
  request: OrderedClaimRequest,
  filter: Params,
): OrderedClaimResult {
  const { limit, maxBytes } = request
  const now = clock(db)
  const { heads, goesOnAfter, nextDueMs } = scan(sql, db, request, filter, now)
  const pending = pendingOf(sql, db, request, filter, now, heads)
  const takings: Taking[] = []
  let afterKey = goesOnAfter
  let before = request.afterKey
  let count = 0
  let bytes = 0
  for (const { seq, key, isEntered } of heads) {
    const taking = isEntered ? takingOf(pending.get(seq) ?? [], now, request.runLength) : undefined
    if (taking) {
      count += taking.run.length
      for (const { size } of taking.run) bytes += size
      // What does not fit comes first next time; a cursor that went past it could keep it waiting for ever.
      if (takings.length > 0 && (count > limit || bytes > maxBytes)) {
        afterKey = before
        break
      }
      takings.push(taking)
    }
    before = key
  }
  const lost = takings.flatMap((taking) => taking.lost)
  if (lost.length > 0) db.run(sql.lose, { seqs: seqsOf(lost) })
  const seqs = takings.flatMap((taking) => taking.run.map(({ seq }) => seq))
  const rows = lease(sql.lease, db, request, now, seqs)
  return { rows: runByRun(rows), afterKey, nextDueMs }
}

interface Scan {
  /** By their first rows: a key of bytes, or with U+0000 in it, does not come back from JSON as it was. */
  readonly heads: readonly { readonly seq: number; readonly key: string; readonly isEntered: boolean }[]
  /** How many of them are entered. */
  readonly taken: number
  /** The last key that was seen, when there may be more behind it. */
  readonly goesOnAfter: string | null
  readonly nextDueMs: number | null
}

function scan(
  sql: Statements,
  db: Connection,
  { keys, afterKey, suspects, skipRecentMs }: OrderedClaimRequest,
  filter: Params,
  now: number,
): Scan {
  const rows = db.all(sql.heads, { ...filter, now, keys, afterKey, suspects, skipRecentMs })
  let taken = 0
  let due = Number.POSITIVE_INFINITY
  const heads = rows.map((row) => {
    const isEntered = Number(row.entered) === 1
    if (isEntered) taken++
    if (row.due !== null) due = Math.min(due, Number(row.due))
    return { seq: Number(row.seq), key: bindable(row.ordering_key), isEntered }
  })
  const mayGoOn = taken >= keys || heads.length >= MOST_KEYS
  return {
    heads,
    taken,
    goesOnAfter: mayGoOn ? (heads.at(-1)?.key ?? null) : null,
    nextDueMs: Number.isFinite(due) ? due - now : null,
  }
}

/** A key of bytes comes as an ArrayBuffer from libsql, which takes back a Buffer only. */
function bindable(key: unknown): string {
  return (key instanceof ArrayBuffer ? Buffer.from(key) : key) as string
}

function pendingOf(
  sql: Statements,
  db: Connection,
  { runLength, skipRecentMs }: OrderedClaimRequest,
  filter: Params,
  now: number,
  heads: Scan['heads'],
): Map<number, Pending[]> {
  const entered = heads.filter((head) => head.isEntered).map((head) => head.seq)
  const lookAhead = Math.max(runLength, LOOK_AHEAD)
  const params = { ...filter, heads: JSON.stringify(entered), now, skipRecentMs, runLength, lookAhead }
  const pending = new Map<number, Pending[]>(entered.map((seq) => [seq, []]))
  for (const row of db.all(sql.runs, params)) pending.get(Number(row.head))?.push(pendingRow(row))
  return pending
}

function pendingRow(row: Row): Pending {
  return {
    seq: Number(row.seq),
    size: Number(row.size),
    lockedUntil: row.locked_until === null ? null : Number(row.locked_until),
    takeable: Number(row.takeable) === 1,
  }
}

/** The first rows of a key as far as each may run, or its first row alone when that one lost its lease. */
function takingOf(rows: readonly Pending[], now: number, runLength: number): Taking | undefined {
  const [head] = rows
  // While a row of the key is being worked on, nobody else gets another one.
  if (!head || rows.some(({ lockedUntil }) => lockedUntil !== null && lockedUntil >= now)) return undefined
  const isSuspect = head.lockedUntil !== null
  const end = rows.findIndex(
    ({ lockedUntil, takeable }, nth) => nth > 0 && (isSuspect || lockedUntil !== null || !takeable),
  )
  const length = Math.min(runLength, end < 0 ? rows.length : end)
  return { run: rows.slice(0, length), lost: rows.slice(length).filter((row) => row.lockedUntil !== null) }
}

function seqsOf(rows: readonly Pending[]): string {
  return JSON.stringify(rows.map(({ seq }) => seq))
}

/** Keys by the age of their first row. */
function runByRun(rows: readonly ClaimedRow[]): ClaimedRow[] {
  const runs = new Map<string | null, ClaimedRow[]>()
  for (const row of rows) {
    const run = runs.get(row.orderingKey)
    if (run) run.push(row)
    else runs.set(row.orderingKey, [row])
  }
  return [...runs.values()].flat()
}
