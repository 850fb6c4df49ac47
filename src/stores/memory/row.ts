import { utf8Length } from '../../core/payload-limits.js'
import { CUT_NAME_LENGTH, MAX_COLUMN_BYTES, MAX_NAME_BYTES, tooLarge } from '../../core/row-limits.js'
import { checkedRow, readableRow, type StoredEvent } from '../../core/stored-event.js'
import type { ClaimedRow, EventRecord, EventStatusName } from '../../store.js'
import type { SortedList } from './sorted-list.js'

/** One row of the table. Only MemoryDatabase.change may touch the fields that can be written. */
export interface Row {
  readonly event: StoredEvent
  readonly createdAt: number
  seq: number
  status: EventStatusName
  attempts: number
  availableAt: number
  /** Delayed or to be tried again: looked for by `availableAt`, not by `seq`. */
  isTimed: boolean
  lockedBy: string | null
  lockedUntil: number
  doneAt: number | null
  handledBy: readonly string[]
  failures: EventRecord['failures']
  lastError: string | null
  /** Dead, and in the way of those behind it in its ordering key. */
  halts: boolean
  /** The list that holds the row at present. */
  home: SortedList<Row> | null
}

export function isPending(row: Row): boolean {
  return row.status === 'NEW' || row.status === 'RETRY'
}

/** Whether it has a place in its ordering key. */
export function isQueued(row: Row): boolean {
  return isPending(row) || (row.status === 'DEAD' && row.halts)
}

/** Also when the lease has run out: nobody has given the row back. */
export function isLeased(row: Row): boolean {
  return row.lockedBy !== null
}

/** Bytes of the event's content, without trusting what its writer says of them. */
export function sizeOf({ event }: Row): number {
  return payloadSizeOf(event) + textLength(event.headers) + textLength(event.metadata)
}

export function sizeBesidesPayload({ event, handledBy }: Row): number {
  return textLength(event.headers) + textLength(event.metadata) + textLength(handledBy)
}

export function toClaimed(row: Row, token: string, suspect: boolean): ClaimedRow {
  const { seq, attempts, handledBy } = row
  const { event, invalid } = loaded(row.event)
  const payloadText =
    event.payloadText ?? (event.payloadBytes === null && invalid === undefined ? 'null' : null)
  const claimed = {
    ...event,
    payloadText,
    seq,
    attempts,
    handledBy,
    token,
    suspect,
    bytes: sizeOf(row),
    invalid,
  }
  return checkedRow<ClaimedRow>(claimed, true)
}

export function toRecord(row: Row): EventRecord {
  const { seq, status, attempts, handledBy, failures, lastError, lockedBy } = row
  return {
    ...readableRow({ ...loaded(row.event).event, seq, attempts, handledBy }),
    status,
    failures,
    lastError,
    lockedBy,
    lockedUntil: lockedBy === null ? null : new Date(row.lockedUntil),
    availableAt: new Date(row.availableAt),
    createdAt: new Date(row.createdAt),
    doneAt: row.doneAt === null ? null : new Date(row.doneAt),
  }
}

/** As other stores do it: what is too large is left out. Bytes cannot be frozen, so every reader gets its own. */
function loaded(event: StoredEvent): { event: StoredEvent; invalid: string | undefined } {
  const payloadSize = payloadSizeOf(event)
  const tooLargeColumns = [
    ...(payloadSize > MAX_COLUMN_BYTES ? [event.payloadBytes === null ? 'payload' : 'payload_bytes'] : []),
    ...(textLength(event.headers) > MAX_COLUMN_BYTES ? ['headers'] : []),
    ...(textLength(event.metadata) > MAX_COLUMN_BYTES ? ['metadata'] : []),
    ...NAMES.filter(([, name]) => isLongName(event[name])).map(([column]) => column),
  ]
  const payloadBytes = event.payloadBytes === null ? null : event.payloadBytes.slice()
  const payloadText = event.payloadText ?? (payloadBytes === null ? 'null' : null)
  if (tooLargeColumns.length === 0)
    return { event: { ...event, payloadText, payloadBytes, payloadSize }, invalid: undefined }
  const names = NAMES.map(([, name]) => [name, event[name]?.slice(0, 2 * CUT_NAME_LENGTH) ?? null])
  const content = { payloadText: null, payloadBytes: null, payloadSize: 0, headers: null, metadata: null }
  return { event: { ...event, ...Object.fromEntries(names), ...content }, invalid: tooLarge(tooLargeColumns) }
}

const NAMES = [
  ['event_type', 'eventType'],
  ['aggregate_type', 'aggregateType'],
  ['aggregate_id', 'aggregateId'],
  ['tenant_id', 'tenantId'],
  ['ordering_key', 'orderingKey'],
] as const

function payloadSizeOf({ payloadText, payloadBytes }: StoredEvent): number {
  return payloadBytes?.length ?? utf8Length(payloadText ?? 'null')
}

function textLength(value: object | null): number {
  return value === null ? 0 : utf8Length(JSON.stringify(value))
}

function isLongName(name: string | null): boolean {
  return name !== null && utf8Length(name) > MAX_NAME_BYTES
}
