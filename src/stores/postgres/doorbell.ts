import type { Ring, StoreEvents } from '../../store.js'
import { answered, type ListenSession, notify, type PostgresDriver, type Query } from './driver.js'

const RECONNECT_MS = [250, 1_000, 5_000, 15_000]

/**
 * LISTEN on a connection of its own, and NOTIFY outside of every business transaction. Only ever a hint: while
 * it is down the pollers go by their interval. Reconnects by itself and rings once afterwards.
 */
export class Doorbell {
  readonly #driver: PostgresDriver<unknown>
  readonly #channel: string
  readonly #query: Query
  #events: StoreEvents | null = null
  #listening: ListenSession | null = null
  #retry: NodeJS.Timeout | null = null
  #failures = 0
  #heard: ((payload: string) => void) | null = null

  constructor(driver: PostgresDriver<unknown>, channel: string, query: Query) {
    this.#driver = driver
    this.#channel = channel
    this.#query = query
  }

  /** Rejects when LISTEN is refused; warns when notifications do not arrive. */
  async open(events: StoreEvents): Promise<void> {
    this.#events = events
    await this.#listen()
    if (!(await this.#reaches())) {
      events.onWarning('LISTEN/NOTIFY does not get through (a pooler?); new events are found by polling only')
    }
  }

  async close(): Promise<void> {
    this.#events = null
    if (this.#retry) clearTimeout(this.#retry)
    this.#retry = null
    const listening = this.#listening
    this.#listening = null
    await listening?.close(false)
  }

  async ring(ring: Ring): Promise<void> {
    await this.query(notify, [this.#channel, ring === null ? '' : String(ring)])
  }

  /** Runs a statement on the listening connection: a half-open one is noticed by it and replaced. */
  query: Query = async (sql, params) => {
    const session = this.#listening?.session
    if (!session) return this.#query(sql, params)
    try {
      return await answered(session.query(sql, params), 10_000)
    } catch (error) {
      this.#lost(true)
      throw error
    }
  }

  async #listen(): Promise<void> {
    let current: ListenSession | null = null
    const listening = await this.#driver.listen(
      this.#channel,
      (payload) => this.#onPayload(payload),
      () => {
        if (current && this.#listening === current) this.#lost(true)
      },
    )
    current = listening
    if (!this.#events) return void (await listening.close(false))
    this.#listening = listening
    this.#failures = 0
  }

  #onPayload(payload: string): void {
    if (payload.startsWith('?')) return void this.#heard?.(payload)
    if (payload === 'ordered') return void this.#events?.onRing('ordered')
    const seq = payload === '' ? Number.NaN : Number(payload)
    this.#events?.onRing(Number.isFinite(seq) ? seq : null)
  }

  #lost(broken: boolean): void {
    const listening = this.#listening
    this.#listening = null
    if (listening) void listening.close(broken).catch(() => {})
    if (!this.#events || this.#retry) return
    this.#events.onWarning('the doorbell connection was lost; listening again')
    this.#listenLater()
  }

  #listenLater(): void {
    const delay = RECONNECT_MS[Math.min(this.#failures++, RECONNECT_MS.length - 1)]
    this.#retry = setTimeout(() => {
      this.#retry = null
      if (!this.#events) return
      this.#listen().then(
        () => this.#events?.onRing(null),
        () => this.#events && this.#listenLater(),
      )
    }, delay)
    this.#retry.unref()
  }

  /** Sends a message to itself and waits for it. */
  #reaches(): Promise<boolean> {
    const nonce = `?${Math.random().toString(36).slice(2)}`
    return new Promise((resolve) => {
      const timer = setTimeout(() => done(false), 2_000)
      const done = (reached: boolean) => {
        clearTimeout(timer)
        this.#heard = null
        resolve(reached)
      }
      this.#heard = (payload) => {
        if (payload === nonce) done(true)
      }
      this.#query(notify, [this.#channel, nonce]).catch(() => done(false))
    })
  }
}
