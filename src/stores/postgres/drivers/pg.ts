import { AftercommitError, InvalidSettingError, TransactionEndedError } from '../../../core/errors.js'
import {
  answered,
  type DriverSession,
  type ListenSession,
  type Param,
  type PostgresDriver,
  probeTransaction,
  type Query,
  type Row,
  type Session,
  type Statement,
} from '../driver.js'
import { execute, takesPackets, unnamed } from './pg-packet.js'
import { type PgClient, PgTransaction } from './pg-transaction.js'

export type { PgClient }

type Listener = (...args: never[]) => void

/** The part of `pg`'s Pool that is used. */
export interface PgPool<Client extends PgClient = PgClient> {
  connect(): Promise<Client>
  query(config: unknown, values?: unknown): Promise<{ rows: unknown[] }>
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  readonly options?: { readonly max?: number | undefined; readonly binary?: unknown }
}

/** Leaves every value as the text that the server sent. Rejects the statement if the server sent a value in binary format. */
const raw = {
  getTypeParser: (_type: number, format?: string) => (format === 'binary' ? refuseBinary : asItIs),
}

function asItIs(value: unknown): unknown {
  return value
}

function refuseBinary(): never {
  throw new AftercommitError('UNSUPPORTED', `The clients of the pg Pool have binary: true. ${NEEDS_TEXT}.`)
}

const NEEDS_TEXT =
  'Remove binary from the options of the Pool and from pg.defaults, or give the outbox a Pool without it: the outbox reads values as text'

export class PgDriver<Client extends PgClient> implements PostgresDriver<Client> {
  readonly pooled = true
  prepare = true
  pooler = false
  channel: string | null = null
  readonly source: object
  readonly #pool: PgPool<Client>

  constructor(pool: PgPool<Client>) {
    if (pool.options?.binary) {
      throw new InvalidSettingError('store', `the pg Pool has binary: true. ${NEEDS_TEXT}`)
    }
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
    const refusal = () => (client.getTransactionStatus?.() === 'I' ? new TransactionEndedError() : null)
    const refused = refusal()
    if (refused) throw refused
    return this.#run(client, statement, params, refusal)
  }

  async script(client: Client, sql: string): Promise<void> {
    await client.query(sql)
  }

  async reserve(): Promise<Session> {
    const client = await this.#pool.connect()
    client.on('error', ignore)
    return {
      query: inTurn((statement, params) => this.#run(client, statement, params)),
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
        query: inTurn((statement, params) => this.#run(client, statement, params)),
        release: () => {},
      },
      close: async (broken) => {
        let failed = broken
        if (!broken) await answered(client.query(`UNLISTEN "${channel}"`), 2_000).catch(() => (failed = true))
        forget(failed)
      },
    }
  }

  async transaction<T>(body: (session: DriverSession<Client>) => Promise<T>, own?: Client): Promise<T> {
    const client = own ?? (await this.#pool.connect())
    client.on('error', ignore)
    const transaction = new PgTransaction(client, this.prepare, !this.pooler)
    let ringing: Promise<unknown> | null = null
    try {
      if (own && (await this.inTransaction(own))) {
        throw new AftercommitError(
          'CLIENT_IN_TRANSACTION',
          'This client is inside a transaction already. Publish with publish(event, { tx: client }) instead.',
        )
      }
      const done = await transaction.run(body, own ? null : this.channel)
      ringing = done.ringing?.catch(() => {}) ?? null
      return done.result
    } finally {
      transaction.end()
      const broken = own ? null : transaction.broken
      if (ringing) void ringing.then(() => giveBack(client, broken))
      else giveBack(client, broken)
    }
  }

  /** Asks the server: the client itself does not know what a statement that it has queued will change. */
  inTransaction(client: Client): Promise<boolean> {
    return probeTransaction((sql) => client.query(sql))
  }

  guard(onError: (error: unknown) => void): () => void {
    const listener = (error: unknown) => onError(error)
    // A server that goes down may say so in one packet with its greeting, before anybody has the client in hand.
    const protect = (client: Client) => {
      client.on('error', ignore)
      setImmediate(() => client.removeListener('error', ignore))
    }
    this.#pool.on('error', listener)
    this.#pool.on('connect', protect)
    return () => {
      this.#pool.removeListener('error', listener)
      this.#pool.removeListener('connect', protect)
    }
  }

  /** `refuse` is asked again when everything before has been answered, where the client allows it. */
  #run(
    client: Client,
    statement: Statement,
    params: readonly Param[],
    refuse?: () => Error | null,
  ): Promise<readonly Row[]> {
    const prepared = this.prepare ? statement : unnamed(statement)
    return takesPackets(client)
      ? execute(client, prepared, params, refuse)
      : this.#rowsOf(client, statement, params)
  }

  async #rowsOf(client: Client, statement: Statement, params: readonly Param[]): Promise<readonly Row[]> {
    return (await client.query(this.#config(statement, params))).rows as Row[]
  }

  #config(statement: Statement, params: readonly Param[]): unknown {
    return this.prepare
      ? { name: statement.name, text: statement.text, values: params, rowMode: 'array', types: raw }
      : { text: statement.text, values: params, rowMode: 'array', types: raw }
  }
}

/** `broken` is null for a client of the application's. */
function giveBack(client: PgClient, broken: boolean | null): void {
  client.removeListener('error', ignore)
  if (broken !== null) client.release?.(broken)
}

/** pg's clients are going to refuse a statement while another one is under way. */
function inTurn(query: Query): Query {
  let last: Promise<unknown> | null = null
  return (statement, params) => {
    const run = () => query(statement, params)
    const answer = last ? last.then(run, run) : run()
    const ended = () => {
      if (last === answer) last = null
    }
    answer.then(ended, ended)
    last = answer
    return answer
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
