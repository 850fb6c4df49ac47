import type { Clock } from '../core/clock.js'
import type { EventEnvelope } from '../core/envelope.js'
import { callFields, eventFields } from '../observe/event-fields.js'
import { errorFields, type Logger, logs, withFields } from '../observe/logger.js'

interface ConsumerLogOptions {
  readonly clock: Clock
  readonly logger: Logger
}

/** Log lines of a consumer. The names of the fields are those of the outbox. */
export class ConsumerLog {
  readonly #options: ConsumerLogOptions

  constructor(options: ConsumerLogOptions) {
    this.#options = options
  }

  /** Starts the time measurement of a handler call. Call `succeeded` or `failed` of the result at its end. */
  startCall(event: EventEnvelope, handler: string, attempt: number) {
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

  /** Returns the context of a handler call. The logger is created on the first access. */
  contextOf(event: EventEnvelope, handler: string, attempt: number): { readonly log: Logger } {
    const { logger } = this.#options
    return {
      get log() {
        return withFields(logger, callFields(event, handler, attempt))
      },
    }
  }

  stillRunning(event: EventEnvelope, handler: string, attempt: number): void {
    const fields = callFields(event, handler, attempt)
    this.#options.logger.warn(fields, 'handler still running after the drain timeout, message released')
  }

  /** Logs an error that no handler threw. */
  unexpected(event: EventEnvelope, error: unknown): void {
    const fields = { ...eventFields(event), ...errorFields(error) }
    this.#options.logger.error(fields, 'unexpected error in the consumer')
  }

  handlersFailed(event: EventEnvelope, attempt: number, error: string): void {
    const { logger } = this.#options
    const fields = { ...eventFields(event), error_message: error, attempt, outcome: 'dead' }
    logger.error(fields, 'handlers failed permanently, dead-lettering the message')
  }

  consumersCrashed(event: EventEnvelope): void {
    const fields = { ...eventFields(event), outcome: 'dead' }
    this.#options.logger.error(fields, 'consumers crashed repeatedly, dead-lettering the message')
  }

  unreadable(error: unknown): void {
    const { logger } = this.#options
    const fields = { ...errorFields(error), outcome: 'dead' }
    logger.error(fields, 'message cannot be read, dead-lettering it')
  }
}
