import {
  AftercommitError,
  CommitUnknownError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../../core/errors.js'
import type { TransactionSession } from '../../../transaction.js'
import {
  type DriverSession,
  type LateStatement,
  mentionsRollback,
  notifyScript,
  refusedCommit,
  ringBehindCommit,
  withSavepoint,
} from '../driver.js'
import { type Answer, type Step, send, takesPackets, unnamed } from './pg-packet.js'

type Listener = (...args: never[]) => void

/** The part of `pg`'s Client that is used. */
export interface PgClient {
  query(config: unknown, values?: unknown): Promise<{ rows: unknown[]; command?: string }>
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  release?(destroy?: boolean): void
  getTransactionStatus?(): string | null
  readonly connection?: unknown
  readonly pipeline?: unknown
}

type Query = (config: unknown, ...rest: unknown[]) => ReturnType<PgClient['query']>
type Ring = Parameters<NonNullable<TransactionSession<unknown>['ringAfterCommit']>>[0]

const COMMIT: Step = { statement: { name: '', text: 'COMMIT' }, params: [] }

const rollbackTo = /^\s*rollback\s+(?:(?:work|transaction)\s+)?to\b/i

/**
 * One managed transaction on one client. While it runs it sees every statement of the application: one that could
 * roll back to a savepoint is noted, and what we have held back is sent in front of it.
 */
export class PgTransaction<Client extends PgClient> {
  readonly #client: Client
  readonly #prepare: boolean
  readonly #original: Query
  readonly #inherited: boolean
  #savepoints = 0
  #mayHaveLostRows = false
  #held: (() => LateStatement) | null = null
  /** The last that was held back and sent before the commit. */
  #flushed: Promise<void> | null = null
  #failure: { readonly error: unknown } | null = null
  #ring: Ring | null = null
  /** The connection cannot be used again. */
  broken = false

  constructor(client: Client, prepare: boolean) {
    this.#client = client
    this.#prepare = prepare
    this.#inherited = !Object.hasOwn(client, 'query')
    const original = client.query as Query
    const before = (config: unknown) => this.#before(config)
    this.#original = original
    client.query = function (this: PgClient, config: unknown, ...rest: unknown[]) {
      before(config)
      return original.call(this, config, ...rest)
    }
  }

  /** Afterwards the client is as it was. */
  end(): void {
    if (this.#inherited) delete (this.#client as { query?: unknown }).query
    else this.#client.query = this.#original as PgClient['query']
  }

  /** begin → body → commit. `ringing`: the doorbell behind the commit, which nobody has to wait for. */
  async run<T>(
    body: (session: DriverSession<Client>) => Promise<T>,
    channel: string | null,
  ): Promise<{ result: T; ringing: Promise<unknown> | null }> {
    await this.#query('BEGIN')
    let result: T
    try {
      result = await body(this.#session(channel !== null))
      await this.#flushed?.catch(() => {})
      if (this.#failure) throw this.#failure.error
    } catch (error) {
      this.#held = null
      return this.#rollback(error)
    }
    const rung = await this.#commit(channel)
    const ring = rung ? null : this.#ring
    const ringing = ring && channel !== null ? this.#query(notifyScript(channel, ring.lowestSeq())) : null
    return { result, ringing }
  }

  /** Why a statement of ours failed says more than what the application's next one met. */
  async #rollback(error: unknown): Promise<never> {
    await this.#query('ROLLBACK').catch(() => (this.broken = true))
    throw this.#failure ? this.#failure.error : error
  }

  /** True when the doorbell rang as well. */
  async #commit(channel: string | null): Promise<boolean> {
    const late = this.#take()
    if (late) return this.#commitWith(late, channel)
    const { command } = await this.#query('COMMIT').catch((error) => this.#uncommitted(error))
    if (command !== 'COMMIT') throw new TransactionRolledBackError()
    return false
  }

  /** One packet: the server does not come to the COMMIT when the statement before it fails. */
  async #commitWith(late: LateStatement, channel: string | null): Promise<boolean> {
    const ring = this.#ring?.onlyLate && channel !== null ? ringBehindCommit(channel, late) : null
    const { rows, commands, error } = await this.#sendLate(late, ring ? [COMMIT, ring] : [COMMIT])
    const [written, committed, rang] = commands
    if (written === undefined) {
      const known = error instanceof AftercommitError || refusedCommit(error)
      return known ? this.#rollback(late.explain(error)) : this.#uncommitted(error)
    }
    if (committed === undefined) return this.#uncommitted(error)
    if (committed !== 'COMMIT') throw new TransactionRolledBackError()
    late.answered(rows)
    return rang !== undefined
  }

  #uncommitted(error: unknown): never {
    if (refusedCommit(error)) throw error
    this.broken = true
    throw new CommitUnknownError(error)
  }

  #session(rings: boolean): DriverSession<Client> {
    const session: DriverSession<Client> = {
      client: this.#client,
      mayHaveLostRows: () => this.#mayHaveLostRows,
      savepoint: (body) => this.#savepoint(() => body(session)),
    }
    if (rings) {
      session.ringAfterCommit = (ring) => {
        this.#ring = ring
      }
    }
    // Without its status a statement that comes too late could not be told from one that comes in time.
    if (!this.#client.getTransactionStatus || !takesPackets(this.#client)) return session
    session.late = {
      hold: (take) => {
        const refused = this.#refusal()
        if (refused) throw refused
        this.#held = take
      },
      flush: () => this.#flush(),
    }
    return session
  }

  async #savepoint<T>(body: () => Promise<T>): Promise<T> {
    const failure = this.#failure
    try {
      const execute = (sql: string) => this.#client.query(sql)
      return await withSavepoint(execute, `aftercommit_${++this.#savepoints}`, body)
    } catch (error) {
      // It went with the savepoint.
      this.#failure = failure
      throw error
    }
  }

  #before(config: unknown): void {
    const text = typeof config === 'string' ? config : (config as { text?: unknown } | null)?.text
    if (mentionsRollback(text)) this.#mayHaveLostRows = true
    if (!this.#held) return
    // What is held was published after the last statement, and so inside the savepoint that is undone.
    if (typeof text === 'string' && rollbackTo.test(text)) this.#take()
    else void this.#flush().catch(() => {})
  }

  async #flush(): Promise<void> {
    const late = this.#take()
    if (!late) return
    const flushed = this.#sendLate(late, []).then(({ rows, error }) => {
      if (error === null) return late.answered(rows)
      this.#failure ??= { error: late.explain(error) }
      throw this.#failure.error
    })
    this.#flushed = flushed
    return flushed
  }

  #take(): LateStatement | null {
    const held = this.#held
    this.#held = null
    return held ? held() : null
  }

  #sendLate({ statement, params }: LateStatement, then: readonly Step[]): Promise<Answer> {
    const first = { statement: this.#prepare ? statement : unnamed(statement), params }
    const client = { query: (packet: unknown) => this.#query(packet) }
    return send(client, [first, ...then], () => this.#refusal())
  }

  /** Outside of a transaction a statement would commit by itself. */
  #refusal(): AftercommitError | null {
    const status = this.#client.getTransactionStatus?.()
    if (status === 'T') return null
    return status === 'E' ? new TransactionRolledBackError() : new TransactionEndedError()
  }

  /** Past our own watch. */
  #query(config: unknown): ReturnType<PgClient['query']> {
    return this.#original.call(this.#client, config)
  }
}
