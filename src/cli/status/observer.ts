import type { Database } from '../database.js'
import { inTime } from '../ending.js'
import { type Look, lookAt } from './look.js'
import { RateMeter } from './rates.js'

/** Longer than this a person does not wait. A backlog of millions takes a second or two to count. */
const ANSWER_MS = 10_000

/** Looks again and again. After an answer that never came it goes on with connections of its own that are new. */
export class Observer {
  readonly #open: () => Promise<Database>
  readonly #meter = new RateMeter()
  #database: Promise<Database>

  constructor(open: () => Promise<Database>) {
    this.#open = open
    this.#database = open()
    this.#database.catch(() => {})
  }

  async look(): Promise<Look> {
    const { store } = await this.#database
    const answer = lookAt(store, this.#meter)
    let late = true
    const answered = answer.finally(() => {
      late = false
    })
    try {
      return await inTime('The database', answered, ANSWER_MS)
    } catch (error) {
      if (late) await this.#reopen()
      throw error
    }
  }

  async close(): Promise<void> {
    const { store, close } = await this.#database
    // SQLite's connections are closed by the store.
    await store.close()
    await close()
  }

  async #reopen(): Promise<void> {
    void this.close().catch(() => {})
    this.#database = this.#open()
    await this.#database
  }
}
