import type { Clock } from '../core/clock.js'
import { AftercommitError } from '../core/errors.js'
import { eventFields } from '../observe/event-fields.js'
import type { Logger } from '../observe/logger.js'
import type { Delivery } from './delivery.js'
import type { InFlight } from './in-flight.js'
import { abortOf } from './settlements.js'
import type { Settler } from './settler.js'

interface AbortOptions {
  readonly clock: Clock
  readonly logger: Logger
  readonly inFlight: InFlight
  readonly settler: Pick<Settler, 'add'>
}

/**
 * Ends the deliveries that still run when the drain timeout of a stop is over: aborts the signals of their handlers,
 * releases their events, and logs one warning per call.
 */
export function abortRunning({ clock, logger, inFlight, settler }: AbortOptions): void {
  const running = [...inFlight.deliveries()].filter((delivery) => delivery.running)
  warn(running, clock, logger)
  const reason = new AftercommitError('SHUTDOWN', 'The outbox is stopping and the drain timeout is over.')
  for (const first of running) {
    first.lose(reason)
    inFlight.abort(first)
    for (const delivery of [first, ...first.cut()]) settler.add(abortOf(delivery), delivery)
  }
}

/**
 * The call of a batch handler has many events, so its warning names the first event and their number. A delivery that runs
 * although no handler runs is in an interceptor.
 */
function warn(deliveries: readonly Delivery[], clock: Clock, logger: Logger): void {
  const batches = new Map<Delivery['runningHandlers'][number], Delivery[]>()
  const fieldsOf = (delivery: Delivery) => ({
    ...eventFields(delivery.event),
    attempt: delivery.attempts + 1,
    duration_ms: Math.round(clock.monotonic() - delivery.startedAt),
  })
  const warnHandler = (delivery: Delivery, handler: { handler: string; events?: number }) =>
    logger.warn(
      { ...fieldsOf(delivery), ...handler },
      'handler still running after the drain timeout, event released',
    )
  for (const delivery of deliveries) {
    const { runningHandlers } = delivery
    if (runningHandlers.length === 0) {
      logger.warn(fieldsOf(delivery), 'interceptor still running after the drain timeout, event released')
    }
    for (const handler of runningHandlers) {
      if (handler.batch) batches.set(handler, [...(batches.get(handler) ?? []), delivery])
      else warnHandler(delivery, { handler: handler.name })
    }
  }
  for (const [{ name: handler }, [first, ...rest]] of batches) {
    if (first) warnHandler(first, { handler, events: rest.length + 1 })
  }
}
