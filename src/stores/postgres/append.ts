import type { EventEnvelope } from '../../core/envelope.js'
import type { AppendOptions, AppendResult, AppendRow } from '../../store.js'
import { type Param, type Query, statement } from './driver.js'
import type { Names } from './names.js'

const COLUMNS = `event_id, event_type, aggregate_type, aggregate_id, tenant_id, ordering_key, version, payload,
  payload_bytes, headers, metadata, occurred_at, payload_size, locked_by, locked_until, available_at`

const values = (column: (n: number, name: string, type: string) => string, lease: string) => `
  ${column(1, 'id', 'text')}, ${column(2, 'type', 'text')}, ${column(3, 'agg', 'text')},
  ${column(4, 'agg_id', 'text')}, ${column(5, 'tenant', 'text')}, ${column(6, 'key', 'text')},
  ${column(7, 'version', 'int')}, ${column(8, 'payload', 'json')},
  decode(${column(9, 'bytes', 'text')}, 'base64'), ${column(10, 'headers', 'json')},
  ${column(11, 'metadata', 'json')}, to_timestamp(${column(12, 'at', 'float8')} / 1000),
  ${column(13, 'size', 'int')}, ${column(14, 'token', 'text')},
  case when ${column(14, 'token', 'text')} is not null
       then clock_timestamp() + ${lease} * interval '1 ms' end,
  coalesce(to_timestamp(${column(16, 'due', 'float8')} / 1000),
           statement_timestamp() + coalesce(${column(15, 'delay', 'float8')}, 0) * interval '1 ms')`

export function appendStatements(names: Names) {
  const byIds = `where event_id = any(string_to_array($1::text, E'\\x1e'))`
  return {
    one: statement(`
insert into ${names.events} (${COLUMNS})
values (${values((n, _name, type) => (type === 'json' ? `$${n}::text::json` : `$${n}::${type}`), '$17::float8')})
on conflict (event_id) do nothing returning event_id, seq`),
    many: statement(`
insert into ${names.events} (${COLUMNS})
select ${values((_n, name) => `s.${name}`, '$2::float8')}
  from json_to_recordset($1::text::json) as s(id text, type text, agg text, agg_id text, tenant text, key text,
    version int, payload json, bytes text, headers json, metadata json, at float8, size int, token text,
    delay float8, due float8)
on conflict (event_id) do nothing returning event_id, seq`),
    remove: statement(`delete from ${names.events} ${byIds}`),
    present: statement(`select event_id from ${names.events} ${byIds}`),
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
  const inserted =
    rows.length === 1
      ? await query(sql.one, [...paramsOf(first), options.leaseMs])
      : await query(sql.many, [`[${rows.map(jsonOf).join(',')}]`, options.leaseMs])
  const seqs = new Map(inserted.map((row) => [String(row[0]), Number(row[1])]))
  if (seqs.size === rows.length) return { seqs, duplicates: [] }
  const ids = rows.map((row) => row.event.eventId as string)
  const duplicates = [...new Set([...ids.filter((id) => !seqs.has(id)), ...twice])]
  if (options.onDuplicate === 'error' && seqs.size > 0) {
    await query(sql.remove, [[...seqs.keys()].join('\x1e')])
    seqs.clear()
  }
  return { seqs, duplicates }
}

function idsGivenTwice(rows: readonly AppendRow[]): string[] {
  const seen = new Set<string>()
  return rows.map((row) => row.event.eventId as string).filter((id) => seen.size === seen.add(id).size)
}

export async function findPresent(
  sql: Statements,
  query: Query,
  eventIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const rows = await query(sql.present, [eventIds.join('\x1e')])
  return new Set(rows.map((row) => String(row[0])))
}

function paramsOf(row: AppendRow): Param[] {
  const { event } = row
  return [
    event.eventId,
    event.eventType,
    event.aggregateType,
    event.aggregateId ?? null,
    event.tenantId ?? null,
    event.orderingKey ?? null,
    event.version,
    event.payloadText,
    base64(event),
    headersText(event),
    metadataText(event),
    event.occurredAtMs,
    event.payloadSize,
    row.token,
    row.delayMs ?? null,
    row.deliverAt ? row.deliverAt.getTime() : null,
  ]
}

/** The payload's text goes in as it is, never parsed and written again. */
function jsonOf(row: AppendRow): string {
  const { event } = row
  const rest = JSON.stringify({
    id: event.eventId,
    type: event.eventType,
    agg: event.aggregateType,
    agg_id: event.aggregateId,
    tenant: event.tenantId,
    key: event.orderingKey,
    version: event.version,
    bytes: base64(event),
    at: event.occurredAtMs,
    size: event.payloadSize,
    token: row.token,
    delay: row.delayMs,
    due: row.deliverAt?.getTime(),
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
