import type { EventEnvelope } from './core/envelope.js'
import type { Logger } from './observe/logger.js'

export interface HandlerContext {
  /** 1 for the first try. */
  readonly attempt: number
  /** Fires on the shutdown deadline, the handler's timeout, or a lost lease. */
  readonly signal: AbortSignal
  /** The name of the handler. */
  readonly handler: string
  /** With the event's ids bound. */
  readonly log: Logger
  /** What `createScope` returned for this call. */
  readonly scope: unknown
}

export type HandlerFunction<T = unknown> = (event: EventEnvelope<T>, context: HandlerContext) => unknown
