import type { Clock } from '../core/clock.js'
import { Batcher } from '../dispatcher/batcher.js'
import type { Delivery } from '../dispatcher/delivery.js'
import { callFields } from '../observe/event-fields.js'
import type { Logger } from '../observe/logger.js'

interface WarnOptions {
  readonly clock: Clock
  readonly logger: Logger
}

/**
 * Logs one warning per handler call that still runs when the drain timeout of a stop is over. The call of a batch handler has
 * many events, so its warning names the first event and their number.
 */
export function warnAbandoned({ clock, logger }: WarnOptions, deliveries: readonly Delivery[]): void {
  const batches = new Map<Batcher, Delivery[]>()
  const warn = (delivery: Delivery, handler: string, batch: { events?: number } = {}) => {
    const duration = { duration_ms: Math.round(clock.monotonic() - delivery.startedAt) }
    const fields = { ...callFields(delivery.event, handler, delivery.attempts + 1), ...duration }
    logger.warn({ ...fields, ...batch }, 'handler still running after the drain timeout, event released')
  }
  for (const delivery of deliveries) {
    for (const { name, handle } of delivery.runningHandlers) {
      if (!(handle instanceof Batcher)) warn(delivery, name)
      else batches.set(handle, [...(batches.get(handle) ?? []), delivery])
    }
  }
  for (const [{ name }, [first, ...rest]] of batches) {
    if (first) warn(first, name, { events: rest.length + 1 })
  }
}
