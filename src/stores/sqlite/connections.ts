import fs from 'node:fs'
import { AftercommitError, InvalidSettingError } from '../../core/errors.js'
import { originalMessageOf } from '../../core/redact.js'
import type { TransactionSession } from '../../transaction.js'
import {
  type Connection,
  canLock,
  connectionOf,
  isBusy,
  isInTransaction,
  type SqliteDatabase,
} from './driver.js'
import { cannotOpen } from './errors.js'
import { hasNoSharedMemory, openedExclusively, reasonOfLock, reasonOfOpen } from './modes.js'
import { patiently, type Reason } from './patience.js'
import { begin, beginOn, runTransaction } from './transaction.js'
import { Turn } from './turns.js'

interface Opened<Client extends SqliteDatabase> {
  readonly connection: Connection<Client>
  /** Its real path. */
  readonly file: string
}

/** `lasting`: on the disk when it is answered. `fleeting`: a power cut may undo it, and that harms nothing. */
export type Durability = 'lasting' | 'fleeting'

/**
 * The two connections of a store: one for managed transactions, one for the outbox's own work. Both are opened when
 * they are needed first, also again after close(), and no lock is ever waited for inside of SQLite.
 */
export class Connections<Client extends SqliteDatabase> {
  readonly #open: () => Client
  readonly #explain: (error: unknown) => unknown
  #own: Promise<Opened<Client>> | null = null
  #managed: Promise<Opened<Client>> | null = null
  /** Transactions that run on the managed connection or wait for it. */
  #users = 0
  #isClosing = false
  /** The connections that are open, and perhaps some that were closed. */
  readonly #known = new Set<Connection>()
  /** Whether another connection could have the lock when `open` last found the file locked. */
  #wasFree = false

  /** `explain` turns an error of the store's own statements, or of `open`, into the one to throw. */
  constructor(open: () => Client, explain: (error: unknown) => unknown) {
    this.#open = open
    this.#explain = explain
  }

  /** Opens both connections, which fails where the settings of a connection do not allow another one. */
  async prepare(): Promise<void> {
    await this.#ownConnection()
    await this.#managedConnection()
  }

  /** Sees what is committed; waits for no writer, and none waits for it. */
  async read<T>(work: (db: Connection) => T): Promise<T> {
    return patiently(() => this.#onOwn(work))
  }

  /** One transaction without an await in it. `work` may be run again when the database was locked after all. */
  async write<T>(work: (db: Connection) => T, durability: Durability = 'lasting'): Promise<T> {
    // Nothing here waits for anything: a backlog would otherwise hold up the timers and sockets of the whole process.
    await new Promise(setImmediate)
    const { file } = await this.#ownConnection()
    const turn = await Turn.take(file)
    try {
      return await patiently(() => this.#onOwn((db) => inOneGo(db, work, durability)))
    } finally {
      turn.end()
    }
  }

  /** begin → body → commit on the managed connection, or on the caller's idle client. */
  async transaction<T>(
    body: (session: TransactionSession<Client>) => Promise<T>,
    client?: Client,
  ): Promise<T> {
    if (client !== undefined) {
      const connection = connectionOf(client)
      const turn = await Turn.take(fileOf(connection))
      return inTurn(turn, async () => {
        await beginOn(connection).catch(this.#throwExplained)
        return runTransaction(connection, body)
      })
    }
    this.#users++
    try {
      const { file } = await this.#managedConnection()
      const turn = await Turn.take(file)
      return await inTurn(turn, async () => {
        const { connection } = await this.#managedConnection()
        try {
          await begin(connection).catch(this.#throwExplained)
          return await runTransaction(connection, body)
        } catch (error) {
          // Somebody closed it, or it could not even be rolled back: the next one gets another connection.
          if (!connection.isOpen || connection.inTransaction) await this.#closeManaged()
          throw error
        }
      })
    } finally {
      if (--this.#users === 0 && this.#isClosing) await this.#closeManaged()
    }
  }

  /** A managed transaction that is open goes on to its end; then its connection is closed too. */
  async close(): Promise<void> {
    this.#isClosing = true
    await this.#closeOwn()
    if (this.#users === 0) await this.#closeManaged()
  }

  async #onOwn<T>(work: (db: Connection) => T): Promise<T> {
    const opening = this.#ownConnection()
    const { connection } = await opening
    try {
      return work(connection)
    } catch (error) {
      if (isBusy(error)) throw error
      // Whatever it was, the next one gets another connection.
      if (this.#own === opening) await this.#closeOwn()
      throw this.#explain(error)
    }
  }

  #ownConnection(): Promise<Opened<Client>> {
    if (!this.#own) {
      const opening = this.#opened()
      this.#own = opening
      opening.catch(() => {
        if (this.#own === opening) this.#own = null
      })
    }
    return this.#own
  }

  #managedConnection(): Promise<Opened<Client>> {
    if (!this.#managed) {
      this.#isClosing = false
      const opening = this.#opened()
      this.#managed = opening
      opening.catch(() => {
        if (this.#managed === opening) this.#managed = null
      })
    }
    return this.#managed
  }

  async #closeOwn(): Promise<void> {
    const own = this.#own
    this.#own = null
    await closed(own)
  }

  async #closeManaged(): Promise<void> {
    const managed = this.#managed
    this.#managed = null
    await closed(managed)
  }

  #opened(): Promise<Opened<Client>> {
    let reason: Reason | null = null
    const attempt = () => {
      reason = null
      const connection = connectionOf(this.#newClient(() => (reason = this.#reasonOfOpen())))
      try {
        const opened = configured(connection)
        this.#known.add(connection)
        return opened
      } catch (error) {
        if (isBusy(error)) reason = reasonOfLock(connection, fileOf(connection))
        connection.close()
        throw this.#explain(error)
      }
    }
    return patiently(attempt, () => reason)
  }

  #newClient(onBusy: () => void): Client {
    let client: Client
    try {
      client = this.#open()
    } catch (error) {
      if (isBusy(error)) onBusy()
      throw isRefusal(error) ? cannotOpen(error) : this.#explain(error)
    }
    this.#wasFree = false
    checkClient(client)
    return client
  }

  /**
   * If a connection that is open can have the lock, no transaction is in the way of `open`. After a failed start no connection
   * is open, and the last answer counts.
   */
  #reasonOfOpen(): Reason {
    for (const connection of this.#known) if (!connection.isOpen) this.#known.delete(connection)
    const connections = [...this.#known]
    if (connections.length > 0) {
      this.#wasFree = connections.some((connection) => !connection.inTransaction && canLock(connection))
    }
    return reasonOfOpen(this.#wasFree)
  }

  readonly #throwExplained = (error: unknown): never => {
    throw this.#explain(error)
  }
}

/** Errors of better-sqlite3 and libsql about a folder that does not exist or may not be used. They have no code. */
function isRefusal(error: unknown): boolean {
  return /^Cannot open database|^ConnectionFailed\("Unable to open/.test(originalMessageOf(error))
}

/** Connections that were opened for some store. */
const used = new WeakSet<SqliteDatabase>()

function checkClient(client: SqliteDatabase): void {
  for (const method of ['prepare', 'exec', 'close'] as const) {
    if (typeof client?.[method] === 'function') continue
    throw new InvalidSettingError(
      'open',
      'must return a connection of better-sqlite3, libsql or node:sqlite (DatabaseSync), and no promise of one',
    )
  }
  isInTransaction(client)
  if (used.has(client)) {
    throw new InvalidSettingError('open', 'must open another connection each time, since the store closes it')
  }
  used.add(client)
}

/** The first one changes the file to WAL, for which it must be alone for a moment. */
function configured<Client extends SqliteDatabase>(connection: Connection<Client>): Opened<Client> {
  connection.exec('PRAGMA busy_timeout = 0')
  // open() may have set these deprecated pragmas, which change the names of columns and make writes return rows.
  connection.exec(
    'PRAGMA count_changes = OFF; PRAGMA full_column_names = OFF; PRAGMA short_column_names = ON',
  )
  // Before any statement that reads: it would take a lock that excludes the other connection.
  connection.exec('PRAGMA locking_mode = NORMAL')
  const file = fileOf(connection)
  checkVersion(String(connection.all('select sqlite_version() as version')[0]?.version))
  connection.exec('PRAGMA journal_mode = WAL')
  connection.exec('PRAGMA synchronous = FULL')
  connection.all('select 1 from sqlite_master limit 1')
  const [mode] = connection.all('PRAGMA journal_mode')
  if (mode?.journal_mode === 'wal' && hasNoSharedMemory(file)) throw openedExclusively()
  return { connection, file }
}

function checkVersion(version: string): void {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  if (major > 3 || (major === 3 && minor >= 43)) return
  throw new AftercommitError('UNSUPPORTED', `SQLite 3.43 or newer is needed, and this driver has ${version}.`)
}

async function inTurn<T>(turn: Turn, body: () => Promise<T>): Promise<T> {
  try {
    return await turn.run(body)
  } finally {
    turn.end()
  }
}

function inOneGo<T>(db: Connection, work: (db: Connection) => T, durability: Durability): T {
  if (durability === 'fleeting') db.exec('PRAGMA synchronous = NORMAL')
  try {
    db.exec('BEGIN IMMEDIATE')
    try {
      const result = work(db)
      db.exec('COMMIT')
      return result
    } catch (error) {
      if (db.inTransaction) db.exec('ROLLBACK')
      throw error
    }
  } finally {
    if (durability === 'fleeting') db.exec('PRAGMA synchronous = FULL')
  }
}

/** Rejects what is no file: each connection would see another database. */
function fileOf(connection: Connection): string {
  const rows = connection.all('PRAGMA database_list')
  const file = rows.find(({ name }) => name === 'main')?.file
  if (typeof file === 'string' && file !== '') return fs.realpathSync(file)
  throw new InvalidSettingError(
    'open',
    'must open a database file: every connection to ":memory:" is a database of its own. For tests there is memoryStore(), or a file in a temporary folder',
  )
}

async function closed(opened: Promise<Opened<SqliteDatabase>> | null): Promise<void> {
  try {
    const { connection } = (await opened) ?? {}
    connection?.close()
  } catch {
    // It was never open, or is closed already.
  }
}
