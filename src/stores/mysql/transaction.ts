import {
  AftercommitError,
  CommitUnknownError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../core/errors.js'
import { redactDriverError } from '../../core/redact.js'
import { isA } from '../../core/unknown.js'
import type { TransactionSession } from '../../transaction.js'
import {
  COMMIT,
  type CoreConnection,
  ignore,
  isDuplicate,
  isInTransaction,
  isServerError,
  type Query,
  ROLLBACK,
  refusedCommit,
  rolledEverythingBack,
  send,
} from './driver.js'
import type { Session } from './session.js'

/** Of these none can end the transaction, or go back to a savepoint. */
const HARMLESS = /^\s*(?:select|insert|update|delete|replace|with)\b[^;]*;?\s*$/i

/** The part of mysql2's commands that is used: `execute` is called to start one, and with every packet of the answer. */
interface Command {
  execute(packet: Packet | undefined, connection: CoreConnection): boolean
  emit(event: string, error?: unknown): unknown
  readonly onResult?: ((error: unknown) => void) | undefined
  /** Of one that runs a statement. */
  readonly sql?: unknown
  /** Of one that runs a prepared statement; undefined when it could not be prepared. */
  readonly statement?: { readonly query?: unknown }
  /** Of one that prepares a statement. */
  readonly query?: unknown
}

interface Packet {
  isError(): boolean
  asError(encoding: string | undefined): unknown
  /** How far it has been read. */
  offset: number
}

/** Who sends a command: the application, the store in its name, or what begins and ends the transaction. */
type Sender = 'application' | 'store' | 'transaction'

const watches = new WeakMap<CoreConnection, ManagedTransaction>()

/**
 * Throws when the connection is not inside a transaction; otherwise gives what statements of ours are sent with. The
 * server is asked, unless nothing has happened in a managed transaction that could have ended it.
 */
export async function ensureInTransaction(connection: CoreConnection): Promise<Query> {
  const watch = watches.get(connection)
  if (watch) {
    await watch.ensure()
    return watch.statement
  }
  const query: Query = (sql, params) => send(connection, sql, params)
  if (!(await isInTransaction(query))) throw new TransactionEndedError()
  return query
}

/** Whether a managed transaction is open on the connection. */
export function isManaged(connection: CoreConnection): boolean {
  return watches.has(connection)
}

/**
 * One managed transaction on one connection. While it runs it sees every command, whoever sends it and however: also
 * what was prepared before. A failed statement may have rolled everything back, and DDL commits: then nothing is taken
 * for granted. After a deadlock no statement is let through any more: it would commit by itself.
 */
export class ManagedTransaction {
  readonly #connection: CoreConnection
  readonly #session: Session
  readonly #unwatch: () => void
  /** The one that has this connection already, when somebody begins a second; it is refused. */
  readonly #outer: ManagedTransaction | undefined
  /** Of the command that is being sent. */
  #sender: Sender = 'application'
  /** Commands of the application that are not answered yet. */
  #underway = 0
  /** Something happened since the server was asked last. */
  #doubtful = false
  #mayHaveLostRows = false
  /** The error that told that everything was rolled back. */
  #deadlock: unknown
  #savepoints = 0
  /** The connection cannot be used again. */
  broken = false

  constructor(connection: CoreConnection, session: Session) {
    this.#connection = connection
    this.#session = session
    connection.on('error', ignore)
    this.#unwatch = this.#watch()
    this.#outer = watches.get(connection)
    watches.set(connection, this)
  }

  /** Afterwards the connection is as it was. */
  end(): void {
    this.#unwatch()
    if (this.#outer) watches.set(this.#connection, this.#outer)
    else watches.delete(this.#connection)
    this.#connection.removeListener('error', ignore)
  }

  /** begin → body → commit. */
  async run<Client, T>(
    client: Client,
    own: boolean,
    body: (session: TransactionSession<Client>) => Promise<T>,
  ): Promise<T> {
    if (own && (await isInTransaction(this.query))) {
      throw new AftercommitError(
        'CLIENT_IN_TRANSACTION',
        'This client is inside a transaction already. Publish with publish(event, { tx: client }) instead.',
      )
    }
    await this.query('START TRANSACTION').catch((error) => this.#break(error))
    let result: T
    try {
      result = await body(this.#sessionOf(client))
      await this.#ensureBeforeCommit()
    } catch (error) {
      await this.query(ROLLBACK).catch(() => (this.broken = true))
      throw error
    }
    await this.query(COMMIT).catch((error) => this.#uncommitted(error))
    return result
  }

  async ensure(): Promise<void> {
    this.#ensureNotRolledBack()
    if (!this.#doubtful && this.#underway === 0) return
    const inside = await isInTransaction(this.query)
    // What had been sent before is answered by now. Without autocommit the server would always say yes.
    this.#ensureNotRolledBack()
    if (!inside) throw new TransactionEndedError()
    if (this.#underway === 0) this.#doubtful = false
  }

  /** Past our own watch. */
  readonly query: Query = (sql, params) => this.#send('transaction', sql, params)

  /** For the store: an id that exists harms nothing, any other error may have ended the transaction. */
  readonly statement: Query = async (sql, params) => {
    try {
      return await this.#send('store', sql, params)
    } catch (error) {
      if (!isDuplicate(error)) this.#doubt()
      throw error
    }
  }

  #send(sender: Sender, sql: string, params?: Parameters<Query>[1]): ReturnType<Query> {
    this.#sender = sender
    try {
      return send(this.#connection, sql, params)
    } finally {
      this.#sender = 'application'
    }
  }

  /** Whoever ended it, COMMIT would be answered all the same. */
  async #ensureBeforeCommit(): Promise<void> {
    try {
      await this.ensure()
    } catch (error) {
      throw isA(error, TransactionEndedError) ? new CommitUnknownError(error) : error
    }
  }

  /** By the server, which said so; otherwise it was ended by the application, or by a statement that commits. */
  #ensureNotRolledBack(): void {
    if (this.#deadlock !== undefined) throw new TransactionRolledBackError(this.#deadlock)
  }

  async #uncommitted(error: unknown): Promise<never> {
    if (refusedCommit(error)) {
      await this.query(ROLLBACK).catch(() => (this.broken = true))
      throw error
    }
    this.broken = true
    throw new CommitUnknownError(error)
  }

  #break(error: unknown): never {
    this.broken = true
    throw error
  }

  #sessionOf<Client>(client: Client): TransactionSession<Client> {
    const session: TransactionSession<Client> = {
      client,
      mayHaveLostRows: () => this.#mayHaveLostRows,
      savepoint: (body) => this.#savepoint(() => body(session)),
    }
    return session
  }

  async #savepoint<T>(body: () => Promise<T>): Promise<T> {
    const name = `aftercommit_${++this.#savepoints}`
    await this.ensure()
    await this.query(`SAVEPOINT ${name}`)
    try {
      const result = await body()
      this.#ensureNotRolledBack()
      await this.query(`RELEASE SAVEPOINT ${name}`)
      return result
    } catch (error) {
      await this.query(`ROLLBACK TO SAVEPOINT ${name}`).catch((failure) => this.#savepointGone(failure))
      throw error
    }
  }

  /** It is gone when the whole transaction is; the error of the body says more. */
  #savepointGone(failure: unknown): void {
    if (!isServerError(failure)) throw failure
    this.#doubt()
  }

  #doubt(): void {
    this.#doubtful = true
    this.#mayHaveLostRows = true
  }

  /** Until the function is called that is returned. A connection that is closed meanwhile stays as it is then. */
  #watch(): () => void {
    const connection = this.#connection as unknown as { addCommand: (command: Command) => unknown }
    const inherited = !Object.hasOwn(connection, 'addCommand')
    const original = connection.addCommand
    const see = (command: Command) => this.#see(command, this.#sender)
    const watched = function (this: unknown, command: Command): unknown {
      see(command)
      return original.call(this, command)
    }
    connection.addCommand = watched
    return () => {
      if (connection.addCommand !== watched) return
      if (inherited) Reflect.deleteProperty(connection, 'addCommand')
      else connection.addCommand = original
    }
  }

  /** From here until its last packet. Whether it may be sent is decided when its turn comes. */
  #see(command: Command, sender: Sender): void {
    const isForeign = sender === 'application'
    if (isForeign) {
      this.#underway++
      if (!isHarmless(command)) this.#doubt()
    }
    const execute = command.execute
    let isStarted = false
    command.execute = (packet, connection) => {
      const isRefused = !isStarted && sender !== 'transaction' && this.#refuses(command)
      isStarted = true
      if (packet?.isError()) this.#failed(errorIn(packet, connection), isForeign)
      const isDone = isRefused || execute.call(command, packet, connection)
      if (isDone && isForeign) this.#underway--
      return isDone
    }
  }

  #failed(error: unknown, isForeign: boolean): void {
    if (isForeign) this.#doubt()
    if (rolledEverythingBack(error, this.#session.rollsBackOnTimeout)) this.#deadlock ??= error
  }

  /** Answers it in place of the server, when it would run outside of the transaction. */
  #refuses(command: Command): boolean {
    if (this.#deadlock === undefined || !('sql' in command)) return false
    // Its preparation failed, of which its sender has been told.
    if ('statement' in command && command.statement === undefined) return false
    const error = new TransactionRolledBackError(this.#deadlock)
    process.nextTick(() => {
      if (command.onResult) command.onResult(error)
      else command.emit('error', error)
      command.emit('end')
    })
    return true
  }
}

/** The command is going to read it once more. */
function errorIn(packet: Packet, { clientEncoding }: CoreConnection): unknown {
  const { offset } = packet
  const error = redactDriverError(packet.asError(clientEncoding))
  packet.offset = offset
  return error
}

function isHarmless(command: Command): boolean {
  // To prepare a statement, and to forget it, changes nothing.
  if (!('sql' in command)) return 'query' in command || !('onResult' in command)
  const text = command.sql ?? command.statement?.query
  return typeof text === 'string' && HARMLESS.test(text)
}
