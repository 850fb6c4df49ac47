import {
  CommitUnknownError,
  TransactionEndedError,
  TransactionRolledBackError,
} from '../../../core/errors.js'
import { isA } from '../../../core/unknown.js'
import type { TransactionSession } from '../../../transaction.js'
import {
  type DriverSession,
  isAftermath,
  isCancelled,
  isPreparedStatementError,
  type LateStatement,
  mentionsRollback,
  notify,
  refusedCommit,
  ringBehindCommit,
  withSavepoint,
} from '../driver.js'
import { LateBegin } from './pg-begin.js'
import { type Answer, COMMIT, isPacket, type Step, send, takesPackets, unnamed } from './pg-packet.js'

type Listener = (...args: never[]) => void

/** The part of `pg`'s Client that is used. */
export interface PgClient {
  query(config: unknown, values?: unknown): Promise<{ rows: unknown[]; command?: string }>
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  release?(destroy?: boolean): void
  getTransactionStatus?(): string | null
  /** False while a query is under way. */
  readonly readyForQuery?: unknown
  readonly connection?: unknown
  readonly pipeline?: unknown
}

type Query = (config: unknown, ...rest: unknown[]) => ReturnType<PgClient['query']>
type Ring = Parameters<NonNullable<TransactionSession<unknown>['ringAfterCommit']>>[0]

/** Why what was held back could not be written. */
interface Failure {
  readonly error: unknown
  /** The server said so, and commits nothing, unless the application goes back to a savepoint. */
  readonly undoable: boolean
}

const commits = /(?:^|;)\s*(?:commit|end)\b/i
const rollbackTo = /^\s*rollback\s+(?:(?:work|transaction)\s+)?to\b/i

/** What its class does. To delete the property instead would make every later use of the client slow. */
function asInherited(this: PgClient, ...args: Parameters<Query>): unknown {
  return inheritedBy(this).apply(this, args)
}

function inheritedBy(client: PgClient): Query {
  let owner = client as { query: unknown }
  while (owner.query === asInherited) owner = Object.getPrototypeOf(owner)
  return owner.query as Query
}

/** Neither text nor ours: it speaks the protocol itself. */
const isForeign = (config: unknown) =>
  typeof (config as { submit?: unknown } | null)?.submit === 'function' && !isPacket(config)

/**
 * One managed transaction on one client. While it runs it sees every statement of the application: one that could
 * roll back to a savepoint is noted, and what we have held back is sent in front of it.
 */
export class PgTransaction<Client extends PgClient> {
  readonly #client: Client
  readonly #prepare: boolean
  readonly #mayBeginLate: boolean
  readonly #original: Query
  readonly #watch: Query
  readonly #inherited: boolean
  #savepoints = 0
  #mayHaveLostRows = false
  /** A COMMIT of the application's own was answered by ROLLBACK. */
  #rolledBack = false
  #held: (() => LateStatement) | null = null
  /** The last that was held back and sent before the commit. */
  #flushed: Promise<void> | null = null
  /** It is being carried out, and the client with nothing else. */
  #writing = false
  #failure: Failure | null = null
  #ring: Ring | null = null
  #begin: LateBegin | null = null
  /** The application has asked for something, whether or not it could be sent. */
  #wasAsked = false
  /** The connection cannot be used again. */
  broken = false

  constructor(client: Client, prepare: boolean, mayBeginLate: boolean) {
    this.#client = client
    this.#prepare = prepare
    this.#mayBeginLate = mayBeginLate && takesPackets(client)
    this.#inherited = !Object.hasOwn(client, 'query') || client.query === asInherited
    const original = inheritedBy(client)
    const before = (config: unknown, text: unknown) => this.#before(config, text)
    const after = (result: unknown) => this.#after(result)
    this.#original = original
    // Not assigned as literals, here and below: V8 would make them among its old objects, where even a dead one keeps alive
    // what it knows, and that is the whole transaction.
    const watch: Query = function (this: PgClient, config: unknown, ...rest: unknown[]) {
      const text = typeof config === 'string' ? config : (config as { text?: unknown } | null)?.text
      before(config, text)
      const returned = original.call(this, config, ...rest)
      if (typeof text === 'string' && commits.test(text)) Promise.resolve(returned).then(after, () => {})
      return returned
    }
    this.#watch = watch
    client.query = this.#watch as PgClient['query']
  }

  /** Afterwards the client does as it did. */
  end(): void {
    this.#begin?.drop()
    this.#client.query = (this.#inherited ? asInherited : this.#original) as PgClient['query']
  }

  /** begin → body → commit. `ringing`: the doorbell behind the commit, which nobody has to wait for. */
  async run<T>(
    body: (session: DriverSession<Client>) => Promise<T>,
    channel: string | null,
  ): Promise<{ result: T; ringing: Promise<unknown> | null }> {
    this.#begin = this.#mayBeginLate ? LateBegin.on(this.#client, this.#prepare) : null
    if (!this.#begin) await this.#beginNow()
    let result: T
    let late: LateStatement | null
    try {
      result = await body(this.#session(channel !== null))
      if (this.#flushed) await this.#quiet()
      if (this.#failure && !this.#isUndone(this.#failure)) throw this.#failure.error
      late = this.#take()
      // With the COMMIT in the same packet nobody could say whether a connection that was dead already has committed.
      // And what was asked for and never sent has met one: nobody may take that for a commit.
      if ((late || this.#wasAsked) && this.#begin?.giveUp()) await this.#beginNow()
    } catch (error) {
      this.#held = null
      return this.#rollback(error)
    }
    // Now, and not when the client is given back: in between a statement could still begin what nobody ends.
    if (this.#begin?.giveUp()) return { result, ringing: null }
    const rung = late ? this.#committedWith(late, await this.#sendCommit(late, channel)) : this.#commit()
    const ring = (typeof rung === 'boolean' ? rung : await rung) ? null : this.#ring
    if (!ring || channel === null) return { result, ringing: null }
    const values = [channel, String(ring.lowestSeq())]
    return { result, ringing: this.#query({ text: notify.text, values }) }
  }

  async #beginNow(): Promise<void> {
    await this.#query('BEGIN').catch((error) => {
      this.broken = true
      throw error
    })
  }

  async #rollback(error: unknown): Promise<never> {
    if (this.#begin?.giveUp()) throw error
    await this.#query('ROLLBACK').catch(() => (this.broken = true))
    throw isAftermath(error) ? this.#reason(error) : error
  }

  /** Why a statement of ours failed says more than what the next one met. */
  #reason(otherwise: unknown): unknown {
    return this.#failure ? this.#failure.error : otherwise
  }

  /** A failed transaction that is usable again has been rolled back to a savepoint. COMMIT's answer is the proof. */
  #isUndone({ undoable }: Failure): boolean {
    return undoable && this.#client.getTransactionStatus?.() === 'T'
  }

  /** False: the doorbell is still to be rung. */
  async #commit(): Promise<false> {
    const { command } = await this.#query('COMMIT').catch((error) => this.#uncommitted(error))
    if (command !== 'COMMIT' || this.#rolledBack) throw this.#reason(new TransactionRolledBackError())
    return false
  }

  /** One packet: the server does not come to the COMMIT when the statement before it fails. */
  #sendCommit(late: LateStatement, channel: string | null): Promise<Answer> {
    const ring = this.#ring?.onlyLate && channel !== null ? ringBehindCommit(channel, late) : null
    const insert = { statement: late.unanswered ?? late.statement, params: late.params }
    const commit = { statement: COMMIT, params: [] }
    const steps = ring ? [insert, commit, ring] : [insert, commit]
    return this.#sendLate(steps)
  }

  /** True: it rang as well. */
  #committedWith(late: LateStatement, { rows, commands, error, sent }: Answer): boolean | Promise<never> {
    this.#noteDeallocated(error)
    const written = commands[0]
    const committed = commands[1]
    if (written === undefined) {
      const known = error !== null && (!sent || refusedCommit(error))
      return known ? this.#rollback(late.explain(error)) : this.#uncommitted(error)
    }
    if (committed === undefined) return this.#uncommitted(error)
    if (committed !== 'COMMIT') {
      this.broken = committed !== 'ROLLBACK'
      throw new TransactionRolledBackError()
    }
    if (late.unanswered) late.wrote(written === 'INSERT 0 1')
    else late.answered(rows)
    return commands[2] !== undefined
  }

  async #uncommitted(error: unknown): Promise<never> {
    // The server may not have come to the COMMIT: it was cancelled before, or somebody has deallocated it.
    if (isPreparedStatementError(error) || isCancelled(error)) return this.#rollback(error)
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
      const ringAfterCommit = (ring: Ring) => {
        this.#ring = ring
      }
      session.ringAfterCommit = ringAfterCommit
    }
    // Without its status a statement that comes too late could not be told from one that comes in time.
    if (this.#refusal() || !takesPackets(this.#client)) return session
    session.late = {
      hold: (take) => {
        const refused = this.#refusal()
        if (isA(refused, TransactionEndedError)) throw refused
        this.#held = take
        // What would make a failed transaction usable may be on its way. Statements that pass us by are not seen.
        return refused === null && this.#client.query === this.#watch
      },
      flush: () => {
        const flushed = this.#flush()
        if (!this.#isBusy()) return flushed
        flushed.catch(() => {})
        return Promise.resolve()
      },
    }
    return session
  }

  /** What was published before it is written before it: it must not go with it, nor be blamed on it. */
  async #savepoint<T>(body: () => Promise<T>): Promise<T> {
    await this.#flush()
    const before = this.#failure
    const execute = (sql: string) => this.#watch.call(this.#client, sql)
    try {
      return await withSavepoint(execute, `aftercommit_${++this.#savepoints}`, body)
    } catch (error) {
      const reason = isAftermath(error) ? this.#reason(error) : error
      // It went with the savepoint.
      if (this.#failure?.undoable) this.#failure = before
      throw reason
    }
  }

  #before(config: unknown, text: unknown): void {
    this.#wasAsked = true
    if (this.#begin?.isHeld && isForeign(config)) {
      this.#begin.sendBefore((begin, answered) => this.#original.call(this.#client, begin, answered))
    }
    if (mentionsRollback(text)) this.#mayHaveLostRows = true
    if (!this.#held) return
    // What is held was published after the last statement, and so inside the savepoint that is undone.
    if (typeof text === 'string' && rollbackTo.test(text)) this.#take()
    else void this.#flush().catch(() => {})
  }

  /** What came back of a statement that could commit. */
  #after(result: unknown): void {
    const results = [result].flat() as ({ command?: unknown } | undefined)[]
    if (results.some((one) => one?.command === 'ROLLBACK')) this.#rolledBack = true
  }

  #flush(): Promise<void> {
    if (!this.#held) return Promise.resolve()
    this.#flushed = this.#write()
    return this.#flushed
  }

  async #write(): Promise<void> {
    let explain = (error: unknown) => error
    try {
      const late = this.#take() as LateStatement
      explain = (error) => late.explain(error)
      const { rows, error } = await this.#sendLate([late])
      this.#noteDeallocated(error)
      this.#writing = false
      if (error !== null) throw error
      late.answered(rows)
    } catch (error) {
      const undoable = isA(error, TransactionRolledBackError) || refusedCommit(error)
      if (!this.#failure || !isAftermath(error)) this.#failure = { error: explain(error), undoable }
      throw explain(error)
    }
  }

  /** Until everything that was sent before the commit is answered. */
  async #quiet(): Promise<void> {
    for (let last = null as Promise<void> | null; last !== this.#flushed; ) {
      last = this.#flushed
      await last?.catch(() => {})
    }
  }

  #take(): LateStatement | null {
    const held = this.#held
    this.#held = null
    return held ? held() : null
  }

  #sendLate(steps: readonly Step[]): Promise<Answer> {
    const sent = this.#prepare
      ? steps
      : steps.map((step) => ({ ...step, statement: unnamed(step.statement) }))
    const refuse = () => {
      const refused = this.#refusal()
      this.#writing = refused === null
      return refused
    }
    return send((packet) => this.#query(packet), sent, refuse)
  }

  /** Somebody has deallocated it. Of a COMMIT: the server has not come to it, and the transaction is still open. */
  #noteDeallocated(error: unknown): void {
    if (isPreparedStatementError(error)) this.broken = true
  }

  /** With something of the application's, perhaps a cursor, that ends only after the publish: nobody may wait for it. */
  #isBusy(): boolean {
    return this.#client.readyForQuery === false && !this.#writing
  }

  /** Outside of a transaction a statement would commit by itself. */
  #refusal(): TransactionEndedError | TransactionRolledBackError | null {
    const status = this.#client.getTransactionStatus?.()
    if (status === 'T') return null
    return status === 'E' ? new TransactionRolledBackError() : new TransactionEndedError()
  }

  /** Past our own watch. */
  #query(config: unknown): ReturnType<PgClient['query']> {
    return this.#original.call(this.#client, config)
  }
}
