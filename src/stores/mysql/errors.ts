import { AftercommitError, SettlementRejectedError, StoreNotMigratedError } from '../../core/errors.js'
import { originalMessageOf } from '../../core/redact.js'
import { isA, read } from '../../core/unknown.js'
import { isLockTimeout, isMissing, isServerError } from './driver.js'
import { serverErrorIn } from './hosted.js'
import type { Names } from './names.js'
import { isAccessDenied, type Right, rightsOf } from './rights.js'

const NO_DATABASE_SELECTED = 1046
const DATABASE_DENIED = 1044
const UNKNOWN_DATABASE = 1049
/** A wrong user or password, a host that is not allowed, and an account that is locked or whose password has expired. */
const LOGIN_REFUSED = [1045, 1130, 1251, 1524, 1698, 1820, 1862, 3118, 4151]
/** Limits of connections: of the server, and of the user. */
const NO_CONNECTION_LEFT = [1040, 1203, 1226]
/** `max_execution_time` of MySQL, and `max_statement_time` of MariaDB. */
const TIME_LIMIT = [3024, 1969]
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
  if (isA(error, AftercommitError)) return error
  if (read(error, 'code') === 'ETIMEDOUT' && read(error, 'syscall') === 'connect')
    return connectTimeout(error)
  const reported = serverErrorIn(error)
  if (!isServerError(reported)) return error
  const { errno } = reported
  const right = rightIn(originalMessageOf(reported), names)
  if (isMissing(reported)) return right ? new StoreNotMigratedError(`${right.name} does not exist`) : error
  if (isAccessDenied(reported)) return right ? denied([right], error) : error
  if (errno === DATABASE_DENIED) return databaseDenied(error)
  if (errno === NO_DATABASE_SELECTED) return noDatabase(error)
  if (errno === UNKNOWN_DATABASE) return unknownDatabase(error)
  if (LOGIN_REFUSED.includes(errno)) return loginRefused(error)
  if (NO_CONNECTION_LEFT.includes(errno)) return noConnectionLeft(error)
  if (TIME_LIMIT.includes(errno)) return timeLimit(error)
  if (isLockTimeout(reported)) return lockTimeout(error)
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

function unknownDatabase(cause: unknown): AftercommitError {
  return errorOf(
    'NO_SCHEMA',
    'The database does not exist. CREATE DATABASE <database>; or name another database in the options of the pool or of the store.',
    cause,
  )
}

function loginRefused(cause: unknown): AftercommitError {
  return errorOf(
    'LOGIN_REFUSED',
    'The server refused the login of the database user. Check the name and the password in the options of the pool, the hosts from which the user may connect, and whether the account is locked or its password has expired.',
    cause,
  )
}

function noConnectionLeft(cause: unknown): AftercommitError {
  return errorOf(
    'TOO_MANY_CONNECTIONS',
    'The server allows no more connections. Lower connectionLimit of the pools, or raise max_connections of the server or MAX_USER_CONNECTIONS of the user.',
    cause,
  )
}

function connectTimeout(cause: unknown): AftercommitError {
  return errorOf(
    'CONNECTION_TIMEOUT',
    'The server did not accept a connection within connectTimeout of the pool. Check its host and port, and firewalls on the way, or raise connectTimeout.',
    cause,
  )
}

function timeLimit(cause: unknown): AftercommitError {
  return errorOf(
    'STATEMENT_TIMEOUT',
    "The server ended a statement of the outbox because of max_execution_time (MySQL) or max_statement_time (MariaDB). Raise that limit for the pool's connections, or set it to 0.",
    cause,
  )
}

function lockTimeout(cause: unknown): AftercommitError {
  return errorOf(
    'LOCK_TIMEOUT',
    'A statement of the outbox waited too long for a lock of another transaction. Try again, find the transaction with aftercommit doctor (long transactions), or raise innodb_lock_wait_timeout or, for locked tables, lock_wait_timeout.',
    cause,
  )
}

/** `isEnded`: the server ended the wait before its time. MariaDB then reports no error. */
export function migrationLocked(isEnded: boolean): AftercommitError {
  return isEnded
    ? timeLimit(undefined)
    : errorOf(
        'MIGRATION_LOCKED',
        'Another instance has been migrating for a minute. Wait until it has ended, or end its session on the server, and call migrate() again.',
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
