import type { Clock } from '../core/clock.js'
import { eventFields } from '../observe/event-fields.js'
import { errorFields, type Logger } from '../observe/logger.js'
import { type MetricsExporter, typeLabels } from '../observe/metrics.js'
import type { Doorbell, Wakeups } from '../ports.js'
import type { EventRecord, InstanceCounters, Settlement } from '../store.js'
import type { CrashSuspects } from './crash-suspects.js'
import type { Delivery } from './delivery.js'
import type { InFlight } from './in-flight.js'
import { leaseLost } from './lease-lost.js'

/** Called once when an event is dead. */
export type OnDead = (event: Pick<EventRecord, 'eventId' | 'eventType'>, error: string) => unknown

export interface SettlementEffectsOptions {
  readonly inFlight: Pick<InFlight, 'remove'>
  readonly suspects: Pick<CrashSuspects, 'end'>
  readonly wakeups: Wakeups
  readonly doorbell: Doorbell
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: MetricsExporter | undefined
  readonly onDead: OnDead | undefined
}

/** Everything that a settlement triggers: counters, metrics, wake-ups and the announcement of dead letters. */
export class SettlementEffects {
  readonly #options: SettlementEffectsOptions
  readonly #counters = { done: 0, failed: 0, dead: 0 }
  #settled = 0

  constructor(options: SettlementEffectsOptions) {
    this.#options = options
  }

  /** Events that this process has handled since it was created. */
  get counters(): InstanceCounters {
    return { ...this.#counters }
  }

  /** Number of outcomes that were written. */
  get settled(): number {
    return this.#settled
  }

  /** Forgets a delivery that has ended, or whose lease was over before it could start. */
  ended(delivery: Delivery): void {
    const { inFlight, suspects, clock, wakeups } = this.#options
    inFlight.remove(delivery)
    if (delivery.suspect && suspects.end(delivery, clock.monotonic())) {
      wakeups.request({ reason: 'suspects' })
    }
  }

  /** Called for each outcome once it is written, or once its lease turned out to be lost (`isSettled` is false). */
  readonly apply = (delivery: Delivery | null, settlement: Settlement, isSettled: boolean): void => {
    if (delivery) this.ended(delivery)
    if (!isSettled) {
      if (delivery) this.#leaseLost(delivery)
      return
    }
    this.#settled++
    const isOrdered = delivery?.isOrdered ?? false
    if (isOrdered) this.#keyAdvanced()
    if (settlement.outcome === 'done') this.#counters.done++
    else if (settlement.outcome === 'retry') {
      // Without a failure, the delivery was released before all its handlers were called.
      if (settlement.failures.length > 0) this.#failed(delivery)
      this.#options.wakeups.request({ reason: 'due', inMs: settlement.delayMs })
    } else if (settlement.outcome === 'dead') {
      if (delivery) this.#dead(delivery, settlement)
    } else if (!isOrdered) this.#released(settlement.delayMs)
  }

  /** Scans have passed the row: each claimer that can handle it must look at all rows once. */
  lookAgain(): void {
    this.#options.wakeups.request({ reason: 'everything' })
    this.#options.doorbell.ring(null)
  }

  /** Another instance works on the event, and on its ordering key. */
  #leaseLost(delivery: Delivery): void {
    const { metrics, logger } = this.#options
    for (const next of delivery.next?.run ?? []) next.lose(leaseLost())
    metrics?.count('lease_lost', 1, typeLabels(delivery.event.eventType))
    logger.warn(eventFields(delivery.event), 'the lease was lost before the outcome could be written')
  }

  /** The next event of the key can be claimed by any process. */
  #keyAdvanced(): void {
    this.#options.wakeups.request({ reason: 'ordered' })
    this.#options.doorbell.ring('ordered')
  }

  #failed(delivery: Delivery | null): void {
    this.#counters.failed++
    if (delivery) this.#options.metrics?.count('retry', 1, typeLabels(delivery.event.eventType))
  }

  #released(delayMs: number): void {
    if (delayMs === 0) this.lookAgain()
    else this.#options.wakeups.request({ reason: 'due', inMs: delayMs })
  }

  /** Announces the dead letter. An error of the `onDead` hook is logged and changes nothing. */
  #dead(
    { event, attempts: before }: Delivery,
    { attempts, error }: { readonly attempts: number; readonly error: string },
  ): void {
    this.#counters.failed++
    this.#counters.dead++
    const { metrics, logger, onDead } = this.#options
    metrics?.count('dead', 1, typeLabels(event.eventType))
    const failure = { error_message: error, attempt: before + attempts }
    logger.error({ ...eventFields(event), ...failure, outcome: 'dead' }, 'event is dead')
    if (!onDead) return
    const { eventId, eventType } = event
    void (async () => onDead({ eventId, eventType }, error))().catch((thrown) =>
      logger.error({ ...eventFields(event), ...errorFields(thrown) }, 'the onDead hook failed'),
    )
  }
}
