import type { Clock } from '../core/clock.js'
import { errorFields, type Logger } from '../observe/logger.js'
import { sharedId } from '../registry.js'
import type { InstanceCounters, InstanceRecord, StoreRegistry } from '../store.js'
import type { Pauses } from './pauses.js'

/** Interval at which a manual consumer renews its registration, which lasts for seven days. */
const MANUAL_RENEWAL_MS = 3_600_000

const NO_COUNTERS: InstanceCounters = { done: 0, failed: 0, dead: 0 }

export interface RegistrationOptions {
  readonly store: Pick<StoreRegistry, 'heartbeat' | 'registerStopped'>
  readonly pauses: Pauses
  readonly clock: Clock
  readonly logger: Logger
  /** Returns the registry row of this process with the given counters. */
  rowWith(counters: InstanceCounters): InstanceRecord
  /** Returns what this process has counted since it was created. */
  counters(): InstanceCounters
}

/** The row of this process in the registry. Each statement that writes the row also reads which types are paused. */
export class InstanceRegistration {
  readonly #options: RegistrationOptions
  /** Counters that the registry contains. */
  #flushed = NO_COUNTERS
  /** Part of `#flushed` that is in rows shared with other consumers. The rest is in the row of this instance. */
  #inSharedRows = NO_COUNTERS
  /** Monotonic time from which a manual call registers again. */
  #manualRenewalAt = Number.NEGATIVE_INFINITY

  constructor(options: RegistrationOptions) {
    this.#options = options
  }

  /** Counters that the registry does not contain yet. */
  get unflushed(): InstanceCounters {
    return minus(this.#options.counters(), this.#flushed)
  }

  /** Handlers were added: the next manual call registers again. */
  handlersChanged(): void {
    this.#manualRenewalAt = Number.NEGATIVE_INFINITY
  }

  heartbeat(): Promise<void> {
    const { store, pauses, counters, rowWith } = this.#options
    return pauses.applyAnswer(async () => {
      const counted = counters()
      const paused = await store.heartbeat(rowWith(minus(counted, this.#inSharedRows)))
      this.#flushed = counted
      return paused
    })
  }

  /** Moves the registration and its counters to the row that stopped consumers with the same routes share. */
  registerStopped(kind: 'manual' | 'stopped'): Promise<void> {
    const { store, pauses, counters, rowWith } = this.#options
    return pauses.applyAnswer(async () => {
      const counted = counters()
      const row = rowWith(minus(counted, this.#inSharedRows))
      const paused = await store.registerStopped({ ...row, id: sharedId(kind, row.handlers) }, row.id)
      this.#inSharedRows = counted
      this.#flushed = counted
      return paused
    })
  }

  /**
   * Registers a manual consumer before it claims, and reads the paused types. A script may call poll() many times per
   * second, so most calls only read.
   */
  async registerManual(hasHandlers: boolean): Promise<void> {
    const now = this.#options.clock.monotonic()
    if (now < this.#manualRenewalAt || !hasHandlers) return this.#options.pauses.read()
    this.#manualRenewalAt = now + MANUAL_RENEWAL_MS
    try {
      await this.registerStopped('manual')
    } catch (error) {
      this.#manualRenewalAt = Number.NEGATIVE_INFINITY
      throw error
    }
  }

  /** Writes the counters of a manual consumer, because a script may end right after the call. */
  async flushManual(): Promise<void> {
    const { done, failed, dead } = this.unflushed
    if (done === 0 && failed === 0 && dead === 0) return
    await this.registerStopped('manual').catch((error) =>
      this.#options.logger.warn(
        errorFields(error),
        'failed to write the counters of a manual consumer, will retry',
      ),
    )
  }
}

function minus(a: InstanceCounters, b: InstanceCounters): InstanceCounters {
  return { done: a.done - b.done, failed: a.failed - b.failed, dead: a.dead - b.dead }
}
