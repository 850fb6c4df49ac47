import { AftercommitError } from '../../core/errors.js'
import { redactDriverError } from '../../core/redact.js'
import { causesOf, read } from '../../core/unknown.js'

/** The part of a prepared statement that is used, of better-sqlite3, libsql and node:sqlite alike. */
export interface SqliteStatement {
  run(...params: never[]): unknown
  all(...params: never[]): unknown
}

/** A connection to a database file, as better-sqlite3, libsql or node:sqlite (DatabaseSync) opens it. */
export interface SqliteDatabase {
  prepare(sql: string): SqliteStatement
  exec(sql: string): unknown
  close(): unknown
  /** Whether a transaction is open, as better-sqlite3 and libsql report it. The store refuses a client that reports neither this nor `isTransaction`. */
  readonly inTransaction?: boolean
  /** Whether a transaction is open, as node:sqlite reports it. */
  readonly isTransaction?: boolean
}

export type Value = string | number | null | Uint8Array
/** By name and never by position: that is what all three drivers bind in the same way. Just those that are used. */
export type Params = Readonly<Record<string, Value>>
export type Row = Readonly<Record<string, unknown>>

interface Prepared {
  run(params: Params): unknown
  all(params: Params): readonly Row[]
  setReturnArrays?(enabled: boolean): void
  raw?(enabled: boolean): unknown
  setAllowBareNamedParameters?(enabled: boolean): void
}

/** One connection and the statements that were prepared on it. Everything is synchronous. */
export class Connection<Client extends SqliteDatabase = SqliteDatabase> {
  readonly client: Client
  readonly #statements = new Map<string, Prepared>()
  readonly #listing = new Map<string, Prepared>()
  /** Set by who writes in a transaction: whether that is there, should the transaction end by somebody else's hand. */
  isWritten: (() => boolean) | null = null

  constructor(client: Client) {
    this.client = client
  }

  /** For statements that give rows. */
  all(sql: string, params: Params = {}): readonly Row[] {
    try {
      return this.#prepared(sql).all(params)
    } catch (error) {
      throw redactDriverError(error)
    }
  }

  /** The same with rows as lists, in the order of the columns: for many rows that is much cheaper. */
  lists(sql: string, params: Params = {}): readonly (readonly unknown[])[] {
    let statement = this.#listing.get(sql)
    if (!statement) {
      statement = this.#prepare(sql)
      // node:sqlite has the one, the others have the other; without either there are objects.
      if (statement.setReturnArrays) statement.setReturnArrays(true)
      else statement.raw?.(true)
      this.#listing.set(sql, statement)
    }
    let rows: readonly object[]
    try {
      rows = statement.all(params)
    } catch (error) {
      throw redactDriverError(error)
    }
    return Array.isArray(rows[0] ?? []) ? (rows as unknown[][]) : rows.map((row) => Object.values(row))
  }

  /** For statements that give none. */
  run(sql: string, params: Params = {}): void {
    try {
      this.#prepared(sql).run(params)
    } catch (error) {
      throw redactDriverError(error)
    }
  }

  exec(sql: string): void {
    try {
      this.client.exec(sql)
    } catch (error) {
      throw redactDriverError(error)
    }
  }

  /** Asked before anything else: libsql ends the process when a closed connection is asked more. */
  get isOpen(): boolean {
    const { open, isOpen } = this.client as { open?: unknown; isOpen?: unknown }
    return open !== false && isOpen !== false
  }

  get inTransaction(): boolean {
    return this.isOpen && isInTransaction(this.client)
  }

  /** libsql keeps a connection open for as long as one of its statements is known to anybody. */
  close(): void {
    this.#statements.clear()
    this.#listing.clear()
    this.client.close()
  }

  #prepared(sql: string): Prepared {
    let statement = this.#statements.get(sql)
    if (!statement) {
      statement = this.#prepare(sql)
      this.#statements.set(sql, statement)
    }
    return statement
  }

  #prepare(sql: string): Prepared {
    const statement = this.client.prepare(sql) as unknown as Prepared
    // node:sqlite lets the connection's owner choose other defaults.
    statement.setReturnArrays?.(false)
    statement.setAllowBareNamedParameters?.(true)
    return statement
  }
}

/** Throws if the driver does not report whether a transaction is open. */
export function isInTransaction(client: SqliteDatabase): boolean {
  const { inTransaction, isTransaction } = client
  const isInside = inTransaction ?? isTransaction
  if (typeof isInside === 'boolean') return isInside
  throw new AftercommitError(
    'UNSUPPORTED',
    'This SQLite driver does not report whether a transaction is open. Use better-sqlite3, libsql, or node:sqlite of Node 22.16 or newer.',
  )
}

const known = new WeakMap<SqliteDatabase, Connection>()

/** The same for the same client, so that its statements are prepared once. */
export function connectionOf<Client extends SqliteDatabase>(client: Client): Connection<Client> {
  let connection = known.get(client)
  if (!connection) {
    connection = new Connection(client)
    known.set(client, connection)
  }
  return connection as Connection<Client>
}

const BUSY = 5
const LOCKED = 6
const IOERR = 10

/** Somebody else holds the lock: nothing was done, and it may work in a moment. */
export function isBusy(error: unknown): boolean {
  return hasCode(error, BUSY, 'SQLITE_BUSY') || hasCode(error, LOCKED, 'SQLITE_LOCKED')
}

/** Whether the write lock can be had now. */
export function canLock(db: Connection): boolean {
  try {
    db.exec('BEGIN IMMEDIATE')
  } catch (error) {
    if (isBusy(error)) return false
    throw error
  }
  db.exec('ROLLBACK')
  return true
}

/** The disk failed, so nobody knows how much was written. */
export function isDiskFailure(error: unknown): boolean {
  return hasCode(error, IOERR, 'SQLITE_IOERR')
}

/** What SQLite itself reported, perhaps wrapped in an error of an ORM; undefined when it is somebody else's error. */
export function sqliteErrorIn(error: unknown): unknown {
  return causesOf(error).find((cause) => {
    const [code, number] = [read(cause, 'code'), numberIn(cause)]
    return typeof number === 'number' || (typeof code === 'string' && code.startsWith('SQLITE_'))
  })
}

/** better-sqlite3 names the code, node:sqlite numbers it, and libsql does both. Extensions are in the higher bits. */
export function hasCode(error: unknown, primary: number, name: string): boolean {
  const [code, number] = [read(error, 'code'), numberIn(error)]
  if (typeof number === 'number') return (number & 0xff) === primary
  return typeof code === 'string' && (code === name || code.startsWith(`${name}_`))
}

/** libsql has a name for some codes only. */
function numberIn(error: unknown): unknown {
  return read(error, 'errcode') ?? read(error, 'rawCode')
}
