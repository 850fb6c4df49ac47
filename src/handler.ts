import type { EventEnvelope } from './core/envelope.js'
import type { Logger } from './observe/logger.js'

export interface HandlerContext {
  /** Number of this attempt, starting at 1. */
  readonly attempt: number
  /** Aborted on the shutdown deadline, after the handler's timeout, or when the lease is lost. */
  readonly signal: AbortSignal
  /** Name of the handler. */
  readonly handler: string
  /** Logger with the ids of the event bound. */
  readonly log: Logger
  /** Return value of `createScope` for this call. */
  readonly scope: unknown
}

export type HandlerFunction<T = unknown> = (event: EventEnvelope<T>, context: HandlerContext) => unknown

/** One entry per event: an error, or a result as in `Promise.allSettled`; nothing if the event was handled. */
export type BatchResults = readonly (Error | null | undefined | PromiseSettledResult<unknown>)[]

export interface BatchContext {
  /** Aborted on the shutdown deadline, after the handler's timeout, or when the leases of all events are lost. */
  readonly signal: AbortSignal
  /** Number of the attempt of each event, starting at 1. */
  readonly attempts: readonly number[]
}

/** Returns nothing, or BatchResults. An error that it throws fails every event of the batch. */
export type BatchFunction<T = unknown> = (
  events: readonly EventEnvelope<T>[],
  context: BatchContext,
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler may return nothing, synchronously or not
) => void | BatchResults | Promise<void | BatchResults>
