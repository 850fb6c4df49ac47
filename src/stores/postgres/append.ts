import type { EventEnvelope } from '../../core/envelope.js'
import { DuplicateEventError, TransactionRolledBackError } from '../../core/errors.js'
import { redactDriverError } from '../../core/redact.js'
import type { AppendOptions, AppendResult, AppendRow } from '../../store.js'
import type { LateAppend } from '../../transaction.js'
import {
  type DriverSession,
  isFailedTransaction,
  isServerError,
  type LateStatement,
  type Param,
  type Query,
  type Row,
  type Statement,
  statement,
} from './driver.js'
import type { Names } from './names.js'

/** A transaction that publishes more than this sends what it has: it must not keep all its payloads. */
const MOST_WAITING = 500
const MOST_BYTES_WAITING = 1_048_576
/** Which `seq` was the last is asked again after this: with little going on of every row, else of few. */
const FLOOR_KNOWN_MS = 5
const NOTHING: ReadonlyMap<string, number> = new Map()

export function appendStatements(names: Names) {
  const byIds = `where event_id = any(string_to_array($1::text, E'\\x1e'))`
  // Most events are one at a time and plain. Each parameter and each expression less is felt here. As `json` the text is
  // read where it comes in; drivers that look at the types of parameters would write such a one as JSON once more.
  const plain = (json: 'json' | 'text::json') => `
insert into ${names.events} (event_id, event_type, aggregate_type, aggregate_id, version, payload, metadata,
  occurred_at, payload_size, locked_by, locked_until)
values ($1::text, $2::text, $3::text, $4::text, $5::int, $6::${json}, $7::${json},
  timestamptz 'epoch' + $8::float8 * interval '1 ms', $9::int, $10::text,
  clock_timestamp() + $11::float8 * interval '1 ms')`
  const many = `
insert into ${names.events} (event_id, event_type, aggregate_type, aggregate_id, version, payload, metadata,
  occurred_at, payload_size, locked_by, locked_until, tenant_id, ordering_key, payload_bytes, headers, available_at)
select id, type, aggregate_type, aggregate_id, version, payload, metadata, at, size, token,
  case when token is not null then clock_timestamp() + $2::float8 * interval '1 ms' end,
  tenant_id, ordering_key, decode(bytes, 'base64'), headers,
  coalesce(due, statement_timestamp() + coalesce(delay, 0) * interval '1 ms')
  from json_to_recordset($1::text::json) as s(id text, type text, aggregate_type text, aggregate_id text,
    version int, payload json, metadata json, at timestamptz, size int, token text, tenant_id text,
    ordering_key text, bytes text, headers json, delay float8, due timestamptz)`
  const unlessPresent = 'on conflict (event_id) do nothing'
  const returning = 'returning event_id, seq'
  return {
    checked: {
      plain: statement(`${plain('text::json')} ${unlessPresent} ${returning}`),
      many: statement(`${many} ${unlessPresent} ${returning}`),
    },
    // A conflict fails the transaction. For drivers that send parameters as they are.
    unchecked: {
      plain: statement(`${plain('json')} ${returning}`),
      many: statement(`${many} ${returning}`),
    },
    unanswered: statement(plain('json')),
    lastSeq: `currval('${names.sequence}')`,
    remove: statement(`delete from ${names.events} ${byIds}`),
    present: statement(`select event_id, seq from ${names.events} ${byIds}`),
  }
}

type Statements = ReturnType<typeof appendStatements>

/** One statement for all rows. A conflicting id is reported and leaves the transaction usable. */
export async function append(
  sql: Statements,
  query: Query,
  rows: readonly AppendRow[],
  options: AppendOptions,
): Promise<AppendResult> {
  const [first] = rows
  if (!first) return { seqs: new Map(), duplicates: [] }
  const twice = idsGivenTwice(rows)
  if (twice.length > 0 && options.onDuplicate === 'error') return { seqs: new Map(), duplicates: twice }
  const insert = insertOf(sql.checked, rows, options.leaseMs)
  const seqs = seqsOf(await query(insert.statement, insert.params))
  if (seqs.size === rows.length) return { seqs, duplicates: [] }
  const ids = rows.map(idOf)
  const duplicates = [...new Set([...ids.filter((id) => !seqs.has(id)), ...twice])]
  if (options.onDuplicate === 'error' && seqs.size > 0) {
    await query(sql.remove, [[...seqs.keys()].join('\x1e')])
    seqs.clear()
  }
  return { seqs, duplicates }
}

/**
 * What is said to be the `seq` of a row that was written without an answer: one that was known when the row was sent, so
 * that its own can only be higher. Whoever looks for the row starts there, and has little to walk over.
 */
export class SeqFloor {
  /** Below all of them, as long as none is known. */
  #seq = 0
  #toldAt = Number.NEGATIVE_INFINITY

  get seq(): number {
    return this.#seq
  }

  /** It is known, and not long ago. */
  get isFresh(): boolean {
    return performance.now() - this.#toldAt <= FLOOR_KNOWN_MS
  }

  /** The last answer counts: a sequence that was set back is followed. */
  tell(seqs: Iterable<number>): void {
    this.#seq = 0
    for (const seq of seqs) if (seq > this.#seq) this.#seq = seq
    this.#toldAt = performance.now()
  }
}

type Late = NonNullable<DriverSession<unknown>['late']>
type Explain = (error: unknown) => unknown

/** Of one transaction: rows that may wait until the application's next statement, or the COMMIT, takes them along. */
export class LateAppends {
  readonly #sql: Statements
  readonly #floor: SeqFloor
  readonly #late: Late
  readonly #explain: Explain
  #waiting: LateAppend[] = []
  #count = 0
  #bytes = 0

  constructor(sql: Statements, floor: SeqFloor, late: Late, explain: Explain) {
    this.#sql = sql
    this.#floor = floor
    this.#late = late
    this.#explain = explain
  }

  add(append: LateAppend): Promise<void> | undefined {
    const held = this.#late.hold(this.#take)
    this.#waiting.push(append)
    this.#count += append.rows.length
    for (const { event } of append.rows) this.#bytes += event.payloadSize
    return held && this.#count < MOST_WAITING && this.#bytes < MOST_BYTES_WAITING
      ? undefined
      : this.#late.flush()
  }

  readonly #take = (): LateStatement => {
    const appends = this.#waiting
    this.#waiting = []
    this.#count = 0
    this.#bytes = 0
    for (const append of appends) append.sent()
    return new LateInsert(this.#sql, this.#floor, appends, this.#explain)
  }
}

class LateInsert implements LateStatement {
  readonly statement: Statement
  readonly params: readonly Param[]
  readonly unanswered: Statement | null
  readonly seq: string | null
  readonly #appends: readonly LateAppend[]
  readonly #rows: readonly AppendRow[]
  readonly #floor: SeqFloor
  /** What was known when it was sent. */
  readonly #from: number
  readonly #explain: Explain

  constructor(sql: Statements, floor: SeqFloor, appends: readonly LateAppend[], explain: Explain) {
    const first = appends[0] as LateAppend
    const rows = appends.length === 1 ? first.rows : appends.flatMap((append) => append.rows)
    const { statement, params } = insertOf(sql.unchecked, rows, first.leaseMs)
    // A row of this process's own is not looked for, as a rule.
    const isAsked = statement !== sql.unchecked.plain || (rows[0]?.token === null && !floor.isFresh)
    this.statement = statement
    this.params = params
    this.unanswered = isAsked ? null : sql.unanswered
    this.seq = rows.length === 1 ? sql.lastSeq : null
    this.#appends = appends
    this.#rows = rows
    this.#floor = floor
    this.#from = floor.seq
    this.#explain = explain
  }

  answered(inserted: readonly Row[]): void {
    const seqs = seqsOf(inserted)
    this.#floor.tell(seqs.values())
    for (const append of this.#appends) append.written(seqs)
  }

  wrote(one: boolean): void {
    this.#appends[0]?.written(one ? this.#from : NOTHING)
  }

  explain(error: unknown): unknown {
    const ids = idsThatExist(error, this.#rows)
    if (ids.length > 0) return new DuplicateEventError(ids)
    return redactDriverError(this.#explain(error), this.#rows.map(eventOf))
  }
}

function insertOf(
  sql: Statements['checked'],
  rows: readonly AppendRow[],
  leaseMs: number,
): { statement: Statement; params: Param[] } {
  const first = rows[0]
  return first && rows.length === 1 && isPlain(first)
    ? { statement: sql.plain, params: paramsOf(first, leaseMs) }
    : { statement: sql.many, params: [`[${rows.map(jsonOf).join(',')}]`, leaseMs] }
}

function seqsOf(inserted: readonly Row[]): Map<string, number> {
  return new Map(inserted.map((row) => [String(row[0]), Number(row[1])]))
}

function eventOf({ event }: AppendRow): EventEnvelope {
  return event
}

function idOf({ event }: AppendRow): string {
  return event.eventId
}

/** None when it is another error, also about a unique index of the application's. All when the server says no more. */
function idsThatExist(error: unknown, rows: readonly AppendRow[]): string[] {
  if (!isServerError(error) || error.code !== '23505') return []
  const { detail } = error as { detail?: unknown }
  const ids = rows.map(idOf)
  return typeof detail === 'string' ? ids.filter((id) => detail.includes(`(event_id)=(${id})`)) : ids
}

function idsGivenTwice(rows: readonly AppendRow[]): string[] {
  const seen = new Set<string>()
  return rows.map(idOf).filter((id) => seen.size === seen.add(id).size)
}

export async function findPresent(
  sql: Statements,
  query: Query,
  eventIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const rows = await query(sql.present, [eventIds.join('\x1e')]).catch((error) => {
    throw isFailedTransaction(error) ? new TransactionRolledBackError(error) : error
  })
  return new Map(rows.map((row) => [String(row[0]), Number(row[1])]))
}

function isPlain({ event, delayMs, deliverAt }: AppendRow): boolean {
  if (event.payloadText === null || delayMs || deliverAt || event.tenantId || event.orderingKey) return false
  for (const _ in event.headers) return false
  return true
}

function paramsOf({ event, token }: AppendRow, leaseMs: number): Param[] {
  return [
    event.eventId,
    event.eventType,
    event.aggregateType,
    event.aggregateId ?? null,
    event.version,
    event.payloadText,
    metadataText(event),
    event.occurredAtMs,
    event.payloadSize,
    token,
    token === null ? null : leaseMs,
  ]
}

/** The payload's text goes in as it is, never parsed and written again. */
function jsonOf({ event, token, delayMs, deliverAt }: AppendRow): string {
  const rest = JSON.stringify({
    id: event.eventId,
    type: event.eventType,
    aggregate_type: event.aggregateType,
    aggregate_id: event.aggregateId,
    version: event.version,
    at: event.occurredAt,
    size: event.payloadSize,
    token,
    tenant_id: event.tenantId,
    ordering_key: event.orderingKey,
    bytes: base64(event),
    delay: delayMs,
    due: deliverAt,
  })
  const headers = headersText(event)
  const metadata = metadataText(event)
  return `${rest.slice(0, -1)},"payload":${event.payloadText ?? 'null'},"headers":${headers},"metadata":${metadata}}`
}

function base64(event: EventEnvelope): string | null {
  const bytes = event.payloadBytes
  return bytes === null ? null : Buffer.from(bytes).toString('base64')
}

function headersText(event: EventEnvelope): string | null {
  for (const _ in event.headers) return JSON.stringify(event.headers)
  return null
}

function metadataText(event: EventEnvelope): string | null {
  for (const _ in event.metadata) return JSON.stringify(event.metadata)
  return null
}
