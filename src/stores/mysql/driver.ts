import { AftercommitError } from '../../core/errors.js'
import { originalMessageOf, redactDriverError } from '../../core/redact.js'
import { read } from '../../core/unknown.js'

type Listener = (...args: never[]) => void
type Callback = (error: unknown, result: unknown) => void

/** What is sent to mysql2; whatever the pool is set to, these settings of the statement win. */
interface Options {
  readonly sql: string
  readonly values?: readonly Param[]
  readonly rowsAsArray: true
  readonly nestTables: false
  readonly namedPlaceholders: false
  readonly typeCast: true | ((field: unknown, next: () => unknown) => unknown)
}

/** The part of mysql2's connection that is used; a promise connection carries one of these inside. */
export interface CoreConnection {
  query(options: unknown, ...rest: never[]): unknown
  execute(options: unknown, ...rest: never[]): unknown
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  destroy(): void
  release?(): void
  /** What every command passes, also that of a statement which was prepared long ago. */
  addCommand(command: never): unknown
  readonly config?: { readonly typeCast?: unknown }
  /** By what the driver turns texts into bytes. */
  readonly clientEncoding?: string
}

/** The part of mysql2's pool that is used; a promise pool carries one of these inside. */
export interface CorePool {
  getConnection(callback: (error: unknown, connection: CoreConnection) => void): void
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  readonly config: { readonly connectionLimit?: number | undefined }
}

/** Values in column order: text, numbers (perhaps as text) and bytes; no dates and no JSON, which pools can reshape. */
export type Row = readonly unknown[]
export type Param = string | number | Uint8Array | null

export interface Answer {
  readonly rows: readonly Row[]
  readonly affected: number
  /** Null when nobody told. */
  readonly insertId: number | null
  /** Whether the session is inside a transaction behind the statement; null when the answer does not say. */
  readonly inTransaction: boolean | null
}

/** Prepared with its parameters, so that no sql_mode changes their meaning; as plain text without any. */
export type Query = (sql: string, params?: readonly Param[]) => Promise<Answer>

/** Statements that only end the transaction, whatever the `completion_type` of the session is. */
export const COMMIT = 'COMMIT AND NO CHAIN NO RELEASE'
export const ROLLBACK = 'ROLLBACK AND NO CHAIN NO RELEASE'

const IN_TRANSACTION = 1
const AUTOCOMMIT = 2

/** Sends one statement; it is in the connection's queue when this returns. */
export function send(connection: CoreConnection, sql: string, params?: readonly Param[]): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const method = (params ? connection.execute : connection.query) as (
      options: Options,
      done: Callback,
    ) => unknown
    const done: Callback = (error, result) =>
      error ? reject(redactDriverError(error)) : resolve(answerOf(result))
    // A function of ours stands against one of the pool's, and costs time for every value.
    const typeCast = connection.config?.typeCast === true || asItIs
    const options = { sql, rowsAsArray: true, nestTables: false, namedPlaceholders: false, typeCast } as const
    method.call(connection, params ? { ...options, values: params } : options, done)
  })
}

function asItIs(_field: unknown, next: () => unknown): unknown {
  return next()
}

function answerOf(result: unknown): Answer {
  if (Array.isArray(result)) return { rows: result, affected: 0, insertId: 0, inTransaction: null }
  const { affectedRows, insertId, serverStatus } = result as Record<string, unknown>
  return {
    rows: [],
    affected: Number(affectedRows ?? 0),
    insertId: Number(insertId ?? 0),
    // Without autocommit a transaction begins by itself.
    inTransaction:
      typeof serverStatus === 'number'
        ? (serverStatus & IN_TRANSACTION) !== 0 || (serverStatus & AUTOCOMMIT) === 0
        : null,
  }
}

/** Asks the server, by a statement that changes nothing. */
export async function isInTransaction(query: Query): Promise<boolean> {
  return (await query('DO 0')).inTransaction === true
}

interface ServerError {
  readonly errno: number
  readonly sqlState: string
  readonly message?: string
}

/** True when the server itself reported the error. */
export function isServerError(error: unknown): error is ServerError {
  return typeof read(error, 'errno') === 'number' && typeof read(error, 'sqlState') === 'string'
}

/** Shutting down, killed, thrown out for idling, packet too large: the connection goes with the error. */
const LAST_WORDS = [1053, 1077, 1079, 1080, 1152, 1153, 1159, 1161, 1184, 1927, 4031]

/** The server answered with an error and the connection can be used again. */
export function survives(error: unknown): boolean {
  return isServerError(error) && !LAST_WORDS.includes(error.errno)
}

export function isDuplicate(error: unknown): boolean {
  return isServerError(error) && error.errno === 1062
}

/** Its victim was rolled back as a whole. */
export function isDeadlock(error: unknown): boolean {
  return isServerError(error) && error.errno === 1213
}

/** A lock was not to be had in time. Only the statement was undone, unless the server is set otherwise. */
export function isLockTimeout(error: unknown): boolean {
  return isServerError(error) && error.errno === 1205
}

/** Nothing may be null there: so a statement refuses to be run outside of a transaction, see onlyInside(). */
export function isNullIn(column: string, error: unknown): boolean {
  return isServerError(error) && error.errno === 1048 && originalMessageOf(error).includes(`'${column}'`)
}

/** A transaction is open, and its characteristics cannot be changed any more. */
export function isTooLateToChange(error: unknown): boolean {
  return isServerError(error) && error.errno === 1568
}

/**
 * The transaction was rolled back as a whole: by a deadlock, by MariaDB under innodb_snapshot_isolation because a row
 * has changed, or by a lock that was not to be had, where the server is set so.
 */
export function rolledEverythingBack(error: unknown, onTimeout: boolean): boolean {
  if (isDeadlock(error) || (onTimeout && isLockTimeout(error))) return true
  return isServerError(error) && error.errno === 1020
}

/** No such table. */
export function isMissing(error: unknown): boolean {
  return isServerError(error) && error.errno === 1146
}

/** A victim of certification, or a server that takes no writes. Any other failure of a COMMIT leaves it open. */
const REFUSED_COMMIT = [1213, 1290, 1792, 1836, 3101]

export function refusedCommit(error: unknown): boolean {
  return isServerError(error) && REFUSED_COMMIT.includes(error.errno)
}

/** A statement that takes longer than this is taken for a dead connection, and the connection is replaced. */
const ANSWER_WITHIN_MS = 10_000

export function answered<T>(
  answer: Promise<T>,
  withinMs = ANSWER_WITHIN_MS,
  late = () => new Error(`the database did not answer within ${withinMs} ms`),
): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(late()), withinMs)
    timer.unref()
    answer.then(
      (value) => {
        clearTimeout(timer)
        resolve(value)
      },
      (error) => {
        clearTimeout(timer)
        reject(error)
      },
    )
  })
}

/** A connection of the pool, or an error in time; one that comes too late is given back. */
export function connectionOf(pool: CorePool, withinMs?: number): Promise<CoreConnection> {
  const connecting = new Promise<CoreConnection>((resolve, reject) => {
    pool.getConnection((error, connection) =>
      error ? reject(redactDriverError(error)) : resolve(connection),
    )
  })
  if (withinMs === undefined) return connecting
  const late = () =>
    new AftercommitError(
      'CONNECTION_TIMEOUT',
      `the pool gave no connection within ${withinMs} ms: all are taken, or the database does not answer. Raise connectionLimit of the pool, or find out what holds its connections.`,
    )
  return answered(connecting, withinMs, late).catch((error) => {
    connecting.then(
      (late) => late.release?.(),
      () => {},
    )
    throw error
  })
}

/** An `error` event without a listener ends the process; the failure shows in the next statement anyway. */
export function ignore(): void {}
