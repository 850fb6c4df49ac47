import { AftercommitError, TransactionRolledBackError } from '../../core/errors.js'
import { causesOf, isA, read } from '../../core/unknown.js'
import type { TransactionSession } from '../../transaction.js'

/** A statement with bound parameters. Prepared under a name derived from its text, where the driver can. */
export interface Statement {
  readonly name: string
  readonly text: string
}

/** Values in column order. Every statement selects text and numbers only, so that all drivers agree. */
export type Row = readonly unknown[]
export type Param = string | number | null
export type Query = (statement: Statement, params: readonly Param[]) => Promise<readonly Row[]>

export interface Session {
  query(statement: Statement, params: readonly Param[]): Promise<readonly Row[]>
  /** A broken connection is closed and not given back. */
  release(broken: boolean): void
}

export interface ListenSession {
  /** Runs on the listening connection, and so notices when that is gone; null when the driver hides it. */
  readonly session: Session | null
  close(broken: boolean): Promise<void>
}

/** A statement of ours that need not be carried out at once. */
export interface LateStatement {
  readonly statement: Statement
  readonly params: readonly Param[]
  /** The same without an answer, when nobody needs to know the `seq` of the one row that it writes. */
  readonly unanswered: Statement | null
  /** An expression for the `seq` of the row it writes, for the next statement of the session; null for several rows. */
  readonly seq: string | null
  answered(rows: readonly Row[]): void
  /** Of the `unanswered` one: whether its row was written. */
  wrote(one: boolean): void
  /** What to tell the application instead of the driver's error. */
  explain(error: unknown): unknown
}

export interface DriverSession<Client> extends TransactionSession<Client> {
  /** Where the driver can send a statement of ours in front of the application's next one, or with the COMMIT. */
  late?: {
    /**
     * `take` is called when the moment has come; at most one waits at a time. False when it had better be carried
     * out now. Throws when the transaction has ended.
     */
    hold(take: () => LateStatement): boolean
    /** Carries out now what is held. */
    flush(): Promise<void>
  }
}

/** What the store needs of a driver. Implementations know the driver by structure only. */
export interface PostgresDriver<Client> {
  /** The user's pool, by which stores that share it know each other. */
  readonly source: object
  /** Connections the pool may open; Infinity when it does not say. */
  readonly maxConnections: number
  /** False when there is just one session for everybody (PGlite). */
  readonly pooled: boolean
  /** Set by the store; true means prepared statements work. */
  prepare: boolean
  /** Set by the store; true means that a pooler may part what is sent together. */
  pooler: boolean
  /** Set by the store: where the doorbell rings; null when there is none. */
  channel: string | null
  query(statement: Statement, params: readonly Param[]): Promise<readonly Row[]>
  /** Several statements without parameters, for migrations. */
  script(client: Client, sql: string): Promise<void>
  queryOn(client: Client, statement: Statement, params: readonly Param[]): Promise<readonly Row[]>
  reserve(): Promise<Session>
  listen(channel: string, onRing: (payload: string) => void, onLost: () => void): Promise<ListenSession>
  transaction<T>(body: (session: DriverSession<Client>) => Promise<T>, client?: Client): Promise<T>
  inTransaction(client: Client): Promise<boolean>
  /** Installs what keeps a lost connection from ending the process. Returns its removal. */
  guard(onError: (error: unknown) => void): () => void
}

/** Rings $1 with this payload. A notification has nothing to make durable, so its commit need not wait for the disk. */
const notifyWith = (payload: string) =>
  `select set_config('synchronous_commit', 'off', true), pg_notify($1::text, (${payload})::text)::text`

export const notify: Statement = { name: 'ac_notify', text: notifyWith('$2') }

/** The same for a row whose `seq` is not known yet: goes in one packet with the COMMIT. */
export function ringBehindCommit(
  channel: string,
  { seq }: LateStatement,
): { statement: Statement; params: readonly Param[] } | null {
  if (seq === null) return null
  return { statement: statement(notifyWith(seq)), params: [channel] }
}

/**
 * SQL for a time as milliseconds since 1970, or for the milliseconds of an interval. The value is a whole `numeric`: the
 * server would round a floating-point number where `extra_float_digits` is negative.
 */
export function milliseconds(value: string): string {
  return `round(extract(epoch from ${value}) * 1000)`
}

const statements = new Map<string, Statement>()

/** The same text gives the same statement, so that drivers prepare it once per connection. */
export function statement(text: string): Statement {
  let known = statements.get(text)
  if (!known) {
    known = { name: `ac_${hash(text, 0x811c9dc5)}${hash(text, 0x01000193)}`, text }
    statements.set(text, known)
  }
  return known
}

function hash(text: string, seed: number): string {
  let value = seed
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619) >>> 0
  return value.toString(36)
}

/** True when the server itself reported the error, so that the transaction's fate is known. */
export function isServerError(error: unknown): error is { code: string; severity: string } {
  return typeof read(error, 'severity') === 'string' && typeof read(error, 'code') === 'string'
}

/** A statement before this one has failed, and nothing but a rollback is left. */
export function isFailedTransaction(error: unknown): boolean {
  return isServerError(error) && error.code === '25P02'
}

/** That failure, or an error that was made of it: what a statement meets after the one that really failed. */
export function isAftermath(error: unknown): boolean {
  return causesOf(error).some((cause) => isFailedTransaction(cause) || isA(cause, TransactionRolledBackError))
}

/**
 * The server refused the commit. Not so when it, or the line to it, was going down at that moment. Of its class 57
 * only a cancelled statement (57014, also by a timeout) is sure to have had no effect.
 */
export function refusedCommit(error: unknown): boolean {
  return isServerError(error) && !/^(08|57(?!014)|58|XX)/.test(error.code)
}

/** By somebody, or by a timeout of the server's. */
export function isCancelled(error: unknown): boolean {
  return isServerError(error) && error.code === '57014'
}

/** A pooler in transaction mode gave us another server connection than the one that prepared. */
export function isPreparedStatementError(error: unknown): boolean {
  return isServerError(error) && (error.code === '26000' || error.code === '42P05')
}

const mention = /\b(rollback|abort)\b/i

/** Sound because PostgreSQL can only roll back to a savepoint by a statement whose text says so. */
export function mentionsRollback(text: unknown): boolean {
  return typeof text === 'string' ? mention.test(text) : true
}

/** SAVEPOINT … RELEASE around the body by plain statements on the transaction's own connection. */
export async function withSavepoint<T>(
  execute: (sql: string) => Promise<unknown>,
  name: string,
  body: () => Promise<T>,
): Promise<T> {
  await execute(`SAVEPOINT ${name}`)
  try {
    const result = await body()
    // Refused when a statement has failed and its error was swallowed.
    await execute(`RELEASE SAVEPOINT ${name}`)
    return result
  } catch (error) {
    await execute(`ROLLBACK TO SAVEPOINT ${name}`)
    await execute(`RELEASE SAVEPOINT ${name}`)
    throw error
  }
}

export function cannotUseClient(): AftercommitError {
  return new AftercommitError(
    'UNSUPPORTED',
    'This driver begins its transactions itself: call transaction(body), or publish(event, { tx }) inside your own.',
  )
}

/** A statement has failed and its error was swallowed: COMMIT would be answered by ROLLBACK, and the driver hides it. */
export async function refuseFailedTransaction(execute: (sql: string) => Promise<unknown>): Promise<void> {
  try {
    await execute('SELECT 1')
  } catch (error) {
    if (isFailedTransaction(error)) throw new TransactionRolledBackError(error)
    throw error
  }
}

/** Outside a transaction SAVEPOINT is refused (25P01); inside it is harmless. */
export async function probeTransaction(execute: (sql: string) => Promise<unknown>): Promise<boolean> {
  try {
    await execute('SAVEPOINT aftercommit_probe')
    await execute('RELEASE SAVEPOINT aftercommit_probe')
    return true
  } catch (error) {
    // The second one is refused when it ended in between.
    if (isServerError(error) && (error.code === '25P01' || error.code === '3B001')) return false
    throw error
  }
}

/** A statement that takes longer than this is taken for a dead connection, and the connection is replaced. */
const ANSWER_WITHIN_MS = 10_000

export function answered<T>(answer: Promise<T>, withinMs = ANSWER_WITHIN_MS): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`the database did not answer within ${withinMs} ms`)),
      withinMs,
    )
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
