import {
  AftercommitError,
  CommitUnknownError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../core/errors.js'
import type { TransactionSession } from '../../transaction.js'
import {
  type CoreConnection,
  ignore,
  isDeadlock,
  isDuplicate,
  isInTransaction,
  isServerError,
  type Query,
  refusedCommit,
  send,
} from './driver.js'

type Method = (...args: unknown[]) => unknown

/** Of these none can end the transaction, or go back to a savepoint. */
const HARMLESS = /^\s*(?:select|insert|update|delete|replace|with)\b[^;]*;?\s*$/i

const WATCHED = ['query', 'execute', 'prepare', 'changeUser', 'reset'] as const

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

/**
 * One managed transaction on one connection. While it runs it sees every statement of the application. A failed
 * statement may have rolled everything back (a deadlock does), and DDL commits: then nothing is taken for granted.
 */
export class ManagedTransaction {
  readonly #connection: CoreConnection
  readonly #originals = new Map<string, Method>()
  readonly #inherited = new Set<string>()
  /** The one that has this connection already, when somebody begins a second; it is refused. */
  readonly #outer: ManagedTransaction | undefined
  /** Statements of the application that are not answered yet. */
  #underway = 0
  /** Something happened since the server was asked last. */
  #doubtful = false
  #mayHaveLostRows = false
  /** The error that told of one: it rolls back everything. */
  #deadlock: unknown
  #savepoints = 0
  /** The connection cannot be used again. */
  broken = false

  constructor(connection: CoreConnection) {
    this.#connection = connection
    connection.on('error', ignore)
    for (const name of WATCHED) this.#watch(name)
    this.#outer = watches.get(connection)
    watches.set(connection, this)
  }

  /** Afterwards the connection is as it was. */
  end(): void {
    const methods = this.#connection as unknown as Record<string, Method>
    for (const [name, original] of this.#originals) {
      if (this.#inherited.has(name)) delete methods[name]
      else methods[name] = original
    }
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
      result = await body(this.#session(client))
      await this.#ensureBeforeCommit()
    } catch (error) {
      await this.query('ROLLBACK').catch(() => (this.broken = true))
      throw error
    }
    await this.query('COMMIT').catch((error) => this.#uncommitted(error))
    return result
  }

  async ensure(): Promise<void> {
    if (!this.#doubtful && this.#underway === 0) return
    if (!(await isInTransaction(this.query))) throw this.#vanished(new TransactionEndedError())
    if (this.#underway === 0) this.#doubtful = false
  }

  /** Past our own watch. */
  readonly query: Query = (sql, params) =>
    send(this.#connection, sql, params, {
      query: this.#originals.get('query') as CoreConnection['query'],
      execute: this.#originals.get('execute') as CoreConnection['execute'],
    })

  /** For the store: an id that exists harms nothing, any other error may have ended the transaction. */
  readonly statement: Query = async (sql, params) => {
    try {
      return await this.query(sql, params)
    } catch (error) {
      if (!isDuplicate(error)) this.#doubt(error)
      throw error
    }
  }

  /** Whoever ended it, COMMIT would be answered all the same. */
  async #ensureBeforeCommit(): Promise<void> {
    try {
      await this.ensure()
    } catch (error) {
      throw error instanceof TransactionEndedError ? new CommitUnknownError(error) : error
    }
  }

  /** Rolled back by the server, if it said so; otherwise ended by the application, or by a statement that commits. */
  #vanished(otherwise: Error): Error {
    return this.#deadlock === undefined ? otherwise : new TransactionRolledBackError(this.#deadlock)
  }

  async #uncommitted(error: unknown): Promise<never> {
    if (refusedCommit(error)) {
      await this.query('ROLLBACK').catch(() => (this.broken = true))
      throw error
    }
    this.broken = true
    throw new CommitUnknownError(error)
  }

  #break(error: unknown): never {
    this.broken = true
    throw error
  }

  #session<Client>(client: Client): TransactionSession<Client> {
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
    this.#doubt(failure)
  }

  #doubt(failure?: unknown): void {
    this.#doubtful = true
    this.#mayHaveLostRows = true
    if (isDeadlock(failure)) this.#deadlock = failure
  }

  #watch(name: (typeof WATCHED)[number]): void {
    const methods = this.#connection as unknown as Record<string, Method | undefined>
    const original = methods[name]
    if (typeof original !== 'function') return
    if (!Object.hasOwn(methods, name)) this.#inherited.add(name)
    this.#originals.set(name, original)
    const seen = (args: unknown[]) => this.#seen(name, args)
    methods[name] = function (this: unknown, ...args: unknown[]) {
      return original.apply(this, seen(args))
    }
  }

  /** Its callback is wrapped, to learn of its end. One without a callback is never known to have ended well. */
  #seen(name: string, args: unknown[]): unknown[] {
    const text = typeof args[0] === 'string' ? args[0] : (args[0] as { sql?: unknown } | null)?.sql
    const isStatement = name === 'query' || name === 'execute'
    if (!isStatement || typeof text !== 'string' || !HARMLESS.test(text)) this.#doubt()
    const at = args.findLastIndex((arg) => typeof arg === 'function')
    if (at < 0) {
      this.#doubt()
      return args
    }
    const callback = args[at] as Method
    this.#underway++
    const wrapped = (error: unknown, ...rest: unknown[]) => {
      this.#underway--
      if (error) this.#doubt(error)
      return callback(error, ...rest)
    }
    return [...args.slice(0, at), wrapped, ...args.slice(at + 1)]
  }
}
