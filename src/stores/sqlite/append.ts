import type { EventEnvelope } from '../../core/envelope.js'
import type { AppendOptions, AppendResult, AppendRow } from '../../store.js'
import { Connection, type Params, type Row, type Value } from './driver.js'
import type { Statements as Db } from './hosted.js'
import type { Names } from './names.js'
import { NOW } from './schema.js'

const COLUMNS = `(seq, event_id, event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload,
  payload_bytes, headers, metadata, occurred_at, payload_size, locked_by, locked_until, available_at)`

export function appendStatements(names: Names) {
  // SQLite forgets with a rollback which numbers it drew; in one transaction none may come twice all the same.
  const next = `max(:drawn, coalesce((select seq from sqlite_sequence where name = '${names.table}'), 0)) + 1`
  const unlessPresent = 'on conflict (event_id) do nothing returning event_id, seq'
  const byIds = 'event_id in (select value from json_each(:ids))'
  const leasedUntil = (token: string) =>
    `case when ${token} is not null then ${NOW} + cast(:leaseMs as integer) end`
  const due = (at: string, delay: string) =>
    `coalesce(cast(${at} as integer), ${NOW} + cast(${delay} as integer))`
  return {
    // Most events are one at a time.
    one: `
insert into ${names.events} ${COLUMNS}
values (${next}, :id, :type, :aggregateType, :aggregateId, :tenantId, :orderingKey, :version, :payload, :bytes,
  :headers, :metadata, :at, :size, :token, ${leasedUntil(':token')}, ${due(':due', ':delay')})
${unlessPresent}`,
    many: `
insert into ${names.events} ${COLUMNS}
select ${next} + key, value ->> 'id', value ->> 'type', value ->> 'aggregateType', value ->> 'aggregateId',
  value ->> 'tenantId', value ->> 'orderingKey', value ->> 'version', value ->> 'payload', unhex(value ->> 'bytes'),
  value ->> 'headers', value ->> 'metadata', value ->> 'at', value ->> 'size', value ->> 'token',
  ${leasedUntil(`value ->> 'token'`)}, ${due(`value ->> 'due'`, `value ->> 'delay'`)}
  from json_each(:rows) where true order by key
${unlessPresent}`,
    remove: `delete from ${names.events} where ${byIds}`,
    present: `select event_id, seq from ${names.events} where ${byIds}`,
    /** The highest number that each connection drew. */
    drawn: new WeakMap<Db, number>(),
  }
}

type Statements = ReturnType<typeof appendStatements>

/** One statement for all rows. A conflicting id is reported and leaves the transaction usable. */
export async function append(
  sql: Statements,
  db: Db,
  rows: readonly AppendRow[],
  options: AppendOptions,
): Promise<AppendResult> {
  if (rows.length === 0) return { seqs: new Map(), duplicates: [] }
  const twice = idsGivenTwice(rows)
  if (twice.length > 0 && options.onDuplicate === 'error') return { seqs: new Map(), duplicates: twice }
  const seqs = await insert(sql, db, rows, options.leaseMs)
  if (seqs.size === rows.length) return { seqs, duplicates: [] }
  const duplicates = [...new Set([...rows.map(idOf).filter((id) => !seqs.has(id)), ...twice])]
  if (options.onDuplicate === 'error' && seqs.size > 0) {
    await db.run(sql.remove, { ids: JSON.stringify([...seqs.keys()]) })
    seqs.clear()
  }
  return { seqs, duplicates }
}

async function insert(
  sql: Statements,
  db: Db,
  rows: readonly AppendRow[],
  leaseMs: number,
): Promise<Map<string, number>> {
  const drawn = sql.drawn.get(db) ?? 0
  const [first] = rows
  const inserted = await (first && rows.length === 1
    ? db.all(sql.one, { ...fieldsOf(first), bytes: first.event.payloadBytes, drawn, leaseMs })
    : db.all(sql.many, { rows: JSON.stringify(rows.map(withHex)), drawn, leaseMs }))
  const seqs = seqsOf(inserted)
  let highest = drawn
  for (const seq of seqs.values()) highest = Math.max(highest, seq)
  sql.drawn.set(db, highest)
  if (first && db instanceof Connection) db.isWritten = () => isPresent(sql, db, idOf(first))
  return seqs
}

/** `seq` of those of these rows that the connection sees. */
export async function findPresent(
  sql: Statements,
  db: Db,
  eventIds: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  return seqsOf(await db.all(sql.present, { ids: JSON.stringify(eventIds) }))
}

function isPresent(sql: Statements, db: Connection, eventId: string): boolean {
  return db.all(sql.present, { ids: JSON.stringify([eventId]) }).length > 0
}

/** By position: an ORM may have renamed the columns. */
function seqsOf(rows: readonly Row[]): Map<string, number> {
  return new Map(rows.map((row) => Object.values(row)).map(([id, seq]) => [String(id), Number(seq)]))
}

function idOf({ event }: AppendRow): string {
  return event.eventId
}

function idsGivenTwice(rows: readonly AppendRow[]): string[] {
  const seen = new Set<string>()
  return rows.map(idOf).filter((id) => seen.size === seen.add(id).size)
}

function withHex(row: AppendRow): Record<string, Value> {
  const bytes = row.event.payloadBytes
  return { ...fieldsOf(row), bytes: bytes === null ? null : Buffer.from(bytes).toString('hex') }
}

/** The payload's text goes in as it is, never parsed and written again. */
function fieldsOf({ event, token, delayMs, deliverAt }: AppendRow): Params {
  return {
    id: event.eventId,
    type: event.eventType,
    aggregateType: event.aggregateType,
    aggregateId: event.aggregateId ?? null,
    tenantId: event.tenantId ?? null,
    orderingKey: event.orderingKey ?? null,
    version: event.version,
    payload: event.payloadText,
    headers: textOf(event.headers),
    metadata: textOf(event.metadata),
    at: event.occurredAtMs,
    size: event.payloadSize,
    token,
    delay: delayMs ?? 0,
    due: deliverAt?.getTime() ?? null,
  }
}

function textOf(fields: EventEnvelope['headers'] | EventEnvelope['metadata']): string | null {
  for (const _ in fields) return JSON.stringify(fields)
  return null
}
