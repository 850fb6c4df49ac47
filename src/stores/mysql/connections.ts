import {
  type Answer,
  answered,
  COMMIT,
  type CoreConnection,
  type CorePool,
  connectionOf,
  ignore,
  isDeadlock,
  isLockTimeout,
  isTooLateToChange,
  type Param,
  type Query,
  ROLLBACK,
  send,
  survives,
} from './driver.js'

/** Mode in which the store's own statements are written. Modes of MariaDB such as ORACLE change the meaning of some. */
export const SQL_MODE = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'

/**
 * For the connections of our own. Claims under REPEATABLE READ would lock gaps, and with them the writers. A lock that
 * is not to be had is given up before the connection is taken for dead.
 */
const SETTINGS = [
  'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED',
  `SET SESSION autocommit = 1, innodb_lock_wait_timeout = 5, sql_safe_updates = 0, sql_big_selects = 1, sql_mode = '${SQL_MODE}'`,
]
const WITHIN_MS = 10_000
const MOST_DEADLOCKS = 8
const MOST_TIMEOUTS = 1

type Work<T> = (query: Query) => Promise<T>

/** What a transaction of the store's own sees of others: what is committed, or also what is not yet. */
type Isolation = 'READ COMMITTED' | 'READ UNCOMMITTED'

/** On any connection of the pool, whatever its isolation and autocommit are. */
export async function inPool<T>(
  pool: CorePool,
  work: Work<T>,
  isolation: Isolation = 'READ COMMITTED',
): Promise<T> {
  return retried(async () => {
    const connection = await connectionOf(pool, WITHIN_MS)
    connection.on('error', ignore)
    const query: Query = (sql, params) => send(connection, sql, params)
    let broken = false
    try {
      await begunWith(query, isolation)
      return await inTransaction(query, work)
    } catch (error) {
      broken = !survives(error)
      throw error
    } finally {
      connection.removeListener('error', ignore)
      if (broken) connection.destroy()
      else connection.release?.()
    }
  })
}

/** Without autocommit whoever had the connection before may have left a transaction there, which nobody waits for. */
async function begunWith(query: Query, isolation: Isolation): Promise<void> {
  const statement = `SET TRANSACTION ISOLATION LEVEL ${isolation}`
  await query(statement).catch(async (error) => {
    if (!isTooLateToChange(error)) throw error
    await query(ROLLBACK)
    await query(statement)
  })
}

async function inTransaction<T>(query: Query, work: Work<T>): Promise<T> {
  await query('START TRANSACTION')
  try {
    const result = await work(query)
    await query(COMMIT)
    return result
  } catch (error) {
    if (survives(error)) await query(ROLLBACK)
    throw error
  }
}

/** A deadlock's victim is done again from the start, and so, but less often, is what waited in vain for a lock. */
async function retried<T>(work: () => Promise<T>): Promise<T> {
  for (let deadlocks = 0, timeouts = 0; ; ) {
    try {
      return await work()
    } catch (error) {
      if (isDeadlock(error)) deadlocks++
      else if (isLockTimeout(error)) timeouts++
      else throw error
      if (deadlocks > MOST_DEADLOCKS || timeouts > MOST_TIMEOUTS) throw error
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 5 * deadlocks))
    }
  }
}

/**
 * A connection of the outbox's own, replaced when it breaks. Before `open` and after `close` statements go through
 * the pool like anybody's. What is asked of it is done one after the other, a transaction as one.
 */
export class Connection {
  readonly #pool: CorePool
  readonly #ensureFree: () => void
  #live: CoreConnection | null = null
  #open = false
  readonly #explain: (error: unknown) => never
  #last: Promise<unknown> = Promise.resolve()

  /**
   * `ensureFree` throws if no connection of the pool is free for the caller. `explain` throws the error to report in place of
   * the given error.
   */
  constructor(pool: CorePool, ensureFree: () => void, explain: (error: unknown) => never) {
    this.#pool = pool
    this.#ensureFree = ensureFree
    this.#explain = explain
  }

  async open(): Promise<void> {
    this.#open = true
    await this.#inTurn(() => this.#connected()).catch(this.#explain)
  }

  /** The connection is closed and not given back: its settings are ours. */
  async close(): Promise<void> {
    this.#open = false
    await answered(this.#last, 2_000).catch(ignore)
    this.#drop()
  }

  /** One statement, which commits by itself. */
  query = (sql: string, params?: readonly Param[]): Promise<Answer> => {
    const work: Work<Answer> = (query) => query(sql, params)
    return this.#run(work, () => inPool(this.#pool, work))
  }

  /** One SELECT that also sees what others have not committed yet. */
  uncommitted(sql: string, params: readonly Param[]): Promise<Answer> {
    const work: Work<Answer> = (query) => query(sql, params)
    return this.#run(
      async (query) => {
        await query('SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED')
        return work(query)
      },
      () => inPool(this.#pool, work, 'READ UNCOMMITTED'),
    )
  }

  /** Rolled back when `work` fails; done again when it was a deadlock's victim. */
  transaction<T>(work: Work<T>): Promise<T> {
    return this.#run(
      (query) => inTransaction(query, work),
      () => inPool(this.#pool, work),
    )
  }

  async #run<T>(onOwn: Work<T>, inThePool: () => Promise<T>): Promise<T> {
    if (!this.#open) this.#ensureFree()
    const result = this.#open ? this.#inTurn(() => retried(() => this.#work(onOwn))) : inThePool()
    return result.catch(this.#explain)
  }

  async #work<T>(work: Work<T>): Promise<T> {
    const connection = this.#live ?? (await this.#connected())
    try {
      return await work((sql, params) => answered(send(connection, sql, params)))
    } catch (error) {
      if (!survives(error) && this.#live === connection) this.#drop()
      throw error
    }
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = this.#last.then(work)
    this.#last = result.then(ignore, ignore)
    return result
  }

  async #connected(): Promise<CoreConnection> {
    const connection = await connectionOf(this.#pool, WITHIN_MS)
    connection.on('error', ignore)
    try {
      for (const setting of SETTINGS) await answered(send(connection, setting))
    } catch (error) {
      connection.destroy()
      throw error
    }
    this.#live = connection
    return connection
  }

  #drop(): void {
    this.#live?.destroy()
    this.#live = null
  }
}
