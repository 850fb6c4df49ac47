import type { Clock, Timer } from '../core/clock.js'
import type { Logger } from '../observe/logger.js'
import type { Service } from '../service.js'
import { attempt } from './attempt.js'
import { type Housekeeping, heartbeatInterval } from './housekeeping.js'
import type { UnhandledReporter } from './unhandled-reporter.js'

export interface HeartbeatOptions {
  readonly clock: Clock
  readonly logger: Logger
  readonly pollIntervalMs: number
  readonly unroutableGraceMs: number
  readonly unhandledReporter: UnhandledReporter
  readonly housekeeping: Housekeeping
  /** Registers this instance or renews its row. */
  beat(): Promise<void>
}

/** Renews the registration of this instance, and starts the other background work. */
export class Heartbeat implements Service {
  readonly #options: HeartbeatOptions
  #timer: Timer | null = null
  #isRunning = false
  #beating: Promise<unknown> = Promise.resolve()

  constructor(options: HeartbeatOptions) {
    this.#options = options
  }

  /** Rejects if the instance cannot be registered. */
  async start(): Promise<void> {
    if (this.#isRunning) return
    await this.#options.beat()
    this.#isRunning = true
    this.#options.housekeeping.start()
    this.#schedule()
  }

  async stop(): Promise<void> {
    this.#isRunning = false
    this.#timer?.cancel()
    this.#timer = null
    await Promise.all([
      this.#beating,
      this.#options.housekeeping.stop(),
      this.#options.unhandledReporter.stop(),
    ])
  }

  /** Handlers were added to a started outbox: the other instances should know at once. */
  beatNow(): void {
    if (this.#isRunning) void this.#beat()
  }

  #beat(): Promise<boolean> {
    return attempt('heartbeat', this.#options.logger, () => this.#options.beat())
  }

  #schedule(): void {
    if (!this.#isRunning) return
    const { clock, unroutableGraceMs, pollIntervalMs } = this.#options
    const intervalMs = heartbeatInterval(pollIntervalMs)
    // A short grace period for unroutable events needs housekeeping more often.
    const delayMs = unroutableGraceMs < intervalMs ? Math.max(unroutableGraceMs, pollIntervalMs) : intervalMs
    this.#timer = clock.setTimer(() => {
      this.#beating = this.#tick().finally(() => this.#schedule())
    }, delayMs)
    this.#timer.unref?.()
  }

  /** Awaits only the heartbeat: a slow query or a large table must not delay the next heartbeat. */
  async #tick(): Promise<void> {
    const isReachable = await this.#beat()
    if (!this.#isRunning) return
    if (isReachable) this.#options.unhandledReporter.report()
    this.#options.housekeeping.runIfDue()
  }
}
