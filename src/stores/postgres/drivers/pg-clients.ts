import { setImmediate } from 'node:timers'
import type { PgClient } from './pg-transaction.js'

type Listener = (...args: never[]) => void

/** The part of `pg`'s Pool that is used. */
export interface PgPool<Client extends PgClient = PgClient> {
  connect(): Promise<Client>
  query(config: unknown, values?: unknown): Promise<{ rows: unknown[] }>
  on(event: string, listener: Listener): unknown
  removeListener(event: string, listener: Listener): unknown
  listenerCount?(event: string): number
  readonly options?: {
    readonly max?: number | undefined
    readonly maxUses?: number | undefined
    readonly maxLifetimeSeconds?: number | undefined
  }
  /** How many wait for a client. */
  readonly waitingCount?: number
  readonly ending?: boolean
}

/**
 * Fewer transactions at a time do not feel the pool. With few, its next user would have to open a connection for what is
 * kept from it.
 */
const MANY = 4

const lost = new WeakSet<object>()

/** An `error` event without a listener ends the process; the failure shows in the next statement anyway. */
export function noteLost(this: unknown): void {
  lost.add(this as object)
}

/**
 * The pool's clients, for one transaction after the other. While there are many, what one leaves stays at hand until the
 * end of this turn of the event loop, so that the next need not go through the pool. Not while somebody waits for a client
 * there, nor where the pool counts uses or somebody listens to them.
 */
export class PgClients<Client extends PgClient> {
  readonly #pool: PgPool<Client>
  readonly #kept: Client[] = []
  #inUse = 0
  #isCalled = false

  constructor(pool: PgPool<Client>) {
    this.#pool = pool
  }

  /** One that is at hand, and listened to. */
  kept(): Client | undefined {
    while (this.#kept.length > 0) {
      if (!this.#mayKeep()) this.#releaseAll()
      const client = this.#kept.pop()
      if (client && !lost.has(client)) {
        this.#inUse++
        return client
      }
      if (client) this.#release(client, true)
    }
    return undefined
  }

  /** One of the pool's, which is listened to until it is given back. */
  async take(): Promise<Client> {
    const client = await this.#pool.connect()
    client.on('error', noteLost)
    this.#inUse++
    return client
  }

  giveBack(client: Client, broken: boolean): void {
    this.#inUse--
    if (broken || this.#inUse < MANY || lost.has(client) || !this.#mayKeep()) {
      this.#release(client, broken)
      return
    }
    this.#kept.push(client)
    if (this.#isCalled) return
    this.#isCalled = true
    setImmediate(this.#endOfTurn)
  }

  readonly #endOfTurn = (): void => {
    this.#isCalled = false
    this.#releaseAll()
  }

  #releaseAll(): void {
    for (let client = this.#kept.pop(); client; client = this.#kept.pop()) {
      this.#release(client, lost.has(client))
    }
  }

  #release(client: Client, broken: boolean): void {
    client.removeListener('error', noteLost)
    client.release?.(broken)
  }

  #mayKeep(): boolean {
    const pool = this.#pool
    const { maxUses, maxLifetimeSeconds } = pool.options ?? {}
    if (pool.waitingCount !== 0 || pool.ending !== false) return false
    if (maxUses !== Number.POSITIVE_INFINITY || maxLifetimeSeconds !== 0) return false
    return pool.listenerCount?.('acquire') === 0 && pool.listenerCount('release') === 0
  }
}
