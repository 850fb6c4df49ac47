import { dateIn, isObject, listIn, numberIn, optionalDateIn, optionalTextIn, textIn } from './core/columns.js'
import { readableRow, type UncheckedRow } from './core/stored-event.js'
import { type EventRecord, EventStatus, type EventStatusName } from './store.js'

const STATUS_NAMES = Object.keys(EventStatus) as EventStatusName[]

type State =
  | 'status'
  | 'failures'
  | 'lastError'
  | 'lockedBy'
  | 'lockedUntil'
  | 'availableAt'
  | 'createdAt'
  | 'doneAt'

/** Columns that tell what became of an event. Failures are JSON text, times are milliseconds since 1970. */
export type StateColumns = { readonly [Key in State]: unknown }

/**
 * Converts a row for people. Plain SQL can write anything into the table, so a value of the wrong type is replaced by a
 * harmless one or left out: one bad row must not hide the others.
 */
export function eventRecord(row: UncheckedRow, state: StateColumns): EventRecord {
  const status = STATUS_NAMES[numberIn(state.status)]
  const lastError = optionalTextIn(state.lastError)
  return {
    ...readableRow(row),
    status: status ?? 'DEAD',
    failures: failuresIn(state.failures),
    lastError: status === undefined ? `The row has the unknown status ${textIn(state.status)}.` : lastError,
    lockedBy: optionalTextIn(state.lockedBy),
    lockedUntil: optionalDateIn(state.lockedUntil),
    availableAt: dateIn(state.availableAt),
    createdAt: dateIn(state.createdAt),
    doneAt: optionalDateIn(state.doneAt),
  }
}

/** Entries that have a time; the store writes one with each failure. */
function failuresIn(value: unknown): EventRecord['failures'] {
  return listIn(value).flatMap((failure) => {
    if (!isObject(failure)) return []
    const { at, handler, instance, message } = failure
    const time = typeof at === 'number' || typeof at === 'string' ? new Date(at) : null
    if (time === null || Number.isNaN(time.getTime())) return []
    return [
      { at: time, handler: optionalTextIn(handler), instance: textIn(instance), message: textIn(message) },
    ]
  })
}
