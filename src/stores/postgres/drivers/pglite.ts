import { AftercommitError, CommitUnknownError } from '../../../core/errors.js'
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
  listen(channel: string, onRing: (payload: string) => void): Promise<unknown>
  unlisten(channel: string, onRing?: (payload: string) => void): Promise<void>
}

/** Longer waits for the session end with an error: the transaction that holds it may be waiting for the caller. */
const PATIENCE_MS = 10_000

/** PGlite has one session: everything waits for an open transaction, and nothing needs a pool. */
export class PGliteDriver<Client extends PGliteClient> implements PostgresDriver<Client> {
  readonly pooled = false
  readonly maxConnections = Number.POSITIVE_INFINITY
  prepare = false
  pooler = false
  channel: string | null = null
  readonly source: object
  readonly #database: PGlite
  readonly #patienceMs: number

  constructor(database: PGlite, patienceMs = PATIENCE_MS) {
    this.source = database
    this.#database = database
    this.#patienceMs = patienceMs
  }

  /**
   * Runs the statement in a transaction of its own. PGlite keeps waiting statements in a queue and cannot cancel one. The
   * body of a transaction runs when the session is free, so a statement that was rejected with STORE_BUSY can still be left out.
   */
  query(statement: Statement, params: readonly Param[]): Promise<readonly Row[]> {
    return this.#exclusively((client) => run(client, statement, params))
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
    // PGlite puts the name into LISTEN and UNLISTEN as it is. The function that listen() returns loses the quotes.
    const name = `"${channel}"`
    const listening = this.#database.listen(name, onRing)
    const unlisten = () => this.#database.unlisten(name, onRing)
    await inTime(this.#patienceMs, () => listening).catch((error) => {
      // LISTEN may still be carried out when the session is free.
      listening.then(unlisten).catch(() => {})
      throw error
    })
    return { session: null, close: () => inTime(this.#patienceMs, unlisten).catch(() => {}) }
  }

  async transaction<T>(
    body: (session: TransactionSession<Client>) => Promise<T>,
    client?: Client,
  ): Promise<T> {
    if (client !== undefined) throw cannotUseClient()
    let finished = false
    try {
      return await this.#exclusively(async (client) => {
        const result = await body(sessionOf(client))
        await refuseFailedTransaction((sql) => client.exec(sql))
        finished = true
        return result
      })
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

  /** Runs the body in a transaction. Rejects with STORE_BUSY if the session is not free in time, and then never runs the body. */
  #exclusively<T>(body: (client: Client) => Promise<T>): Promise<T> {
    return inTime(
      this.#patienceMs,
      (begun) =>
        this.#database.transaction(async (client: Client) => {
          begun()
          return body(client)
        }) as Promise<T>,
    )
  }
}

/**
 * Rejects with STORE_BUSY if the work has neither ended nor called `begun` in time. Work that begins later is told so by
 * an exception out of `begun`.
 */
async function inTime<T>(ms: number, work: (begun: () => void) => Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  let isLate = false
  const begun = () => {
    if (isLate) throw busy(ms)
    clearTimeout(timer)
  }
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      isLate = true
      reject(busy(ms))
    }, ms)
  })
  try {
    return await Promise.race([work(begun), late])
  } finally {
    clearTimeout(timer)
  }
}

function busy(ms: number): AftercommitError {
  return new AftercommitError(
    'STORE_BUSY',
    `PGlite has one session, and a transaction has held it for ${ms} ms. A call inside of that transaction would wait for ever: publish there with { tx }, and make every other call before the transaction begins or after its commit.`,
  )
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
