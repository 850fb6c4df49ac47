import type { Logger } from '../observe/logger.js'
import { type MetricsExporter, typeLabels } from '../observe/metrics.js'
import type { UnhandledTypes } from '../unhandled.js'
import { attempt } from './attempt.js'

/** Most types in one log line. */
const MAX_LOGGED = 20

interface ReporterOptions {
  readonly unhandled: UnhandledTypes
  readonly logger: Logger
  readonly metrics?: MetricsExporter | undefined
}

/** Reports event types that wait and have no registered handler, in the log and in the metrics. */
export class UnhandledReporter {
  readonly #options: ReporterOptions
  #reporting: Promise<unknown> | null = null
  /** Types that were logged and are still unhandled. */
  #reported: readonly string[] = []

  constructor(options: ReporterOptions) {
    this.#options = options
  }

  /** Starts a report, unless one is under way. */
  report(): void {
    const { logger } = this.#options
    this.#reporting ??= attempt('look for missing handlers', logger, () => this.#report()).finally(() => {
      this.#reporting = null
    })
  }

  async stop(): Promise<void> {
    await this.#reporting
  }

  /** Logs each type once, until it disappears. */
  async #report(): Promise<void> {
    const { logger, metrics, unhandled } = this.#options
    const types = await unhandled.look()
    const gone = this.#reported.filter((type) => !types.includes(type))
    const found = types.filter((type) => !this.#reported.includes(type))
    this.#reported = types
    for (const type of types) metrics?.gauge('unhandled', 1, typeLabels(type))
    for (const type of gone) metrics?.gauge('unhandled', 0, typeLabels(type))
    if (found.length === 0) return
    logger.warn(
      { event_types: found.slice(0, MAX_LOGGED), count: found.length },
      'events wait, and no consumer has registered a handler for their types',
    )
  }
}
