import { AftercommitError, SettlementRejectedError, StoreNotMigratedError } from '../../core/errors.js'
import { originalMessageOf } from '../../core/redact.js'
import { causesOf, isA } from '../../core/unknown.js'
import { hasCode, sqliteErrorIn } from './driver.js'

/**
 * The error to throw for an error of SQLite. A missing table, and a file that cannot be opened or written, become errors
 * that say what to do. Any other error stays the same. `table` is the beginning of the names of all tables.
 */
export function explained(error: unknown, table: string): unknown {
  if (isA(error, AftercommitError)) return error
  const missing = causesOf(error)
    .map((cause) => /no such table: (\w+)/.exec(originalMessageOf(cause))?.[1])
    .find((name) => name?.startsWith(table))
  if (missing !== undefined) return new StoreNotMigratedError(`"${missing}" does not exist`)
  const reported = sqliteErrorIn(error)
  if (hasCode(reported, 8, 'SQLITE_READONLY')) return readOnly(error)
  if (hasCode(reported, 14, 'SQLITE_CANTOPEN')) return cannotOpen(error)
  return error
}

/** Result codes that say something of the row: a string that is too long, a constraint or trigger, a wrong type. */
const OF_THE_ROW = [
  [18, 'SQLITE_TOOBIG'],
  [19, 'SQLITE_CONSTRAINT'],
  [20, 'SQLITE_MISMATCH'],
] as const

/** The error of a statement that settles, as the settler needs it: SQLite rejected a row, or something else. */
export function settlementError(error: unknown): unknown {
  const [, name] = OF_THE_ROW.find(([code, name]) => hasCode(error, code, name)) ?? []
  return name === undefined ? error : new SettlementRejectedError(name, error)
}

function readOnly(cause: unknown): AftercommitError {
  return new AftercommitError(
    'READ_ONLY',
    'The SQLite file cannot be written. Give the user of this process the right to write the file and its folder, and open it without a read-only option and without PRAGMA query_only.',
    { cause },
  )
}

export function cannotOpen(cause: unknown): AftercommitError {
  return new AftercommitError(
    'CANNOT_OPEN',
    'The SQLite file cannot be opened. Check that its folder exists, and that the user of this process may read and write the folder and the file.',
    { cause },
  )
}
