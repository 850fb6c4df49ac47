import type { EventEnvelope } from '../core/envelope.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields, type Logger } from '../observe/logger.js'

/** Runs around all handlers of an event, once per attempt. */
export interface Interceptor {
  /** In registration order, before the handlers. A throw fails the attempt. */
  beforeDispatch?(event: EventEnvelope): unknown
  /** In reverse order, after them; null when none has failed. A throw is logged and changes nothing. */
  afterDispatch?(event: EventEnvelope, error: unknown | null): unknown
}

interface InterceptorOptions {
  readonly interceptors: readonly Interceptor[]
  readonly logger: Logger
}

/** Rejects with what the first one throws; the others are not called then. */
export async function runBefore({ interceptors }: InterceptorOptions, event: EventEnvelope): Promise<void> {
  for (const interceptor of interceptors) await interceptor.beforeDispatch?.(event)
}

/** Never rejects. */
export async function runAfter(
  { interceptors, logger }: InterceptorOptions,
  event: EventEnvelope,
  error: unknown | null,
): Promise<void> {
  for (let i = interceptors.length - 1; i >= 0; i--) {
    try {
      await interceptors[i]?.afterDispatch?.(event, error)
    } catch (thrown) {
      const fields = { ...eventFields(event), ...errorFields(thrown) }
      logger.error(fields, 'an interceptor failed after the dispatch')
    }
  }
}
