import {
  AftercommitError,
  CommitUnknownError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../../core/errors.js'
import type { TransactionSession } from '../../../transaction.js'
import {
  answered,
  type ListenSession,
  mentionsRollback,
  notifyScript,
  type Param,
  type PostgresDriver,
  probeTransaction,
  type Row,
  refusedCommit,
  type Session,
  type Statement,
  withSavepoint,
} from '../driver.js'

type Listener = (...args: never[]) => void

/** The part of `pg`'s Client that is used. */
export interface PgClient {
  query(config: unknown, values?: unknown): Promise<{ rows: unknown[]; command?: string }>
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  release?(destroy?: boolean): void
  getTransactionStatus?(): string | null
}

/** The part of `pg`'s Pool that is used. */
export interface PgPool<Client extends PgClient = PgClient> {
  connect(): Promise<Client>
  query(config: unknown, values?: unknown): Promise<{ rows: unknown[] }>
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  readonly options?: { readonly max?: number | undefined }
}

/** Leaves every value as the text that the server sent. */
const raw = { getTypeParser: () => (value: unknown) => value }

export class PgDriver<Client extends PgClient> implements PostgresDriver<Client> {
  readonly pooled = true
  prepare = true
  channel: string | null = null
  readonly source: object
  readonly #pool: PgPool<Client>

  constructor(pool: PgPool<Client>) {
    this.source = pool
    this.#pool = pool
  }

  get maxConnections(): number {
    return this.#pool.options?.max ?? Number.POSITIVE_INFINITY
  }

  async query(statement: Statement, params: readonly Param[]): Promise<readonly Row[]> {
    return (await this.#pool.query(this.#config(statement, params))).rows as Row[]
  }

  /** Only inside a transaction: one that the application ended itself must not become an autocommit. */
  async queryOn(client: Client, statement: Statement, params: readonly Param[]): Promise<readonly Row[]> {
    if (client.getTransactionStatus?.() === 'I') throw new TransactionEndedError()
    return (await client.query(this.#config(statement, params))).rows as Row[]
  }

  async script(client: Client, sql: string): Promise<void> {
    await client.query(sql)
  }

  async reserve(): Promise<Session> {
    const client = await this.#pool.connect()
    client.on('error', ignore)
    return {
      query: async (statement, params) => (await client.query(this.#config(statement, params))).rows as Row[],
      release: (broken) => {
        client.removeListener('error', ignore)
        client.release?.(broken)
      },
    }
  }

  async listen(
    channel: string,
    onRing: (payload: string) => void,
    onLost: () => void,
  ): Promise<ListenSession> {
    const client = await connected(this.#pool)
    const onNotification = (message: { channel: string; payload?: string }) => {
      if (message.channel === channel) onRing(message.payload ?? '')
    }
    const lost = () => onLost()
    client.on('error', lost)
    client.on('end', lost)
    client.on('notification', onNotification)
    const forget = (broken: boolean) => {
      client.removeListener('end', lost)
      client.removeListener('notification', onNotification)
      client.removeListener('error', lost)
      client.release?.(broken)
    }
    try {
      await answered(client.query(`LISTEN "${channel}"`))
    } catch (error) {
      forget(true)
      throw error
    }
    return {
      session: {
        query: async (statement, params) =>
          (await client.query(this.#config(statement, params))).rows as Row[],
        release: () => {},
      },
      close: async (broken) => {
        let failed = broken
        if (!broken) await answered(client.query(`UNLISTEN "${channel}"`), 2_000).catch(() => (failed = true))
        forget(failed)
      },
    }
  }

  async transaction<T>(body: (session: TransactionSession<Client>) => Promise<T>, own?: Client): Promise<T> {
    const client = own ?? (await this.#pool.connect())
    client.on('error', ignore)
    const watch = watchTransaction(client)
    const session = sessionOf(client, watch)
    if (!own && this.channel !== null) session.ringAfterCommit = (seq) => (watch.ring = seq)
    let broken = false
    let ringing: Promise<unknown> | null = null
    try {
      if (own && (await this.inTransaction(own))) {
        throw new AftercommitError(
          'CLIENT_IN_TRANSACTION',
          'This client is inside a transaction already. Publish with publish(event, { tx: client }) instead.',
        )
      }
      await client.query('BEGIN')
      const result = await body(session).catch(async (error) => {
        await client.query('ROLLBACK').catch(() => (broken = true))
        throw error
      })
      const answer = await client.query('COMMIT').catch((error) => {
        if (refusedCommit(error)) throw error
        broken = true
        throw new CommitUnknownError(error)
      })
      if (answer.command !== 'COMMIT') throw new TransactionRolledBackError()
      if (watch.ring !== null && this.channel !== null) {
        ringing = client.query(notifyScript(this.channel, watch.ring)).catch(() => {})
      }
      return result
    } finally {
      watch.stop()
      const giveBack = () => {
        client.removeListener('error', ignore)
        if (!own) client.release?.(broken)
      }
      if (ringing) void ringing.then(giveBack)
      else giveBack()
    }
  }

  /** Asks the server: the client itself does not know what a statement that it has queued will change. */
  inTransaction(client: Client): Promise<boolean> {
    return probeTransaction((sql) => client.query(sql))
  }

  guard(onError: (error: unknown) => void): () => void {
    const listener = (error: unknown) => onError(error)
    this.#pool.on('error', listener)
    return () => void this.#pool.removeListener('error', listener)
  }

  #config(statement: Statement, params: readonly Param[]): unknown {
    return this.prepare
      ? { name: statement.name, text: statement.text, values: params, rowMode: 'array', types: raw }
      : { text: statement.text, values: params, rowMode: 'array', types: raw }
  }
}

/** A client, or an error in time; one that comes too late is given back. */
async function connected<Client extends PgClient>(pool: PgPool<Client>): Promise<Client> {
  const client = pool.connect()
  try {
    return await answered(client)
  } catch (error) {
    client.then(
      (late) => late.release?.(true),
      () => {},
    )
    throw error
  }
}

/** An `error` event without a listener ends the process; the failure shows in the next statement anyway. */
function ignore(): void {}

interface Watch {
  /** A statement that could roll back to a savepoint was sent. */
  rollback: boolean
  /** The lowest `seq` that the doorbell is to name after the commit. */
  ring: number | null
  stop(): void
}

/** Notices every statement of the application that could roll back to a savepoint; afterwards the client is as before. */
function watchTransaction(client: PgClient): Watch {
  const original = client.query as (...args: unknown[]) => ReturnType<PgClient['query']>
  const inherited = !Object.hasOwn(client, 'query')
  const watch: Watch = {
    rollback: false,
    ring: null,
    stop: () => {
      if (inherited) delete (client as { query?: unknown }).query
      else client.query = original as PgClient['query']
    },
  }
  client.query = function (this: PgClient, config: unknown, ...rest: unknown[]) {
    if (!watch.rollback) {
      const text = typeof config === 'string' ? config : (config as { text?: unknown } | null)?.text
      if (mentionsRollback(text)) watch.rollback = true
    }
    return original.call(this, config, ...rest)
  }
  return watch
}

function sessionOf<Client extends PgClient>(client: Client, watch: Watch): TransactionSession<Client> {
  let savepoints = 0
  const session: TransactionSession<Client> = {
    client,
    mayHaveLostRows: () => watch.rollback,
    savepoint: (body) =>
      withSavepoint(
        (sql) => client.query(sql),
        `aftercommit_${++savepoints}`,
        () => body(session),
      ),
  }
  return session
}
