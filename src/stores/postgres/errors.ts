import { AftercommitError, SettlementRejectedError, StoreNotMigratedError } from '../../core/errors.js'
import { originalMessageOf, redactDriverError } from '../../core/redact.js'
import { isServerError } from './driver.js'
import { serverErrorIn } from './hosted.js'
import type { Names } from './names.js'
import { type Right, rightsOf } from './rights.js'

/**
 * Routines of the server that report a row level security policy, a missing CONNECT privilege, and a character that the
 * encoding of the database does not have. The server translates its messages, but not the names of its routines.
 */
const ROW_SECURITY = ['ExecWithCheckOptions', 'check_enable_rls']
const NO_CONNECT = 'CheckMyDatabase'
const NO_CHARACTER = 'report_untranslatable_char'

interface ServerError {
  readonly code: string
  readonly message?: unknown
  readonly routine?: unknown
}

/**
 * The error to throw for a server error. A missing right, schema or table, or a read-only database, becomes an error that
 * says what to grant or to set. Any other error is redacted, because the server quotes rows.
 */
export function explained(error: unknown, names: Names): unknown {
  const hidden = redactDriverError(error)
  return (isServerError(hidden) && explanationOf(hidden, names)) || hidden
}

function explanationOf(error: ServerError, names: Names): AftercommitError | null {
  const message = originalMessageOf(error)
  switch (error.code) {
    case '42P01':
    case '3F000':
      return message.includes(names.index) ? notMigrated(message, names) : null
    case '42501':
      return refusalOf(error, message, names)
    case '25006':
      return readOnly(error)
    case '22P05':
      return error.routine === NO_CHARACTER ? unstorable(error) : null
    default:
      return null
  }
}

function notMigrated(message: string, names: Names): AftercommitError {
  const name = rightIn(message, names)?.name ?? names.events
  return new StoreNotMigratedError(
    `${name} does not exist${names.schema === null ? ' in the search_path' : ''}`,
  )
}

/** Null for an object that does not belong to the outbox, such as a table that a trigger of the application writes to. */
function refusalOf(error: ServerError, message: string, names: Names): AftercommitError | null {
  const right = rightIn(message, names)
  if (right && ROW_SECURITY.includes(String(error.routine))) return rowSecurity([right.name], error)
  if (right) return denied([right], error)
  if (names.schema !== null && mentions(message, names.schema)) return noUsage(names.schema, error)
  return error.routine === NO_CONNECT ? noConnect(error) : null
}

/** The object of the outbox that a message of the server names. The rest of the message may be in any language. */
function rightIn(message: string, names: Names): Right | undefined {
  return rightsOf(names).find(({ bare }) => mentions(message, bare))
}

function mentions(message: string, name: string): boolean {
  return new RegExp(`(?<![\\w$])${name}(?![\\w$])`).test(message)
}

type Missing = Pick<Right, 'name' | 'kind' | 'privileges'>

export function denied(missing: readonly Missing[], cause?: unknown): AftercommitError {
  const objects = missing.map(({ name }) => name).join(', ')
  return permissionDenied(`The database user lacks rights on ${objects}. ${grantsOf(missing)}`, cause)
}

/** SQL for the owner. The role is a placeholder, because messages reach logs. */
export function grantsOf(missing: readonly Missing[]): string {
  return missing
    .map(({ name, kind, privileges }) => {
      const object = kind === 'TABLE' ? name : `${kind} ${name}`
      return `GRANT ${privileges.join(', ')} ON ${object} TO <role>;`
    })
    .join(' ')
}

function noUsage(schema: string, cause: unknown): AftercommitError {
  return permissionDenied(
    `The database user may not use schema "${schema}". GRANT USAGE ON SCHEMA "${schema}" TO <role>;`,
    cause,
  )
}

function noConnect(cause: unknown): AftercommitError {
  return permissionDenied(
    'The database user may not connect to this database. GRANT CONNECT ON DATABASE <database> TO <role>;',
    cause,
  )
}

export function noCreate(schema: string): AftercommitError {
  return permissionDenied(
    `The database user may not create tables in schema ${schema}. GRANT USAGE, CREATE ON SCHEMA ${schema} TO <role>; or run the migration as another user.`,
  )
}

export function notOwner(tables: readonly string[]): AftercommitError {
  return permissionDenied(
    `Only the owner of ${tables.join(', ')} may migrate the outbox. Run the migration as that role.`,
  )
}

function permissionDenied(message: string, cause?: unknown): AftercommitError {
  return errorOf('PERMISSION_DENIED', message, cause)
}

export function rowSecurity(tables: readonly string[], cause?: unknown): AftercommitError {
  return errorOf(
    'ROW_SECURITY',
    `Row level security of ${tables.join(', ')} refuses rows, because no policy allows them for this database user. ${policiesFor(tables)}`,
    cause,
  )
}

/** SQL for the owner of the tables. */
export function policiesFor(tables: readonly string[]): string {
  const policies = tables.map(
    (table) => `CREATE POLICY aftercommit ON ${table} TO <role> USING (true) WITH CHECK (true);`,
  )
  return `${policies.join(' ')} Or switch row level security off: ALTER TABLE ${tables[0]} DISABLE ROW LEVEL SECURITY;`
}

export function noSchema(schema: string | null): AftercommitError {
  return errorOf(
    'NO_SCHEMA',
    schema === null
      ? `No schema of the search_path exists that the database user may use. ALTER ROLE <role> SET search_path = public; or give the store the option schema.`
      : `Schema "${schema}" does not exist. CREATE SCHEMA "${schema}";`,
  )
}

export function createsInSystemSchema(): AftercommitError {
  return errorOf(
    'NO_SCHEMA',
    'The search_path creates tables in a system schema (pg_temp or pg_catalog), because that schema comes first. ALTER ROLE <role> SET search_path = public, pg_temp; or give the store the option schema.',
  )
}

function readOnly(cause: unknown): AftercommitError {
  return errorOf(
    'READ_ONLY',
    'The database accepts no writes: it is a standby, the transaction is READ ONLY, or default_transaction_read_only is on. Connect to the primary, or set default_transaction_read_only = off.',
    cause,
  )
}

/** `encoding` as the server names it. */
export function wrongEncoding(encoding: string): AftercommitError {
  return unsupportedEncoding(
    `The encoding of this database is ${encoding}, and the outbox needs UTF8. ${NEW_DATABASE}`,
  )
}

export const NEW_DATABASE =
  "Create another database and move the data there: CREATE DATABASE <name> TEMPLATE template0 ENCODING 'UTF8';"

export function wrongClientEncoding(encoding: string): AftercommitError {
  return unsupportedEncoding(
    `The connections of the pool use client_encoding ${encoding}, but the driver sends and reads UTF8. Remove the statement that sets client_encoding.`,
  )
}

function unstorable(cause: unknown): AftercommitError {
  return unsupportedEncoding(
    `The encoding of this database has no code for a character of the event. ${NEW_DATABASE}`,
    cause,
  )
}

function unsupportedEncoding(message: string, cause?: unknown): AftercommitError {
  return errorOf('UNSUPPORTED_ENCODING', message, cause)
}

function errorOf(code: string, message: string, cause?: unknown): AftercommitError {
  return new AftercommitError(code, message, cause === undefined ? undefined : { cause })
}

/**
 * Classes of SQLSTATE that say something of the server, the transaction, the schema or the user's rights, and nothing of
 * the row that a statement writes: connection, transaction state, prepared statement, authorization, unknown names,
 * serialization failure, access rule, resources, locks, operator, system, configuration file, internal error.
 */
const NOT_OF_THE_ROW = /^(08|25|26|28|3D|3F|40|42|53|55|57|58|F0|XX)/

/** The error of a statement that settles, as the settler needs it: the server rejected a row, or something else. */
export function settlementError(error: unknown): unknown {
  const reported = serverErrorIn(error)
  if (!isServerError(reported) || NOT_OF_THE_ROW.test(reported.code)) return error
  return new SettlementRejectedError(`SQLSTATE ${reported.code}`, error)
}
