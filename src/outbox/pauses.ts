import type { Dispatcher } from '../dispatcher/dispatcher.js'
import type { Routes } from '../dispatcher/routing.js'
import { errorFields, type Logger } from '../observe/logger.js'
import type { DebouncedDoorbell } from '../poller/doorbell.js'
import type { Poller } from '../poller/poller.js'
import type { EventStore } from '../store.js'

interface PausesOptions {
  readonly store: Pick<EventStore, 'paused'>
  readonly routes: Routes
  readonly dispatcher: Dispatcher
  readonly poller: Poller
  readonly doorbell: DebouncedDoorbell
  readonly logger: Logger
}

/** What is paused, as the database has it. */
export class Pauses {
  readonly #options: PausesOptions
  #reading: Promise<unknown> = Promise.resolve()
  /** It has not begun yet, and will see what is so by then. */
  #next: Promise<void> | null = null

  constructor(options: PausesOptions) {
    this.#options = options
  }

  read(): Promise<void> {
    this.#next ??= this.take(() => {
      this.#next = null
      return this.#options.store.paused()
    })
    return this.#next
  }

  /** Asks and acts on the answer; one after the other, so that no older answer comes after a newer one. */
  take(ask: () => Promise<readonly string[]>): Promise<void> {
    const taken = this.#reading.then(async () => this.#apply(await ask()))
    this.#reading = taken.catch(() => {})
    return taken
  }

  /** Never rejects: another occasion will come. */
  async refresh(): Promise<void> {
    await this.read().catch((error) =>
      this.#options.logger.warn(errorFields(error), 'what is paused could not be read'),
    )
  }

  /** Somebody changed it: here and everywhere else. */
  async changed(): Promise<void> {
    await this.read()
    this.#options.doorbell.ring(null)
  }

  /** What waits in memory is given back; what runs goes on. */
  #apply(types: readonly string[]): void {
    const { routes, dispatcher, poller } = this.#options
    if (!routes.pause(types)) return
    dispatcher.giveBack(dispatcher.takePaused())
    poller.rescan()
  }
}
