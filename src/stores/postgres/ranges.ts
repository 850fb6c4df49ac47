import type { Claim, ClaimedRow, ClaimRequest, ClaimResult } from '../../store.js'
import { accepts, filterParams } from './accepts.js'
import { claimedRow } from './claimed-row.js'
import { eventColumns, sizeOf } from './columns.js'
import { type Query, statement } from './driver.js'
import type { Names } from './names.js'
import { FRESH } from './schema.js'

/** Fewer rows are claimed one by one: a range costs a statement more. */
const NARROWEST = 100
/** After a range with many gaps, or one cut short, so many claims go row by row. */
const PAUSE = 50
/** A range whose rows are not settled after so many leases, because they were lost, is forgotten. */
const LEASES_KNOWN = 10
const SEPARATOR = '\x1e'

export function rangeStatements(names: Names) {
  // Of a row that is not wanted, or larger than a plain one may be, the content is not sent.
  const columns = eventColumns({
    json: (column) => `case when e.plain then ${column}::text end`,
    bytes: (column) => `case when e.plain then encode(${column}, 'base64') end`,
  })
  return {
    // $1 token, $2 from seq, $3 width, $4 lease ms
    take: statement(
      `select first_seq, last_seq from ${names.takeRange}($1::text, $2::bigint, $3::bigint, $4::float8)`,
    ),
    // $1, $2 first and last seq, $3 most bytes of a row, $4–$7 filter
    rows: statement(`
select ${columns}, e.plain::int
  from (select *, ${accepts(4)} and locked_by is null and ${sizeOf()} <= $3::float8 as plain from ${names.events}
         where ${FRESH} and seq between $1::bigint and $2::bigint and locked_until is null order by seq offset 0) e
 order by e.seq`),
    shorten: statement(`update ${names.ranges} set last_seq = $2::bigint where token = $1::text`),
    end: statement(`delete from ${names.ranges} where token = $1::text`),
    // $1 ids, $2 token
    toLeases: statement(`
with ended as (delete from ${names.ranges} where token = $2::text returning until)
update ${names.events} set locked_by = $2::text, locked_until = ended.until from ended
 where event_id = any(string_to_array($1::text, E'\\x1e')) and status = 0 and locked_by is null`),
    // Whoever held them vanished: their rows become rows whose lease ran out. Waits for nobody.
    expire: statement(`
with gone as (
  delete from ${names.ranges} where token = any(array(
    select token from ${names.ranges} where until < now() for update skip locked))
  returning token, first_seq, last_seq
), left_behind as materialized (
  select e.ctid, gone.token from gone join ${names.events} e on e.seq between gone.first_seq and gone.last_seq
   where ${FRESH} and e.locked_until is null for update of e skip locked
), lost as (
  update ${names.events} e set locked_by = l.token, locked_until = now() - interval '1 ms'
    from left_behind l where e.ctid = l.ctid
)
select count(*) from gone`),
  }
}

type Statements = ReturnType<typeof rangeStatements>

interface Range {
  readonly ids: readonly string[]
  /** How many of them are not settled. */
  left: number
  readonly forgetAt: number
}

/**
 * A large backlog is claimed by stretches of the sequence: one row says who holds all new rows from one `seq` to another,
 * and none of these is written before its outcome is. That halves what a claim costs the server. Near the end of the
 * sequence, where new rows appear, claims go row by row.
 *
 * Nobody takes a row of somebody else's range: both ways of claiming meet at one advisory lock, shared by those that go
 * row by row, and look at the ranges only when they have it (see the functions in schema.ts).
 */
export class Ranges {
  readonly #sql: Statements
  readonly #claim: Query
  readonly #settle: Query
  readonly #held = new Map<string, Range>()
  #pause = 0
  /** There may be a backlog: set by a claim that left something, and until one looked for it in vain. */
  isBacklog = true
  /** How many there had been when there was none, by the last look at everything: the same number, and there is none. */
  countAtNone = -1

  /** `settle` carries statements out one after the other. */
  constructor(names: Names, queries: { claim: Query; settle: Query }) {
    this.#sql = rangeStatements(names)
    this.#claim = queries.claim
    this.#settle = queries.settle
  }

  /** Asked before each claim of new rows. */
  isWorthwhile({ limit, skipRecentMs }: ClaimRequest): boolean {
    if (this.#pause > 0) this.#pause--
    return this.isBacklog && limit >= NARROWEST && skipRecentMs === 0 && this.#pause === 0
  }

  /** Null when the rows had better be claimed one by one. */
  async claim(request: ClaimRequest): Promise<ClaimResult | null> {
    const { token, leaseMs, limit, maxBytes, fromSeq } = request
    const most = maxBytes / limit
    const isPlain = ({ eventId }: ClaimedRow, plain: unknown) =>
      Number(plain) === 1 && !eventId.includes(SEPARATOR)
    try {
      const [bounds] = await this.#claim(this.#sql.take, [token, fromSeq, limit, leaseMs])
      this.isBacklog = bounds !== undefined
      if (!bounds) return null
      const [first, last] = [Number(bounds[0]), Number(bounds[1])]
      const found = await this.#claim(this.#sql.rows, [first, last, most, ...filterParams(request.accept)])
      const rows = found.map((row) => claimedRow(row, token))
      // Nobody else gets what is in a range: it ends before a row that we do not take.
      const other = rows.findIndex((row, at) => !isPlain(row, found[at]?.[15]))
      if (other !== -1) rows.length = other
      if (rows.length < (last - first + 1) / 2) this.#pause = PAUSE
      const end = other === -1 ? last : Number(found[other]?.[1]) - 1
      if (rows.length === 0) await this.#claim(this.#sql.end, [token])
      else if (end < last) await this.#claim(this.#sql.shorten, [token, end])
      if (rows.length > 0) this.#hold(token, rows, leaseMs)
      return { rows, highSeq: null, complete: false, nextSeq: end + 1, nextDueMs: null }
    } catch (error) {
      // Nobody has seen its rows.
      this.#settle(this.#sql.end, [token]).catch(() => {})
      throw error
    }
  }

  #hold(token: string, rows: readonly ClaimedRow[], leaseMs: number): void {
    const now = performance.now()
    const ids = rows.map((row) => row.eventId)
    this.#held.set(token, { ids, left: ids.length, forgetAt: now + leaseMs * LEASES_KNOWN })
    for (const [oldest, { forgetAt }] of this.#held) {
      if (forgetAt > now) break
      this.#held.delete(oldest)
    }
  }

  holds(token: string): boolean {
    return this.#held.has(token)
  }

  /** Whether these successes are its last. */
  endsWith(token: string, successes: number): boolean {
    return (this.#held.get(token)?.left ?? Number.POSITIVE_INFINITY) <= successes
  }

  /** So many more of its rows are done; `ended`: it has ended with them. */
  async settled(token: string, successes: number, ended: boolean): Promise<void> {
    const range = this.#held.get(token)
    if (!range) return
    range.left -= successes
    if (range.left > 0) return
    this.#held.delete(token)
    // Others were written at the same time.
    if (!ended) await this.#settle(this.#sql.end, [token])
  }

  /**
   * What takes long, fails or is given back gets leases of its own, with all that is left of its range: rows that appear
   * there late, and those given back, must not be kept waiting.
   */
  async toLeases(claims: readonly Claim[]): Promise<void> {
    for (const token of new Set(claims.map((claim) => claim.token))) {
      const range = this.#held.get(token)
      if (!range) continue
      await this.#settle(this.#sql.toLeases, [range.ids.join(SEPARATOR), token])
      this.#held.delete(token)
    }
  }

  /** Of processes that vanished. False when there was nothing to do. */
  async expire(): Promise<boolean> {
    const [row] = await this.#claim(this.#sql.expire, [])
    return Number(row?.[0]) > 0
  }
}
