import {
  answered,
  isPreparedStatementError,
  isServerError,
  type Param,
  type PostgresDriver,
  type Row,
  type Session,
  type Statement,
  statement,
} from './driver.js'

/** Session settings of the outbox's own connections; taken back before a connection returns to the pool. */
const SETTINGS = {
  // The claim's indexes are always right, also while the planner has no statistics of a young table.
  enable_seqscan: 'off',
  jit: 'off',
  // Claims under REPEATABLE READ would fail instead of skipping what others took.
  default_transaction_isolation: 'read committed',
}

const pid = statement('select pg_backend_pid()')
const slowPid = statement('select pg_backend_pid(), pg_sleep(0.02)::text')

/**
 * A connection of the outbox's own, replaced when it breaks. Before `open` and after `close` statements go
 * through the pool like anybody's.
 */
export class Connection {
  readonly #driver: PostgresDriver<unknown>
  readonly #ensureFree: () => void
  readonly #configure: Statement
  readonly #restore: readonly Statement[]
  #session: Promise<Session> | null = null
  #live: Session | null = null
  #open = false
  #configured = true

  /** `ensureFree` throws if no session of the pool is free for the caller. */
  constructor(
    driver: PostgresDriver<unknown>,
    ensureFree: () => void,
    more: Readonly<Record<string, string>> = {},
  ) {
    const settings = Object.entries({ ...SETTINGS, ...more })
    this.#driver = driver
    this.#ensureFree = ensureFree
    this.#configure = statement(
      `select ${settings.map(([name, value]) => `set_config('${name}', '${value}', false)`).join(', ')}`,
    )
    this.#restore = settings.map(([name]) => statement(`reset ${name}`))
  }

  async open(configured: boolean): Promise<void> {
    this.#open = true
    this.#configured = configured
    await this.#connected()
  }

  async close(): Promise<void> {
    this.#open = false
    const pending = this.#take()
    const session = await answered(pending, 2_000).catch(() => {
      void pending.then((late) => late?.release(true))
      return null
    })
    if (!session) return
    let broken = false
    if (this.#configured) {
      for (const reset of this.#restore) {
        if (!broken) await answered(session.query(reset, []), 2_000).catch(() => (broken = true))
      }
    }
    session.release(broken)
  }

  /** While it is connected the statement is on its way when this returns. */
  query = async (sql: Statement, params: readonly Param[]): Promise<readonly Row[]> => {
    if (!this.#open || !this.#driver.pooled) this.#ensureFree()
    if (!this.#open) return this.#driver.query(sql, params)
    const session = this.#live ?? (await this.#connected())
    try {
      const answer = session.query(sql, params)
      // The driver of PGlite limits the wait for the session itself. A statement that was given up here would still take effect.
      return await (this.#driver.pooled ? answered(answer) : answer)
    } catch (error) {
      if (!survives(error)) void this.#take().then((taken) => taken?.release(true))
      throw error
    }
  }

  #connected(): Promise<Session> {
    if (!this.#session) {
      const connecting = this.#connect()
      this.#session = connecting
      connecting.then(
        (session) => {
          if (this.#session === connecting) this.#live = session
        },
        () => {
          if (this.#session === connecting) this.#session = null
        },
      )
    }
    return this.#session
  }

  async #connect(): Promise<Session> {
    const session = await reserved(this.#driver)
    if (!this.#configured) return session
    try {
      await answered(session.query(this.#configure, []))
      return session
    } catch (error) {
      session.release(true)
      throw error
    }
  }

  async #take(): Promise<Session | null> {
    const session = this.#session
    this.#session = null
    this.#live = null
    return session ? session.catch(() => null) : null
  }
}

/** A session, or an error in time; one that comes too late is given back. */
async function reserved(driver: PostgresDriver<unknown>): Promise<Session> {
  const session = driver.reserve()
  try {
    return await answered(session)
  } catch (error) {
    session.then(
      (late) => late.release(true),
      () => {},
    )
    throw error
  }
}

/** The server answered with an error and the connection can be used again. */
function survives(error: unknown): boolean {
  return isServerError(error) && !/^(08|57P)/.test(error.code) && !isPreparedStatementError(error)
}

/**
 * True when sessions change their server connection between statements, as behind a pooler in transaction mode:
 * neither prepared statements nor session settings nor LISTEN can be relied on there.
 */
export async function behindPooler(driver: PostgresDriver<unknown>): Promise<boolean> {
  const one = await reserved(driver)
  const other = await reserved(driver).catch((error) => {
    one.release(false)
    throw error
  })
  let broken = true
  try {
    const pidOf = async (session: Session, sql: Statement) => (await answered(session.query(sql, [])))[0]?.[0]
    // While one is busy the other gets a second server connection; afterwards a pooler hands them out anew.
    const [one1, other1] = await Promise.all([pidOf(one, slowPid), pidOf(other, pid)])
    const other2 = await pidOf(other, pid)
    const one2 = await pidOf(one, pid)
    const one3 = await pidOf(one, pid)
    broken = false
    return one1 === other1 || one1 !== one2 || one2 !== one3 || other1 !== other2
  } finally {
    one.release(broken)
    other.release(broken)
  }
}
