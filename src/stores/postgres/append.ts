import type { EventEnvelope } from '../../core/envelope.js'
import { TransactionRolledBackError } from '../../core/errors.js'
import type { AppendOptions, AppendResult, AppendRow } from '../../store.js'
import { isFailedTransaction, type Param, type Query, statement } from './driver.js'
import type { Names } from './names.js'

export function appendStatements(names: Names) {
  const byIds = `where event_id = any(string_to_array($1::text, E'\\x1e'))`
  return {
    // Most events are one at a time and plain. Each parameter and each expression less is felt here.
    plain: statement(`
insert into ${names.events} (event_id, event_type, aggregate_type, aggregate_id, version, payload, metadata,
  occurred_at, payload_size, locked_by, locked_until)
values ($1::text, $2::text, $3::text, $4::text, $5::int, $6::text::json, $7::text::json, $8::timestamptz, $9::int,
  $10::text, clock_timestamp() + $11::float8 * interval '1 ms')
on conflict (event_id) do nothing returning event_id, seq`),
    many: statement(`
insert into ${names.events} (event_id, event_type, aggregate_type, aggregate_id, version, payload, metadata,
  occurred_at, payload_size, locked_by, locked_until, tenant_id, ordering_key, payload_bytes, headers, available_at)
select id, type, aggregate_type, aggregate_id, version, payload, metadata, at, size, token,
  case when token is not null then clock_timestamp() + $2::float8 * interval '1 ms' end,
  tenant_id, ordering_key, decode(bytes, 'base64'), headers,
  coalesce(due, statement_timestamp() + coalesce(delay, 0) * interval '1 ms')
  from json_to_recordset($1::text::json) as s(id text, type text, aggregate_type text, aggregate_id text,
    version int, payload json, metadata json, at timestamptz, size int, token text, tenant_id text,
    ordering_key text, bytes text, headers json, delay float8, due timestamptz)
on conflict (event_id) do nothing returning event_id, seq`),
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
  const inserted =
    rows.length === 1 && isPlain(first)
      ? await query(sql.plain, paramsOf(first, options.leaseMs))
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
    event.occurredAt.toISOString(),
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
