import type { Delivery } from '../dispatcher/delivery.js'
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
  giveBack(delivery: Delivery): void
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

  /** One read after the other: an older answer must not come after a newer one. */
  read(): Promise<void> {
    if (this.#next) return this.#next
    const next = this.#reading.then(async () => {
      this.#next = null
      this.apply(await this.#options.store.paused())
    })
    this.#next = next
    this.#reading = next.catch(() => {})
    return next
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
  apply(types: readonly string[]): void {
    const { routes, dispatcher, poller, giveBack } = this.#options
    if (!routes.pause(types)) return
    for (const delivery of dispatcher.takePaused()) giveBack(delivery)
    poller.rescan()
  }
}
