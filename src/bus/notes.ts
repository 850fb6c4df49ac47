import type { Clock } from '../core/clock.js'
import type { EventEnvelope } from '../core/envelope.js'
import { callFields, eventFields } from '../observe/event-fields.js'
import { errorFields, type Logger, logs, withFields } from '../observe/logger.js'

interface NoteOptions {
  readonly clock: Clock
  readonly logger: Logger
}

/** What a consumer writes into the log, in the words of the outbox. */
export class Notes {
  readonly #options: NoteOptions

  constructor(options: NoteOptions) {
    this.#options = options
  }

  /** A call of a handler begins; tell by what is returned how it ended. */
  calling(event: EventEnvelope, handler: string, attempt: number) {
    const { clock, logger } = this.#options
    const startedAt = clock.monotonic()
    const fields = () => ({
      ...callFields(event, handler, attempt),
      duration_ms: Math.round((clock.monotonic() - startedAt) * 1000) / 1000,
    })
    return {
      succeeded: () => {
        if (logs(logger, 'info')) logger.info({ ...fields(), outcome: 'done' }, 'event handled')
      },
      failed: (error: unknown) =>
        logger.warn({ ...fields(), outcome: 'failed', ...errorFields(error) }, 'handler failed'),
    }
  }

  /** Context of a handler call. Its logger is made when it is read first. */
  contextOf(event: EventEnvelope, handler: string, attempt: number): { readonly log: Logger } {
    const { logger } = this.#options
    return {
      get log() {
        return withFields(logger, callFields(event, handler, attempt))
      },
    }
  }

  /** The drain timeout of a stop is over and the handler still runs. */
  abandoned(event: EventEnvelope, handler: string, attempt: number): void {
    const fields = callFields(event, handler, attempt)
    this.#options.logger.warn(fields, 'handler still running after the drain timeout, message released')
  }

  /** An error that no handler threw. */
  unexpected(event: EventEnvelope, error: unknown): void {
    const fields = { ...eventFields(event), ...errorFields(error) }
    this.#options.logger.error(fields, 'unexpected error in the consumer')
  }

  gaveUp(event: EventEnvelope, attempt: number, error: string): void {
    const { logger } = this.#options
    const fields = { ...eventFields(event), error_message: error, attempt, outcome: 'dead' }
    logger.error(fields, 'a message goes to the dead letters')
  }

  killing(event: EventEnvelope): void {
    const fields = { ...eventFields(event), outcome: 'dead' }
    this.#options.logger.error(fields, 'a message that its consumers do not survive goes to the dead letters')
  }

  unreadable(error: unknown): void {
    const { logger } = this.#options
    const fields = { ...errorFields(error), outcome: 'dead' }
    logger.error(fields, 'a message that cannot be read goes to the dead letters')
  }
}
