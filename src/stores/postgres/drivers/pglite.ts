import { CommitUnknownError } from '../../../core/errors.js'
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
  withSavepoint,
} from '../driver.js'

/** The part of PGlite that is used, of the database and of a transaction alike. */
export interface PGliteClient {
  query(text: string, params?: unknown[], options?: { rowMode?: 'array' }): Promise<{ rows: unknown[] }>
  exec(sql: string): Promise<unknown>
}

export interface PGlite extends PGliteClient {
  transaction(body: (client: never) => Promise<unknown>): Promise<unknown>
  listen(channel: string, onRing: (payload: string) => void): Promise<() => Promise<void>>
}

/** PGlite has one session: everything waits for an open transaction, and nothing needs a pool. */
export class PGliteDriver<Client extends PGliteClient> implements PostgresDriver<Client> {
  readonly pooled = false
  readonly maxConnections = Number.POSITIVE_INFINITY
  prepare = false
  pooler = false
  channel: string | null = null
  readonly source: object
  readonly #database: PGlite

  constructor(database: PGlite) {
    this.source = database
    this.#database = database
  }

  query(statement: Statement, params: readonly Param[]): Promise<readonly Row[]> {
    return run(this.#database, statement, params)
  }

  queryOn(client: Client, statement: Statement, params: readonly Param[]): Promise<readonly Row[]> {
    return run(client, statement, params)
  }

  async script(client: Client, sql: string): Promise<void> {
    await client.exec(sql)
  }

  async reserve(): Promise<Session> {
    return { query: (statement, params) => this.query(statement, params), release: () => {} }
  }

  async listen(channel: string, onRing: (payload: string) => void): Promise<ListenSession> {
    const unlisten = await this.#database.listen(channel, onRing)
    return { session: null, close: () => unlisten().catch(() => {}) }
  }

  async transaction<T>(
    body: (session: TransactionSession<Client>) => Promise<T>,
    client?: Client,
  ): Promise<T> {
    if (client !== undefined) throw cannotUseClient()
    let finished = false
    try {
      return (await this.#database.transaction(async (client: Client) => {
        const result = await body(sessionOf(client))
        await refuseFailedTransaction((sql) => client.exec(sql))
        finished = true
        return result
      })) as T
    } catch (error) {
      if (finished && !refusedCommit(error)) throw new CommitUnknownError(error)
      throw error
    }
  }

  inTransaction(client: Client): Promise<boolean> {
    if ((client as { closed?: boolean }).closed) return Promise.resolve(false)
    return probeTransaction((sql) => client.exec(sql))
  }

  guard(): () => void {
    return () => {}
  }
}

async function run(
  client: PGliteClient,
  statement: Statement,
  params: readonly Param[],
): Promise<readonly Row[]> {
  return (await client.query(statement.text, params as unknown[], { rowMode: 'array' })).rows as Row[]
}

/** PGlite hides COMMIT's answer and the application's savepoints: the rows are looked up before every commit. */
function sessionOf<Client extends PGliteClient>(client: Client): TransactionSession<Client> {
  let savepoints = 0
  const session: TransactionSession<Client> = {
    client,
    mayHaveLostRows: () => true,
    savepoint: (body) =>
      withSavepoint(
        (sql) => client.exec(sql),
        `aftercommit_${++savepoints}`,
        () => body(session),
      ),
  }
  return session
}
