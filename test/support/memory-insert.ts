import { EventEnvelope, GLOBAL_AGGREGATE } from '../../src/core/envelope.js'
import type { StoredEvent } from '../../src/core/stored-event.js'
import type { InsertedRow, MemoryStore } from '../../src/testing/index.js'

/** Writes rows as if another program had written them: nothing is checked. */
export function insertInto(store: MemoryStore) {
  return (row: InsertedRow) =>
    store.transaction(async ({ client }) => {
      const event = EventEnvelope.fromStored(storedOf(row))
      await store.append(client, [{ event, token: null }], { leaseMs: 0, onDuplicate: 'error' })
    })
}

function storedOf(row: InsertedRow): StoredEvent {
  if ('handled_by' in row) throw new Error('a row of this store is born without it')
  const text = (column: string) => (row[column] ?? null) as string | null
  const json = (column: string) => JSON.parse(text(column) ?? 'null')
  return {
    eventId: text('event_id') ?? '',
    eventType: text('event_type') ?? '',
    aggregateType: text('aggregate_type') ?? GLOBAL_AGGREGATE,
    aggregateId: text('aggregate_id'),
    tenantId: text('tenant_id'),
    orderingKey: text('ordering_key'),
    version: 1,
    payloadText: text('payload'),
    payloadBytes: (row.payload_bytes ?? null) as Uint8Array | null,
    headers: json('headers'),
    metadata: json('metadata'),
    occurredAtMs: 0,
    payloadSize: Number(row.payload_size ?? 0),
  }
}
