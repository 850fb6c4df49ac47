import { errorFields, type Logger } from '../observe/logger.js'
import type { Doorbell } from '../ports.js'
import type { StoreRegistry } from '../store.js'

interface PausesOptions {
  readonly store: Pick<StoreRegistry, 'paused'>
  readonly doorbell: Doorbell
  readonly logger: Logger
  /** Takes the paused types into account. Waiting events of these types are released, running handlers go on. */
  apply(types: readonly string[]): void
}

/** Reads which event types are paused, and applies the answers in the order of the questions. */
export class Pauses {
  readonly #options: PausesOptions
  #lastRead: Promise<unknown> = Promise.resolve()
  /** Read that has not begun. Its answer is new enough for all callers that come before it begins. */
  #nextRead: Promise<void> | null = null

  constructor(options: PausesOptions) {
    this.#options = options
  }

  read(): Promise<void> {
    this.#nextRead ??= this.applyAnswer(() => {
      this.#nextRead = null
      return this.#options.store.paused()
    })
    return this.#nextRead
  }

  /** Sends a statement that returns the paused types, and applies its answer. */
  applyAnswer(ask: () => Promise<readonly string[]>): Promise<void> {
    const applied = this.#lastRead.then(async () => this.#options.apply(await ask()))
    this.#lastRead = applied.catch(() => {})
    return applied
  }

  /** Never rejects, because the next heartbeat reads the paused types again. */
  async refresh(): Promise<void> {
    await this.read().catch((error) =>
      this.#options.logger.warn(errorFields(error), 'what is paused could not be read'),
    )
  }

  /** The paused types were changed by this process: applies them here and tells other processes. */
  async changed(): Promise<void> {
    await this.read()
    this.#options.doorbell.ring(null)
  }
}
