import type { EventEnvelope } from '../../core/envelope.js'
import type { StoredEvent } from '../../core/stored-event.js'
import type { AppendOptions, AppendResult, AppendRow } from '../../store.js'
import type { MemoryClient } from './client.js'
import type { MemoryDatabase } from './database.js'
import type { Row } from './row.js'

/**
 * Writes into the client's transaction; `seq` is drawn here, not at the commit. An id that another open
 * transaction has written is waited for, as a unique index would: it is a duplicate only if that one commits.
 */
export async function append(
  database: MemoryDatabase,
  now: () => number,
  client: MemoryClient,
  rows: readonly AppendRow[],
  options: AppendOptions,
): Promise<AppendResult> {
  const { transaction } = client
  const ids = rows.map((row) => row.event.eventId)
  for (let holder = transaction.otherHolder(ids); holder; holder = transaction.otherHolder(ids)) {
    await transaction.waitFor(holder)
  }

  const seen = new Set<string>()
  const duplicates = new Set<string>()
  for (const id of ids) {
    if (seen.has(id) || transaction.holds(id) || database.rows.has(id)) duplicates.add(id)
    seen.add(id)
  }
  const seqs = new Map<string, number>()
  if (duplicates.size > 0 && options.onDuplicate === 'error') return { seqs, duplicates: [...duplicates] }

  for (const row of rows) {
    const id = row.event.eventId
    if (transaction.holds(id) || database.rows.has(id)) continue
    const written = newRow(row, database.drawSeq(), now(), options.leaseMs)
    transaction.write({ key: id, seq: written.seq, apply: () => database.insert(written) })
    seqs.set(id, written.seq)
  }
  return { seqs, duplicates: [...duplicates] }
}

/** The numbers of those rows that the transaction sees: its own and the committed ones. */
export function findPresent(
  database: MemoryDatabase,
  client: MemoryClient,
  eventIds: readonly string[],
): ReadonlyMap<string, number> {
  const present = new Map<string, number>()
  for (const id of eventIds) {
    const seq = client.transaction.seqOf(id) ?? database.rows.get(id)?.seq
    if (seq !== undefined) present.set(id, seq)
  }
  return present
}

function newRow(row: AppendRow, seq: number, now: number, leaseMs: number): Row {
  const availableAt = Math.max(now, row.deliverAt?.getTime() ?? now + (row.delayMs ?? 0))
  return {
    event: toStored(row.event),
    createdAt: now,
    seq,
    status: 'NEW',
    attempts: 0,
    availableAt,
    isTimed: availableAt > now,
    lockedBy: row.token,
    lockedUntil: row.token === null ? 0 : now + leaseMs,
    doneAt: null,
    handledBy: [],
    failures: [],
    lastError: null,
    halts: false,
    home: null,
  }
}

function toStored(event: EventEnvelope): StoredEvent {
  return {
    eventId: event.eventId,
    eventType: event.eventType,
    aggregateType: event.aggregateType,
    aggregateId: event.aggregateId ?? null,
    tenantId: event.tenantId ?? null,
    orderingKey: event.orderingKey ?? null,
    version: event.version,
    payloadText: event.payloadText,
    payloadBytes: event.payloadBytes,
    headers: event.headers,
    metadata: event.metadata,
    occurredAtMs: event.occurredAtMs,
    payloadSize: event.payloadSize,
  }
}
