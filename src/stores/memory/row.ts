import type { StoredEvent } from '../../core/stored-event.js'
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

export function toClaimed(row: Row, token: string, suspect: boolean): ClaimedRow {
  const { seq, attempts, handledBy } = row
  return { ...copyEvent(row.event), seq, attempts, handledBy, token, suspect }
}

export function toRecord(row: Row): EventRecord {
  const { seq, status, attempts, handledBy, failures, lastError, lockedBy } = row
  return {
    ...copyEvent(row.event),
    seq,
    status,
    attempts,
    handledBy,
    failures,
    lastError,
    lockedBy,
    lockedUntil: lockedBy === null ? null : new Date(row.lockedUntil),
    availableAt: new Date(row.availableAt),
    createdAt: new Date(row.createdAt),
    doneAt: row.doneAt === null ? null : new Date(row.doneAt),
  }
}

/** Bytes cannot be frozen, so every reader gets its own. */
function copyEvent(event: StoredEvent): StoredEvent {
  return event.payloadBytes === null ? event : { ...event, payloadBytes: event.payloadBytes.slice() }
}
