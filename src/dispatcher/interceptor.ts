import type { EventEnvelope } from '../core/envelope.js'

/** Runs around all handlers of an event, once per attempt. */
export interface Interceptor {
  /** In registration order, before the handlers. A throw fails the attempt. */
  beforeDispatch?(event: EventEnvelope): unknown
  /** In reverse order, after them. A throw is logged and changes nothing. */
  afterDispatch?(event: EventEnvelope, error: unknown | null): unknown
}
