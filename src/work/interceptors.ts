import type { EventEnvelope } from '../core/envelope.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields, type Logger } from '../observe/logger.js'

/** Runs around all handlers of an event, once per attempt. */
export interface Interceptor {
  /** Called in registration order, before the handlers. An error that it throws fails the attempt. */
  beforeDispatch?(event: EventEnvelope): unknown
  /**
   * Called in reverse order, after the handlers. `error` is null if no handler has failed. An error that it throws is
   * logged and changes nothing.
   */
  afterDispatch?(event: EventEnvelope, error: unknown | null): unknown
}

interface InterceptorOptions {
  readonly interceptors: readonly Interceptor[]
  readonly logger: Logger
}

/** Rejects with the error of the first interceptor that throws; the interceptors after it are not called. */
export async function runBefore({ interceptors }: InterceptorOptions, event: EventEnvelope): Promise<void> {
  for (const interceptor of interceptors) await interceptor.beforeDispatch?.(event)
}

/** Never rejects. */
export async function runAfter(
  { interceptors, logger }: InterceptorOptions,
  event: EventEnvelope,
  error: unknown | null,
): Promise<void> {
  for (const interceptor of interceptors.toReversed()) {
    try {
      await interceptor.afterDispatch?.(event, error)
    } catch (thrown) {
      const fields = { ...eventFields(event), ...errorFields(thrown) }
      logger.error(fields, 'an interceptor failed after the dispatch')
    }
  }
}
