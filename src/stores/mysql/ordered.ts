import {
  acceptsNothing,
  type ClaimedRow,
  type OrderedClaimRequest,
  type OrderedClaimResult,
} from '../../store.js'
import { accepts, type Condition } from './accepts.js'
import { microseconds } from './append.js'
import { type ClaimStatements, lease, OWNER, SIZE, SOLO } from './claim.js'
import type { Connection } from './connections.js'
import type { Query } from './driver.js'
import { FOR_UPDATE } from './locks.js'
import type { Names } from './names.js'

/** Keys that one claim looks at, however few of them it can take. */
const MOST_KEYS = 1_000
/**
 * So many rows of a key are looked through for a valid lease. Transactions that do not serialise may commit rows in
 * front of it, late and with a lower `seq`; only more than these at once could hide it.
 */
const LOOK_AHEAD = 40
/** Begins the token of a row whose key was taken over: its former owner cannot settle it any more. */
const LOST = '~'
/** Characters of the column. */
const MAX_TOKEN = 255

const NOW = 'utc_timestamp(6)'

/** The first row of a key, as far as a glance without locks can tell. */
interface Head {
  readonly key: string
  /** 1: can be taken, 2: its last owner vanished, 0: the key waits. */
  readonly state: number
  readonly dueMs: number | null
}

/** One of the first rows of a key, locked. */
interface Near {
  readonly seq: number
  readonly key: string
  readonly size: number
  readonly lockedBy: string | null
  readonly busy: boolean
  readonly takeable: boolean
}

/** What a claim takes of one key, and the rows behind that which lost their lease. */
interface Taking {
  readonly key: string
  readonly run: readonly Near[]
  readonly lost: readonly Near[]
}

/**
 * The first rows are found without locks, and by then others may be at them. So all the first rows of a key are locked
 * without waiting, and then looked up once more: who has not locked every one of them leaves the key alone. What another
 * claim has locked, and a row that came in front of the others meanwhile, are noticed that way.
 */
export function orderedStatements({ events, index }: Names) {
  const ordered = `force index (${index}_ordered)`
  const takeable = (accept: Condition) =>
    `(status in (0, 2) and available_at <= ${NOW} and (? = 0 or created_at <= ${NOW} - interval ? microsecond) and ${accept.sql})`
  // Sorted by the whole index. With `order by z.seq` alone MySQL 9.7 reads and sorts all rows of the key.
  const next = (key: string, more: string, limit: number) =>
    `(select z.seq from ${events} z ${ordered} where z.pending_key = ${key} ${more}
       order by z.pending_key, z.seq limit ${limit})`
  const keys = (collation: string) =>
    `json_table(?, '$[*]' columns (k varchar(255) character set utf8mb4 collate ${collation} path '$')) s`
  return {
    // What waits behind a first row is skipped in the index, or read there at least.
    heads: (accept: Condition) => `
select g.pending_key, case when locked_until >= ${NOW} then 0 when not ${takeable(accept)} then 0
    when locked_until is null then 1 else 2 end,
  case when status in (0, 2) and available_at > ${NOW}
    then timestampdiff(microsecond, ${NOW}, available_at) / 1000 end
  from (select pending_key, min(seq) as seq from ${events} ${ordered} where pending_key > ?
         group by pending_key order by pending_key limit ?) g
    straight_join ${events} e force index (primary) on e.seq = g.seq
 order by g.pending_key`,
    // Reads the first rows of each key from the index, so that a long key costs no more than a short one. MariaDB has no
    // LATERAL and goes from row to row.
    near: `
/*!80017 select z.seq, s.k from ${keys('utf8mb4_0900_bin')} join lateral ${next('s.k', '', LOOK_AHEAD)} z */
/*M!100203 with recursive near (k, n, seq) as (
  select s.k, 1, ${next('s.k', '', 1)} from ${keys('utf8mb4_nopad_bin')}
  union all
  select near.k, near.n + 1, ${next('near.k', 'and z.seq > near.seq', 1)} from near
   where near.n < ${LOOK_AHEAD} and near.seq is not null)
select seq, k from near where seq is not null */`,
    lock: (accept: Condition) => `
select e.seq, e.pending_key, ${SIZE}, ${OWNER}, locked_until >= ${NOW}, ${takeable(accept)}
  from json_table(?, '$[*]' columns (seq bigint unsigned path '$')) s straight_join ${events} e force index (primary) on e.seq = s.seq
 where e.pending_key is not null ${FOR_UPDATE} skip locked`,
  }
}

type Statements = ReturnType<typeof orderedStatements>

export async function claimOrdered(
  sql: Statements,
  claims: ClaimStatements,
  connection: Connection,
  request: OrderedClaimRequest,
): Promise<OrderedClaimResult> {
  const { keys, afterKey } = request
  if (keys < 1) return { rows: [], afterKey, nextDueMs: null }
  if (acceptsNothing(request.accept)) return { rows: [], afterKey: null, nextDueMs: null }
  const { heads, wanted, reachedEnd } = await look(sql, connection.query, request)
  const waits = heads.flatMap(({ dueMs }) => (dueMs === null ? [] : [dueMs]))
  const nextDueMs = waits.length > 0 ? Math.min(...waits) : null
  const last = reachedEnd ? null : (heads.at(-1)?.key ?? null)
  if (wanted.length === 0) return { rows: [], afterKey: last, nextDueMs }
  return connection.transaction(async (query) => {
    const possible = await takings(sql, query, request, wanted)
    const chosen = fitting(possible, request)
    const rows = await lease(
      claims,
      query,
      chosen.flatMap(({ run }) => run),
      request,
      SOLO,
      chosen
        .flatMap(({ lost }) => lost)
        .map(({ seq, lockedBy }) => ({ seq, token: (LOST + lockedBy).slice(0, MAX_TOKEN) })),
    )
    // What does not fit comes first next time; a cursor that went past it could keep it waiting for ever.
    const leftOut = possible[chosen.length]
    const at = leftOut ? heads.findIndex(({ key }) => key === leftOut.key) : -1
    return { rows: runByRun(rows), afterKey: at > 0 ? (heads[at - 1]?.key ?? last) : last, nextDueMs }
  })
}

/** Walks over the keys until enough of them look as if they could be taken. */
async function look(
  sql: Statements,
  query: Query,
  request: OrderedClaimRequest,
): Promise<{ heads: readonly Head[]; wanted: readonly string[]; reachedEnd: boolean }> {
  const accept = accepts(request.accept)
  const step = Math.min(MOST_KEYS, Math.max(50, request.keys * 2))
  const heads: Head[] = []
  const wanted: string[] = []
  let { afterKey, suspects } = request
  for (;;) {
    const most = Math.min(step, MOST_KEYS - heads.length)
    const recent = microseconds(request.skipRecentMs)
    const params = [recent, recent, ...accept.params, afterKey, String(most)]
    const { rows } = await query(sql.heads(accept), params)
    for (const row of rows) {
      if (wanted.length >= request.keys) return { heads, wanted, reachedEnd: false }
      const dueMs = row[2] === null ? null : Number(row[2])
      const head: Head = { key: row[0] as string, state: Number(row[1]), dueMs }
      heads.push(head)
      if (head.state === 1 || (head.state === 2 && suspects-- > 0)) wanted.push(head.key)
    }
    afterKey = heads.at(-1)?.key ?? afterKey
    if (rows.length < most) return { heads, wanted, reachedEnd: true }
    if (heads.length >= MOST_KEYS || wanted.length >= request.keys)
      return { heads, wanted, reachedEnd: false }
  }
}

/** Keys in the order of the scan, each with its rows locked. */
async function takings(
  sql: Statements,
  query: Query,
  request: OrderedClaimRequest,
  keys: readonly string[],
): Promise<readonly Taking[]> {
  const accept = accepts(request.accept)
  const found = await query(sql.near, [JSON.stringify(keys)])
  const seqs = JSON.stringify(found.rows.map((row) => Number(row[0])))
  const recent = microseconds(request.skipRecentMs)
  const { rows } = await query(sql.lock(accept), [recent, recent, ...accept.params, seqs])
  const locked = new Map<number, Near>()
  for (const row of rows) {
    const near = {
      seq: Number(row[0]),
      key: row[1] as string,
      size: Number(row[2]),
      lockedBy: row[3] as string | null,
      busy: Number(row[4]) === 1,
      takeable: Number(row[5]) === 1,
    }
    locked.set(near.seq, near)
  }
  const again = await query(sql.near, [JSON.stringify(keys)])
  const byKey = new Map<string, Near[] | null>()
  for (const row of again.rows) {
    const key = row[1] as string
    const near = locked.get(Number(row[0]))
    const known = byKey.get(key)
    if (!near || known === null) byKey.set(key, null)
    else if (known) known.push(near)
    else byKey.set(key, [near])
  }
  let { suspects } = request
  return keys.flatMap((key) => {
    const taking = take(key, byKey.get(key) ?? [], request.runLength)
    if (!taking) return []
    return taking.run[0]?.lockedBy != null && suspects-- <= 0 ? [] : [taking]
  })
}

/** The first rows of a key as far as each may run, or its first row alone when that one lost its lease. */
function take(key: string, unsorted: readonly Near[], runLength: number): Taking | null {
  const rows = [...unsorted].sort((a, b) => a.seq - b.seq)
  const [head] = rows
  // One that committed late, in front of a run that is being worked on, waits for it.
  if (!head?.takeable || rows.some(({ busy }) => busy)) return null
  const alone = head.lockedBy !== null
  const end = rows.findIndex((row, at) => at > 0 && (alone || row.lockedBy !== null || !row.takeable))
  const run = rows.slice(0, Math.min(runLength, end < 0 ? rows.length : end))
  const lost = rows
    .slice(run.length)
    .filter(({ lockedBy }) => lockedBy !== null && !lockedBy.startsWith(LOST))
  return { key, run, lost }
}

/** Runs whole or not at all; the first whatever its size. */
function fitting(
  takings: readonly Taking[],
  { limit, maxBytes }: Pick<OrderedClaimRequest, 'limit' | 'maxBytes'>,
): readonly Taking[] {
  let count = 0
  let bytes = 0
  const end = takings.findIndex(({ run }, at) => {
    count += run.length
    for (const { size } of run) bytes += size
    return at > 0 && (count > limit || bytes > maxBytes)
  })
  return end < 0 ? takings : takings.slice(0, end)
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
