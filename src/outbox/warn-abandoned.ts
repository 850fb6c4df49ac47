import type { Clock } from '../core/clock.js'
import { Batcher } from '../dispatcher/batcher.js'
import type { Delivery } from '../dispatcher/delivery.js'
import { eventFields } from '../dispatcher/invoke.js'
import type { Logger } from '../observe/logger.js'

interface WarnOptions {
  readonly clock: Clock
  readonly logger: Logger
}

/**
 * Logs one warning per handler call that still runs when the drain timeout of a stop is over. The call of a batch handler has
 * many events, so its warning names the first event and their number. An event that is handled although no handler runs is in
 * the hands of an interceptor, and gets a warning of its own.
 */
export function warnAbandoned({ clock, logger }: WarnOptions, deliveries: readonly Delivery[]): void {
  const batches = new Map<Batcher, Delivery[]>()
  const fieldsOf = ({ event, attempts, startedAt }: Delivery) => ({
    ...eventFields(event),
    attempt: attempts + 1,
    duration_ms: Math.round(clock.monotonic() - startedAt),
  })
  const warn = (delivery: Delivery, handler: { handler: string; events?: number }) =>
    logger.warn(
      { ...fieldsOf(delivery), ...handler },
      'handler still running after the drain timeout, event released',
    )
  for (const delivery of deliveries) {
    const { runningHandlers } = delivery
    if (runningHandlers.length === 0) {
      logger.warn(fieldsOf(delivery), 'interceptor still running after the drain timeout, event released')
    }
    for (const { name, handle } of runningHandlers) {
      if (!(handle instanceof Batcher)) warn(delivery, { handler: name })
      else batches.set(handle, [...(batches.get(handle) ?? []), delivery])
    }
  }
  for (const [{ name }, [first, ...rest]] of batches) {
    if (first) warn(first, { handler: name, events: rest.length + 1 })
  }
}
