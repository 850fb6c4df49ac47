import { AftercommitError, SettlementRejectedError, StoreNotMigratedError } from '../../core/errors.js'
import { originalMessageOf } from '../../core/redact.js'
import { isA } from '../../core/unknown.js'
import { isMissing, isServerError } from './driver.js'
import { serverErrorIn } from './hosted.js'
import type { Names } from './names.js'
import { isAccessDenied, type Right, rightsOf } from './rights.js'

const NO_DATABASE_SELECTED = 1046
const DATABASE_DENIED = 1044
const PACKET_TOO_LARGE = 1153
/** A write under READ COMMITTED while the binary log has the format STATEMENT. */
const BINARY_LOG_IMPOSSIBLE = 1665
const TOO_BIG_SELECT = 1104
const SAFE_UPDATE = 1175
/** A server option, a replica, or a transaction that is READ ONLY. */
const READ_ONLY = [1290, 1836, 1792]
/** Codes with which a server refuses CREATE and ALTER statements of a user without the rights. */
const DDL_DENIED = [DATABASE_DENIED, 1142, 1227, 1370]
const DDL = /\b(CREATE|ALTER|DROP|INDEX|REFERENCES)\b/

/**
 * The error to throw for a server error. A missing right, table or database, and a read-only server, become errors that say
 * what to grant or to set. Any other error stays the same.
 */
export function explained(error: unknown, names: Names): unknown {
  const reported = serverErrorIn(error)
  if (isA(error, AftercommitError) || !isServerError(reported)) return error
  const { errno } = reported
  const right = rightIn(originalMessageOf(reported), names)
  if (isMissing(reported)) return right ? new StoreNotMigratedError(`${right.name} does not exist`) : error
  if (isAccessDenied(reported)) return right ? denied([right], error) : error
  if (errno === DATABASE_DENIED) return databaseDenied(error)
  if (errno === NO_DATABASE_SELECTED) return noDatabase(error)
  if (errno === PACKET_TOO_LARGE) return packetTooLarge(error)
  if (errno === BINARY_LOG_IMPOSSIBLE) return statementFormat(error)
  if (errno === TOO_BIG_SELECT) return tooBigSelect(error)
  if (errno === SAFE_UPDATE) return safeUpdate(error)
  return READ_ONLY.includes(errno) ? readOnly(error) : error
}

/** Explains an error of a migration, which needs other rights than a worker. Otherwise does the same as `explained`. */
export function migrationError(error: unknown, names: Names): unknown {
  const isRefused = isServerError(error) && DDL_DENIED.includes(error.errno)
  return isRefused && DDL.test(originalMessageOf(error)) ? migrationDenied(error) : explained(error, names)
}

/** The table of the outbox that a message of the server names. The rest of the message may be in any language. */
function rightIn(message: string, names: Names): Right | undefined {
  return rightsOf(names).find(({ bare }) => new RegExp(`(?<![\\w$])${bare}(?![\\w$])`).test(message))
}

type Missing = Pick<Right, 'name' | 'privileges'>

export function denied(missing: readonly Missing[], cause?: unknown): AftercommitError {
  const tables = missing.map(({ name }) => name).join(', ')
  return errorOf(
    'PERMISSION_DENIED',
    `The database user lacks rights on ${tables}. ${grantsOf(missing)}`,
    cause,
  )
}

/** SQL for an administrator. The user is a placeholder, because messages reach logs. */
export function grantsOf(missing: readonly Missing[]): string {
  return missing
    .map(({ name, privileges }) => `GRANT ${privileges.join(', ')} ON ${name} TO <user>;`)
    .join(' ')
}

function migrationDenied(cause: unknown): AftercommitError {
  return errorOf(
    'PERMISSION_DENIED',
    'The database user may not create or change the outbox tables. GRANT SELECT, INSERT, CREATE, ALTER, DROP, INDEX, CREATE ROUTINE, ALTER ROUTINE ON <database>.* TO <user>; or run the migration as another user.',
    cause,
  )
}

function databaseDenied(cause: unknown): AftercommitError {
  return errorOf(
    'PERMISSION_DENIED',
    'The database user may not use the database. GRANT SELECT, INSERT, UPDATE, DELETE ON <database>.* TO <user>; or use the database that the user has rights on.',
    cause,
  )
}

function noDatabase(cause: unknown): AftercommitError {
  return errorOf(
    'NO_SCHEMA',
    'The connections of the pool have no default database. Name one in the options of the pool, or give the store the option database.',
    cause,
  )
}

function readOnly(cause: unknown): AftercommitError {
  return errorOf(
    'READ_ONLY',
    'The database accepts no writes: it is a replica, the transaction is READ ONLY, or read_only is on. Connect to the primary, or set read_only = OFF.',
    cause,
  )
}

function packetTooLarge(cause: unknown): AftercommitError {
  return errorOf(
    'PACKET_TOO_LARGE',
    'The statement is larger than max_allowed_packet of the server. Set max_allowed_packet to 16M or more.',
    cause,
  )
}

function tooBigSelect(cause: unknown): AftercommitError {
  return errorOf(
    'STATEMENT_REFUSED',
    "The server refused a query of the outbox because of max_join_size. Set sql_big_selects = 1 on the pool's connections, or raise max_join_size.",
    cause,
  )
}

function safeUpdate(cause: unknown): AftercommitError {
  return errorOf(
    'STATEMENT_REFUSED',
    "The server refused a write of the outbox because of sql_safe_updates. Set sql_safe_updates = 0 on the pool's connections.",
    cause,
  )
}

export function statementFormat(cause?: unknown): AftercommitError {
  return errorOf(
    'BINARY_LOG_FORMAT',
    "The server's binary log has the format STATEMENT, under which InnoDB refuses all writes of a worker, since they are READ COMMITTED. Set binlog_format = ROW (or MIXED) on the server, and connect again.",
    cause,
  )
}

function errorOf(code: string, message: string, cause?: unknown): AftercommitError {
  return new AftercommitError(code, message, cause === undefined ? undefined : { cause })
}

/** Classes of SQLSTATE that say something of the row: data, constraint, and SIGNAL in a trigger. */
const OF_THE_ROW = /^(22|23|45)/
/** Errors of a row that MySQL reports with the general SQLSTATE HY000: a text that a column cannot store, a CHECK. */
const ROW_ERRORS = [1366, 3819]

/** The error of a statement that settles, as the settler needs it: the server rejected a row, or something else. */
export function settlementError(error: unknown): unknown {
  if (!isServerError(error)) return error
  if (!OF_THE_ROW.test(error.sqlState) && !ROW_ERRORS.includes(error.errno)) return error
  return new SettlementRejectedError(`SQLSTATE ${error.sqlState}`, error)
}
