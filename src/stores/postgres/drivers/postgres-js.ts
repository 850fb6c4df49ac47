import { AftercommitError, CommitUnknownError } from '../../../core/errors.js'
import { isA } from '../../../core/unknown.js'
import type { TransactionSession } from '../../../transaction.js'
import {
  cannotUseClient,
  type ListenSession,
  type Param,
  type PostgresDriver,
  probeTransaction,
  type Row,
  refusedCommit,
  refuseFailedTransaction,
  type Session,
  type Statement,
} from '../driver.js'

interface PendingQuery extends PromiseLike<unknown> {
  values(): PromiseLike<unknown>
  simple(): PromiseLike<unknown>
}

/** The part of postgres.js that is used, of `sql`, of a transaction and of a reserved connection alike. */
export interface PostgresJsClient {
  unsafe(text: string, params?: never[], options?: object): unknown
}

/** What the driver calls a connection, given to whoever asks to be told when a statement is sent. */
interface PostgresJsConnection {
  onclose?: ((error: unknown) => void) | null
  terminate?(): void
}

/** Only a handle of a transaction has it. A failed statement spoils the handle it went through, so nesting has its own. */
interface Nesting<Client> {
  savepoint(body: (inner: Client) => Promise<unknown>): Promise<unknown>
}

export interface PostgresJs extends PostgresJsClient {
  begin(body: (client: never) => unknown): Promise<unknown>
  reserve(): Promise<PostgresJsClient & { release(): void }>
  listen(
    channel: string,
    onRing: (payload: string) => void,
    onListening: () => void,
  ): Promise<{ unlisten(): Promise<void> }>
  readonly options: { readonly max: number; readonly fetch_types?: unknown }
}

export class PostgresJsDriver<Client extends PostgresJsClient> implements PostgresDriver<Client> {
  readonly pooled = true
  prepare = true
  pooler = false
  channel: string | null = null
  readonly source: object
  readonly #sql: PostgresJs

  constructor(sql: PostgresJs) {
    this.source = sql
    this.#sql = sql
  }

  get maxConnections(): number {
    return this.#sql.options.max
  }

  query(statement: Statement, params: readonly Param[]): Promise<readonly Row[]> {
    return this.#run(this.#sql, statement, params)
  }

  queryOn(client: Client, statement: Statement, params: readonly Param[]): Promise<readonly Row[]> {
    return this.#run(client, statement, params)
  }

  async script(client: Client, sql: string): Promise<void> {
    await (client.unsafe(sql) as PendingQuery).simple()
  }

  async reserve(): Promise<Session> {
    // postgres.js 3.4 never resolves sql.reserve() with this option if it opens a connection for the call.
    if (this.#sql.options.fetch_types === false) throw cannotReserve()
    const client = await this.#sql.reserve()
    let connection: PostgresJsConnection | undefined
    let lost: unknown
    // A reserved connection that is gone stays reserved, and a query on it throws where nobody can catch it.
    const onexecute = (executing: PostgresJsConnection) => {
      connection = executing
      executing.onclose = (error) => {
        lost = error ?? new Error('the connection was closed')
      }
      return true
    }
    await (client.unsafe('select 1', [], { onexecute }) as PendingQuery)
    return {
      query: async (statement, params) => {
        if (lost !== undefined) throw lost
        return this.#run(client, statement, params)
      },
      release: (broken) => {
        if (lost !== undefined) return
        if (broken && connection?.terminate) return connection.terminate()
        if (connection) connection.onclose = null
        client.release()
      },
    }
  }

  async listen(channel: string, onRing: (payload: string) => void): Promise<ListenSession> {
    let again = false
    const listening = await this.#sql.listen(channel, onRing, () => {
      // It was away for a moment, and may have missed a ring.
      if (again) onRing('')
      again = true
    })
    return { session: null, close: async () => listening.unlisten().catch(() => {}) }
  }

  async transaction<T>(
    body: (session: TransactionSession<Client>) => Promise<T>,
    client?: Client,
  ): Promise<T> {
    if (client !== undefined) throw cannotUseClient()
    let finished = false
    try {
      return (await this.#sql.begin(async (client: Client) => {
        const result = await body(sessionOf(client)).catch(wrap)
        await refuseFailedTransaction((sql) => execute(client, sql))
        finished = true
        return result
      })) as T
    } catch (error) {
      if (finished && !refusedCommit(error)) throw new CommitUnknownError(error)
      throw unwrapped(error)
    }
  }

  inTransaction(client: Client): Promise<boolean> {
    return probeTransaction((sql) => execute(client, sql))
  }

  guard(): () => void {
    return () => {}
  }

  async #run(
    client: PostgresJsClient,
    statement: Statement,
    params: readonly Param[],
  ): Promise<readonly Row[]> {
    const query = client.unsafe(statement.text, params as never[], { prepare: this.prepare }) as PendingQuery
    return (await query.values()) as Row[]
  }
}

function cannotReserve(): AftercommitError {
  return new AftercommitError(
    'UNSUPPORTED',
    'A worker needs connections of its own, and postgres.js cannot reserve one with fetch_types: false. Remove the option, or give the worker another `sql` without it. Publishing works with the option.',
  )
}

function execute(client: PostgresJsClient, sql: string): Promise<unknown> {
  return Promise.resolve((client.unsafe(sql) as PendingQuery).simple())
}

/** postgres.js hides COMMIT's answer and its own savepoints: the rows are looked up before every commit. */
function sessionOf<Client extends PostgresJsClient>(client: Client): TransactionSession<Client> {
  return {
    client,
    mayHaveLostRows: () => true,
    savepoint: async (body) => {
      try {
        return (await (client as Client & Nesting<Client>).savepoint((inner) =>
          body(sessionOf(inner)).catch(wrap),
        )) as Awaited<ReturnType<typeof body>>
      } catch (error) {
        throw unwrapped(error)
      }
    },
  }
}

/**
 * Carries a thrown value through postgres.js, which applies `instanceof` to it after the rollback. For a value whose
 * prototype cannot be read, `instanceof` throws, and postgres.js would reject with its TypeError.
 */
class Wrapped extends Error {
  readonly thrown: unknown

  constructor(thrown: unknown) {
    super('The body of a transaction threw a value that cannot be inspected.')
    this.thrown = thrown
  }
}

function wrap(error: unknown): never {
  try {
    void (error instanceof Error)
  } catch {
    throw new Wrapped(error)
  }
  throw error
}

function unwrapped(error: unknown): unknown {
  return isA(error, Wrapped) ? error.thrown : error
}
